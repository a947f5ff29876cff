"""Operators that read or write where a tensor of integers says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.relay import indexing as relay_indexing
from tilewright.relay import tensor
from tilewright.relay.exchange.torch.node import Converter, Node, as_type, number
from tilewright.relay.exchange.torch.ops.movement import reshaped
from tilewright.relay.graph.expr import Array, Constant, Expr, const


def from_front(n: Node, index: Expr, extent: int) -> Expr:
    """Positions counted from the front; those that are known are computed now."""
    known = n.static_of(index)
    if known is not None:
        return Constant(np.where(known < 0, known + extent, known).astype(known.dtype))
    kind = str(index.dtype)
    behind = tensor.add(index, number(extent, kind))
    return tensor.where(tensor.less(index, number(0, kind)), behind, index)


def take(data: Expr, index: Expr, axis: int) -> Expr:
    """Slices of `axis` at the positions in `index`, which may have any shape."""
    found: Expr = relay_indexing.take(data, index, axis)
    return found


def _embedding(n: Node) -> Expr:
    return take(n["weight"], n["indices"], 0)


def _windows(n: Node, extent: int) -> Array:
    """The positions in each window of an axis: [windows, size]."""
    size, step = n.integer("size"), n.integer("step")
    n.require(1 <= size <= extent and step >= 1, f"windows of {size} every {step} of {extent}")
    starts = range(0, extent - size + 1, step)
    n.room(8 * len(starts) * size)
    return np.asarray(np.add.outer(np.asarray(starts, "int64"), np.arange(size)))


def _unfold(n: Node) -> Expr:
    """Windows of an axis, which overlap where the step is less than they have elements."""
    data = n["self"]
    if not data.shape:
        return reshaped(data, n.shape)
    axis, rank = n.axis("dimension"), len(data.shape)
    found = take(data, const(_windows(n, data.shape[axis])), axis)
    order = [k for k in range(rank + 1) if k != axis + 1]
    return tensor.transpose(found, [*order, axis + 1])


def _overlapped(n: Node) -> Expr:
    """The sum of windows of an axis, each at its place."""
    grad, shape = n["grad_in"], n.shape
    axis, rank = n.axis("dim", len(shape)), len(shape)
    at = _windows(n, shape[axis])
    order = [*range(axis + 1), rank, *range(axis + 1, rank)]
    flat = (*shape[:axis], at.size, *shape[axis + 1 :])
    wide = (*shape[:axis], at.shape[0], *shape[axis + 1 :], at.shape[1])
    grad = grad if grad.shape == wide else tensor.broadcast_to(grad, wide)
    parts = reshaped(tensor.transpose(grad, order), flat)
    along = [at.size if k == axis else 1 for k in range(rank)]
    index = tensor.broadcast_to(const(at.reshape(along)), flat)
    empty = tensor.broadcast_to(number(0, n.dtype), shape)
    return relay_indexing.scatter_elements(empty, index, parts, axis, "add")


def _index_select(n: Node) -> Expr:
    data, axis = n["self"], n.axis()
    if not data.shape:
        return data
    index = n["index"]
    return take(data, from_front(n, reshaped(index, (index.tensor_type.size,)),
                                 data.shape[axis]), axis)  # fmt: skip


def _index(n: Node) -> Expr:
    """NumPy's indexing by several tensors: one position in the indexed axes together."""
    data, given = n["self"], list(n.args["indices"])
    axes = [k for k, index in enumerate(given) if index is not None]
    indices = [given[k] for k in axes]
    n.require(all(i.dtype != "bool" for i in indices), "a mask picks a number of elements that "
              "is not known", "Use torch.where.")  # fmt: skip
    if len(axes) == 1:
        return take(data, from_front(n, indices[0], data.shape[axes[0]]), axes[0])
    shape = tuple(map(int, np.broadcast_shapes(*(i.shape for i in indices))))
    flat = _position(n, indices, [data.shape[a] for a in axes])
    adjacent = axes == list(range(axes[0], axes[-1] + 1))
    rest = [k for k in range(len(data.shape)) if k not in axes]
    if not adjacent:  # the indexed axes go to the front
        data = tensor.transpose(data, [*axes, *rest])
    first = axes[0] if adjacent else 0
    before, after = data.shape[:first], data.shape[first + len(axes) :]
    whole = reshaped(data, (*before, math.prod(data.shape[first : first + len(axes)]), *after))
    found = take(whole, reshaped(flat, (math.prod(shape),)), first)
    return reshaped(found, (*before, *shape, *after))


def _position(n: Node, indices: list[Expr], extents: list[int]) -> Expr:
    """Where (i, j, ...) is in row-major order; computed now if all are known."""
    known = [k for i in indices if (k := n.static_of(i)) is not None]
    if len(known) == len(indices):
        wrapped = [np.where(k < 0, k + e, k) for k, e in zip(known, extents, strict=True)]
        return Constant(np.asarray(np.ravel_multi_index(
            tuple(np.broadcast_arrays(*wrapped)), extents, mode="clip"), np.int64))  # fmt: skip
    total: Expr | None = None
    for index, extent in zip(indices, extents, strict=True):
        at = as_type(from_front(n, index, extent), "int64")
        if total is None:
            total = at
        else:
            total = tensor.add(tensor.multiply(total, const(extent, "int64")), at)
    assert total is not None
    return total


def _gather(n: Node) -> Expr:
    data, axis = n["self"], n.axis()
    if not data.shape:
        return data
    found: Expr = relay_indexing.gather(data, axis, from_front(n, n["index"], data.shape[axis]))
    return found


def _scatter(reduction: str) -> Converter:
    def convert(n: Node) -> Expr:
        data, axis = n["self"], n.axis()
        index = from_front(n, n["index"], data.shape[axis])
        source: Any = n.args.get("src", n.args.get("value"))
        if isinstance(source, Expr):
            updates = as_type(source, n.dtype)
            if updates.shape != index.shape:  # the rest of a larger source is not read
                updates = relay_indexing.slice_of(updates, [range(m) for m in index.shape])
        else:
            updates = tensor.broadcast_to(number(source, n.dtype), index.shape)
        found: Expr = relay_indexing.scatter_elements(data, index, updates, axis, reduction)
        return found

    return convert


def _index_put(n: Node) -> Expr:
    """Slices written at positions: `x[i, :, j] = values`."""
    data, given = n["self"], list(n.args["indices"])
    axes = [k for k, index in enumerate(given) if index is not None]
    if not axes:
        return tensor.broadcast_to(as_type(n["values"], n.dtype), data.shape)
    indices = [given[k] for k in axes]
    if len(axes) == 1 and indices[0].dtype == "bool":
        return _masked_put(n, indices[0], axes[0])
    shape = tuple(map(int, np.broadcast_shapes(*(i.shape for i in indices))))
    rest = [k for k in range(len(data.shape)) if k not in axes]
    adjacent = axes == list(range(axes[0], axes[-1] + 1))
    before = axes[0] if adjacent else 0  # axes of the values before those of the positions
    outer = [data.shape[k] for k in rest]
    wanted = (*outer[:before], *shape, *outer[before:])
    updates = as_type(n["values"], n.dtype)
    if updates.shape != wanted:
        updates = tensor.broadcast_to(updates, wanted)
    if before:  # the positions go to the front
        behind = before + len(shape)
        order = [*range(before, behind), *range(before), *range(behind, len(wanted))]
        updates = tensor.transpose(updates, order)
    parts = []
    for index, axis in zip(indices, axes, strict=True):
        at = as_type(from_front(n, index, data.shape[axis]), "int64")
        wide = at if at.shape == shape else tensor.broadcast_to(at, shape)
        parts.append(tensor.expand_dims(wide, 0))
    index = parts[0] if len(parts) == 1 else tensor.concatenate(parts, 0)
    mode = "add" if n.get("accumulate", False) else "update"
    order = [*axes, *rest]
    if order == sorted(order):
        found: Expr = relay_indexing.scatter_nd(data, index, updates, mode)
        return found
    made = relay_indexing.scatter_nd(tensor.transpose(data, order), index, updates, mode)
    return tensor.transpose(made, [order.index(k) for k in range(len(order))])


def _masked_put(n: Node, mask: Expr, axis: int) -> Expr:
    data, values = n["self"], as_type(n["values"], n.dtype)
    n.require(values.tensor_type.size == 1, "a mask says where values go", "Use torch.where.")
    behind = len(data.shape) - axis - len(mask.shape)
    mask = reshaped(mask, (*mask.shape, *(1,) * behind))
    return tensor.where(mask, reshaped(values, ()), data)


def _topk(n: Node) -> list[Expr]:
    found = relay_indexing.topk(
        n["self"], n.integer("k"), n.integer("dim", -1), "both", not n.get("largest", True), "int64"
    )
    return list(found)


def _sort(n: Node) -> list[Expr]:
    data, axis = n["self"], n.integer("dim", -1)
    ascending = not n.get("descending", False)
    found = relay_indexing.topk(data, data.shape[axis], axis, "both", ascending, "int64")
    return list(found)


def _cumsum(n: Node) -> Expr:
    data = as_type(n["self"], n.dtype)
    if not data.shape:
        return data
    found: Expr = relay_indexing.cumsum(data, n.axis())
    return found


CONVERTERS: dict[str, Converter] = {
    "embedding.default": _embedding,
    "index_select.default": _index_select,
    **dict.fromkeys(("unfold.default", "unfold_copy.default"), _unfold),
    "unfold_backward.default": _overlapped,
    "index.Tensor": _index,
    "_unsafe_index.Tensor": _index,
    "gather.default": _gather,
    "take_along_dim.default": _gather,
    "scatter.src": _scatter("update"),
    "scatter.value": _scatter("update"),
    "scatter_add.default": _scatter("add"),
    "index_put.default": _index_put,
    "_unsafe_index_put.default": _index_put,
    "topk.default": _topk,
    "sort.default": _sort,
    "sort.stable": _sort,
    "cumsum.default": _cumsum,
}
