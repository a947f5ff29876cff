"""What users call: operators of tensors, `relay.add`, `relay.reshape`, `relay.mean`, ...

In: graph values, and numbers where a second operand may be one.  Out: calls.  Names and keywords
are TVM's.  Read next: `nn.py`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call, Constant, Expr, Tuple, check_dtype, static_shape
from tilewright.graph.extents import is_open
from tilewright.graph.leaves import const
from tilewright.graph.op import call, get, same_dtype

Axes = int | Sequence[int] | None


def _unary(name: str) -> Callable[[Expr], Call]:
    def operator(data: Expr) -> Call:
        return call(name, data)

    operator.__name__ = operator.__qualname__ = name
    operator.__doc__ = get(name).doc
    return operator


def _test(name: str) -> Callable[[Expr], Call]:
    def operator(data: Expr) -> Call:
        if data.dtype.is_float:
            return call(name, data)
        return call("equal" if name == "isfinite" else "not_equal", data, data)

    operator.__name__ = operator.__qualname__ = name
    operator.__doc__ = f"{get(name).doc}  Integers are finite."
    return operator


def _binary(name: str) -> Callable[[Any, Any], Call]:
    def operator(lhs: Any, rhs: Any) -> Call:
        return call(name, *same_dtype(lhs, rhs))

    operator.__name__ = operator.__qualname__ = name
    operator.__doc__ = f"{get(name).doc}  Shapes broadcast; one operand may be a number."
    return operator


exp, log, sqrt, rsqrt = map(_unary, ("exp", "log", "sqrt", "rsqrt"))
tanh, sigmoid, erf, sin, cos = map(_unary, ("tanh", "sigmoid", "erf", "sin", "cos"))
tan, asin, acos, atan = map(_unary, ("tan", "asin", "acos", "atan"))
sinh, cosh, asinh, acosh, atanh = map(_unary, ("sinh", "cosh", "asinh", "acosh", "atanh"))
abs, negative, floor, ceil, copy = map(_unary, ("abs", "negative", "floor", "ceil", "copy"))
round, sign, bitwise_not, logical_not = map(_unary, ("round", "sign", "bitwise_not", "logical_not"))
isnan, isinf, isfinite = map(_test, ("isnan", "isinf", "isfinite"))
fast_exp, fast_tanh, fast_erf = exp, tanh, erf  # TVM's other names, and not less exact
add, subtract, multiply, divide = map(_binary, ("add", "subtract", "multiply", "divide"))
maximum, minimum = map(_binary, ("maximum", "minimum"))
floor_divide, trunc_divide = map(_binary, ("floor_divide", "trunc_divide"))
floor_mod, mod = map(_binary, ("floor_mod", "mod"))
trunc_mod = mod
equal, not_equal, less, less_equal, greater, greater_equal = map(
    _binary, ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
)
logical_and, logical_or, logical_xor = map(_binary, ("logical_and", "logical_or", "logical_xor"))
bitwise_and, bitwise_or, bitwise_xor = map(_binary, ("bitwise_and", "bitwise_or", "bitwise_xor"))
left_shift, right_shift = map(_binary, ("left_shift", "right_shift"))


def power(lhs: Any, rhs: Any) -> Expr:
    """lhs to the power rhs; shapes broadcast, one operand may be a number.

    An exponent of 1, 2 or 3 becomes products, one half a square root.
    """
    base, exponent = same_dtype(lhs, rhs)
    known = exponent.data if isinstance(exponent, Constant) and exponent.data.size == 1 else None
    if known is None or known.ndim > len(base.shape):
        return call("power", base, exponent)
    if known.item() == 0.5:
        return sqrt(base)
    if known.item() not in (1, 2, 3):
        return call("power", base, exponent)
    result: Expr = base
    for _ in range(int(known.item()) - 1):
        result = multiply(result, base)
    return result


def trunc(data: Expr) -> Expr:
    """data without its fraction: rounded towards zero."""
    return where(less(data, 0), ceil(data), floor(data))


def log2(data: Expr) -> Call:
    """Logarithm to the base 2."""
    return multiply(log(data), 1 / math.log(2))


def log10(data: Expr) -> Call:
    """Logarithm to the base 10."""
    return multiply(log(data), 1 / math.log(10))


def where(condition: Expr, x: Any, y: Any) -> Call:
    """x where `condition` holds, else y; all broadcast.  Numbers hold unless they are 0."""
    kind = condition.tensor_type.dtype
    held = condition if kind == "bool" else not_equal(condition, const(0, kind))
    return call("where", held, *same_dtype(x, y))


def clip(a: Expr, a_min: float, a_max: float) -> Call:
    """`a` limited to [a_min, a_max]."""
    return call("clip", a, a_min=float(a_min), a_max=float(a_max))


def cast(data: Expr, dtype: str) -> Call:
    """`data` converted to `dtype`."""
    return call("cast", data, dtype=str(check_dtype(dtype, "relay.cast")))


def reshape(data: Expr, newshape: int | Sequence[int]) -> Call:
    """`data` under another shape, row-major.

    newshape: extents; 0 keeps the input's extent at that place, one -1 takes what is left, -2 keeps
        all the input's extents from there on, -3 joins two of them, -4 splits one into the two
        numbers behind it, of which one may be -1
    """
    given = tuple(newshape) if isinstance(newshape, (tuple, list, np.ndarray)) else (newshape,)
    place = f"reshape(data={data.shape}, newshape={tuple(given)})"
    return call("reshape", data, newshape=reshaped_shape(data.shape, given, place))


def as_shape(data: Expr, shape: int | Sequence[int]) -> Call:
    """`data` under a computed shape: every extent is meant, also 0, and one -1 is the rest."""
    extents = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
    if -1 not in extents:
        return call("reshape", data, newshape=extents)
    rest = -math.prod(extents)
    if not rest:
        return reshape(data, extents)  # which says that anything would do
    return call(
        "reshape", data,
        newshape=tuple(math.prod(data.shape) // rest if n == -1 else n for n in extents),
    )  # fmt: skip


def reshaped_shape(old: Sequence[int], codes: Sequence[int], place: str) -> tuple[int, ...]:
    """What `reshape` makes of the shape `old`.  Raises ModelError."""
    left, todo = list(old), [int(n) for n in codes]
    shape: list[int] = []

    def taken(count: int, code: int) -> list[int]:
        if len(left) < count:
            raise ModelError(
                place, f"{code} at position {len(shape)} has no input extent to keep",
                "Write the extent, or -1 for the rest.",
            )  # fmt: skip
        found = left[:count]
        del left[:count]
        return found

    while todo:
        n = todo.pop(0)
        if n < -4 or (n == -4 and len(todo) < 2):
            raise ModelError(
                place, f"the extent {n}", "Use extents, 0 (keep), one -1 (the rest), -2, -3, -4."
            )
        if n == 0:
            shape += taken(1, n)
        elif n == -2:
            shape += taken(len(left), n)
        elif n == -3:
            shape.append(math.prod(taken(2, n)))
        elif n == -4:
            (whole,), first, second = taken(1, n), todo.pop(0), todo.pop(0)
            known = second if first == -1 else first
            parts = [first, second] if -1 not in (first, second) or known < 1 else [
                whole // known if n == -1 else n for n in (first, second)
            ]  # fmt: skip
            if math.prod(parts) != whole or -1 in parts:
                raise ModelError(
                    place, f"an extent of {whole} is not split into {parts[0]} and {parts[1]}",
                    "Their product must be the extent.",
                )  # fmt: skip
            shape += parts
        else:
            shape.append(n)
            del left[:1]
    if shape.count(-1) > 1:
        raise ModelError(place, "more than one extent is -1", "Only one can be left open.")
    if -1 in shape:
        size, rest = math.prod(old), -math.prod(shape)
        if rest == 0 or size % rest:
            raise ModelError(
                place,
                f"{size} elements are not a multiple of {rest}",
                "The product of the extents must stay the same.",
            )
        shape[shape.index(-1)] = size // rest
    return tuple(shape)


def transpose(data: Expr, axes: Sequence[int] | None = None) -> Call:
    """The axes of `data` in the order `axes`; reversed when it is left out."""
    rank = len(data.shape)
    order = range(rank - 1, -1, -1) if axes is None else axes
    return call("transpose", data, axes=tuple(int(a) + (rank if a < 0 else 0) for a in order))


def squeeze(data: Expr, axis: Axes = None) -> Call:
    """`data` without the axes of extent 1 named by `axis`, or without all of them."""
    return call("squeeze", data, axis=_axes(axis))


def expand_dims(data: Expr, axis: int, num_newaxis: int = 1) -> Call:
    """`data` with `num_newaxis` axes of extent 1 at `axis`."""
    return call("expand_dims", data, axis=int(axis), num_newaxis=int(num_newaxis))


def concatenate(data: Expr | Sequence[Expr], axis: int = 0) -> Call:
    """Tensors one behind the other along `axis`; data: a list of values, or a Tuple."""
    parts = data if isinstance(data, Expr) else Tuple(data)
    made = call("concatenate", parts, axis=int(axis))
    return made if axis >= 0 else call("concatenate", parts, axis=int(axis) + len(made.shape))


def broadcast_to(data: Expr, shape: Any) -> Call:
    """`data` stretched to `shape`."""
    return call("broadcast_to", data, shape=static_shape(shape, "broadcast_to"))


def _axes(axis: Any) -> tuple[int, ...] | None:
    if axis is None:
        return None
    return tuple(int(a) for a in (axis if isinstance(axis, (tuple, list, np.ndarray)) else (axis,)))


def _reduction(name: str) -> Callable[..., Call]:
    def operator(
        data: Expr, axis: Axes = None, keepdims: bool = False, exclude: bool = False
    ) -> Call:
        return call(name, data, axis=_axes(axis), keepdims=bool(keepdims), exclude=bool(exclude))

    operator.__name__ = operator.__qualname__ = name
    operator.__doc__ = (
        f"{get(name).doc}  axis: int, ints or None for all; exclude: `axis` names those that stay."
    )
    return operator


def _ordered(name: str) -> Callable[..., Expr]:
    """A reduction that bool has, too: it is ordered, and has no arithmetic."""
    reduction = _reduction(name)

    @functools.wraps(reduction)
    def operator(
        data: Expr, axis: Axes = None, keepdims: bool = False, exclude: bool = False
    ) -> Expr:
        if data.dtype != "bool":
            return reduction(data, axis, keepdims, exclude)
        return cast(reduction(cast(data, "uint8"), axis, keepdims, exclude), "bool")

    return operator


sum, mean, prod = map(_reduction, ("sum", "mean", "prod"))
max, min = map(_ordered, ("max", "min"))


def full(fill_value: float | Expr, shape: Any, dtype: str | None = None) -> Expr:
    """A tensor of one value: a constant, unless the value is one of the graph.

    dtype: default: float32, or that of a value of the graph
    """
    if isinstance(fill_value, Expr):
        single = fill_value if not fill_value.shape else reshape(fill_value, ())
        return broadcast_to(single if dtype is None else cast(single, dtype), shape)
    return filled(fill_value, shape, "float32" if dtype is None else dtype)


def filled(fill_value: float, shape: Any, dtype: str) -> Expr:
    """A tensor of one value: a constant, unless an extent is open."""
    kind = check_dtype(dtype, "relay.full")
    dims = static_shape(shape, "relay.full")
    if is_open(dims):
        return broadcast_to(const(np.full((), fill_value, kind.storage)), dims)
    try:
        return const(np.full(dims, fill_value, kind.storage))
    except (MemoryError, ValueError) as error:
        raise ModelError(f"full({dims})", f"it has no room ({error})", "Use less.") from None


def zeros(shape: Any, dtype: str = "float32") -> Expr:
    """A tensor of zeros, a constant."""
    return filled(0, shape, dtype)


def ones(shape: Any, dtype: str = "float32") -> Expr:
    """A tensor of ones, a constant."""
    return filled(1, shape, dtype)


__all__ = [
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atanh", "bitwise_and",
    "bitwise_not", "bitwise_or", "bitwise_xor", "broadcast_to", "cast", "ceil", "clip",
    "concatenate", "copy", "cos", "cosh", "divide", "equal", "erf", "exp", "expand_dims",
    "fast_erf", "fast_exp", "fast_tanh", "floor", "floor_divide", "floor_mod", "full", "greater",
    "greater_equal", "isfinite", "isinf", "isnan", "left_shift", "less", "less_equal", "log",
    "log2", "log10", "logical_and", "logical_not", "logical_or", "logical_xor", "max", "maximum",
    "mean", "min", "minimum", "mod", "multiply", "negative", "not_equal", "ones", "power", "prod",
    "reshape", "right_shift", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "squeeze",
    "subtract", "sum", "tan", "tanh", "transpose", "trunc", "trunc_divide", "trunc_mod", "where",
    "zeros",
]  # fmt: skip
