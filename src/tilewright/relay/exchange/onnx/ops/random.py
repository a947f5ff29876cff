"""Operators that draw numbers: each is refused, with what to do instead."""

from __future__ import annotations

from tilewright.relay.exchange.onnx.node import Converter, Node
from tilewright.relay.graph.expr import Expr

DRAWING = (
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
)  # fmt: skip


def _refused(n: Node) -> Expr:
    raise n.refuse(
        "it draws random numbers, and ONNX does not say which",
        "Export the model for inference, or draw them outside and make them an input.",
    )


CONVERTERS: dict[str, Converter] = dict.fromkeys(DRAWING, _refused)
