"""Rows of the gradients of maxima over windows, which gradients of networks call.

In: tensors; attributes as those of `nn.max_pool2d`.  Out: rows in the operator table, once this is
imported.  Read next: `graph/op/pooling.py`, `topi/nn/gradients.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.graph.expr import Array, Attrs, Type
from tilewright.graph.op import register, window
from tilewright.graph.op.pooling import pool_type
from tilewright.graph.op.row import Op, Pattern, Site
from tilewright.graph.passes.layout_propagation import RULES, pool
from tilewright.models.onnx.export import EXPORTERS, refused
from tilewright_tvm.topi.nn.gradients import max_pool_grad


def _max_grad_type(site: Site) -> Type:
    """Of the data, where the other operand has the type of what pooling them gives."""
    site.float_dtype()
    data, pooled = site.tensor(1), pool_type(site, 1)
    site.require(
        site.tensor(0) == pooled, f"out_grad is no {pooled}, which pooling the data gives",
        "Give the gradient of its result.",
    )  # fmt: skip
    return data


def _max_grad_te(tensors: Sequence[Any], a: Attrs, result: Type) -> Any:
    order = window.channels_first(len(a.strides))
    grads, data = (topi.layout_transform(t, a.layout, order) for t in tensors)
    made = max_pool_grad(grads, data, a.pool_size, a.strides, a.dilation, a.padding, a.ceil_mode)
    return topi.layout_transform(made, order, a.layout)


def _max_grad_numpy(arrays: Sequence[Any], a: Attrs) -> Array:
    """The gradient of `max_pool`, at the place of the first greatest element of each window."""
    order = window.channels_first(len(a.strides))
    grads, x = (window.to_order(array, a.layout, order) for array in arrays)
    total = np.zeros(x.size, x.dtype)
    places = window.max_pool_indices([x], Attrs({**a, "storage_order": 0}))
    np.add.at(total, places.reshape(-1), grads.reshape(-1))
    return window.to_order(total.reshape(x.shape), order, a.layout)


def _row(rank: int) -> Op:
    attrs = {
        "pool_size": (), **window.defaults(rank), "ceil_mode": False,
        "layout": window.channels_first(rank),
    }  # fmt: skip
    return Op(
        f"nn.max_pool{rank}d_grad", ("out_grad", "data"), Pattern.ANCHOR, _max_grad_type,
        _max_grad_numpy, _max_grad_te,
        "out_grad at the first greatest element of each window of data, summed; else 0.", attrs,
    )  # fmt: skip


ROWS = tuple(map(_row, window.RANKS))
register(ROWS)
RULES.update((row.name, pool) for row in ROWS)
EXPORTERS.update((row.name, refused) for row in ROWS)
