"""Operators that take a shape from another value: `relay.reshape_like`, `relay.collapse_sum_like`.

In: graph values.  Out: reshapes, sums and constants; of open extents, what computes them.
Read next: `graph/functions/tensor.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call, Expr, check_dtype, static_shape
from tilewright.graph.extents import is_open
from tilewright.graph.functions.indexing import axis_of, slice_of
from tilewright.graph.functions.tensor import (
    broadcast_to,
    cast,
    concatenate,
    prod,
    reshaped_shape,
    sum,
)
from tilewright.graph.leaves import const
from tilewright.graph.op import call


def reshape_like(
    data: Expr,
    shape_like: Expr,
    lhs_begin: int = 0,
    lhs_end: int | None = None,
    rhs_begin: int = 0,
    rhs_end: int | None = None,
) -> Call:
    """`data` with its axes lhs_begin to lhs_end as those of `shape_like` from rhs_begin to rhs_end.

    Ends count from the back where they are negative; None is behind the last axis.
    """
    first, last = slice(lhs_begin, lhs_end), slice(rhs_begin, rhs_end)
    begin, end, _ = first.indices(len(data.shape))
    taken = shape_like.shape[last]
    shape = (*data.shape[:begin], *taken, *data.shape[max(begin, end) :])
    if math.prod(shape) != data.tensor_type.size:
        raise ModelError(
            f"reshape_like(data={data.shape}, shape_like={shape_like.shape})",
            f"{data.shape[first]} and {taken} have not as many elements",
            "Name axes of which the product is the same.",
        )  # fmt: skip
    return call("reshape", data, newshape=shape)


def reverse_reshape(data: Expr, newshape: Sequence[int]) -> Call:
    """`reshape` with the codes of `newshape` read from the back: 0 keeps the extent that is as far
    from the last axis."""
    back = reshaped_shape(data.shape[::-1], tuple(newshape)[::-1], "reverse_reshape")
    return call("reshape", data, newshape=back[::-1])


def broadcast_to_like(data: Expr, broadcast_type: Expr) -> Call:
    """`data` stretched to the shape of `broadcast_type`."""
    return broadcast_to(data, broadcast_type.shape)


def collapse_sum_to(data: Expr, shape: Sequence[int]) -> Expr:
    """`broadcast_to` undone: sums over the axes along which `shape` would be stretched."""
    wanted = static_shape(shape, "relay.collapse_sum_to")
    more = len(data.shape) - len(wanted)
    fits = more >= 0 and all(
        w in (1, n) for w, n in zip(wanted, data.shape[max(more, 0) :], strict=False)
    )
    if not fits:
        raise ModelError(
            f"collapse_sum_to(data={data.shape}, shape={wanted})",
            "it cannot be stretched to the shape of the data", "Use 1, or the same extents.",
        )  # fmt: skip
    axes = [k for k, n in enumerate(data.shape) if k < more or wanted[k - more] != n]
    total: Expr = sum(data, axis=axes) if axes else data
    total = total if total.dtype == data.dtype else cast(total, data.dtype)
    return total if total.shape == wanted else call("reshape", total, newshape=wanted)


def collapse_sum_like(data: Expr, collapse_type: Expr) -> Expr:
    """`collapse_sum_to` the shape of `collapse_type`."""
    return collapse_sum_to(data, collapse_type.shape)


def cast_like(data: Expr, dtype_like: Expr) -> Call:
    """`data` in the element type of `dtype_like`."""
    return cast(data, dtype_like.dtype)


def shape_of(data: Expr, dtype: str = "int32") -> Expr:
    """The extents of `data`: a constant where all of them are known."""
    kind = check_dtype(dtype, "relay.shape_of")
    if not is_open(data.shape):
        return const(np.array(data.shape, kind.storage))
    return cast(concatenate([_counted(n) for n in data.shape], 0), kind)


def ndarray_size(data: Expr, dtype: str = "int32") -> Expr:
    """How many elements `data` has: a constant where all its extents are known."""
    kind = check_dtype(dtype, "relay.ndarray_size")
    if not is_open(data.shape):
        return const(np.array(data.tensor_type.size, kind.storage))
    return cast(prod(shape_of(data, "int64")), kind)


def slice_like(data: Expr, shape_like: Expr, axes: Sequence[int] | None = None) -> Call:
    """The beginning of `data`, as long as `shape_like` along `axes` (none named: all it has)."""
    rank, wanted = len(data.shape), shape_like.shape
    place = f"slice_like(data={data.shape}, shape_like={wanted})"
    named = [axis_of(int(a), rank, place) for a in axes] if axes else range(len(wanted))
    for k in named:
        if k >= min(rank, len(wanted)):
            raise ModelError(place, f"one of them has no axis {k}", "Name axes that both have.")
        if wanted[k] > data.shape[k]:
            raise ModelError(
                place, f"axis {k} of it is longer than that of the data",
                "Name axes along which it is not.",
            )  # fmt: skip
    cut = {k: wanted[k] for k in named}
    return slice_of(data, [range(cut.get(k, n)) for k, n in enumerate(data.shape)])


def _counted(extent: int) -> Expr:
    """[extent], which holds whatever an open one becomes: it is the extent of ones to be added."""
    one = const(np.ones(1, "int32"))
    return cast(sum(broadcast_to(one, (extent,)), axis=0, keepdims=True), "int64")


__all__ = [
    "broadcast_to_like", "cast_like", "collapse_sum_like", "collapse_sum_to", "ndarray_size",
    "reshape_like", "reverse_reshape", "shape_of", "slice_like",
]  # fmt: skip
