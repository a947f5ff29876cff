"""Neighbouring shifts and scales join, and a shift in front of a contraction moves behind it.

In: a canonical module.  Out: an equal one with fewer elementwise steps.  Read next: `scale.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.graph.evaluate import evaluate_call
from tilewright.graph.expr import Array, Call, Constant, Expr, IRModule
from tilewright.graph.op import call
from tilewright.graph.op.conv import CONVOLUTIONS
from tilewright.graph.op.window import IMAGE
from tilewright.graph.passes.canonicalize import is_normal
from tilewright.graph.passes.weights import (
    channel_axis,
    constant_operand,
    is_contraction,
    varies_only_at,
)
from tilewright.graph.traversal import (
    each_function,
    is_call,
    op_name,
    rewrite,
    users,
    with_body,
)

JOIN = {"add": np.add, "multiply": np.multiply}


def fold_shift(mod: IRModule) -> IRModule:
    """Join what is added or multiplied in a row.  c: constants; the inner value has one reader.

    (x + c1) + c2  ->  x + (c1 + c2)
    (x * c1) * c2  ->  x * (c1 * c2)
    conv(x + c, W) ->  conv(x, W) + sum(c * W)   dense alike

    The last one only without padding: zeros outside the image are not shifted.  It stays where `x`
    is a contraction, too: there it costs nothing, as the end of that kernel.
    """

    def change(body: Expr) -> Expr:
        readers = users(body)
        return rewrite(body, lambda old, node: _visit(old, node, readers))

    return each_function(mod, lambda f: with_body(f, change(f.body)))


def _visit(old: Expr, node: Expr, readers: Mapping[Expr, list[Expr]]) -> Expr:
    if not isinstance(node, Call) or not isinstance(old, Call) or not node.args:
        return node
    inner = node.args[0]
    if not isinstance(inner, Call) or len(readers[old.args[0]]) > 1:
        return node
    if op_name(node) in JOIN:
        return _join(node, inner)
    if is_contraction(node) and is_call(inner, "add") and not _ends_contraction(inner):
        return _behind(node, inner)
    return node


def _ends_contraction(node: Expr) -> bool:
    while isinstance(node, Call) and op_name(node) in JOIN:
        node = node.args[0]
    return is_contraction(node)


def _join(node: Call, inner: Call) -> Expr:
    name = op_name(node)
    outer_c, inner_c = constant_operand(node), constant_operand(inner)
    if op_name(inner) != name or outer_c is None or inner_c is None:
        return node
    with np.errstate(over="ignore", under="ignore"):
        joined = np.asarray(JOIN[name](inner_c, outer_c), inner_c.dtype)
    factors = np.broadcast_to((inner_c != 0) & (outer_c != 0), joined.shape)
    if name == "multiply" and inner.dtype.is_float and not is_normal(joined[factors]):
        return node  # one by one they may keep what their product loses
    return call(name, inner.args[0], Constant(joined))


def _behind(node: Call, inner: Call) -> Expr:
    shift, weight = constant_operand(inner), node.args[1]
    padded = any(node.attrs.get("padding", ()))
    if shift is None or not isinstance(weight, Constant) or padded:
        return node
    axis = channel_axis(node)
    spread = shift.reshape((1,) * (len(node.shape) - shift.ndim) + shift.shape)
    if not varies_only_at(spread, axis):
        return node
    plain = Call(node.op, (inner.args[0], weight), node.attrs)
    return call("add", plain, Constant(_contracted(node, spread, weight.data)))


def _contracted(node: Call, shift: Array, weight: Array) -> Array:
    """What the contraction makes of the shift alone: one value per output channel."""
    shape = [1] * len(node.shape)
    axis = channel_axis(node)
    shape[axis] = node.args[0].shape[axis]
    if is_call(node, *CONVOLUTIONS):
        kernel = dict(zip(node.attrs.kernel_layout, weight.shape, strict=True))
        for letter, dilation in zip(
            IMAGE[len(node.attrs.strides)], node.attrs.dilation, strict=True
        ):
            shape[node.attrs.data_layout.index(letter)] = (kernel[letter] - 1) * dilation + 1
    patch = np.broadcast_to(shift.astype("float64"), shape)
    value = evaluate_call(node, [patch, weight.astype("float64")], "float64")
    return np.asarray(value, weight.dtype)
