"""Names of TVM's `tir` for expressions: those of `te`, and a few that TVM spells here alone.

In: what `te` has.  Out: the same.  Statements, buffers and passes of TVM's TIR are not there:
`lower` gives a `Program` (docs/design.md).  Read next: `te/__init__.py`.
"""

from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ExpressionError, absent
from tilewright.ir import expr as _E
from tilewright.ir.expr import Expr as PrimExpr
from tilewright.te import (
    abs,
    acos,
    acosh,
    all,
    any,
    asin,
    asinh,
    atan,
    atanh,
    ceil,
    comm_reducer,
    const,
    cos,
    cosh,
    erf,
    exp,
    exp2,
    exp10,
    floor,
    floordiv,
    floormod,
    fmod,
    if_then_else,
    indexdiv,
    indexmod,
    infinity,
    isnan,
    log,
    log2,
    log10,
    max,
    max_value,
    min,
    min_value,
    power,
    round,
    rsqrt,
    sigmoid,
    sin,
    sinh,
    size_var,
    sqrt,
    sum,
    tan,
    tanh,
    trunc,
    var,
)
from tilewright.te import select as Select
from tilewright.te.tensor import IterVar

pow = power


@door(ExpressionError, "tir.Cast")
def Cast(dtype: Any, value: Any) -> PrimExpr:
    return _E.cast(dtype, value)


@door(ExpressionError, "tir.call_intrin")
def call_intrin(dtype: Any, func_name: str, *args: Any) -> PrimExpr:
    """A function of numbers by its name: `call_intrin("float32", "tir.exp", x)`.

    Raises ExpressionError for what te has no function for.
    """
    name = func_name.removeprefix("tir.")
    if name == "if_then_else":
        return _E.cast(dtype, _E.if_then_else(*args))
    return _E.cast(dtype, _E.call({"fabs": "abs"}.get(name, name), *args))


__path__: list[str] = []  # so that imports of other names say what to use, too
_EVERYTHING = "lower(s, args) gives a Program, which prints as loops."
_ELSEWHERE = {
    "Buffer": _EVERYTHING,
    "BufferLoad": _EVERYTHING,
    "BufferStore": _EVERYTHING,
    "Call": "Expressions print themselves; their nodes are tilewright.ir.expr.Expr.",
    "CallEffectKind": "Functions of numbers have no effects: leave it out.",
    "PrimFunc": _EVERYTHING,
    "Schedule": "Use te.create_schedule.",
    "analysis": _EVERYTHING,
    "call_extern": "Functions of other libraries cannot be called; te has exp, log, erf, ...",
    "call_packed": "Python cannot be called from a kernel; call it between kernels.",
    "call_pure_extern": "Functions of other libraries cannot be called; te has exp, log, erf, ...",
    "decl_buffer": _EVERYTHING,
    "ir_builder": "Declare the computation with te.compute.",
    "stmt_functor": _EVERYTHING,
    "tensor_intrin": "Matrix instructions are not there yet; split, vectorize and unroll.",
    "transform": "Lowering has its own passes (docs/design.md); TILEWRIGHT_DEBUG=5 prints them.",
}


class _OfVariables(type):
    """`isinstance(x, tir.Var)`: variables are expressions of one class with all others."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, PrimExpr) and instance.op == "var"


class Var(metaclass=_OfVariables):
    """`te.var` by TVM's name, and the class that variables are of."""

    def __new__(cls, name: str, dtype: str = "int32") -> Any:
        return var(name, dtype)


class SizeVar(metaclass=_OfVariables):
    """`te.size_var` by TVM's name; an extent is at least 1 anyway."""

    def __new__(cls, name: str, dtype: str = "int32") -> Any:
        return size_var(name, dtype)


__all__ = [
    "Cast",
    "IterVar",
    "PrimExpr",
    "Select",
    "SizeVar",
    "Var",
    "abs",
    "acos",
    "acosh",
    "all",
    "any",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "call_intrin",
    "ceil",
    "comm_reducer",
    "const",
    "cos",
    "cosh",
    "erf",
    "exp",
    "exp2",
    "exp10",
    "floor",
    "floordiv",
    "floormod",
    "fmod",
    "if_then_else",
    "indexdiv",
    "indexmod",
    "infinity",
    "isnan",
    "log",
    "log2",
    "log10",
    "max",
    "max_value",
    "min",
    "min_value",
    "pow",
    "power",
    "round",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "sum",
    "tan",
    "tanh",
    "trunc",
    "var",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    raise absent("tir", name, _ELSEWHERE)
