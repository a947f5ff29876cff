"""Loops dealt to blocks and threads, as schedules, templates and rules deal them.

In: a stage, loops of it, how many threads a block has.  Out: bound loops; the type of copies.
Read next: `row_reductions.py`, `default.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewright.base.dtype import DType
from tilewright.base.errors import ScheduleError
from tilewright.ir.atoms import ALL_ATOMS, WARP, names, of_pairs
from tilewright.ir.stmt import ASYNC_BYTES
from tilewright.schedule.copies import stays_a_copy
from tilewright.schedule.schedule import Stage
from tilewright.schedule.space.decision import Size, same
from tilewright.targets.target import Target
from tilewright.te.tensor import IterVar, Tensor

RINGS = (0, 2, 3, 4)  # slots that are worth a trial; 0: plain copies


@dataclass(frozen=True)
class Wide:
    """Axes `first` to `end` (not included) of a stage are one line, read and written in vectors of
    `lanes` elements."""

    first: int
    end: int
    lanes: Size


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


def over_vectors(stage: Stage, wide: Wide, threads: Size) -> tuple[IterVar, IterVar]:
    """Do `over_blocks` with vectors, of which each thread computes one."""
    axes = stage.op.axis
    others = [*axes[: wide.first], *axes[wide.end :]]
    line = stage.fuse(*axes[wide.first : wide.end])
    if wide.end < len(axes):
        stage.reorder(*others, line)
    outer, lane = stage.split(line, factor=wide.lanes)
    stage.vectorize(lane)
    return over_blocks(stage, [*others, outer], threads)


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


def lanes(
    stage: Stage, m: IterVar, n: IterVar, atom: str, pairs: bool = False
) -> tuple[IterVar, IterVar, IterVar, IterVar]:
    """Let each lane of a warp, or of a group, take those elements of a tile that it holds as sums
    of `atom`.

    m, n: loops of `stage` that go over whole atoms
    pairs: the sums are of two neighbouring columns each, which n goes over
    Returns the loop of the lanes, which is threadIdx.x, and inside it those that are left: over
    parts of atoms along m, over atoms along n, over neighbours along n.
    Raises ScheduleError for an atom that nobody has.
    """
    if atom not in ALL_ATOMS:
        raise ScheduleError(f"lanes({stage.name}, {atom})", "no such atom", f"There are {names()}.")
    held = of_pairs(ALL_ATOMS[atom].sum) if pairs else ALL_ATOMS[atom].sum
    bits = held.lane.split()
    rows, groups = (1 << sum(bit[0] == letter for bit in bits) for letter in "mn")
    width = 1 << sum(bit[0] == "n" for bit in held.element.split())
    tile, column = stage.split(n, factor=groups * width)
    group, pair = stage.split(column, factor=width)
    if held.lanes == WARP:
        high, row = stage.split(m, factor=rows)
        stage.reorder(row, group, high, tile, pair)
        lane = stage.fuse(row, group)
    else:  # the warps of a group lie below each other, with 16 rows each
        each = held.extents["m"] // (held.lanes // WARP)
        atoms, inside = stage.split(m, factor=held.extents["m"])
        warp, inside = stage.split(inside, factor=each)
        part, row = stage.split(inside, factor=rows * WARP // held.lanes)
        stage.reorder(warp, row, group, atoms, part, tile, pair)
        lane = stage.fuse(warp, row, group)
        high = stage.fuse(atoms, part)
    stage.bind(lane, "threadIdx.x")
    return lane, high, tile, pair


def ring_sizes(tensors: Iterable[Tensor], target: Target) -> tuple[int, ...]:
    """Slots of rings through which a kernel may read slices of `tensors`; 0 for plain copies, and
    that alone where the device has no others, elements are converted on the way, or one is too
    small to be copied."""
    fit = target.copies_alone and all(
        stays_a_copy(t) and staged(t.dtype) is t.dtype and t.dtype.bytes >= min(ASYNC_BYTES)
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
