"""Matrix instructions in a loop nest: what a warp does with one, what its lanes load for it.

In: nodes of a loop tree.  Out: multiply-adds of an atom, independent sums of a warp; where lanes
are while they fetch an operand, of which each holds what the atom's fragment says: no thread index
tells that; and where operands lie in rows that a warp loads together.
Read next: `nest.py`, which counts loops by it, `addresses.py`, `gpu_facts.py`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.cost.addresses import BANK_BYTES, BANKS, Point, column, swizzled, vector
from tilewright.ir.atoms import Atom, Fragment, places, shared_bits
from tilewright.ir.stmt import PLACE, ROW
from tilewright.ir.warps import PLACES, ROWS
from tilewright.lowering.fragments import PAIR, TURNED
from tilewright.schedule.space.decision import where
from tilewright.schedule.tree.layout import Held
from tilewright.schedule.tree.loop_tree import Bounds, Node
from tilewright.schedule.tree.rings import swizzle
from tilewright.schedule.tree.rounding import ARRIVED, LOADED
from tilewright.schedule.tree.touch import Touch
from tilewright.te.tensor import IterVar

EXCHANGE = 2  # instructions for an element that another lane has, and to join both
ACCUMULATORS = 4  # independent sums of a warp that hide the latency of an atom


def operand_of(node: Node) -> Held | None:
    """How a warp holds what a stage copies for an atom, or whose rows it reduces; None of any other
    stage."""
    if node.fold is not None:
        return node.fold.source
    return node.held if node.product is None else None


def joined_lanes(node: Node, bounds: Bounds) -> Any:
    """Instructions of a lane each time a stage of reduced rows runs: the lanes of a row exchange
    what they have, and what has been added up of a maximum follows it."""
    if node.fold is None:
        return 0
    count = vector(bounds.elements(node)) * len(shared_bits(node.fold.source.fragment)) * EXCHANGE
    for scaled in node.running:
        count = count + vector(bounds.elements(scaled.node))
    return count


def multiply_adds(atom: Atom) -> int:
    """Of one atom, by all lanes together."""
    m, n, k = atom.extents.values()
    return m * n * k


def counted(node: Node, ops: Any) -> tuple[Any, Any]:
    """Operations of a thread in an iteration, and its multiply-adds; an atom of a thread is one.

    ops: what it does where no atom does it, as `nest.mix` counts
    """
    if node.product is None:
        return ops.flops, ops.fma
    return 2 * multiply_adds(node.product.atom), 1


def conversions(node: Node) -> int:
    """Instructions for an element of an operand between its load and the atom, or its arrival in
    shared memory and the atom."""
    if node.held is not None and node.held.atom.split:
        return 3  # the larger part, the rest, the smaller part
    # A test for infinity, and a sum; what is stored is cut, too, and perhaps taken off.
    return {LOADED: 2, ARRIVED: 2 + node.parts}.get(node.rounds, 0)


def beside(node: Node, touch: Touch) -> bool:
    """Whether the matrix unit itself reads it, for a group of warps."""
    product = node.product
    return product is not None and product.atom.by_group and touch.scope == "shared"


def accumulators(node: Node, bounds: Bounds) -> Any:
    """Independent sums of a warp, each as large as the atom's."""
    assert node.held is not None
    held = vector(bounds.elements(node)) * vector(bounds.replicas(node))
    return held / node.held.fragment.elements


@cache
def _first(fragment: Fragment) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Row and column of the first element of every lane, each float32 [1, lanes]."""
    rows, columns = (place[:, 0].astype(np.float32)[None, :] for place in places(fragment))
    return rows, columns


def lanes_at(node: Node, held: Held) -> dict[IterVar, Any]:
    """Values of a copy's axes at the first element of each lane."""
    return _at(node, held, *_first(held.fragment))


def _at(node: Node, held: Held, row: Any, column: Any) -> dict[IterVar, Any]:
    place = dict(zip(held.fragment.axes, (row, column), strict=True))
    if node.fold is not None:
        return {node.fold.row: place["m"], node.fold.column.root: place["n"]}
    return {node.op.axis[dim]: place[letter] for dim, letter in held.letters}


def joined(held: Held, touch: Touch, origin: Point) -> Any:
    """Elements that a lane finds side by side where it reads what it is to hold: one load each.

    origin: the iteration with all axes at zero
    """
    bounds, zero = origin.bounds, origin.address(touch)
    width: Any = 1
    for bit in range(held.fragment.elements.bit_length() - 1):
        place = held.fragment.place(0, 1 << bit)
        step = Point(bounds, _at(touch.node, held, *place)).address(touch) - zero
        width = where((width == 1 << bit) & (step == width), 2 * width, width)
    return width


def in_rows(held: Held, touch: Touch, origin: Point) -> tuple[Any, Any]:
    """Whether a tile comes by a `LoadRows`, as it lies or transposed, and the passes of shared
    memory that this takes.  origin: the iteration with all axes at zero"""
    size = held.fragment.dtype.bytes
    width = PLACE // size
    bounds, zero = origin.bounds, origin.address(touch)

    def step(lane: int, element: int) -> Any:
        at = _at(touch.node, held, *held.fragment.place(lane, element))
        return Point(bounds, at).address(touch) - zero

    lies: Any = (step(1, 0) == width) & (step(2, 0) == 2 * width)
    lies = lies & (width == 1 or step(0, 1) == 1)
    found, passes = _rows(held, touch, bounds, turned=False)
    mask = lies & found
    if size == TURNED:
        turned = (step(PLACES, 0) == 1) & (step(2 * PLACES, 0) == 2) & (step(4 * PLACES, 0) == 4)
        found, others = _rows(held, touch, bounds, turned=True)
        passes = where(mask, passes, others)
        mask = mask | (turned & found)
    return mask, passes


def in_pairs(held: Held, node: Node, bounds: Bounds) -> Any:
    """Whether one `LoadRows` brings a tile and its neighbour: of two matrices each."""
    if held.fragment.elements * held.fragment.dtype.bytes != PAIR * PLACE:
        return False
    tiles: Any = 1
    for ax in reversed(node.stage.leaf_iter_vars):
        tiles = where(tiles == 1, bounds.trips(node, ax), tiles)
    return tiles % 2 == 0


def _rows(held: Held, touch: Touch, bounds: Bounds, *, turned: bool) -> tuple[Any, Any]:
    """Whether all rows of a tile begin where one may, and the passes that they take: of each small
    matrix as many as rows share banks.  Each [n], or one number."""
    size, count = held.fragment.dtype.bytes, held.fragment.elements
    width = PLACE // size
    row, matrix = np.arange(ROWS), np.arange(count // width)[:, None]
    lane = row // width if turned else row * PLACES
    element = matrix * width + (row % width if turned else 0)
    each = np.broadcast_arrays(*held.fragment.place(lane + 0 * element, element + 0 * lane))
    flat = (x.astype(np.float32).reshape(1, -1) for x in each)
    address = Point(bounds, _at(touch.node, held, *flat), column).address(touch)
    turn = column(swizzle(touch.producer, bounds)) if touch.producer is not None else 0
    starts, lies = (
        _of_points(at * np.float32(size / ROW), count // width)
        for at in (address, swizzled(address, turn, size))
    )
    group = np.floor(lies) % (BANKS * BANK_BYTES // ROW)
    shared = (group[..., :, None] == group[..., None, :]).sum(-1).max(-1).sum(-1)
    aligned = (starts == np.floor(starts)).all(axis=(1, 2))
    if len(starts) == 1:
        return bool(aligned[0]), float(shared[0])
    return aligned, shared.astype(np.float64)


def _of_points(value: Any, matrices: int) -> Any:
    """What is known of rows of small matrices, or is the same for all: [n, matrices, rows]."""
    known = np.atleast_2d(value)
    return np.broadcast_to(known, (len(known), matrices * ROWS)).reshape(-1, matrices, ROWS)
