"""Operators that compare elements of an axis with each other: medians, running extremes, bins."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tilewright.graph.expr import Expr
from tilewright.graph.functions import indexing as relay_indexing
from tilewright.graph.functions import tensor
from tilewright.graph.functions.selection import searchsorted
from tilewright.graph.leaves import const
from tilewright.models.torch.node import Converter, Node, as_type, common_type, number
from tilewright.models.torch.ops.elementwise import operand
from tilewright.models.torch.ops.movement import part, reshaped, with_axis

# -- places in what is sorted ----------------------------------------------------------------------


def _searched(n: Node, values: str, bounds: str) -> Expr:
    """How many bounds are below each value, or with right=True not above it; NaN is above all."""
    right = bool(n.get("right", False)) or n.get("side") == "right"
    edges = n[bounds]
    if (order := n.optional("sorter")) is not None:
        edges = relay_indexing.gather(edges, len(edges.shape) - 1, order)
    kind = common_type([edges, n.args[values]])
    edges, wanted = as_type(edges, kind), operand(n, values, kind)
    row = wanted if wanted.shape else tensor.as_shape(wanted, (1,))
    found = searchsorted(edges, row, right, n.dtype)
    if row.dtype.is_float:
        found = tensor.where(tensor.isnan(row), number(edges.shape[-1], n.dtype), found)
    return reshaped(found, n.shape)


def _histogram(n: Node) -> Expr:
    """How many elements lie in each of equal bins between min and max, or, where these are equal,
    between the least and the greatest element."""
    data, bins = n["self"], n.integer("bins", 100)
    flat, kind = reshaped(data, (1, data.tensor_type.size)), str(data.dtype)
    low, high = number(n.get("min", 0), kind), number(n.get("max", 0), kind)
    least: Expr = low
    most: Expr = high
    if low.data == high.data:
        least, most = tensor.min(data), tensor.max(data)
        same, one = tensor.equal(least, most), number(1, kind)
        least, most = (
            tensor.where(same, tensor.subtract(least, one), least),
            tensor.where(same, tensor.add(most, one), most),
        )
    share = tensor.divide(tensor.subtract(flat, least), tensor.subtract(most, least))
    at = tensor.floor(tensor.multiply(share, number(bins, kind)))
    at = tensor.where(tensor.equal(flat, most), number(bins - 1, kind), at)
    each = const(np.arange(bins).reshape(bins, 1), kind)
    return tensor.sum(tensor.cast(tensor.equal(at, each), kind), (1,))


# -- one of the elements in order ------------------------------------------------------------------


def _picked(n: Node, data: Expr, axis: int, at: Expr) -> list[Expr]:
    """[values, where they are] at the positions `at` of each sorted row; extent 1 along `axis`."""
    values, places = relay_indexing.topk(data, 0, axis, "both", True, "int64")
    found = [relay_indexing.gather(v, axis, at) for v in (values, places)]
    return [reshaped(v, n.shape) for v in found]


def _shape_of_one(data: Expr, axis: int) -> tuple[int, ...]:
    return (*data.shape[:axis], 1, *data.shape[axis + 1 :])


def _vector_or_axis(n: Node) -> tuple[Expr, int]:
    data = n["self"]
    if "dim" in n.args:
        return with_axis(data), n.axis()
    return reshaped(data, (data.tensor_type.size,)), 0


def _kth(n: Node) -> list[Expr]:
    data, axis = _vector_or_axis(n)
    at = tensor.broadcast_to(number(n.integer("k") - 1, "int64"), _shape_of_one(data, axis))
    return _picked(n, data, axis, at)


def _median(skips_nan: bool) -> Converter:
    """The lower of two elements in the middle; NaN is the median of what it is in, or skipped."""

    def convert(n: Node) -> Expr | list[Expr]:
        is_none: Expr
        data, axis = _vector_or_axis(n)
        shape = _shape_of_one(data, axis)
        middle: Expr = tensor.broadcast_to(number((data.shape[axis] - 1) // 2, "int64"), shape)
        if not data.dtype.is_float:
            found = _picked(n, data, axis, middle)
            return found if len(n.results) > 1 else found[0]
        none, kind = tensor.isnan(data), str(data.dtype)
        count = tensor.sum(tensor.cast(none, "int64"), (axis,), True)
        last = tensor.where(none, number(math.inf, kind), data)
        if skips_nan:
            left = tensor.subtract(number(data.shape[axis] - 1, "int64"), count)
            half = tensor.floor_divide(left, number(2, "int64"))
            middle = tensor.maximum(half, number(0, "int64"))
            is_none = tensor.less(left, number(0, "int64"))
        else:
            is_none = tensor.greater(count, number(0, "int64"))
        value, where = _picked(n, last, axis, middle)
        first = relay_indexing.argmax(tensor.cast(none, "int32"), axis, True)
        is_none, first = reshaped(is_none, n.shape), reshaped(first, n.shape)
        value = tensor.where(is_none, number(math.nan, kind), value)
        if len(n.results) == 1:
            return value
        return [value, tensor.where(is_none, as_type(first, "int64"), where)]

    return convert


def _mode(n: Node) -> list[Expr]:
    """The least of the most frequent elements, and where it is last."""
    data, axis = _vector_or_axis(n)
    ordered = relay_indexing.sort(data, axis)
    same = tensor.equal(tensor.expand_dims(ordered, axis + 1), tensor.expand_dims(ordered, axis))
    count = tensor.sum(tensor.cast(same, "int32"), (axis + 1,))
    at = relay_indexing.argmax(count, axis, True)
    value = relay_indexing.gather(ordered, axis, as_type(at, "int64"))
    held = tensor.cast(tensor.equal(data, value), "int32")
    where = relay_indexing.argmax(held, axis, True, select_last_index=True)
    return [reshaped(v, n.shape) for v in (value, where)]


# -- running results -------------------------------------------------------------------------------


def _running(
    parts: list[Expr], axis: int, joined: Callable[[list[Expr], list[Expr]], list[Expr]]
) -> list[Expr]:
    """Of all elements up to each one: joined(earlier, later) of runs that double in length."""
    extent, step = parts[0].shape[axis], 1
    while step < extent:
        earlier = [part(p, axis, 0, extent - step) for p in parts]
        later = [part(p, axis, step, extent) for p in parts]
        heads = [part(p, axis, 0, step) for p in parts]
        parts = [
            tensor.concatenate([head, made], axis)
            for head, made in zip(heads, joined(earlier, later), strict=True)
        ]
        step *= 2
    return parts


def _running_extreme(reaches: Callable[[Expr, Expr], Expr]) -> Converter:
    """With the place of each, the last of equal ones; NaN goes on."""

    def joined(earlier: list[Expr], later: list[Expr]) -> list[Expr]:
        is_new = reaches(later[0], earlier[0])
        if later[0].dtype.is_float:
            stays = tensor.logical_not(tensor.isnan(earlier[0]))
            is_new = tensor.logical_or(tensor.isnan(later[0]), tensor.logical_and(stays, is_new))
        return [tensor.where(is_new, b, a) for a, b in zip(earlier, later, strict=True)]

    def convert(n: Node) -> list[Expr]:
        data, axis = with_axis(n["self"]), n.axis()
        along = [-1 if k == axis else 1 for k in range(len(data.shape))]
        places = np.arange(data.shape[axis]).reshape(along)
        where = tensor.broadcast_to(const(places, "int64"), data.shape)
        return [reshaped(v, n.shape) for v in _running([data, where], axis, joined)]

    return convert


def _log_of_sum(earlier: list[Expr], later: list[Expr]) -> list[Expr]:
    """log(exp(a) + exp(b)), from the greater of both."""
    (a,), (b,) = earlier, later
    most = tensor.maximum(a, b)
    zero, one = (number(k, str(a.dtype)) for k in (0, 1))
    away = tensor.where(
        tensor.equal(a, b), zero, tensor.negative(tensor.abs(tensor.subtract(a, b)))
    )
    return [tensor.add(most, tensor.log(tensor.add(tensor.exp(away), one)))]


def _running_log(n: Node) -> Expr:
    data = with_axis(as_type(n["self"], n.dtype))
    return reshaped(_running([data], n.axis(), _log_of_sum)[0], n.shape)


CONVERTERS: dict[str, Converter] = {
    **{f"searchsorted.{k}": lambda n: _searched(n, "self", "sorted_sequence")
       for k in ("Tensor", "Scalar")},
    **{f"bucketize.{k}": lambda n: _searched(n, "self", "boundaries")
       for k in ("Tensor", "Scalar")},
    "histc.default": _histogram,
    "kthvalue.default": _kth,
    **{f"median.{k}": _median(skips_nan=False) for k in ("default", "dim")},
    **{f"nanmedian.{k}": _median(skips_nan=True) for k in ("default", "dim")},
    "mode.default": _mode,
    "cummax.default": _running_extreme(tensor.greater_equal),
    "cummin.default": _running_extreme(tensor.less_equal),
    "logcumsumexp.default": _running_log,
}  # fmt: skip
