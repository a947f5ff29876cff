"""What each scalar operation does to float64 arrays, and how far a kernel's rounding may carry it.

In: an expression node and its operands as `Approx`.  Out: the node's `Approx`.
Read next: `rounding.py` (what element types do), `contraction.py` (sums of products) and
`evaluate.py`, which walks a DAG with all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tilewright.base.dtype import DType
from tilewright.ir.expr import BITWISE, Expr
from tilewright.te.rounding import (
    LARGE_GRID,
    Approx,
    Array,
    around,
    cast_value,
    exactly,
    fits,
    grid_of,
    if_rounded,
    is_narrow,
    keeps_all,
    kept_as,
    narrowing,
    no_nan,
    overflowing,
    rounding,
    wrapped,
)

_erf = np.frompyfunc(math.erf, 1, 1)

# Where a function has no value for some numbers: those drawn for its operand, from any.
DOMAINS: dict[str, Callable[[Array], Array]] = {
    **dict.fromkeys(("sqrt", "rsqrt", "log"), np.abs),
    **dict.fromkeys(("asin", "acos", "atanh"), lambda x: x / (1 + np.abs(x))),
    "acosh": lambda x: 1 + np.abs(x),
}

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
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "fmod": np.fmod,
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
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
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
    "erf": 16, "sin": 8, "cos": 8, "pow": 16, "tan": 8, "asin": 8, "acos": 8, "atan": 8, "sinh": 8,
    "cosh": 8, "asinh": 8, "acosh": 8, "atanh": 8,
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
        a.error if name in _COMMUTES else if_rounded(a, operand.dtype)
        for a, operand in zip(args, node.args, strict=True)
    ]
    error: Array | None = None
    if any(e is not None for e in errors):
        filled = [np.zeros(()) if e is None else e for e in errors]
        error = _propagated(name, node, value, values, filled)
    if not node.dtype.is_float:
        error = _unspecified(node, values[0], errors[0], error) if name == "cast" else error
        return around(Approx(value, error), node.dtype)
    grid = _grid(name, node, args)
    exact = fits(np.abs(value), grid, node.dtype)
    if exact is not None and error is not None:
        exact = exact & (error == 0)
    own = _own_rounding(name, node, value, values)
    if own is not None:
        own = own * scale
        error = own if error is None else error + own
        if not is_narrow(node.dtype):
            error = overflowing(value, error, node.dtype.greatest)
    if is_narrow(node.dtype) and name not in _COMMUTES and error is not None:
        error = error + narrowing(np.abs(value) + error, node.dtype) * scale
    error = exactly(error, exact)
    return Approx(value, error if error is None else no_nan(error), grid)


def _grid(name: str, node: Expr, args: Sequence[Approx]) -> float:
    """Of the result of an operation on floats; see `Approx`."""
    grids = [
        a.grid if operand.dtype.is_float else 1.0
        for a, operand in zip(args, node.args, strict=True)
    ]
    if name == "mul":
        return min(grids[0] * grids[1], LARGE_GRID)
    if name in ("select", "if_then_else"):
        return min(grids[1:])
    if name in ("floor", "ceil", "round"):
        return 1.0
    return min(grids) if name in ("add", "sub", "min", "max", "abs", "cast") else 0.0


def constant(node: Expr) -> Approx:
    value = constant_value(node)
    return Approx(value, grid=grid_of(value))


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


def constant_value(node: Expr) -> Array:
    """The number of a constant as a kernel holds it."""
    if node.dtype.is_float:
        return np.asarray(node.dtype.nearest(node.attr), dtype=np.float64)
    return np.asarray(node.attr, kept_as(node.dtype))


def _own_rounding(name: str, node: Expr, value: Array, values: Sequence[Array]) -> Array | None:
    """What the operation adds in the type it is computed in."""
    dtype = node.dtype.compute
    if name == "cast":
        return _rounding_of_cast(node, value, values[0])
    if name == "floordiv":  # whole numbers of half a type's digits no rounding on the way reaches
        large = np.abs(value) * (8 * dtype.eps) >= 1
        return np.where(large, rounding(value, dtype, RELATIVE["div"]), 0.0)
    if name == "floormod":
        quotient = values[0] / values[1]
        near = np.abs(quotient - np.rint(quotient)) <= 4 * node.dtype.eps * np.abs(quotient)
        jump = np.abs(values[1])
        # a rest of the other sign than its divisor has the divisor added, which rounds to its size
        rounded = rounding(values[0], dtype) + rounding(value, dtype)
        return np.asarray(np.where(near, jump, 0.0) + rounded)
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


def _of_floor_division(value: Array, values: Sequence[Array], errors: Sequence[Array]) -> Array:
    """Farthest at a corner of what the operands may be, unless the divisor may be zero."""
    (a, b), (ea, eb) = values, errors
    corners = [
        np.abs(np.floor_divide(a + s * ea, b + t * eb) - value) for s in (-1, 1) for t in (-1, 1)
    ]
    farthest = np.maximum.reduce(np.broadcast_arrays(*corners))
    sure = (ea == 0) & (eb == 0)
    return np.where(sure, 0.0, np.where(np.abs(b) > eb, farthest, np.inf))


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


def _of_tangent(value: Array, values: Sequence[Array], errors: Sequence[Array]) -> Array:
    x, e = values[0], errors[0]
    change = np.maximum(np.abs(np.tan(x + e) - value), np.abs(np.tan(x - e) - value))
    return np.where(e < np.abs(np.cos(x)), change, np.inf)  # no pole is as near as e


def _of_jump(value: Array, values: Sequence[Array], errors: Sequence[Array]) -> Array:
    return np.where(errors[0] + errors[1] > 0, np.inf, 0.0)


def _sum(value: Array, values: Sequence[Array], errors: Sequence[Array]) -> Array:
    return np.asarray(errors[0] + errors[1])


def _of_extreme(value: Array, values: Sequence[Array], errors: Sequence[Array]) -> Array:
    """Where rounding cannot change which operand it is, that one's error."""
    other = np.where(values[0] == value, values[1], values[0])
    own = np.where(values[0] == value, errors[0], errors[1])
    either = np.maximum(errors[0], errors[1])
    return np.where(np.abs(value - other) > errors[0] + errors[1], own, either)


def _largest(value: Array, values: Sequence[Array], errors: Sequence[Array]) -> Array:
    return np.asarray(np.maximum.reduce(np.broadcast_arrays(*errors)))


def _same(value: Array, values: Sequence[Array], errors: Sequence[Array]) -> Array:
    return errors[0]


# (value, operands, their errors) -> the error that the operands' errors cause
PROPAGATE: dict[str, Callable[[Array, Sequence[Array], Sequence[Array]], Array]] = {
    **dict.fromkeys(("add", "sub"), _sum),
    **dict.fromkeys(("min", "max"), _of_extreme),
    **dict.fromkeys(("and", "or"), _largest),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), _of_comparison),
    **dict.fromkeys(("select", "if_then_else"), _of_choice),
    **dict.fromkeys(("floormod", "fmod", *BITWISE), _of_jump),
    "floordiv": _of_floor_division,
    **dict.fromkeys(("not", "abs", "sin", "cos"), _same),
    "mul": _of_product,
    "div": _of_division,
    "pow": _of_power,
    "tan": _of_tangent,
    **{
        name: _monotone(name)  # or, as cosh, farthest from its value at one of the ends
        for name in (
            "exp",
            "log",
            "sqrt",
            "rsqrt",
            "tanh",
            "erf",
            "floor",
            "ceil",
            "round",
            "asin",
            "acos",
            "atan",
            "sinh",
            "cosh",
            "asinh",
            "acosh",
            "atanh",
        )
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
