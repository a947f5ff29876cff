"""Functions of elements: `te.exp`, `te.power`, `te.sigmoid`, ...

In: expressions and numbers.  Out: expressions.  What they mean and how they round says
`numeric.py`.  Read next: `ir/expr.py` (`FUNCTIONS`).
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.base.dtype import FLOAT32
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, Value
from tilewright.te.tensor import widened


def _float_function(name: str) -> Callable[[Value], Expr]:
    def function(x: Value) -> Expr:
        return E.call(name, x)

    function.__name__ = name
    function.__doc__ = f"Elementwise {name}."
    return function


exp, log, sqrt, rsqrt, tanh, erf = map(
    _float_function, ("exp", "log", "sqrt", "rsqrt", "tanh", "erf")
)
floor, ceil, round, abs, sin, cos = map(
    _float_function, ("floor", "ceil", "round", "abs", "sin", "cos")
)
tan, asin, acos, atan = map(_float_function, ("tan", "asin", "acos", "atan"))
sinh, cosh, asinh, acosh, atanh = map(_float_function, ("sinh", "cosh", "asinh", "acosh", "atanh"))


def power(x: Value, y: Value) -> Expr:
    return E.call("pow", x, y)


def sigmoid(x: Value) -> Expr:
    """1 / (1 + exp(-x)), in float32 for float16, whose range exp would leave."""
    node = E.convert(x)
    kind = node.dtype if node.dtype.is_float else FLOAT32
    one = E.const(1, kind.compute)
    return E.cast(kind, one / (one + E.call("exp", -widened(kind.compute, node))))
