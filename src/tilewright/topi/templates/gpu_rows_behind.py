"""Norms behind products on GPUs: the kernel that adds up a split sum norms its rows, too.

In: an anchored schedule whose anchor is followed by norms of its rows.  Out: their kernel, a block
for each row, and a place in it for the sum.

    product kernel          partial[kb, m, n]
    block: a row            shared x[n] = the sum over kb, bias, residual, .., in vectors
      each warp             shared sums of x
      threads               C[m, n] = x normed, in vectors

Where the sum is not split, the product's kernel stores x, and this one begins with a copy of it.
Read next: `../../schedule/rows_behind.py`, `gpu_norms.py`, norms that are kernels by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.ir.atoms import WARP
from tilewright.schedule.default import inline_cheap_stages
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.template import Anchored
from tilewright.schedule.thread_loops import deal
from tilewright.te.tensor import ComputeOp, IterVar, Tensor

VECTOR = 4  # float32 of one access
UNROLLED = 512  # so that what a thread reads is asked for together
WARPS = (1, 2, 3, 4, 6, 8)  # of a row; each reduces it, by what its lanes exchange


@dataclass(frozen=True)
class RowsBehind:
    """rows: a copy of what is normed, in shared memory; thread: its loop over threads
    stages: of the kernel, the last one last"""

    rows: Tensor
    thread: IterVar
    stages: tuple[Stage, ...]


def rows_behind(cfg: Any, a: Anchored) -> RowsBehind | None:
    """Schedule the norms that follow `a.output`, if there are any, as a kernel of its rows.

    What is cheap is inlined.
    """
    if not a.rows_follow:
        return None
    s, before = a.schedule, a.stage(a.output)
    ways = row_warps(a.output.shape[-1])
    cfg.define_knob("row_warps", ways, absent=ways[-1])  # what was fastest for rows of 768
    warps = cfg["row_warps"].val
    inline_cheap_stages(s, [before, a.stage(a.anchor)])
    behind = [stage for stage in s.stages if stage is not before and s.reaches(before, stage)]
    *inner, output = [stage for stage in behind if stage.attach_kind == "root"]
    assert isinstance(output.op, ComputeOp)
    columns = output.op.axis[-1]
    wide = next(n for n in (VECTOR, 2, 1) if columns.size % n == 0)
    block = output.fuse(*output.op.axis[:-1])
    output.bind(block, "blockIdx.x")
    output.pragma(block, "auto_unroll_max_step", UNROLLED)
    _along(output, columns, warps, wide)
    kept: list[Stage] = []
    for stage in inner:
        if stage.op.reduce_axis:
            kept.append(stage)
        else:
            stage.compute_inline()
    copy = s.cache_read(a.output, "shared", [r.tensor for r in s.readers(a.output)])
    place = s[copy]
    place.compute_at(output, block)
    thread = _along(place, place.op.axis[-1], warps, wide)
    for stage in kept:
        stage.set_scope("shared")
        stage.compute_at(output, block)
        lane = deal(stage, stage.fuse(*stage.op.reduce_axis), WARP)
        stage.pragma(lane, "exchange", 1)
    return RowsBehind(copy, thread, (place, *kept, output))


def row_warps(columns: int) -> list[int]:
    """How many warps a row may have: what each lane has is whole vectors, if that can be."""
    vectors = columns // VECTOR
    return [n for n in WARPS if n == 1 or (n * WARP <= vectors and vectors % (n * WARP) == 0)]


def stages_of(behind: RowsBehind | None) -> tuple[Stage, ...]:
    return () if behind is None else behind.stages


def add_in_rows(s: Schedule, adder: Tensor, last: Tensor, behind: RowsBehind) -> None:
    """Add up a split sum where its rows are normed, vector by vector; `last` is computed there."""
    s[last].compute_inline()
    stage = s[adder]
    assert isinstance(stage.op, ComputeOp)
    stage.compute_at(s[behind.rows], behind.thread)
    (chunk,) = stage.op.reduce_axis
    stage.reorder(*stage.op.axis[:-1], chunk, stage.op.axis[-1])
    stage.vectorize(stage.op.axis[-1])
    stage.unroll(chunk)


def _along(stage: Stage, loop: IterVar, warps: Any, wide: int) -> IterVar:
    """Threads take vectors of a row in turn; the loop over lanes."""
    outer, lane = stage.split(loop, factor=wide)
    stage.vectorize(lane)
    return deal(stage, outer, WARP * warps, WARP)
