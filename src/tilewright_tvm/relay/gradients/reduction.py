"""Gradients of reductions, running sums and running products.

In: calls and the gradient of their results.  Out: that of the data.  Of several greatest elements
each has an equal share.  Read next: `movement.py`.
"""

from __future__ import annotations

import math

from tilewright.graph.expr import Call, Expr
from tilewright.graph.functions import tensor as T
from tilewright.graph.functions.indexing import reverse, slice_of
from tilewright.graph.leaves import const
from tilewright.graph.op import call
from tilewright_tvm.relay.gradients.shared import Rule, gone, in_type, masked, spread, standing


def _sum(node: Call, g: Expr) -> list[Expr]:
    return [in_type(spread(g, node), node.args[0])]


def _mean(node: Call, g: Expr) -> list[Expr]:
    count = math.prod(node.args[0].shape[k] for k in gone(node))
    return [spread(g * (1.0 / max(count, 1)), node)]


def _extreme(node: Call, g: Expr) -> list[Expr]:
    data, best = node.args[0], standing(node, node)
    hit = T.cast(T.equal(data, best), str(data.dtype))
    count = T.sum(hit, axis=gone(node), keepdims=True)
    return [hit * (standing(g, node) / count)]


def _prod(node: Call, g: Expr) -> list[Expr]:
    """Of each element the product of all others: of those before it times those behind it."""
    data, axes = node.args[0], gone(node)
    order = [k for k in range(len(data.shape)) if k not in axes] + list(axes)
    moved = T.transpose(data, order)
    outer = moved.shape[: len(order) - len(axes)]
    count = math.prod(data.shape[k] for k in axes)
    flat = call("reshape", moved, newshape=(*outer, count))
    others = call("cumprod", flat, axis=-1, exclusive=True) * call(
        "cumprod", flat, axis=-1, exclusive=True, reverse=True
    )
    back = call("reshape", others, newshape=moved.shape)
    undone = T.transpose(back, [order.index(k) for k in range(len(order))])
    return [undone * standing(g, node)]


def _cumsum(node: Call, g: Expr) -> list[Expr]:
    a = node.attrs
    made = call("cumsum", g, axis=a.axis, exclusive=a.exclusive, reverse=not a.reverse)
    return [in_type(made, node.args[0])]


def _cumprod(node: Call, g: Expr) -> list[Expr]:
    """Of element i the sum over j from i on of g[j] times all elements up to j but i itself; exact
    where elements are 0, with a table of the axis by itself."""
    x, a = node.args[0], node.attrs
    axis = a.axis % len(x.shape)
    if a.reverse:
        x, g = reverse(x, axis), reverse(g, axis)
    n, rank = x.shape[axis], len(x.shape)
    if a.exclusive:  # its result j is the inclusive one of j - 1
        ranges = [range(1, e) if k == axis else range(e) for k, e in enumerate(g.shape)]
        pads = tuple((0, 1) if k == axis else (0, 0) for k in range(rank))
        g = call("nn.pad", slice_of(g, ranges), pad_width=pads)
    # [.., i, j, ..]: the product of the elements behind i up to j
    at = (*(1,) * axis, n, 1, *(1,) * (rank - axis - 1))
    along = (*at[:axis], 1, n, *at[axis + 2 :])
    i, j = (T.reshape(const(list(range(n)), "int32"), shape) for shape in (at, along))
    factors = T.where(T.greater(j, i), T.expand_dims(x, axis), 1.0)
    between = masked(T.greater_equal(j, i), call("cumprod", factors, axis=axis + 1))
    before = call("cumprod", x, axis=axis, exclusive=True)
    found: Expr = before * T.sum(between * T.expand_dims(g, axis), axis=axis + 1)
    return [reverse(found, axis) if a.reverse else found]


def _bias_add(node: Call, g: Expr) -> list[Expr]:
    axis, rank = node.attrs.axis, len(g.shape)
    return [g, T.sum(g, axis=axis % rank, exclude=True) if rank > 1 else g]


RULES: dict[str, Rule] = {
    "sum": _sum, "mean": _mean, "max": _extreme, "min": _extreme, "prod": _prod,
    "cumsum": _cumsum, "cumprod": _cumprod, "nn.bias_add": _bias_add,
}  # fmt: skip
