"""Convolutions over images of one pixel, as those behind a global pooling: dense layers.

In: a module whose operators are not grouped, and the element types that count.  Out: an equal
module.  What follows stays with the product: reshapes go behind it.
Read next: `steps.py`, `moves.py`; `network/extract.py`, which applies it.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod

import numpy as np

from tilewright.base.dtype import DType
from tilewright.graph.expr import Call, Constant, Expr, IRModule
from tilewright.graph.op import call
from tilewright.graph.passes.moves import moves_last
from tilewright.graph.traversal import each_function, is_call, rewrite, with_body


def single_pixels_dense(mod: IRModule, types: Collection[DType]) -> IRModule:
    """Give `mod` with each convolution of constant weights whose image is one pixel, and its window
    too, as a dense layer.

    types: of the data that count

    rewrite:  relu(conv2d(x[1, 440, 1, 1], w[110, 440, 1, 1]))
              ->   reshape(relu(dense(reshape(x), w[110, 440])))
    """

    def visit(_: Expr, node: Expr) -> Expr:
        if not isinstance(node, Call) or not is_call(node, "nn.conv2d"):
            return node
        return _dense(node) if node.args[0].dtype in types and _is_product(node) else node

    made = each_function(mod, lambda f: with_body(f, rewrite(f.body, visit)))
    same = all(made[name].body is mod[name].body for name in mod.functions)
    return mod if same else moves_last(made)


def _is_product(node: Call) -> bool:
    data, weight = node.args
    a = node.attrs
    plain = (a.data_layout, a.kernel_layout) == ("NCHW", "OIHW") and a.groups == 1
    if not plain or not isinstance(weight, Constant) or a.out_dtype not in ("", str(data.dtype)):
        return False
    return prod(data.shape[2:]) * prod(weight.shape[2:]) * prod(node.shape[2:]) == 1


def _dense(node: Call) -> Expr:
    data, weight = node.args
    assert isinstance(weight, Constant)
    rows = call("reshape", data, newshape=data.shape[:2])
    matrix = Constant(np.ascontiguousarray(weight.data.reshape(weight.shape[:2])))
    product = call("nn.dense", rows, matrix, out_dtype=node.attrs.out_dtype)
    return call("reshape", product, newshape=node.shape)
