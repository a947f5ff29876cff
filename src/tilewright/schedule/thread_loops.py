"""Loops dealt to blocks and threads, as schedules, templates and rules deal them.

In: a stage, loops of it, how many threads a block has.  Out: bound loops; the type of copies.
Read next: `row_reductions.py`, `default.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.dtype import DType
from tilewright.schedule.schedule import Stage
from tilewright.schedule.space.decision import Size
from tilewright.te.tensor import IterVar


def staged(dtype: DType, wide: bool = True) -> DType:
    """The type of copies, in shared memory and registers, of elements that many products read.

    wide: floats in the type of their arithmetic, so that each is converted once; False: as they
          are, half as large, where the products themselves take them so
    """
    return dtype.compute if wide and dtype.is_float else dtype


def over_blocks(stage: Stage, axes: Sequence[IterVar], threads: Size) -> tuple[IterVar, IterVar]:
    """Bind the iterations of `axes` to blocks of so many threads each.  Returns both loops."""
    block, thread = stage.split(stage.fuse(*axes), factor=threads)
    stage.bind(block, "blockIdx.x")
    stage.bind(thread, "threadIdx.x")
    return block, thread


def deal(stage: Stage, loop: IterVar, threads: Size, lanes: Size | None = None) -> IterVar:
    """Let the threads of a block take the iterations of a loop in turn.

    lanes: threads along x, of which rows lie along y; default: all are along x
    Returns the loop along x.
    """
    _, thread = stage.split(loop, factor=threads)
    if lanes is not None:
        row, thread = stage.split(thread, factor=lanes)
        stage.bind(row, "threadIdx.y")
    stage.bind(thread, "threadIdx.x")
    return thread


def fetch(
    stage: Stage, threads: Size, vector: Size | None = None,
    axes: Sequence[IterVar] | None = None, lanes: Size | None = None,
) -> None:  # fmt: skip
    """Copy a slice with all threads of a block.

    vector: elements that a thread copies at once; None: one, without a loop of its own
    axes:   that are dealt out, the innermost last; default: all of the stage
    lanes:  see `deal`
    """
    fused = stage.fuse(*(stage.op.axis if axes is None else axes))
    if vector is not None:
        fused, lane = stage.split(fused, factor=vector)
        stage.vectorize(lane)
    deal(stage, fused, threads, lanes)
