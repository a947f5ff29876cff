"""Cases of products with narrow weights."""

from __future__ import annotations

from graph.case import Case, tensor
from tilewright.graph.op import call

_BYTES, _SCALES = ("w", 6, 4, 16), ("s", 6, 2)


def _dense(kind: str) -> Case:
    def build() -> object:
        features = 64 * (2 if kind == "int4" else 1)
        weight = tensor(*_BYTES, dtype="int8")
        return call(
            "nn.dense_narrow", tensor("x", 3, features), weight, tensor(*_SCALES), kind=kind
        )

    return Case("nn.dense_narrow", build, kind, in_onnx=False)


def _unpack(kind: str) -> Case:
    def build() -> object:
        return call("nn.unpack_narrow", tensor(*_BYTES, dtype="int8"), tensor(*_SCALES), kind=kind)

    return Case("nn.unpack_narrow", build, kind, in_onnx=False)


NARROW: tuple[Case, ...] = (
    *(_dense(kind) for kind in ("int8", "int4", "float8")),
    *(_unpack(kind) for kind in ("int8", "int4")),
)
