"""Operators that no network has: each is refused, with what to do instead."""

from __future__ import annotations

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr
from tilewright.models.onnx.node import Converter, Node

DRAWING = (
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
)  # fmt: skip
TEXT = ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit")
# why, and what to do instead
REASONS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(DRAWING, (
        "it draws random numbers, and ONNX does not say which",
        "Export the model for inference, or draw them outside and make them an input.",
    )),
    **dict.fromkeys(TEXT, (
        "it reads text", "Number the words outside the network, and make the numbers an input.",
    )),
    "ImageDecoder": (
        "it reads the bytes of an image file",
        "Decode it outside the network, and make the pixels an input.",
    ),
}  # fmt: skip
# the same for all operators of a domain
DOMAINS: dict[str, tuple[str, str]] = {
    "com.microsoft.nchwc": (
        "it has the layout that onnxruntime chose for one machine",
        "Save the file with ORT_ENABLE_EXTENDED.",
    ),
    "ai.onnx.preview.training": (
        "it differentiates the network", "Export the model for inference.",
    ),
}  # fmt: skip


def _refused(reason: str, way_out: str) -> Converter:
    def convert(n: Node) -> Expr:
        raise n.refuse(reason, way_out)

    return convert


def refusal(domain: str, place: str) -> ModelError | None:
    """Why no operator of `domain` can be imported; None where it depends on the operator."""
    return ModelError(place, *DOMAINS[domain]) if domain in DOMAINS else None


CONVERTERS: dict[str, Converter] = {op: _refused(*told) for op, told in REASONS.items()}
