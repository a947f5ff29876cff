"""Sums over blocks that the last block of a tile finishes: loops of templates around `join`.

In: a stage whose elements tiles of blocks compute, and how its warps share a tile.  Out: its loops,
and those of the partial sums.  Read next: `schedule/steps/joins.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir.atoms import WARP
from tilewright.schedule.schedule import Stage
from tilewright.schedule.space.decision import Size, where
from tilewright.te.tensor import IterVar

JOINED = (False, True)  # whether the last block adds up what several blocks have, or a kernel
VECTOR = 4  # float32 of one access
MOST = 8  # vectors of a thread whose partial sums are asked for together


@dataclass(frozen=True, eq=False)
class Span:
    """A tile along one axis, or along some that were fused: `warps` times `each` units of elements.

    place: among the axes as they lie in memory
    """

    axis: IterVar
    place: int
    unit: int
    warps: Size
    each: Size


def finish(
    stage: Stage, adder: Stage, batch: Sequence[IterVar], spans: Sequence[Span], shares: int
) -> IterVar:
    """Loops over tiles, and those over the elements of one, dealt to the threads of a block.

    Vectors of neighbours go to neighbours.  Rows and lines that follow each other are one thread's,
    as many as `MOST` vectors: it asks for all of their partial sums before it waits for one.
    spans:  perhaps lines, then rows and columns of atoms, whichever come last in memory
    shares: warps of a block for each one that has results
    Returns the innermost loop over tiles; blockIdx.z is free.
    """
    blocks, loops = [], {}
    for span in spans:
        size = span.unit * span.warps * span.each
        block, loops[span] = stage.split(span.axis, factor=size)
        blocks.append(block)
    stage.reorder(*batch, *blocks, *loops.values())
    tile = bind_tiles(stage, batch, blocks)
    *lines, rows, columns = spans
    if rows.place > columns.place:
        rows, columns = columns, rows
    vectors = columns.unit // VECTOR  # of an atom
    beside = _common(columns.each, 8)  # atoms of a row whose columns are dealt to neighbours
    busy = _common(rows.each * beside, shares)
    high = rows.each * beside // busy  # rows of a thread
    near = _common(high, VECTOR)
    left = shares // busy
    column, lane = stage.split(loops[columns], factor=VECTOR)
    outer: list[IterVar] = []  # of lines: serial, of threads, of one thread
    threads: list[IterVar] = []
    inside: list[IterVar] = []
    for line in lines:
        shared = _common_of(line.each, left, shares)
        long = line.each // shared
        own = where(near * long <= MOST, long, 1)
        rest, inner = stage.split(loops[line], factor=own)
        again, thread = stage.split(rest, factor=line.warps * shared)
        outer.append(again)
        threads.append(thread)
        inside.append(inner)
    rest, inner = stage.split(loops[rows], factor=near)
    again, row = stage.split(rest, factor=WARP // vectors * rows.warps * busy // beside)
    aside, column = stage.split(column, factor=vectors * columns.warps * beside)
    stage.reorder(*outer, again, aside, *threads, row, column, *inside, inner, lane)
    thread = _bound(stage, [*threads, row, column])
    stage.vectorize(lane)
    adder.compute_at(stage, thread)
    (chunk,) = adder.op.reduce_axis
    adder.reorder(chunk, *adder.op.axis)
    adder.unroll(chunk)
    adder.vectorize(adder.op.axis[-1])
    return tile


def bind_tiles(stage: Stage, batch: Sequence[IterVar], blocks: Sequence[IterVar]) -> IterVar:
    """Bind loops over tiles, and leave blockIdx.z free; gives the innermost of them.

    blocks: the last two are those of rows and columns; all follow each other behind the batch
    """
    *lines, rows, columns = blocks
    if lines or batch:
        stage.bind(stage.fuse(*batch, *lines), "blockIdx.y")
        columns = stage.fuse(rows, columns)
    else:
        stage.bind(rows, "blockIdx.y")
    stage.bind(columns, "blockIdx.x")
    return columns


def _bound(stage: Stage, axes: Sequence[IterVar]) -> IterVar:
    """Bind loops of whole warps together; gives the loop of lanes."""
    warp, lane = stage.split(stage.fuse(*axes), factor=WARP)
    stage.bind(warp, "threadIdx.y")
    stage.bind(lane, "threadIdx.x")
    return lane


def _common(size: Size, most: int) -> Size:
    """The largest power of two up to `most` that divides `size`."""
    found: Size = 1
    for n in _powers(most):
        found = where(size % n == 0, n, found)
    return found


def _common_of(size: Size, other: Size, most: int) -> Size:
    """The same of two sizes."""
    found: Size = 1
    for n in _powers(most):
        found = where(size % n == 0, where(other % n == 0, n, found), found)
    return found


def _powers(most: int) -> list[int]:
    return [1 << k for k in range(1, most.bit_length())]
