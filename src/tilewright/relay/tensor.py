"""What users call: operators of tensors, `relay.add`, `relay.reshape`, `relay.mean`, ...

In: graph values, and numbers where a second operand may be one.  Out: calls.  Names and keywords
are TVM's.  Read next: `nn.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.relay.graph.expr import (
    Call,
    Constant,
    Expr,
    Tuple,
    check_dtype,
    const,
    static_shape,
)
from tilewright.relay.op import call, get, same_dtype

Axes = int | Sequence[int] | None


def _unary(name: str) -> Callable[[Expr], Call]:
    def operator(data: Expr) -> Call:
        return call(name, data)

    operator.__name__ = operator.__qualname__ = name
    operator.__doc__ = get(name).doc
    return operator


def _binary(name: str) -> Callable[[Any, Any], Call]:
    def operator(lhs: Any, rhs: Any) -> Call:
        return call(name, *same_dtype(lhs, rhs))

    operator.__name__ = operator.__qualname__ = name
    operator.__doc__ = f"{get(name).doc}  Shapes broadcast; one operand may be a number."
    return operator


exp, log, sqrt, rsqrt = map(_unary, ("exp", "log", "sqrt", "rsqrt"))
tanh, sigmoid, erf, sin, cos = map(_unary, ("tanh", "sigmoid", "erf", "sin", "cos"))
abs, negative, floor, ceil, copy = map(_unary, ("abs", "negative", "floor", "ceil", "copy"))
add, subtract, multiply, divide = map(_binary, ("add", "subtract", "multiply", "divide"))
maximum, minimum, power = map(_binary, ("maximum", "minimum", "power"))
equal, less, greater = map(_binary, ("equal", "less", "greater"))


def where(condition: Expr, x: Any, y: Any) -> Call:
    """x where the bool tensor `condition` holds, else y; all broadcast."""
    return call("where", condition, *same_dtype(x, y))


def clip(a: Expr, a_min: float, a_max: float) -> Call:
    """`a` limited to [a_min, a_max]."""
    return call("clip", a, a_min=float(a_min), a_max=float(a_max))


def cast(data: Expr, dtype: str) -> Call:
    """`data` converted to `dtype`."""
    return call("cast", data, dtype=str(check_dtype(dtype, "relay.cast")))


def reshape(data: Expr, newshape: int | Sequence[int]) -> Call:
    """`data` under another shape, row-major.

    newshape: extents; 0 keeps the input's extent at that place, one -1 takes what is left.
    """
    given = tuple(newshape) if isinstance(newshape, (tuple, list, np.ndarray)) else (newshape,)
    place = f"reshape(data={data.shape}, newshape={tuple(given)})"
    shape = [int(n) for n in given]
    for k, n in enumerate(shape):
        if n == 0 and k >= len(data.shape):
            raise ModelError(
                place,
                f"0 at position {k} has no input extent to keep",
                "Write the extent, or -1 for the rest.",
            )
        if n < -1:
            raise ModelError(
                place, f"the extent {n}", "Use extents, 0 (keep) and one -1 (the rest)."
            )
    shape = [data.shape[k] if n == 0 else n for k, n in enumerate(shape)]
    if shape.count(-1) > 1:
        raise ModelError(place, "more than one extent is -1", "Only one can be left open.")
    if -1 in shape:
        rest = -math.prod(shape)
        if rest == 0 or data.tensor_type.size % rest:
            raise ModelError(
                place,
                f"{data.tensor_type.size} elements are not a multiple of {rest}",
                "The product of the extents must stay the same.",
            )
        shape[shape.index(-1)] = data.tensor_type.size // rest
    return call("reshape", data, newshape=tuple(shape))


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
    return call("concatenate", data if isinstance(data, Expr) else Tuple(data), axis=int(axis))


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


sum, mean, max, min, prod = map(_reduction, ("sum", "mean", "max", "min", "prod"))


def full(fill_value: float, shape: Any, dtype: str = "float32") -> Constant:
    """A constant tensor of one value."""
    kind = check_dtype(dtype, "relay.full")
    dims = static_shape(shape, "relay.full")
    try:
        return const(np.full(dims, fill_value, kind.storage))
    except (MemoryError, ValueError) as error:
        raise ModelError(f"full({dims})", f"it has no room ({error})", "Use less.") from None


def zeros(shape: Any, dtype: str = "float32") -> Constant:
    """A constant tensor of zeros."""
    return full(0, shape, dtype)


def ones(shape: Any, dtype: str = "float32") -> Constant:
    """A constant tensor of ones."""
    return full(1, shape, dtype)


__all__ = [
    "abs", "add", "broadcast_to", "cast", "ceil", "clip", "concatenate", "copy", "cos",
    "divide", "equal", "erf", "exp", "expand_dims", "floor", "full", "greater", "less", "log",
    "max", "maximum", "mean", "min", "minimum", "multiply", "negative", "ones", "power", "prod",
    "reshape", "rsqrt", "sigmoid", "sin", "sqrt", "squeeze", "subtract", "sum", "tanh",
    "transpose", "where", "zeros",
]  # fmt: skip
