"""`a + b` of graph values: Python's operators spell those of networks.

In: values and numbers.  Out: calls of add, subtract, multiply, divide, negative and comparisons.
Read next: `expr.py`, `graph/op/__init__.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.graph.extension import extension

if TYPE_CHECKING:
    from tilewright.graph.expr import Expr


class Arithmetic:
    """What `Expr` has of it."""

    __slots__ = ()

    def __add__(self, other: Any) -> Expr:
        return extension().operation("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return extension().operation("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return extension().operation("subtract", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return extension().operation("subtract", other, self)

    def __mul__(self, other: Any) -> Expr:
        return extension().operation("multiply", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return extension().operation("multiply", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return extension().operation("divide", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return extension().operation("divide", other, self)

    def __lt__(self, other: Any) -> Expr:
        return extension().operation("less", self, other)

    def __le__(self, other: Any) -> Expr:
        return extension().operation("less_equal", self, other)

    def __gt__(self, other: Any) -> Expr:
        return extension().operation("greater", self, other)

    def __ge__(self, other: Any) -> Expr:
        return extension().operation("greater_equal", self, other)

    def __neg__(self) -> Expr:
        return extension().call("negative", self)
