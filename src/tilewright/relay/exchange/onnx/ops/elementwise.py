"""Elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.relay import nn, tensor
from tilewright.relay.exchange.onnx.checks import element_type
from tilewright.relay.exchange.onnx.node import Converter, Node, number
from tilewright.relay.graph.expr import Expr, const
from tilewright.relay.op import ROWS, call


def _unary(row_name: str) -> Converter:
    return lambda n: call(row_name, n[0])


def _fold(function: Callable[..., Expr]) -> Converter:
    """An operator of any number of tensors, as a chain of the binary one."""

    def convert(n: Node) -> Expr:
        parts = n.all()
        n.require(bool(parts), "it has no inputs", "Give it at least one.")
        result = parts[0]
        for part in parts[1:]:
            result = function(result, part)
        return result

    return convert


def _binary(function: Callable[..., Expr]) -> Converter:
    def convert(n: Node) -> Expr:
        old = n.flag("broadcast") and n.attr("axis") is not None
        n.require(
            not old,
            "it broadcasts by axis, as before opset 7",
            "Convert the model to a newer opset.",
        )
        return function(n[0], n[1])

    return convert


def _clip(n: Node) -> Expr:
    return tensor.clip(n[0], number(n, "min", 1, -math.inf), number(n, "max", 2, math.inf))


def _cast(n: Node) -> Expr:
    n.attr("saturate")
    to = n.attr("to")
    n.require(n.opset >= 6, "its type is text, as before opset 6", "Convert to a newer opset.")
    return tensor.cast(n[0], element_type(to))


def _dropout(n: Node) -> Expr:
    n.require(len(n.outputs) == 1, "its mask is read", "Export the model for inference.")
    training = n.static(2, "training_mode")
    n.require(
        training is None or not training.any(), "it is in training mode", "Export for inference."
    )
    return nn.dropout(n[0], number(n, "ratio", 1, 0.5))


CONVERTERS: dict[str, Converter] = {
    **{r.onnx[0]: _unary(r.name) for r in ROWS if r.onnx and not r.attrs and len(r.inputs) == 1},
    "Add": _binary(tensor.add),
    "Cast": _cast,
    "Clip": _clip,
    "Div": _binary(tensor.divide),
    "Dropout": _dropout,
    "Equal": _binary(tensor.equal),
    "Greater": _binary(tensor.greater),
    "LeakyRelu": lambda n: nn.leaky_relu(n[0], n.attr("alpha", 0.01)),
    "Less": _binary(tensor.less),
    "Max": _fold(tensor.maximum),
    "Mean": lambda n: _fold(tensor.add)(n) * (1.0 / len(n.names)),
    "Min": _fold(tensor.minimum),
    "Mul": _binary(tensor.multiply),
    "Pow": lambda n: tensor.power(n[0], tensor.cast(n[1], n[0].dtype)),
    "Reciprocal": lambda n: tensor.divide(const(1, n[0].dtype), n[0]),
    "Sub": _binary(tensor.subtract),
    "Sum": _fold(tensor.add),
    "Where": lambda n: tensor.where(n[0], n[1], n[2]),
}
