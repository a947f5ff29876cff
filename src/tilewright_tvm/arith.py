"""Integer arithmetic that can be asked, by TVM's name: `arith.Analyzer().simplify(x)`.

In: expressions of `te`, and ranges of their variables.  Out: shorter ones, bounds, what is sure.
Read next: `ir/affine.py`, which knows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ExpressionError, absent
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.te.axis import Range
from tilewright_tvm.elsewhere import find

__all__ = ["Analyzer", "ConstIntBound"]


@dataclass(frozen=True)
class ConstIntBound:
    """The least and the greatest value, inclusive; POS_INF and NEG_INF where nothing is known."""

    min_value: int
    max_value: int

    POS_INF = 2**63 - 1
    NEG_INF = -(2**63 - 1)


class Analyzer:
    """What is known of variables, `bind(x, Range(0, 8))`, and what follows from it."""

    def __init__(self) -> None:
        self._ranges: dict[Expr, tuple[int, int]] = {}
        self._values: dict[Expr, Any] = {}

    @door(ExpressionError, "Analyzer.bind")
    def bind(self, var: Any, expr: Any) -> None:
        """expr: the range of a variable, or its value.  Raises ExpressionError for no variable."""
        place = f"Analyzer.bind({var})"
        var = E.convert(var)
        if var.op != "var":
            raise ExpressionError(place, "it is no variable", "Give what te.var made.")
        if not isinstance(expr, Range):
            self._values[var] = E.convert(expr, var)
            return
        least, extent = E.convert(expr.min), E.convert(expr.extent)
        if least.op != "const" or extent.op != "const":
            raise ExpressionError(place, f"{expr} has no numbers", "Give a range of numbers.")
        self._ranges[var] = (int(least), int(least) + int(extent) - 1)

    def simplify(self, expr: Any) -> Expr:
        """An equal expression, at most as long in most cases."""
        return self._known(self._meant(expr))

    rewrite_simplify = canonical_simplify = simplify

    def const_int_bound(self, expr: Any) -> ConstIntBound:
        least, greatest = self._known.interval(self._meant(expr))
        low = ConstIntBound.NEG_INF if least == -inf else int(least)
        return ConstIntBound(low, ConstIntBound.POS_INF if greatest == inf else int(greatest))

    def can_prove(self, cond: Any) -> bool:
        """Whether a condition surely holds."""
        found = self.simplify(cond)
        return found.op == "const" and bool(found.attr)

    def can_prove_equal(self, lhs: Any, rhs: Any) -> bool:
        found = self.simplify(E.binary("sub", E.convert(lhs), E.convert(rhs)))
        return found.op == "const" and found.attr == 0

    def can_prove_greater_equal(self, expr: Any, lower_bound: int) -> bool:
        return self.const_int_bound(expr).min_value >= lower_bound

    def can_prove_less(self, expr: Any, upper_bound: int) -> bool:
        return self.const_int_bound(expr).max_value < upper_bound

    def _meant(self, expr: Any) -> Expr:
        return E.substitute(E.convert(expr), self._values)

    @property
    def _known(self) -> Simplifier:
        return Simplifier(self._ranges)

    def __getattr__(self, name: str) -> Any:
        raise absent("Analyzer", name, {"modular_set": "Use simplify(x % n)."})


__path__: list[str] = []  # so that imports of other names say what to use, too
_ELSEWHERE = dict.fromkeys(
    ("IntervalSet", "IntSet", "detect_iter_map", "detect_linear_equation", "deduce_bound"),
    "Ask arith.Analyzer(), or read the loops that lower(s, args) prints.",
)


def __getattr__(name: str) -> Any:
    return find(__name__, name, _ELSEWHERE)
