"""What each ONNX operator becomes: one table, a file for each family.

In: a `Node`.  Out: graph values, or arrays that are known at once.
Read next: `../node.py`, the families; `../export.py`, the way back.
"""

from tilewright.relay.exchange.onnx.node import Converter
from tilewright.relay.exchange.onnx.ops import (
    attention,
    constant,
    elementwise,
    indexing,
    linear,
    movement,
    normalize,
    quantize,
    random,
    recurrent,
    reduction,
    resize,
    signal,
    window,
)

CONVERTERS: dict[str, Converter] = {
    **attention.CONVERTERS,
    **constant.CONVERTERS,
    **elementwise.CONVERTERS,
    **indexing.CONVERTERS,
    **linear.CONVERTERS,
    **movement.CONVERTERS,
    **normalize.CONVERTERS,
    **recurrent.CONVERTERS,
    **quantize.CONVERTERS,
    **random.CONVERTERS,
    **reduction.CONVERTERS,
    **resize.CONVERTERS,
    **signal.CONVERTERS,
    **window.CONVERTERS,
}
