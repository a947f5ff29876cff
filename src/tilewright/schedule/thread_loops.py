"""Loops dealt to blocks and threads, as schedules, templates and rules deal them.

In: a stage, loops of it, how many threads a block has.  Out: bound loops.
Read next: `row_reductions.py`, `default.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.ir.stmt import ASYNC_BYTES
from tilewright.schedule.copies import stays_a_copy
from tilewright.schedule.schedule import Stage
from tilewright.schedule.space.decision import Size, same
from tilewright.targets.target import Target
from tilewright.te.tensor import IterVar, Tensor

RINGS = (0, 2, 3, 4)  # slots that are worth a trial; 0: plain copies


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


def ring_sizes(tensors: Iterable[Tensor], target: Target) -> tuple[int, ...]:
    """Slots of rings through which a kernel may read slices of `tensors`; 0 for plain copies, and
    that alone where the device has no others, elements are converted on the way, or one is too
    small to be copied."""
    fit = target.copies_alone and all(
        stays_a_copy(t) and t.dtype.staged is t.dtype and t.dtype.bytes >= min(ASYNC_BYTES)
        for t in tensors
    )
    return RINGS if fit else RINGS[:1]


def fetch(
    stage: Stage, threads: Size, vector: Size | None = None,
    axes: Sequence[IterVar] | None = None, lanes: Size | None = None, slots: Size = 0,
) -> None:  # fmt: skip
    """Copy a slice with all threads of a block.

    vector: elements that a thread copies at once; None: one, without a loop of its own
    axes:   that are dealt out, the innermost last; default: all of the stage
    lanes:  see `deal`
    slots:  of the ring that is filled asynchronously, one of `ring_sizes`; 0: there is none
    """
    if not same(slots, 0):
        stage.pipeline(slots)
    fused = stage.fuse(*(stage.op.axis if axes is None else axes))
    if vector is not None:
        fused, lane = stage.split(fused, factor=vector)
        stage.vectorize(lane)
    deal(stage, fused, threads, lanes)
