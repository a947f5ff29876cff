"""Operators that read or write where a tensor of integers says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.base.dtype import DType
from tilewright.graph.expr import Array, Constant, Expr, TupleGetItem
from tilewright.graph.functions import indexing as relay_indexing
from tilewright.graph.functions import tensor
from tilewright.graph.functions.indexing import take
from tilewright.graph.functions.selection import searchsorted
from tilewright.graph.leaves import const
from tilewright.graph.traversal import unpacked
from tilewright.models.torch.node import Converter, Node, as_type, first_of_several, number
from tilewright.models.torch.ops.elementwise import truth
from tilewright.models.torch.ops.movement import part, reshaped, with_axis


def from_front(n: Node, index: Expr, extent: int) -> Expr:
    """Positions counted from the front; those that are known are computed now."""
    known = n.static_of(index)
    if known is not None:
        return Constant(np.where(known < 0, known + extent, known).astype(known.dtype))
    kind = str(index.dtype)
    behind = tensor.add(index, number(extent, kind))
    return tensor.where(tensor.less(index, number(0, kind)), behind, index)


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
    data, given = n["self"], n.args["indices"]
    axes = [k for k, index in enumerate(given) if index is not None]
    if len(axes) == 1 and _is_mask(given[axes[0]]):
        return _of_masked(n, given[axes[0]], axes[0])
    by_axis = _without_masks(n, given)
    axes, indices = list(by_axis), list(by_axis.values())
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


def _is_mask(index: Expr) -> bool:
    return str(index.dtype) in ("bool", "uint8")


def places(n: Node, mask: Expr) -> Expr:
    """Where `mask` is not 0, in row-major order: [count], int64."""
    return n.computed(lambda held: np.flatnonzero(held).astype("int64"), mask)


def _of_masked(n: Node, mask: Expr, axis: int) -> Expr:
    """`x[:, mask]`: a mask of several axes makes one of them."""
    shape, behind = n["self"].shape, axis + len(mask.shape)
    if not mask.shape:  # all of it or nothing
        mask, behind, shape = reshaped(mask, (1,)), axis + 1, (*shape[:axis], 1, *shape[axis:])
    whole = (*shape[:axis], math.prod(shape[axis:behind]), *shape[behind:])
    return take(reshaped(n["self"], whole), places(n, mask), axis)


def _without_masks(n: Node, given: list[Expr | None]) -> dict[int, Expr]:
    """Positions by axis: among other indices a mask is those that it picks, for each axis of it."""
    found: dict[int, Expr] = {}
    axis = 0
    for index in given:
        if index is None or not _is_mask(index):
            found |= {} if index is None else {axis: index}
            axis += 1
            continue
        columns = n.computed(
            lambda held: tuple(c.astype("int64") for c in np.nonzero(held)), index, several=True
        )
        picked = (unpacked(TupleGetItem(columns, k)) for k in range(len(index.shape)))
        found |= dict(enumerate(picked, axis))
        axis += len(index.shape)
    return found


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
        return tensor.broadcast_to(data, n.shape) if n.shape else data
    found: Expr = relay_indexing.gather(data, axis, from_front(n, n["index"], data.shape[axis]))
    return found


def _scatter(reduction: str) -> Converter:
    def convert(n: Node) -> Expr:
        data, axis = with_axis(n["self"]), n.axis()
        index = from_front(n, with_axis(n["index"]), data.shape[axis])
        source: Any = n.args.get("src", n.args.get("value"))
        if isinstance(source, Expr):
            updates = as_type(with_axis(source), n.dtype)
            if updates.shape != index.shape:  # the rest of a larger source is not read
                updates = relay_indexing.slice_of(updates, [range(m) for m in index.shape])
        else:
            updates = tensor.broadcast_to(number(source, n.dtype), index.shape)
        mode = _MODES[n.args["reduce"]] if n.args.get("reduce") is not None else reduction
        found = relay_indexing.scatter_elements(data, index, updates, axis, mode)
        return reshaped(found, n.shape)

    return convert


_MODES = {
    "add": "add", "multiply": "mul", "sum": "add", "mean": "add", "prod": "mul", "amax": "max",
    "amin": "min",
}  # fmt: skip


def _scatter_reduce(n: Node) -> Expr:
    """Elements that go to one place joined; whether with what is there, include_self says."""
    data, axis = with_axis(n["self"]), n.axis()
    source = as_type(with_axis(n["src"] if "src" in n.args else n["source"]), n.dtype)
    index = from_front(n, with_axis(n["index"]), data.shape[axis])
    if "source" in n.args:  # index_reduce has one position for a whole slice
        along = [-1 if k == axis else 1 for k in range(len(source.shape))]
        index = tensor.broadcast_to(tensor.as_shape(index, along), source.shape)
    elif source.shape != index.shape:
        source = relay_indexing.slice_of(source, [range(m) for m in index.shape])
    mode, kept = n.args["reduce"], bool(n.get("include_self", True))
    joined = _MODES[mode]

    def scattered(base: Expr, values: Expr, how: str) -> Expr:
        return relay_indexing.scatter_elements(base, index, values, axis, how)

    def all_of(value: Any, shape: tuple[int, ...]) -> Expr:
        return tensor.broadcast_to(number(value, n.dtype), shape)

    if not kept:
        data = scattered(data, all_of(_neutral(joined, n.dtype), index.shape), "update")
    made = scattered(data, source, joined)
    if mode == "mean":
        one = number(1, n.dtype)
        count = scattered(all_of(int(kept), data.shape), all_of(1, index.shape), "add")
        count = tensor.maximum(count, one)
        divided = tensor.divide if DType(n.dtype).is_float else tensor.floor_divide
        made = divided(made, count)
    return reshaped(made, n.shape)


def _neutral(joined: str, dtype: str) -> Any:
    """What changes nothing when it is joined."""
    if joined in ("add", "mul"):
        return int(joined == "mul")
    if DType(dtype).is_float:
        return -math.inf if joined == "max" else math.inf
    limits = np.iinfo(DType(dtype).storage)
    return limits.min if joined == "max" else limits.max


def _of_mask(mask: Expr, values: Expr) -> Expr:
    """For each element that a mask picks the next slice of `values`, in order; else any."""
    flat = as_type(reshaped(mask, (mask.tensor_type.size,)), "int64")
    at = tensor.subtract(relay_indexing.cumsum(flat, 0), number(1, "int64"))
    inside = tensor.minimum(tensor.maximum(at, number(0, "int64")),
                            number(values.shape[0] - 1, "int64"))  # fmt: skip
    return reshaped(take(values, inside, 0), (*mask.shape, *values.shape[1:]))


def _masked_scatter(n: Node) -> Expr:
    data, mask, source = as_type(n["self"], n.dtype), n["mask"], as_type(n["source"], n.dtype)
    data, mask = (v if v.shape == n.shape else tensor.broadcast_to(v, n.shape)
                  for v in (data, mask))  # fmt: skip
    if not source.tensor_type.size:
        return data
    return tensor.where(mask, _of_mask(mask, reshaped(source, (source.tensor_type.size,))), data)


def _put(n: Node) -> Expr:
    """Elements at positions of the tensor as a vector."""
    data, source = n["self"], as_type(n["source"], n.dtype)
    flat, index, values = (reshaped(v, (v.tensor_type.size,)) for v in (data, n["index"], source))
    at = from_front(n, index, flat.shape[0])
    mode = "add" if n.get("accumulate", False) else "update"
    return reshaped(relay_indexing.scatter_elements(flat, at, values, 0, mode), n.shape)


def _embedding_bag(n: Node) -> Expr:
    """Rows of a table joined: those of a bag lie one after the other, offsets say where it starts.

    A bag without rows is zero.
    """
    table, indices, offsets = n["weight"], n["indices"], as_type(n["offsets"], "int64")
    count, mode = indices.shape[0], n.integer("mode", 0)
    if n.get("include_last_offset", False):
        offsets = part(offsets, 0, 0, offsets.shape[0] - 1)
    bags = offsets.shape[0]
    rows = take(table, indices, 0)
    if (weights := n.optional("per_sample_weights")) is not None:
        rows = tensor.multiply(rows, tensor.expand_dims(as_type(weights, n.dtype), 1))
    of = tensor.subtract(
        searchsorted(offsets, const(np.arange(count)), True, "int64"), number(1, "int64")
    )
    if (padding := n.integer("padding_idx", -1)) >= 0:  # such rows go nowhere
        is_padding = tensor.equal(indices, number(padding, str(indices.dtype)))
        of = tensor.where(is_padding, number(bags, "int64"), of)
    at, shape = tensor.expand_dims(of, 0), (bags, table.shape[1])

    def joined(how: str, start: float, values: Expr) -> Expr:
        empty = tensor.broadcast_to(number(start, n.dtype), (bags, *values.shape[1:]))
        return relay_indexing.scatter_nd(empty, at, values, how)

    if mode == 0:
        return joined("add", 0, rows)
    held = tensor.expand_dims(
        joined("add", 0, tensor.broadcast_to(number(1, n.dtype), (count,))), 1
    )
    if mode == 1:
        return tensor.divide(joined("add", 0, rows), tensor.maximum(held, number(1, n.dtype)))
    most = joined("max", -math.inf, rows)
    empty = tensor.broadcast_to(number(0, n.dtype), shape)
    return tensor.where(truth(held), most, empty)


def _index_put(n: Node) -> Expr:
    """Slices written at positions: `x[i, :, j] = values`."""
    data, given = n["self"], n.args["indices"]
    axes = [k for k, index in enumerate(given) if index is not None]
    if not axes:
        return tensor.broadcast_to(as_type(n["values"], n.dtype), data.shape)
    if len(axes) == 1 and _is_mask(given[axes[0]]):
        return _masked_put(n, given[axes[0]], axes[0])
    by_axis = _without_masks(n, given)
    axes, indices = list(by_axis), list(by_axis.values())
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
    behind = len(data.shape) - axis - len(mask.shape)
    wide = reshaped(mask, (*mask.shape, *(1,) * behind))
    if len(values.shape) > behind and values.shape[-behind - 1] != 1:
        n.require(len(values.shape) == behind + 1 and not axis, "a mask says where values go",
                  "Use torch.where.")  # fmt: skip
        values = _of_mask(mask, values)
    elif len(values.shape) > behind:
        values = reshaped(values, values.shape[len(values.shape) - behind :])
    return tensor.where(wide, values, data)


def _in_order(ascending: Callable[[Node], bool]) -> Converter:
    """The first k along an axis, or all of it, and where they are."""

    def convert(n: Node) -> list[Expr]:
        data = with_axis(n["self"])
        axis = n.axis("dim", len(data.shape), -1)
        count = n.integer("k", data.shape[axis])
        found = relay_indexing.first_in_order(data, count, axis, ascending(n), "int64")
        return [reshaped(v, n.shape) for v in found]

    return convert


def _scanned(made: Callable[[Expr, int], Expr]) -> Converter:
    def convert(n: Node) -> Expr:
        data = as_type(n["self"], n.dtype)
        return made(data, n.axis()) if data.shape else data

    return convert


CONVERTERS: dict[str, Converter] = {
    "embedding.default": lambda n: take(n["weight"], n["indices"], 0),
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
    "topk.default": _in_order(lambda n: not n.get("largest", True)),
    **dict.fromkeys(("sort.default", "sort.stable"),
                    _in_order(lambda n: not n.get("descending", False))),
    "cumsum.default": _scanned(relay_indexing.cumsum),
    "cumprod.default": _scanned(relay_indexing.cumprod),
    "scatter.reduce": _scatter("update"),
    "scatter.value_reduce": _scatter("update"),
    "scatter_reduce.two": _scatter_reduce,
    "index_reduce.default": _scatter_reduce,
    "masked_scatter.default": _masked_scatter,
    "put.default": _put,
    **dict.fromkeys(("_embedding_bag.default", "_embedding_bag_forward_only.default"),
                    first_of_several(_embedding_bag)),
}  # fmt: skip
