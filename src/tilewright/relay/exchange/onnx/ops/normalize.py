"""Normalisation and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.relay import nn, tensor
from tilewright.relay.exchange.onnx.node import Converter, Node
from tilewright.relay.graph.expr import Expr


def _batch_norm(n: Node) -> Expr:
    n.require(
        not n.flag("training_mode"), "it is in training mode", "Export the model for inference."
    )
    n.require(n.flag("spatial", True), "spatial=0 is not supported", "Export it with spatial=1.")
    n.require(
        len(n.outputs) == 1 or n.opset < 14, "its statistics are read", "Export for inference."
    )
    return nn.batch_norm(n[0], n[1], n[2], n[3], n[4], epsilon=n.attr("epsilon", 1e-5))[0]


def _softmax(function: Callable[..., Expr]) -> Converter:
    def convert(n: Node) -> Expr:
        data = n[0]
        axis = n.attr("axis", -1 if n.opset >= 13 else 1)
        at = n.axis(axis, len(data.shape))
        if n.opset >= 13 or at == len(data.shape) - 1:
            return function(data, axis)
        # older versions normalise over everything from `axis` on
        rows = tensor.reshape(data, (math.prod(data.shape[:at]), math.prod(data.shape[at:])))
        return tensor.reshape(function(rows, -1), data.shape)

    return convert


CONVERTERS: dict[str, Converter] = {
    "BatchNormalization": _batch_norm,
    "LogSoftmax": _softmax(nn.log_softmax),
    "Softmax": _softmax(nn.softmax),
}
