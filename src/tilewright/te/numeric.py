"""What each scalar operation does to float64 arrays, and how far a kernel's rounding may carry it.

In: an expression node and its operands as `Approx`.  Out: the node's `Approx`.
Read next: `contraction.py` (sums of products) and `evaluate.py`, which walks a DAG with both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilewright.base.dtype import DType
from tilewright.ir.expr import Expr

Array = npt.NDArray[Any]


class Approx(NamedTuple):
    """A value in float64, int64 or bool, and a bound on the distance of a kernel's value from it.

    error: None where a kernel's value is exact; for a bool 1.0 where it may come out either way;
    infinite where nothing is promised (overflow, a NaN, an index that rounding may change).
    """

    value: Array
    error: Array | None = None

    def map(self, move: Callable[[Array], Array]) -> Approx:
        """Both arrays through `move`, which picks or rearranges elements."""
        return Approx(move(self.value), None if self.error is None else move(self.error))


_erf = np.frompyfunc(math.erf, 1, 1)

FUNCTION_VALUES: dict[str, Callable[..., Array]] = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "tanh": np.tanh,
    "erf": lambda x: np.asarray(_erf(x), dtype=np.float64),
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "pow": np.power,
    "sin": np.sin,
    "cos": np.cos,
}
VALUES: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": np.floor_divide,
    "floormod": np.mod,
    "min": np.minimum,
    "max": np.maximum,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "select": np.where,
    "if_then_else": np.where,
    **FUNCTION_VALUES,
}

# An operation's own rounding, in units of eps times the result, and of eps alone.  Division and the
# functions are as loose as the OpenCL full profile or an exp-based expansion makes them.
RELATIVE = {
    "add": 1, "sub": 1, "mul": 1, "div": 4, "exp": 8, "log": 8, "sqrt": 4, "rsqrt": 8, "tanh": 16,
    "erf": 16, "sin": 8, "cos": 8, "pow": 16,
}  # fmt: skip
ABSOLUTE = {"log": 1, "tanh": 2, "erf": 2, "sin": 2, "cos": 2}


def apply(node: Expr, args: Sequence[Approx], track: bool, scale: float = 1.0) -> Approx:
    """`node` of `args`.  track: bound the error too; scale: multiplies the node's own rounding."""
    values = [a.value for a in args]
    name = node.attr if node.op == "call" else node.op
    value = cast_value(values[0], node.dtype) if name == "cast" else VALUES[name](*values)
    if not track:
        return Approx(value)
    errors = [a.error for a in args]
    error: Array | None = None
    if any(e is not None for e in errors):
        filled = [np.zeros(()) if e is None else e for e in errors]
        error = _propagated(name, node, value, values, filled)
    if node.dtype.is_float:
        own = _own_rounding(name, node, value, values)
        if own is not None:
            own = own * scale
            error = own if error is None else error + own
            # beyond the largest finite number a kernel overflows; an exact infinity stays exact
            limit = float(np.finfo(node.dtype).max)
            magnitude = np.abs(value)
            with_error = np.where(np.isfinite(magnitude), magnitude + error, 0.0)
            error = np.where(with_error > limit, np.inf, error)
    return Approx(value, error if error is None else no_nan(error))


def no_nan(error: Array) -> Array:
    """`error` with NaN (infinity minus itself, zero times infinity) as infinity."""
    return np.where(np.isnan(error), np.inf, error)


def rounding(value: Array, dtype: DType, units: float = 1.0) -> Array:
    """`units` roundings of `value` to `dtype`, or its flush to zero when it is denormal."""
    info = np.finfo(dtype)
    size = units * float(info.eps) * np.abs(value) + units * float(info.tiny)
    return np.where(np.isfinite(value), size, 0.0)


def cast_value(value: Array, dtype: DType) -> Array:
    """`value` as the reference keeps `dtype`: float64, int64 (towards zero) or bool."""
    if dtype == "bool":
        return np.asarray(value != 0)
    if dtype.is_int:
        whole = np.trunc(value) if value.dtype.kind == "f" else value
        return whole.astype(np.int64)
    return np.asarray(value, dtype=np.float64)


def constant_value(node: Expr) -> Array:
    """The number of a constant as a kernel holds it."""
    if node.dtype.is_float:
        return np.asarray(np.dtype(node.dtype).type(node.attr), dtype=np.float64)
    return np.asarray(node.attr, dtype=np.bool_ if node.dtype == "bool" else np.int64)


def _own_rounding(name: str, node: Expr, value: Array, values: Sequence[Array]) -> Array | None:
    eps = node.dtype.eps
    if name == "cast":
        if values[0].dtype.kind == "f":
            return rounding(value, node.dtype)
        return np.asarray(np.abs(value.astype(node.dtype).astype(np.float64) - value))
    if name in ("floordiv", "floormod"):
        quotient = values[0] / values[1]
        near = np.abs(quotient - np.rint(quotient)) <= 4 * eps * np.abs(quotient)
        jump = np.abs(values[1]) if name == "floormod" else 1.0
        return np.asarray(np.where(near, jump, 0.0) + rounding(values[0], node.dtype))
    units = RELATIVE.get(name)
    if units is None:
        return None
    own: Array = rounding(value, node.dtype, units) + ABSOLUTE.get(name, 0) * eps
    if name == "pow":  # by way of exp(b log a): the logarithm's rounding is scaled by b
        own = own * (1 + np.abs(values[1] * np.log(np.abs(values[0]) + 1e-300)))
    return own


def _monotone(name: str) -> Callable[..., Array]:
    function = FUNCTION_VALUES[name]

    def bound(value: Array, values: Sequence[Array], errors: Sequence[Array]) -> Array:
        x, e = values[0], errors[0]
        up, down = np.abs(function(x + e) - value), np.abs(function(x - e) - value)
        return np.asarray(np.maximum(up, down))

    return bound


def _of_division(value: Array, values: Sequence[Array], errors: Sequence[Array]) -> Array:
    room = np.abs(values[1]) - errors[1]
    return np.where(room > 0, (errors[0] + np.abs(value) * errors[1]) / room, np.inf)


def _of_product(value: Array, values: Sequence[Array], errors: Sequence[Array]) -> Array:
    (a, b), (ea, eb) = values, errors
    return np.asarray(np.abs(a) * eb + np.abs(b) * ea + ea * eb)


def _of_comparison(value: Array, values: Sequence[Array], errors: Sequence[Array]) -> Array:
    room = errors[0] + errors[1]
    return np.where((room > 0) & ~(np.abs(values[0] - values[1]) > room), 1.0, 0.0)


def _of_choice(value: Array, values: Sequence[Array], errors: Sequence[Array]) -> Array:
    unsure, then, other = errors
    apart = np.maximum(then, other) + np.abs(values[1] - values[2])
    return np.where(unsure > 0, apart, np.where(values[0], then, other))


def _of_power(value: Array, values: Sequence[Array], errors: Sequence[Array]) -> Array:
    (a, b), (ea, eb) = values, errors
    corners = [np.abs(np.power(a + s * ea, b + t * eb) - value) for s in (-1, 1) for t in (-1, 1)]
    return np.asarray(np.maximum.reduce(np.broadcast_arrays(*corners)))


def _of_jump(value: Array, values: Sequence[Array], errors: Sequence[Array]) -> Array:
    return np.where(errors[0] + errors[1] > 0, np.inf, 0.0)


def _sum(value: Array, values: Sequence[Array], errors: Sequence[Array]) -> Array:
    return np.asarray(errors[0] + errors[1])


def _largest(value: Array, values: Sequence[Array], errors: Sequence[Array]) -> Array:
    return np.asarray(np.maximum.reduce(np.broadcast_arrays(*errors)))


def _same(value: Array, values: Sequence[Array], errors: Sequence[Array]) -> Array:
    return errors[0]


# (value, operands, their errors) -> the error that the operands' errors cause
PROPAGATE: dict[str, Callable[[Array, Sequence[Array], Sequence[Array]], Array]] = {
    **dict.fromkeys(("add", "sub"), _sum),
    **dict.fromkeys(("min", "max", "and", "or"), _largest),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), _of_comparison),
    **dict.fromkeys(("select", "if_then_else"), _of_choice),
    **dict.fromkeys(("floordiv", "floormod"), _of_jump),
    **dict.fromkeys(("not", "abs", "sin", "cos"), _same),
    "mul": _of_product,
    "div": _of_division,
    "pow": _of_power,
    **{
        name: _monotone(name)
        for name in ("exp", "log", "sqrt", "rsqrt", "tanh", "erf", "floor", "ceil", "round")
    },
}


def _propagated(
    name: str, node: Expr, value: Array, values: Sequence[Array], errors: Sequence[Array]
) -> Array:
    if name != "cast":
        return PROPAGATE[name](value, values, errors)
    x, e = values[0], errors[0]
    if node.dtype == "bool":
        return np.where((e > 0) & (np.abs(x) <= e), 1.0, 0.0)
    if node.dtype.is_int and x.dtype.kind == "f":
        up, down = np.abs(np.trunc(x + e) - value), np.abs(np.trunc(x - e) - value)
        return np.asarray(np.maximum(up, down))
    return e
