"""Ranges of integer expressions, so that the fast interpreter leaves out checks that cannot fail.

In: an operation and the ranges of its arguments.  Out: the range of its value.
Read next: `fast_source.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.expr import Expr

Range = tuple[int, int]  # inclusive


def operation_range(node: Expr, arguments: Sequence[Range | None]) -> Range | None:
    """None: nothing is known, or the value may have wrapped around."""
    choice = node.op in ("select", "if_then_else")
    sides = list(arguments[1:] if choice else arguments)
    first, last = (sides[0], sides[-1]) if sides else (None, None)
    if first is None or last is None:
        return None
    span, kind = _span(node.op, first, last), node.dtype
    if span is None or kind.is_index or (kind.least <= span[0] and span[1] <= kind.greatest):
        return span
    return None


def _span(op: str, first: Range, last: Range) -> Range | None:
    (a, b), (c, d) = first, last
    if op == "add":
        return a + c, b + d
    if op == "sub":
        return a - d, b - c
    if op == "mul":
        products = (a * c, a * d, b * c, b * d)
        return min(products), max(products)
    if op == "floordiv" and c == d and c > 0:
        return a // c, b // c
    if op == "floormod" and c == d and c > 0:
        return (a, b) if a >= 0 and b < c else (0, c - 1)
    if op in ("min", "max"):
        choose = min if op == "min" else max
        return choose(a, c), choose(b, d)
    if op in ("select", "if_then_else"):
        return min(a, c), max(b, d)
    return None
