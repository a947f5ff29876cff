"""Bounds where extents are what calls give (`te.var`): numbers are expressions, too.

What cannot be decided of them is decided for safety: a guard where one may be needed, a region as
its readers ask for it where that is a number, and the whole dimension where it is none.
In: as of `bounds.py`.  Out: `OpenBounds`.  Read next: `ir/symbols.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.symbols import may_hold, number, ranges
from tilewright.schedule.space.decision import Number
from tilewright.schedule.tree.bounds import Base, Bounds, Span
from tilewright.schedule.tree.structure import Structure


class OpenBounds(Bounds):
    """`Bounds` whose values are ints, or expressions of the symbols of a computation."""

    def __init__(self, tree: Structure, assignment: Mapping[str, Number]) -> None:
        self.symbols = Simplifier(ranges(tree.schedule.dag.extent_symbols))
        super().__init__(tree, assignment)

    def _may(self, condition: Any) -> Any:
        return may_hold(condition, self.symbols)

    def _at_most(self, a: Any, b: Any) -> Any:
        found = a <= b
        return not self._may(a > b) if isinstance(found, Expr) else found

    def _short(self, value: Any) -> Any:
        return number(value, self.symbols)

    def _needed(self, factor: Any, extent: Any) -> Any:
        return factor if isinstance(extent, Expr) else super()._needed(factor, extent)

    def _counts(self, coefficient: Any) -> Any:
        return isinstance(coefficient, Expr) or super()._counts(coefficient)

    def _clipped(self, hull: Span, size: Any) -> Span:
        if isinstance(self._short(hull[1]), Expr):
            return Base(), size
        return super()._clipped(hull, size)
