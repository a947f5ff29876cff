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
        return _arithmetic("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return _arithmetic("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return _arithmetic("subtract", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return _arithmetic("subtract", other, self)

    def __mul__(self, other: Any) -> Expr:
        return _arithmetic("multiply", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return _arithmetic("multiply", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return _arithmetic("divide", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return _arithmetic("divide", other, self)

    def __lt__(self, other: Any) -> Expr:
        return _arithmetic("less", self, other)

    def __le__(self, other: Any) -> Expr:
        return _arithmetic("less_equal", self, other)

    def __gt__(self, other: Any) -> Expr:
        return _arithmetic("greater", self, other)

    def __ge__(self, other: Any) -> Expr:
        return _arithmetic("greater_equal", self, other)

    def __neg__(self) -> Expr:
        from tilewright.graph.op import call

        return call("negative", self)


def _arithmetic(name: str, lhs: Any, rhs: Any) -> Expr:
    from tilewright.graph.op import call, same_dtype

    def apply(lhs: Any, rhs: Any) -> Expr:
        return call(name, *same_dtype(lhs, rhs))

    apply.__name__ = name
    return extension().computed(apply, lhs, rhs)
