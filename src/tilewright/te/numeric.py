"""What each scalar operation does to float64 arrays, and how far a kernel's rounding may carry it.

In: an expression node and its operands as `Approx`.  Out: the node's `Approx`.
Read next: `contraction.py` (sums of products) and `evaluate.py`, which walks a DAG with both.

Element types.  float16 and bfloat16 are *narrow*: a kernel computes them in float32 and may round
to the narrow type after any operation, but must when a stage is stored.  So every narrow operation
adds half a unit in the last place of the narrow type to the rounding of float32, and a narrow value
beyond the greatest number is kept as it is until something computes with it (then it is unknown:
infinity if it was rounded, itself if it was not) or it is stored (then it is infinity).  Integers
below 32 bits, and uint32, wrap around after every operation; int32 and int64 count as exact.
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


# What rounding commutes with, so that an operand that was not yet rounded to its type stays known.
_COMMUTES = frozenset(("min", "max", "select", "if_then_else", "abs"))


def apply(node: Expr, args: Sequence[Approx], track: bool, scale: float = 1.0) -> Approx:
    """`node` of `args`.  track: bound the error too; scale: multiplies the node's own rounding."""
    values = [a.value for a in args]
    name = node.attr if node.op == "call" else node.op
    value = cast_value(values[0], node.dtype) if name == "cast" else VALUES[name](*values)
    if not track:
        return Approx(wrapped(value, node.dtype))
    errors = [
        a.error if name in _COMMUTES else _if_rounded(a, operand.dtype)
        for a, operand in zip(args, node.args, strict=True)
    ]
    error: Array | None = None
    if any(e is not None for e in errors):
        filled = [np.zeros(()) if e is None else e for e in errors]
        error = _propagated(name, node, value, values, filled)
    if not node.dtype.is_float:
        error = _unspecified(node, values[0], errors[0], error) if name == "cast" else error
        return _wrapped_approx(Approx(value, error), node.dtype)
    own = _own_rounding(name, node, value, values)
    if own is not None:
        own = own * scale
        error = own if error is None else error + own
        if not is_narrow(node.dtype):
            error = overflowing(value, error, node.dtype.greatest)
    if is_narrow(node.dtype) and name not in _COMMUTES and error is not None:
        error = error + narrowing(np.abs(value) + error, node.dtype) * scale
    return Approx(value, error if error is None else no_nan(error))


def is_narrow(dtype: DType) -> bool:
    """A float that is computed in a wider type and rounded when it is stored."""
    return dtype.is_float and dtype.compute is not dtype


def overflowing(value: Array, error: Array, limit: float) -> Array:
    """`error`, infinite where a kernel may exceed `limit`; an infinity that is exact stays so."""
    magnitude = np.abs(value)
    with_error = np.where(np.isfinite(magnitude), magnitude + error, 0.0)
    return np.where(with_error > limit, np.inf, error)


def _infinite_from(dtype: DType) -> float:
    """The least number that rounds to infinity: half a unit beyond the greatest."""
    return dtype.greatest * (1 + dtype.eps / (4 - 2 * dtype.eps))


def _if_rounded(operand: Approx, dtype: DType) -> Array | None:
    """The error of a narrow operand that a kernel may have rounded to infinity, or not."""
    if not is_narrow(dtype):
        return operand.error
    reach = np.abs(operand.value) + (0.0 if operand.error is None else operand.error)
    beyond = np.isfinite(operand.value) & (reach >= _infinite_from(dtype))
    if not beyond.any():
        return operand.error
    return np.where(beyond, np.inf, 0.0 if operand.error is None else operand.error)


def stored(result: Approx, dtype: DType) -> Approx:
    """`result` as an element of a stage, which has its own type."""
    if not is_narrow(dtype):
        return Approx(cast_value(result.value, dtype), result.error)
    limit = _infinite_from(dtype)
    beyond = np.isfinite(result.value) & (np.abs(result.value) >= limit)
    value = np.where(beyond, np.copysign(np.inf, result.value), result.value)
    if result.error is None:
        return Approx(value)
    surely = beyond & (np.abs(result.value) - result.error >= limit)
    error = np.where(beyond, np.inf, overflowing(result.value, result.error, limit))
    return Approx(value, np.where(surely, 0.0, error))


def wrapped(value: Array, dtype: DType) -> Array:
    """`value` modulo the size of an integer type that wraps around; other types as they are."""
    if not dtype.is_int or dtype.is_index:
        return value
    return _modulo(value, dtype)


def _modulo(value: Array, dtype: DType) -> Array:
    whole: Array = value.astype(dtype.storage).astype(np.int64)
    return whole


def _wrapped_approx(result: Approx, dtype: DType) -> Approx:
    value = wrapped(result.value, dtype)
    if result.error is None or value is result.value:
        return Approx(value, None if result.error is None else no_nan(result.error))
    low, high = result.value - result.error, result.value + result.error
    around = ~((low >= dtype.least) & (high <= dtype.greatest)) & (result.error > 0)
    return Approx(value, np.where(around, np.inf, result.error))


def _unspecified(
    node: Expr, source: Array, source_error: Array | None, error: Array | None
) -> Array | None:
    """`error` of a cast to an integer, infinite where a float is outside the type's range."""
    if source.dtype.kind != "f" or not node.dtype.is_int:
        return error
    spread = 0.0 if source_error is None else source_error
    low, high = np.trunc(source - spread), np.trunc(source + spread)
    inside = (low >= node.dtype.least) & (high < node.dtype.greatest + 1.0)
    if inside.all():
        return error
    return np.where(inside, 0.0 if error is None else error, np.inf)


def no_nan(error: Array) -> Array:
    """`error` with NaN (infinity minus itself, zero times infinity) as infinity."""
    return np.where(np.isnan(error), np.inf, error)


def rounding(value: Array, dtype: DType, units: float = 1.0) -> Array:
    """`units` roundings of `value` to `dtype`, or its flush to zero when it is denormal."""
    size = units * dtype.eps * np.abs(value) + units * _flushed(dtype)
    return np.where(np.isfinite(value), size, 0.0)


def narrowing(magnitude: Array, dtype: DType) -> Array:
    """One rounding to nearest of values as large as `magnitude` to a narrow type."""
    return 0.5 * rounding(magnitude, dtype)


def _flushed(dtype: DType) -> float:
    """What is lost near zero: denormals are flushed where arithmetic happens, but not in memory."""
    smallest_normal = dtype.compute.smallest / dtype.compute.eps
    return max(smallest_normal, dtype.smallest)


def cast_value(value: Array, dtype: DType) -> Array:
    """`value` as the reference keeps `dtype`: float64, int64 (towards zero, wrapped) or bool."""
    if dtype == "bool":
        return np.asarray(value != 0)
    if not dtype.is_int:
        return np.asarray(value, dtype=np.float64)
    if value.dtype.kind != "f":
        return _modulo(value.astype(np.int64), dtype)
    whole: Array = np.clip(np.nan_to_num(value), dtype.least, dtype.greatest).astype(np.int64)
    return whole


def constant_value(node: Expr) -> Array:
    """The number of a constant as a kernel holds it."""
    if node.dtype.is_float:
        return np.asarray(node.dtype.nearest(node.attr), dtype=np.float64)
    return np.asarray(node.attr, dtype=np.bool_ if node.dtype == "bool" else np.int64)


def _own_rounding(name: str, node: Expr, value: Array, values: Sequence[Array]) -> Array | None:
    """What the operation adds in the type it is computed in."""
    dtype = node.dtype.compute
    if name == "cast":
        return _rounding_of_cast(node, value, values[0])
    if name in ("floordiv", "floormod"):
        quotient = values[0] / values[1]
        near = np.abs(quotient - np.rint(quotient)) <= 4 * node.dtype.eps * np.abs(quotient)
        jump = np.abs(values[1]) if name == "floormod" else 1.0
        return np.asarray(np.where(near, jump, 0.0) + rounding(values[0], dtype))
    units = RELATIVE.get(name)
    if units is None:
        return None
    own: Array = rounding(value, dtype, units) + ABSOLUTE.get(name, 0) * dtype.eps
    if name == "pow":  # by way of exp(b log a): the logarithm's rounding is scaled by b
        own = own * (1 + np.abs(values[1] * np.log(np.abs(values[0]) + 1e-300)))
    return own


def _rounding_of_cast(node: Expr, value: Array, source: Array) -> Array | None:
    if source.dtype.kind != "f":
        near = value.astype(node.dtype.compute.storage).astype(np.float64)
        lost = np.abs(near - value)
        return lost if not is_narrow(node.dtype) or lost.any() else _inexact(value, node.dtype)
    if keeps_all(node.args[0].dtype, node.dtype):
        return None
    return np.zeros(()) if is_narrow(node.dtype) else rounding(value, node.dtype)


def _inexact(value: Array, dtype: DType) -> Array | None:
    """Zeros, which narrowing adds to, unless every value is one of the narrow type."""
    exact = np.array_equal(value.astype(dtype.storage).astype(np.float64), value)
    return None if exact else np.zeros(())


def keeps_all(source: DType, target: DType) -> bool:
    """Whether `target` holds every number of `source`, so that a cast changes none."""
    if source is target or source.kind == "bool":
        return True
    if target.is_float and source.is_float:
        return target.bits >= source.bits and target.digits >= source.digits
    if target.is_float:
        return target.digits >= source.bits
    return source.is_int and target.least <= source.least and target.greatest >= source.greatest


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
