"""Gradients of operators whose indices are data: what was read is added to, what was put is read.

In: calls and the gradient of their results.  Out: that of the data and of updates; indices have
none.  Read next: `product.py`.
"""

from __future__ import annotations

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call, Expr, TensorType
from tilewright.graph.functions import tensor as T
from tilewright.graph.leaves import const
from tilewright.graph.op import call
from tilewright.graph.traversal import op_name
from tilewright_tvm.relay.gradients.shared import Rule, filled, masked, zeros


def _within(indices: Expr, extent: int, mode: str) -> Expr:
    """The indices as `take` reads at them."""
    wide = T.cast(indices, "int64")
    if mode == "wrap":
        return T.floor_mod(wide, const(extent, "int64"))
    return T.clip(wide, 0, extent - 1)


def _grid(shape: tuple[int, ...], axis: int) -> Expr:
    """The position along `axis` of each element of a tensor of this shape."""
    count = np.arange(shape[axis], dtype="int64")
    along = [-1 if k == axis else 1 for k in range(len(shape))]
    return T.broadcast_to(const(count.reshape(along)), shape)


def _points(rows: list[Expr]) -> Expr:
    """The first axis of the result spells where each of them is."""
    return T.concatenate([T.expand_dims(r, 0) for r in rows], 0)


def _take(node: Call, g: Expr) -> list[Expr | None]:
    """Slices are added up where they were taken from: the axis in front, behind those that data
    and indices have in common."""
    (data, indices), a = node.args, node.attrs
    rank, chosen = len(data.shape), len(indices.shape)
    axis, batch = a.axis % rank, a.batch_dims
    wide = chosen - batch  # axes of the result in the place of `axis`
    common, inner = list(range(batch)), list(range(axis, axis + wide))
    rest = [k for k in range(len(g.shape)) if k not in common and k not in inner]
    updates = T.transpose(g, [*common, *inner, *rest])
    front = [*common, axis, *(k for k in range(batch, rank) if k != axis)]
    places = _within(indices, data.shape[axis], a.mode)
    points = _points([*(_grid(indices.shape, k) for k in common), places])
    empty = filled(TensorType(tuple(data.shape[k] for k in front), data.dtype), 0)
    total = call("scatter_nd", empty, points, updates, reduction="add")
    return [T.transpose(total, np.argsort(front).tolist()), None]


def _gather(node: Call, g: Expr) -> list[Expr | None]:
    (data, indices), axis = node.args, node.attrs.axis
    places = _within(indices, data.shape[axis], "wrap")
    return [call("scatter_elements", zeros(data), places, g, axis=axis, reduction="add"), None]


def _gather_nd(node: Call, g: Expr) -> list[Expr | None]:
    (data, indices), batch = node.args, node.attrs.batch_dims
    shape, chosen = indices.shape[1:], indices.shape[0]
    rows = [_row(indices, k) for k in range(chosen)]
    rows = [_within(r, data.shape[batch + k], "wrap") for k, r in enumerate(rows)]
    points = _points([*(_grid(shape, k) for k in range(batch)), *rows])
    return [call("scatter_nd", zeros(data), points, g, reduction="add"), None]


def _row(indices: Expr, k: int) -> Expr:
    shape = indices.shape
    cut = call(
        "strided_slice", indices, begin=(k, *(0,) * (len(shape) - 1)), extents=(1, *shape[1:]),
        strides=(1,) * len(shape),
    )  # fmt: skip
    return call("reshape", cut, newshape=shape[1:])


def _scatter(node: Call, g: Expr) -> list[Expr | None]:
    """What was replaced has none, and of several updates of one place the last has all."""
    data, indices, updates = node.args
    reduction, nd = node.attrs.reduction, op_name(node) == "scatter_nd"
    if reduction not in ("add", "update"):
        raise ModelError(
            f"gradient of {op_name(node)}", f"reduction={reduction!r} has none",
            'Use reduction="add" or "update", or where.',
        )  # fmt: skip
    how = {} if nd else {"axis": node.attrs.axis}

    def read(source: Expr) -> Expr:
        return call("gather_nd" if nd else "gather", source, indices, **how)

    def put(where: Expr, values: Expr) -> Expr:
        return call(op_name(node), where, indices, values, reduction="update", **how)

    inside = _all_inside(node)
    if reduction == "add":
        return [g, None, masked(inside, read(g))]
    number = const(np.arange(updates.tensor_type.size, dtype="int64").reshape(updates.shape))
    last = read(put(filled(TensorType(data.shape, number.dtype), -1), number))
    kept = T.logical_and(inside, T.equal(last, number))
    return [put(g, zeros(updates)), None, masked(kept, read(g))]


def _all_inside(node: Call) -> Expr:
    """Whether an update goes to a place that is there; others are dropped."""
    data, indices, updates = node.args
    if op_name(node) == "scatter_elements":
        return _is_inside(indices, data.shape[node.attrs.axis])
    found = None
    for k in range(indices.shape[0]):
        here = _is_inside(_row(indices, k), data.shape[k])
        found = here if found is None else T.logical_and(found, here)
    assert found is not None
    behind = len(updates.shape) - len(found.shape)
    return call("reshape", found, newshape=(*found.shape, *(1,) * behind))


def _is_inside(indices: Expr, extent: int) -> Expr:
    wide = T.cast(indices, "int64")
    low, high = const(-extent, "int64"), const(extent, "int64")
    return T.logical_and(T.greater_equal(wide, low), T.less(wide, high))


RULES: dict[str, Rule] = {
    "take": _take, "gather": _gather, "gather_nd": _gather_nd,
    "scatter_elements": _scatter, "scatter_nd": _scatter,
}  # fmt: skip
