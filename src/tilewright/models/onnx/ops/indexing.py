"""Operators whose indices are data, and those that order elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.graph.expr import Array, Expr, TupleGetItem
from tilewright.graph.functions import indexing, tensor
from tilewright.graph.functions.boxes import selected_boxes
from tilewright.graph.functions.dynamic import unique_of
from tilewright.graph.leaves import const
from tilewright.graph.op import call
from tilewright.graph.traversal import unpacked
from tilewright.models.onnx.node import Converter, Node


def known(n: Node, index: int) -> Array | None:
    """Input `index` if it is there and known at import."""
    return n.static_of(str(n.names[index])) if n.has(index) else None


def _check_places(n: Node, extents: Sequence[int] | int) -> None:
    """Refuse indices of the model that lie outside; extents: of all, or by their last axis."""
    indices = known(n, 1)
    if indices is None:
        return
    limits = np.asarray(extents)
    outside = (indices < -limits) | (indices >= limits)
    n.require(
        not outside.any(), f"its indices leave the axis of {extents} elements",
        "The model is damaged; export it again.",
    )  # fmt: skip


def _gather(n: Node) -> Expr:
    data, indices = n[0], known(n, 1)
    axis = n.axis(n.attr("axis", 0), len(data.shape))
    extent = data.shape[axis]
    _check_places(n, extent)
    if indices is None:
        return indexing.take(data, n[1], axis, mode="wrap")
    steps = np.unique(np.diff(indices.reshape(-1) % extent))
    if indices.size and len(steps) <= 1 and 0 not in steps:  # evenly spaced: a slice
        first, step = int(indices.flat[0] % extent), int(steps[0]) if steps.size else 1
        places = [range(e) for e in data.shape]
        places[axis] = range(first, first + step * indices.size, step)
        cut = indexing.slice_of(data, places)
        return tensor.as_shape(cut, (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))
    return indexing.take(data, n[1], axis, mode="wrap")


def _gather_elements(n: Node) -> Expr:
    _check_places(n, n[0].shape[n.axis(n.attr("axis", 0), len(n[0].shape))])
    return indexing.gather(n[0], n.attr("axis", 0), n[1])


def _points_first(indices: Expr) -> Expr:
    """ONNX spells a point by the last axis of its indices, TVM by the first."""
    rank = len(indices.shape)
    return tensor.transpose(indices, (rank - 1, *range(rank - 1)))


def _check_points(n: Node, batch: int = 0) -> None:
    rank = len(n[1].shape)
    chosen = n[0].shape[batch : batch + n[1].shape[-1]] if rank else ()
    if rank and len(chosen) == n[1].shape[-1]:
        _check_places(n, chosen)


def _gather_nd(n: Node) -> Expr:
    _check_points(n, n.attr("batch_dims", 0))
    return indexing.gather_nd(n[0], _points_first(n[1]), n.attr("batch_dims", 0))


def _scatter_elements(n: Node) -> Expr:
    _check_places(n, n[0].shape[n.axis(n.attr("axis", 0), len(n[0].shape))])
    return indexing.scatter_elements(n[0], n[1], n[2], n.attr("axis", 0), _reduction(n))


def _reduction(n: Node) -> str:
    reduction = str(n.attr("reduction", "none"))
    return "update" if reduction == "none" else reduction


def _scatter_nd(n: Node) -> Expr:
    _check_points(n)
    return indexing.scatter_nd(n[0], _points_first(n[1]), n[2], _reduction(n))


def _tensor_scatter(n: Node) -> Expr:
    """A cache with one update for each of some following places."""
    cache, rank = n[0], len(n[0].shape)
    update = n.of_rank(1, rank)
    axis = n.axis(n.attr("axis", -2), rank)
    mode, length = n.attr("mode", "linear"), cache.shape[axis]
    n.require(mode in ("linear", "circular"), f"mode={mode}", "Use linear or circular.")
    n.require(axis > 0, "its axis is that of the batch", "Use another axis.")
    batch = [update.shape[0], *[1] * (rank - 1)]
    first = n[2] if n.has(2) else const(np.zeros(update.shape[0], "int64"))
    along = np.arange(update.shape[axis]).reshape([-1 if k == axis else 1 for k in range(rank)])
    at = call("add", tensor.as_shape(first, batch), const(along.astype(first.dtype)))
    if mode == "circular":
        at = tensor.where(call("less", at, const(length, at.dtype)), at, at - length)
    return indexing.scatter_elements(cache, tensor.broadcast_to(at, update.shape), update, axis)


def _one_hot(n: Node) -> Expr:
    count, values, indices = n.whole(1, "its depth") or 0, n[2], n[0]
    n.require(count >= 1, f"its depth is {count}", "Use at least 1.")
    n.require(values.shape == (2,), f"its values have shape {values.shape}", "Give [off, on].")
    if not indices.dtype.is_index:
        indices = tensor.cast(indices, "int64")
    zero, whole = const(0, indices.dtype), const(count, indices.dtype)
    counted = tensor.where(call("less", indices, zero), call("add", indices, whole), indices)
    off, on = (tensor.as_shape(v, ()) for v in indexing.split(values, 2))
    return indexing.one_hot(counted, on, off, count, n.attr("axis", -1), values.dtype)


def _arg(name: str) -> Converter:
    def convert(n: Node) -> Expr:
        return call(
            name, n[0], axis=n.axis(n.attr("axis", 0), len(n[0].shape)),
            keepdims=n.flag("keepdims", True), select_last_index=n.flag("select_last_index"),
            dtype="int64",
        )  # fmt: skip

    return convert


def _topk(n: Node) -> list[Expr]:
    k = n.attr("k")
    if k is None:
        k = n.whole(1, "its k") or 0
    largest = n.flag("largest", True)
    n.flag("sorted", True)  # unsorted means that any order will do
    axis = n.axis(n.attr("axis", -1), len(n[0].shape))
    return list(indexing.first_in_order(n[0], k, axis, not largest, "int64"))


def _cumsum(name: str) -> Converter:
    def convert(n: Node) -> Expr:
        at = n.axis(n.whole(1, "its axis") or 0, len(n[0].shape))
        return call(name, n[0], axis=at, exclusive=n.flag("exclusive"), reverse=n.flag("reverse"))

    return convert


def _compress(n: Node) -> Expr:
    condition, data = n[1], n[0]
    axis = n.attr("axis")
    if axis is None:
        data, axis = tensor.as_shape(data, (-1,)), 0
    at = n.axis(axis, len(data.shape))
    extent = data.shape[at]

    def places(held: Array) -> Array:
        return np.flatnonzero(held[:extent]).astype("int64")

    return indexing.take(data, n.computed(places, condition), at)


def _non_zero(n: Node) -> Expr:
    def places(data: Array) -> Array:
        return np.stack(np.nonzero(np.atleast_1d(data))).astype("int64")

    return n.computed(places, n[0])


def _unique(n: Node) -> list[Expr]:
    data, axis, in_order = n[0], n.attr("axis"), n.flag("sorted", True)
    if axis is not None:
        axis = n.axis(axis, len(data.shape))

    def found(array: Array) -> tuple[Array, ...]:
        values, *counts = unique_of(array, in_order, axis)
        return values, *(c.astype("int64") for c in counts)

    made = n.computed(found, data, several=True)
    return [unpacked(TupleGetItem(made, k)) for k in range(4)]


def _non_max_suppression(n: Node) -> Expr:
    by_center, given = n.flag("center_point_box"), [n.has(k) for k in range(2, 5)]
    boxes, scores = n.of_rank(0, 3), n.of_rank(1, 3)
    n.require(
        boxes.shape == (scores.shape[0], scores.shape[2], 4),
        f"boxes {boxes.shape} and scores {scores.shape} do not belong together",
        "Give [batch, boxes, 4] and [batch, classes, boxes].",
    )  # fmt: skip

    def chosen(corners: Array, scores: Array, *limits: Array) -> Array:
        there = iter(limit.reshape(-1)[0] for limit in limits)
        most, overlap, least = (next(there) if has else None for has in given)
        return selected_boxes(
            corners, scores, int(most or 0), float(overlap or 0),
            -np.inf if least is None else float(least), by_center,
        )  # fmt: skip

    return n.computed(chosen, boxes, scores, *(n[k] for k in range(2, 5) if n.has(k)))


CONVERTERS: dict[str, Converter] = {
    "ArgMax": _arg("argmax"),
    "ArgMin": _arg("argmin"),
    "Compress": _compress,
    "CumProd": _cumsum("cumprod"),
    "CumSum": _cumsum("cumsum"),
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _non_zero,
    "OneHot": _one_hot,
    "ReverseSequence": lambda n: indexing.reverse_sequence(
        n[0], n[1], n.attr("time_axis", 0), n.attr("batch_axis", 1)
    ),
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TensorScatter": _tensor_scatter,
    "TopK": _topk,
    "Unique": _unique,
}
