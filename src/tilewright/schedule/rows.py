"""Row by row: a softmax or a norm reads each row some times while it is near, in one loop nest.

In: a schedule whose cheap stages are inlined.  Out: the same, all of it computed where its output
computes a row, if all reductions are along the rest of a row.  Read next: `default.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.ir import expr as E
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.vectors import (
    MAX_STRIDE,
    MIN_PARALLEL_WORK,
    inlined_body,
    lanes_inside,
    lanes_of,
    stride_along,
)
from tilewright.targets.target import Target
from tilewright.te.tensor import ComputeOp, IterVar

LONGEST_ROW = 1 << 16  # elements that one block of threads goes through
ROW_BYTES = 1 << 14  # of a row that a CPU keeps between two passes
THREADS = (32, 64, 128, 256)


def dear_rows(s: Schedule) -> list[Stage]:
    """Stages that call functions once for each row, such as the root of a variance: inlined, they
    would be called once for each element."""
    return [
        stage
        for stage in s.stages
        if isinstance(stage.op, ComputeOp)
        and stage.op.combiner is None
        and any(n.op == "call" for n in E.walk(stage.op.body))
        and any(prod(r.op.shape) > prod(stage.op.shape) for r in s.readers(stage.tensor))
    ]


def schedule_rows(s: Schedule, target: Target) -> list[Stage]:
    """Schedule everything by rows, if that is what there is; the stages that are done, or none."""
    roots = [
        stage
        for stage in s.stages
        if isinstance(stage.op, ComputeOp) and stage.attach_kind == "root"
    ]
    outer = _outer_axes(s, roots)
    if not outer:
        return []
    *inner, output = roots
    rows, row = prod(output.op.shape[:outer]), prod(output.op.shape[outer:])
    if target.has_threads:
        least = max(2 * target.limits.warp_size, 32)
        return _on_threads(s, inner, output, outer, row) if least <= row <= LONGEST_ROW else []
    kept = prod(output.op.shape[outer:]) * output.op.dtype.compute.bytes
    whole = any(prod(stage.op.shape[outer:]) > 1 for stage in inner)
    few = rows < target.limits.cores and rows * row >= MIN_PARALLEL_WORK
    if few or (whole and kept > ROW_BYTES):
        return []
    return _on_cores(s, inner, output, outer, target)


def _outer_axes(s: Schedule, roots: Sequence[Stage]) -> int:
    """How many first axes all stages have in common, with reductions along all others; 0: none.

    Every stage reads the others at its own place along the common axes.
    """
    *inner, output = roots
    reductions = [stage for stage in inner if stage.op.reduce_axis]
    if not reductions or output.op.reduce_axis or any(stage.is_output for stage in inner):
        return 0
    shape = output.op.shape
    outer = min(_leading(stage.op.shape, shape) for stage in reductions)
    if any(prod(stage.op.shape[outer:]) != 1 for stage in reductions):
        return 0
    own = {stage.tensor for stage in inner}
    for stage in roots:
        if stage.op.shape[:outer] != shape[:outer]:
            return 0
        if prod(stage.op.shape[outer:]) not in (1, prod(shape[outer:])):
            return 0
        place = [ax.var for ax in stage.op.axis[:outer]]
        for n in E.walk(inlined_body(s, stage)):
            if n.op == "read" and n.attr in own and list(n.args[:outer]) != place:
                return 0
    return outer if prod(shape[outer:]) > 1 else 0


def _leading(shape: Sequence[int], of: Sequence[int]) -> int:
    """Axes before the first in which `shape` differs from `of`."""
    pairs = enumerate(zip(shape, of, strict=False))
    return next((k for k, (a, b) in pairs if a != b), min(len(shape), len(of)))


def _on_threads(
    s: Schedule, inner: Sequence[Stage], output: Stage, outer: int, row: int
) -> list[Stage]:
    """rewrite: block for each row: {shared max = ..; shared sum = ..; threads: C[row, :] = ..}

    Whole rows in between are computed again by each reader: that is cheaper than to keep them.
    """
    for stage in inner:
        if prod(stage.op.shape[outer:]) > 1:
            stage.compute_inline()
    inner = [stage for stage in inner if stage.attach_kind == "root"]
    threads = next((n for n in THREADS if 4 * n >= row), THREADS[-1])
    block = output.fuse(*output.op.axis[:outer])
    output.bind(block, "blockIdx.x")
    _bind(output, output.fuse(*output.op.axis[outer:]), threads)
    for stage in inner:
        if stage.op.reduce_axis:
            _bind(stage, stage.fuse(*stage.op.reduce_axis), threads)
        stage.set_scope("shared")
        stage.compute_at(output, block)
    return [*inner, output]


def _bind(stage: Stage, loop: IterVar, threads: int) -> None:
    _, thread = stage.split(loop, factor=threads)
    stage.bind(thread, "threadIdx.x")


def _on_cores(
    s: Schedule, inner: Sequence[Stage], output: Stage, outer: int, target: Target
) -> list[Stage]:
    """rewrite: parallel for each row: {max = ..; sum = ..; vectors: C[row, :] = ..}"""
    parts = {stage: _partial(s, stage, target) for stage in inner if stage.op.reduce_axis}
    work = prod(output.op.shape)
    row = output.fuse(*output.op.axis[:outer])
    if work >= MIN_PARALLEL_WORK and target.limits.cores > 1:
        output.parallel(row)
    _vectorize(output, output.op.axis[outer:], target)
    done = [output]
    for stage in inner:
        part = parts.get(stage)
        for computed in (part, stage) if part is not None else (stage,):
            computed.set_scope("local")
            computed.compute_at(output, row)
            done.append(computed)
        if part is not None:
            lanes_inside(part)
        elif not stage.op.reduce_axis and prod(stage.op.shape[outer:]) > 1:
            _vectorize(stage, stage.op.axis[outer:], target)
    return done


def _vectorize(stage: Stage, axes: Sequence[IterVar], target: Target) -> None:
    op = stage.op
    assert isinstance(op, ComputeOp)
    lanes = lanes_of(op, axes[-1].size, target)
    if lanes > 1:
        _, lane = stage.split(axes[-1], factor=lanes)
        stage.vectorize(lane)


def _partial(s: Schedule, stage: Stage, target: Target) -> Stage | None:
    """As many partial results of a reduction as a vector has lanes, if it reads neighbours."""
    op = stage.op
    assert isinstance(op, ComputeOp)
    chain = op.reduce_axis[-1]
    lanes = lanes_of(op, chain.size, target)
    if lanes < 4 or chain.size < 2 * lanes:
        return None
    if stride_along(inlined_body(s, stage), chain.var) > MAX_STRIDE:
        return None
    _, lane = stage.split(chain, factor=lanes)
    return s[s.rfactor(stage.tensor, lane, len(op.axis))]
