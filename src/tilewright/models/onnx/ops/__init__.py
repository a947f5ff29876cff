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

_ALL: dict[str, Converter] = {
    **attention.CONVERTERS,
    **constant.CONVERTERS,
    **elementwise.CONVERTERS,
    **features.CONVERTERS,
    **indexing.CONVERTERS,
    **linear.CONVERTERS,
    **movement.CONVERTERS,
    **normalize.CONVERTERS,
    **recurrent.CONVERTERS,
    **quantize.CONVERTERS,
    **refused.CONVERTERS,
    **reduction.CONVERTERS,
    **resize.CONVERTERS,
    **sampling.CONVERTERS,
    **signal.CONVERTERS,
    **window.CONVERTERS,
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
