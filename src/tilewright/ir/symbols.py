"""Symbols: integers that a computation names and a call gives: extents of shapes, scalars.

In: variables that users declare with `te.var`.  Out: what tells them from axes, the numbers they
may be, decisions about conditions on them.  An extent is an int, or integer arithmetic of symbols.
Read next: `te/symbolic.py` (computations), `base/artifact.py` (extents as plain data).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.base.errors import ExpressionError
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr

MOST = 2**31 - 1  # of an extent, and of the elements of an array; calls check it
_OPERATIONS = ("add", "sub", "mul", "floordiv", "floormod", "min", "max")


class Symbol(str):
    """The name of a variable that users declared: what `attr` of such a node is."""

    __slots__ = ()


def declared(name: str, dtype: str = "int32") -> Expr:
    """Declare a variable that calls give: `te.var("n")`."""
    return E.var(Symbol(name), dtype)


def is_symbol(node: Any) -> bool:
    return isinstance(node, Expr) and node.op == "var" and isinstance(node.attr, Symbol)


def symbols_of(values: Iterable[Any]) -> tuple[Expr, ...]:
    """The symbols in expressions, in order of first appearance; numbers have none."""
    nodes = (n for v in values if isinstance(v, Expr) for n in E.walk(v))
    return tuple(dict.fromkeys(n for n in nodes if is_symbol(n)))


def is_extent(value: Expr) -> bool:
    """Whether an expression may be an extent: integer arithmetic of symbols and numbers."""
    return value.dtype.is_index and all(
        n.op == "const" or is_symbol(n) or (n.op in (*_OPERATIONS, "cast") and n.dtype.is_index)
        for n in E.walk(value)
    )


def ranges(symbols: Iterable[Expr]) -> dict[Expr, tuple[int, int]]:
    """What extents may be: at least 1."""
    return dict.fromkeys(symbols, (1, MOST))


def number(value: Any, simplify: Simplifier) -> Any:
    """An extent in its shortest form: an int where it is one.  Other numbers stay as they are."""
    if not isinstance(value, Expr):
        return value
    short = simplify(value)
    return int(short.attr) if short.op == "const" else short


def plain(number: Any) -> int | Expr:
    """A number as an int, or the expression that it is."""
    return number if isinstance(number, Expr) else int(number)


def simplifier(*values: Any) -> Simplifier:
    """One that knows the symbols in `values` for extents."""
    return Simplifier(ranges(symbols_of(values)))


def last(extent: Any, simplify: Simplifier | None = None) -> int:
    """The greatest value of a loop variable."""
    if not isinstance(extent, Expr):
        return int(extent) - 1
    known = simplify or simplifier(extent)
    return int(min(known.interval(extent)[1], MOST)) - 1


def may_hold(condition: Any, simplify: Simplifier) -> Any:
    """A condition on numbers: False only where it never holds.  Of ints and vectors, itself."""
    if not isinstance(condition, Expr):
        return condition
    known = simplify(condition)
    return bool(known.attr) if known.op == "const" else True


def one_of(values: Mapping[Expr, int], extent: Any) -> int:
    """An extent where symbols have these values.  Raises ExpressionError for others."""
    if not isinstance(extent, Expr):
        return int(extent)
    known = E.substitute(extent, values)
    if known.op != "const":
        raise ExpressionError(
            f"the extent {extent}", f"{symbols_of([known])[0]} has no value", "Give all variables."
        )
    return int(known.attr)
