"""Rings of asynchronous copies: which stages have one, how many slots, how large these are.

In: a node of a loop tree, its bounds.  Out: whether it is a copy that needs no thread's registers,
and numbers, which are ints or int64 vectors.  Masks, facts and lowering all ask here.

A stage with `slots` n holds n tiles of the loop it is computed at: tile k lies in slot k mod n, and
is copied while tile k - n + 1 is read; where there are no more than n, all are asked for at once.
Threads wait for their own copies and meet once in each iteration: behind that, all see tile k, and
nobody reads tile k - 1 any more, whose slot the copy of tile k + n - 1 then takes.  Copies beyond
the last tile are not made.  Groups of warps multiply beside their threads: where there are three
slots, tile k - 1 may still be read then, and the copy is that of tile k + n - 2, into the slot of
tile k - 2.
Read next: `lowering/ring.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.dtype import DType
from tilewright.ir.atoms import Atom
from tilewright.ir.bulk import BULK_ALIGNMENT, GATE_TYPE
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import ASYNC_BYTES, SHARED_ALIGNMENT
from tilewright.ir.swizzle import period
from tilewright.schedule.copies import MOST_SLOTS
from tilewright.schedule.space.decision import (
    ceil_div,
    evaluate,
    logical_and,
    logical_or,
    maximum,
    minimum,
    where,
)
from tilewright.schedule.tree.bounds import Bounds
from tilewright.schedule.tree.structure import Node
from tilewright.te.tensor import IterVar

SLOTS_OF_LAG = 3


def ring_axis(node: Node) -> IterVar | None:
    """The loop that a ring of the stage goes along; None where it is none that runs in turn."""
    parent, axis = node.parent, node.attach_axis
    if parent is None or axis is None or axis in parent.stage.binds:
        return None
    return axis if parent.stage.annotations.get(axis) in (None, "unroll") else None


def slots(node: Node, bounds: Bounds) -> Any:
    """Tiles that the stage's buffer holds for asynchronous copies, no more than there are; 0 where
    its threads load and store."""
    if not node.stage.is_copied:
        return 0
    wanted, axis = evaluate(node.stage.slots, bounds.assignment), ring_axis(node)
    wanted = maximum(wanted, 1) if node.stage.is_bulk else wanted
    extent = 1 if axis is None else bounds.extent[axis]
    return wanted if isinstance(extent, Expr) else minimum(wanted, extent)


def ahead(node: Node, behind: Any, bounds: Bounds) -> Any:
    """Tiles of a stage's ring that are under way before the first is waited for: all where it has a
    slot for each, else all but the one that is read then.

    behind: of reading, in iterations: see `lag`
    """
    held, axis = slots(node, bounds), ring_axis(node)
    spare = maximum(held - 1 - behind, 0)
    if axis is None or node.stage.is_bulk or isinstance(bounds.extent[axis], Expr):
        return spare
    whole = logical_and(held > 1, logical_and(held == bounds.extent[axis], behind == 0))
    return where(whole, held, spare)


def loaders(node: Node, bounds: Bounds) -> Any:
    """Warps of their own that begin the copies of the stage's ring."""
    return evaluate(node.stage.loaders, bounds.assignment) if node.stage.is_bulk else 0


def swizzle(node: Node, bounds: Bounds) -> Any:
    """Bytes within which the stage's buffer is swizzled, one of SWIZZLES."""
    if node.scope != "shared":
        return 0
    return evaluate(node.stage.swizzled, bounds.assignment)


def gate_bytes(node: Node, bounds: Bounds) -> Any:
    """Bytes of the gates of a ring that bulk copies fill; rings of one loop may share them."""
    return 2 * DType(GATE_TYPE).bytes * slots(node, bounds)


def alignment(node: Node, bounds: Bounds) -> Any:
    """Of the stage's shared buffer and of what is in it, in bytes."""
    least = BULK_ALIGNMENT if node.stage.is_bulk else SHARED_ALIGNMENT
    return maximum(least, period(swizzle(node, bounds)))


def atoms_of(node: Node) -> list[Atom]:
    """Those that read what the stage brings."""
    products = (read.reader.product for read in node.reads)
    return [product.atom for product in products if product is not None]


def read_beside(node: Node) -> bool:
    """Whether nothing but groups of warps reads what the stage brings: no thread loads of it."""
    products = [read.reader.product for read in node.reads]
    return all(product is not None and product.atom.by_group for product in products)


def lag(node: Node, axis: IterVar, bounds: Bounds) -> Any:
    """Iterations of a loop by which what a group multiplies is behind: 1 where the batch before is
    still under way when the next one begins, which three slots have room for.

    node: the stage whose loop it is
    """
    if node.product is None or not node.product.atom.by_group:
        return 0
    copies = [c for c in node.children if c.attach_axis is axis and c.stage.is_copied]
    if not copies or ring_axis(copies[0]) is None:
        return 0
    least: Any = MOST_SLOTS
    for copy in copies:
        least = minimum(least, slots(copy, bounds))
    return where(least >= SLOTS_OF_LAG, 1, 0)


def slot_elements(node: Node, bounds: Bounds) -> Any:
    """Elements from one slot to the next: each begins where the widest copy may, and swizzled rows
    do."""
    least = min(dtype.bytes for dtype in node.op.dtypes)
    unit = maximum(1, alignment(node, bounds) // least)
    return ceil_div(bounds.elements(node), unit) * unit


def is_asynchronous(node: Node, bounds: Bounds) -> Any:
    """Whether the stage's copies are, as far as numbers tell: its elements are as large as a copy
    must be, or its vectors are.

    Others are loads and stores into the same slots.  So are those of small elements where lowering
    cannot show that a vector is aligned.
    """
    if not node.stage.is_copied:
        return False
    if node.stage.is_bulk:
        return slots(node, bounds) > 0
    if node.op.bytes >= min(ASYNC_BYTES):
        return slots(node, bounds) > 0
    lanes: Any = 1
    for axis, how in node.stage.annotations.items():
        if how == "vectorize":
            lanes = bounds.extent[axis]
    fits: Any = False
    for size in ASYNC_BYTES:
        fits = logical_or(fits, lanes * node.op.bytes == size)
    return logical_and(fits, slots(node, bounds) > 0)
