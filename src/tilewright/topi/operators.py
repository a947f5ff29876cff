"""Arithmetic on tensors: `conv + bias` means `topi.add(conv, bias)`.

In: the operators of `broadcast.py`.  Out: the special methods of `te.Tensor`, set when `topi` is
imported, because `te` may not know `topi`.  Read next: `broadcast.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.expr import Expr
from tilewright.te.tensor import IterVar, Tensor
from tilewright.topi import broadcast, elementwise

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": broadcast.add,
    "sub": broadcast.subtract,
    "mul": broadcast.multiply,
    "truediv": broadcast.true_divide,
    "floordiv": broadcast.floor_divide,
    "mod": broadcast.mod,
    "pow": broadcast.power,
}

UNARY: dict[str, Callable[..., Any]] = {"__neg__": elementwise.negative, "astype": elementwise.cast}


def _scalar_use(tensor: Tensor, other: Any) -> bool:
    """`alpha * A[i]` inside a computation reads the element of the zero-dimensional `alpha`."""
    return tensor.ndim == 0 and isinstance(other, (Expr, IterVar))


def _forward(function: Callable[[Any, Any], Any]) -> Callable[[Tensor, Any], Any]:
    def method(self: Tensor, other: Any) -> Any:
        return function(self.as_expr() if _scalar_use(self, other) else self, other)

    return method


def _reflected(function: Callable[[Any, Any], Any]) -> Callable[[Tensor, Any], Any]:
    def method(self: Tensor, other: Any) -> Any:
        return function(other, self.as_expr() if _scalar_use(self, other) else self)

    return method


def install() -> None:
    """Give `te.Tensor` its arithmetic."""
    for name, function in ARITHMETIC.items():
        setattr(Tensor, f"__{name}__", _forward(function))
        setattr(Tensor, f"__r{name}__", _reflected(function))
    for name, method in UNARY.items():
        setattr(Tensor, name, method)
