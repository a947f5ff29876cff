"""Matrix instructions in a loop nest: which stage one runs, what its operands are copied in as.

In: nodes of a loop tree.  Out: `Product` of a stage whose innermost loops are inside an atom, and
`Operand` of a copy into the registers of a warp, of which each lane holds what the atom's fragment
says: so that no loop of it is a lane's own, and lanes address what no thread index tells.
Read next: `nest.py`, which counts loops by it, `addresses.py`, `gpu_facts.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.cost.addresses import Point, vector
from tilewright.ir.atoms import ATOMS, WARP, Atom, Fragment, places
from tilewright.schedule.space.decision import where
from tilewright.schedule.tree.loop_tree import Bounds, Node
from tilewright.schedule.tree.touch import Touch, anatomy, moved_dimensions
from tilewright.te.tensor import IterVar

ACCUMULATORS = 4  # independent sums of a warp that hide the latency of an atom


@dataclass(frozen=True, eq=False)
class Product:
    """A stage of which an atom runs the innermost loops; loops: by their letters, m, n, k."""

    atom: Atom
    loops: dict[str, IterVar]

    @property
    def terms(self) -> int:
        """Multiply-adds of one atom."""
        return self._size("m") * self._size("n") * self._size("k")

    @property
    def sums(self) -> int:
        """Elements that one atom adds to."""
        return self._size("m") * self._size("n")

    def _size(self, letter: str) -> int:
        of = self.atom.sum if letter in self.atom.sum.axes else self.atom.a
        return extent(of, letter)


@dataclass(frozen=True, eq=False)
class Operand:
    """A copy of what an atom reads, in registers of a warp.

    axes: of the row and the column of the fragment, the root axis of the copy, and how far it moves
          from one to the next
    """

    fragment: Fragment
    axes: tuple[tuple[IterVar, Any], tuple[IterVar, Any]]

    def at(self, row: Any, column: Any) -> dict[IterVar, Any]:
        """Values of root axes of the copy for what lies in a row and a column of the fragment."""
        (rows, step), (columns, other) = self.axes
        return {rows: row * step, columns: column * other}


@cache
def extent(fragment: Fragment, letter: str) -> int:
    """Rows or columns of a fragment."""
    rows, columns = places(fragment)
    return int((rows if letter == fragment.axes[0] else columns).max()) + 1


@cache
def lanes(fragment: Fragment) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Row and column of the first element of every lane, each float32 [1, lanes]."""
    rows, columns = (place[:, 0].astype(np.float32)[None, :] for place in places(fragment))
    return rows, columns


def product_of(node: Node) -> Product | None:
    """The atom that runs the innermost loops of a stage, if one does."""
    named = _named(node)
    if named is None:
        return None
    name, first = named
    leaves = node.stage.leaf_iter_vars
    inside = leaves[leaves.index(first) :]
    return Product(ATOMS[name], dict(zip("mnk", inside, strict=True)))


def _named(node: Node) -> tuple[str, IterVar] | None:
    found: tuple[str, IterVar] | None = getattr(node.stage, "atom", None)
    return found


def operand_of(node: Node, bounds: Bounds) -> Operand | None:
    """How an atom reads what a stage copies for it; None of any other stage."""
    if node.scope != "fragment" or _named(node) is not None:
        return None
    for reader in dict.fromkeys(read.reader for read in node.reads):
        product = product_of(reader)
        if product is None:
            continue
        for touch in anatomy(bounds.tree).reads[reader]:
            if touch.producer is node:
                return _operand(touch, product, bounds)
    return None


def _operand(touch: Touch, product: Product, bounds: Bounds) -> Operand | None:
    moved, loops = moved_dimensions(bounds, touch), product.loops
    fragment = product.atom.a if loops["m"] in moved else product.atom.b
    found = []
    for letter in fragment.axes:
        leaf = loops[letter]
        if leaf not in moved or touch.producer is None:
            return None
        dim = moved[leaf][0]
        zero, one = Point(bounds, {}), Point(bounds, {leaf: 1})
        found.append((touch.producer.op.axis[dim], one.index(touch, dim) - zero.index(touch, dim)))
    row, column = found
    return Operand(fragment, (row, column))


def joined(operand: Operand, touch: Touch, bounds: Bounds) -> Any:
    """Elements that a lane finds side by side where it reads what it is to hold: one load each."""
    zero = Point(bounds, {}).address(touch)
    steps = []
    for bit in range(operand.fragment.elements.bit_length() - 1):
        place = operand.fragment.place(0, 1 << bit)
        steps.append(Point(bounds, operand.at(*place)).address(touch) - zero)
    width: Any = 1
    for _ in steps:
        grows: Any = False
        for step in steps:
            grows = grows | (step == width)
        width = where(grows, 2 * width, width)
    return width


def accumulators(product: Product, node: Node, bounds: Bounds) -> Any:
    """Independent sums of a warp, each as large as the atom's."""
    held = vector(bounds.elements(node)) * vector(bounds.replicas(node))
    return held / product.sums


__all__ = [
    "ACCUMULATORS", "WARP", "Operand", "Product", "accumulators", "extent", "joined",
    "lanes", "operand_of", "product_of",
]  # fmt: skip
