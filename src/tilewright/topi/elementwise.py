"""Operators that map one tensor element by element.

In: a tensor.  Out: a tensor of the same shape from one stage `T_<name>` with tag "elemwise".
Read next: `broadcast.py` for two operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.base.dtype import DType
from tilewright.base.errors import ExpressionError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.stage import call_text, require, stage


def elementwise(x: Tensor, function: Callable[[Expr], Any], name: str, axes: str = "ax") -> Tensor:
    """`function` of every element of `x`, as the stage `name` with axes `axes`0, `axes`1, ...

    Of an expression, such as a scalar argument, `function` itself.
    """
    if isinstance(x, Expr):
        return E.convert(function(x))
    if not isinstance(x, Tensor):
        raise ExpressionError(
            f"{name.removeprefix('T_')}({x!r})", f"a {type(x).__name__} is not a tensor",
            "Scalar expressions have their functions in te.",
        )  # fmt: skip
    return stage(x.shape, lambda i: function(x[i]), name, "elemwise", axes=axes)


def _named(name: str, function: Callable[[Expr], Any], story: str) -> Callable[[Tensor], Tensor]:
    def operator(x: Tensor | Expr) -> Any:
        return elementwise(x, function, f"T_{name}")  # type: ignore[arg-type]

    operator.__name__ = operator.__qualname__ = name
    operator.__doc__ = f"{story}, element by element; same shape as `x`."
    return operator


def _rounding(function: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    """Integers are already whole."""
    return lambda v: function(v) if v.dtype.is_float else v


def _sign(v: Expr) -> Expr:
    """0.0 of zeros of both signs, NaN of NaN."""
    one = E.const(1, v.dtype)
    below = one if v.dtype.kind == "uint" else E.const(-1, v.dtype)
    rest = te.select(v.equal(0), E.const(0, v.dtype), v) if v.dtype.is_float else v
    return te.select(v > 0, one, te.select(v < 0, below, rest))


def _is_nan(v: Expr) -> Expr:
    return E.binary("ne", v, v) if v.dtype.is_float else E.const(False)


def _is_infinite(v: Expr) -> Expr:
    wide = E.cast(v.dtype.compute, v)
    return te.abs(wide).equal(E.const(math.inf, wide.dtype)) if v.dtype.is_float else E.const(False)


def _is_finite(v: Expr) -> Expr:
    wide = E.cast(v.dtype.compute, v)
    return te.abs(wide) < E.const(math.inf, wide.dtype) if v.dtype.is_float else E.const(True)


def _inverted(v: Expr) -> Expr:
    if v.dtype.kind == "bool":
        return E.logical_not(v)
    ones = -1 if v.dtype.kind == "int" else int(v.dtype.greatest)
    return E.binary("bitxor", v, E.const(ones, v.dtype))


def _negated(v: Expr) -> Expr:
    """Also of zeros; `-v` is 0 - v as in TVM, which has no negative zero."""
    return E.const(-0.0, v.dtype) - v if v.dtype.is_float else -v


exp = _named("exp", te.exp, "e to the power x (integers become float32)")
# TVM's faster and less exact forms: functions here keep their bounds, and are as fast.
fast_exp = _named("fast_exp", te.exp, "`exp`")
fast_tanh = _named("fast_tanh", te.tanh, "`tanh`")
fast_erf = _named("fast_erf", te.erf, "`erf`")
log = _named("log", te.log, "Natural logarithm")
sqrt = _named("sqrt", te.sqrt, "Square root")
rsqrt = _named("rsqrt", te.rsqrt, "1 / sqrt(x)")
tanh = _named("tanh", te.tanh, "Hyperbolic tangent")
sigmoid = _named("sigmoid", te.sigmoid, "1 / (1 + exp(-x))")
erf = _named("erf", te.erf, "Gauss error function")
sin = _named("sin", te.sin, "Sine")
cos = _named("cos", te.cos, "Cosine")
tan = _named("tan", te.tan, "Tangent")
asin = _named("asin", te.asin, "Inverse sine, of -1 to 1")
acos = _named("acos", te.acos, "Inverse cosine, of -1 to 1")
atan = _named("atan", te.atan, "Inverse tangent")
sinh = _named("sinh", te.sinh, "Hyperbolic sine")
cosh = _named("cosh", te.cosh, "Hyperbolic cosine")
asinh = _named("asinh", te.asinh, "Inverse hyperbolic sine")
acosh = _named("acosh", te.acosh, "Inverse hyperbolic cosine, of 1 and more")
atanh = _named("atanh", te.atanh, "Inverse hyperbolic tangent, of -1 to 1")
abs = _named("abs", te.abs, "Absolute value")
negative = _named("negative", _negated, "-x")
log2 = _named("log2", te.log2, "Logarithm to base 2")
log10 = _named("log10", te.log10, "Logarithm to base 10")
trunc = _named("trunc", _rounding(te.trunc), "x without its fraction")
floor = _named("floor", _rounding(te.floor), "Largest whole number not above x")
ceil = _named("ceil", _rounding(te.ceil), "Smallest whole number not below x")
round = _named("round", _rounding(te.round), "Nearest whole number, halves to even")
sign = _named("sign", _sign, "-1, 0 or 1; NaN of NaN")
isnan = _named("isnan", _is_nan, "Whether it is NaN, as bool")
isinf = _named("isinf", _is_infinite, "Whether it is infinite, as bool")
isfinite = _named("isfinite", _is_finite, "Whether it is neither infinite nor NaN, as bool")
bitwise_not = _named("bitwise_not", _inverted, "All bits of an integer inverted; not of a bool")
logical_not = _named("logical_not", E.logical_not, "Negation of a bool tensor")
identity = _named("identity", lambda v: v, "x itself")


def cast(x: Any, dtype: str) -> Any:
    """`x` converted to `dtype`; `x` itself when it has that type."""
    DType(dtype, f"cast(dtype={dtype!r})")
    if isinstance(x, Tensor) and x.dtype == dtype:
        return x
    return elementwise(x, lambda v: te.cast(dtype, v), "T_cast")


def clip(x: Any, a_min: float, a_max: float) -> Any:
    """`x` limited to [a_min, a_max]; limits of integers are cut towards zero."""
    place = call_text("clip", x=x, a_min=a_min, a_max=a_max)
    require(a_min <= a_max, place, "the lower limit is above the upper one", "Swap them.")

    def limited(v: Any) -> Any:
        low, high = limits(v.dtype, a_min, a_max)
        return te.maximum(te.minimum(v, high), low)

    return elementwise(x, limited, "T_clip")


def limits(dtype: str, a_min: float, a_max: float) -> tuple[float, float]:
    """The limits of a clip as numbers of `dtype`: for integers within its range, without what is
    behind the point."""
    kind = DType(dtype)
    if not kind.is_int:
        return a_min, a_max
    low, high = (int(min(max(v, kind.least), kind.greatest)) for v in (a_min, a_max))
    return low, high
