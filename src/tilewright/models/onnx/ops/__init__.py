"""What each ONNX operator becomes: one table, a file for each family.

In: a `Node`.  Out: graph values, or arrays that are known at once.
Read next: `../node.py`, the families; `../export.py`, the way back.
"""

from tilewright.models.onnx.narrow import MOVES, moving
from tilewright.models.onnx.node import Converter
from tilewright.models.onnx.ops import (
    attention,
    constant,
    elementwise,
    features,
    indexing,
    linear,
    microsoft,
    microsoft_quantized,
    movement,
    normalize,
    quantize,
    recurrent,
    reduction,
    refused,
    resize,
    sampling,
    signal,
    training,
    window,
)

_FAMILIES = (
    attention, constant, elementwise, features, indexing, linear, movement, normalize, recurrent,
    quantize, refused, reduction, resize, sampling, signal, window,
)  # fmt: skip
_ALL: dict[str, Converter] = {
    op: converter for family in _FAMILIES for op, converter in family.CONVERTERS.items()
}

CONVERTERS = {op: moving(made) if op in MOVES else made for op, made in _ALL.items()}

# by domain
DOMAINS: dict[str, dict[str, Converter]] = {
    "": CONVERTERS,
    "ai.onnx.ml": features.LEARNING,
    "com.microsoft": {**microsoft.CONVERTERS, **microsoft_quantized.CONVERTERS},
    "ai.onnx.preview": attention.PREVIEW,
    "ai.onnx.preview.training": training.CONVERTERS,
}
