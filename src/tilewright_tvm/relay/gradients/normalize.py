"""Gradients of softmax and of norms.

In: calls and the gradient of their results.  Out: that of the data, and of scales and statistics
where they are operands.  Read next: `table.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.graph.expr import Call, Expr
from tilewright.graph.functions import tensor as T
from tilewright.graph.leaves import const
from tilewright.graph.passes.simplify import along
from tilewright_tvm.relay.gradients.shared import Cotangent, Rule
from tilewright_tvm.relay.shapes import collapse_sum_to


def _softmax(node: Call, g: Expr) -> list[Expr]:
    return [node * (g - T.sum(g * node, axis=node.attrs.axis, keepdims=True))]


def _log_softmax(node: Call, g: Expr) -> list[Expr]:
    return [g - T.exp(node) * T.sum(g, axis=node.attrs.axis, keepdims=True)]


def _standardize(node: Call, g: Expr) -> list[Expr]:
    """Less what of `g` moves the mean, and what of it changes the variance."""
    x, a = node.args[0], node.attrs
    distance = x - T.mean(x, axis=a.axis, keepdims=True) if a.center else x
    variance = T.mean(distance * distance, axis=a.axis, keepdims=True)
    scale = T.rsqrt(variance + a.epsilon)
    rest = g - node * T.mean(g * node, axis=a.axis, keepdims=True)
    if a.center:
        rest = rest - T.mean(g, axis=a.axis, keepdims=True)
    return [rest * scale]


def _batch_norm(node: Call, grads: Any) -> list[Cotangent]:
    """Its statistics are operands, which its second and third result are."""
    (data, gamma, _, mean, var), a = node.args, node.attrs
    g, by_mean, by_var = grads
    rank = len(data.shape)
    if g is None:
        return [None, None, None, by_mean, by_var]

    def total(value: Expr) -> Expr:
        kept = along(mean, a.axis, rank).shape
        return T.reshape(collapse_sum_to(value, kept), mean.shape)

    scale = T.rsqrt(var + a.epsilon)
    whole = scale * gamma if a.scale else scale
    distance = data - along(mean, a.axis, rank)
    sums, moments = total(g), total(g * distance)
    own_mean = -(sums * whole)
    own_var = moments * whole * scale * scale * const(-0.5, str(var.dtype))
    return [
        g * along(whole, a.axis, rank),
        moments * scale if a.scale else None,
        sums if a.center else None,
        own_mean if by_mean is None else own_mean + by_mean,
        own_var if by_var is None else own_var + by_var,
    ]


RULES: dict[str, Rule] = {
    "nn.softmax": _softmax, "nn.log_softmax": _log_softmax, "nn.standardize": _standardize,
    "nn.batch_norm": _batch_norm,
}  # fmt: skip
