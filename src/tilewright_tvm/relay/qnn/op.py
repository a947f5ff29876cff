"""`relay.qnn.op`: quantised tensors under TVM's names.

Read next: `graph/functions/quantized.py` (from real numbers to integers and back), `rescale.py`,
`arithmetic.py`.
"""

from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError, absent
from tilewright.graph.functions.quantized import dequantize, quantize
from tilewright_tvm.relay.functional.later import defer
from tilewright_tvm.relay.qnn.arithmetic import (
    add,
    batch_matmul,
    concatenate,
    conv2d,
    conv2d_transpose,
    dense,
    mul,
    subtract,
)
from tilewright_tvm.relay.qnn.functions import (
    abs,
    avg_pool2d,
    erf,
    exp,
    hardswish,
    leaky_relu,
    log,
    rsqrt,
    sigmoid,
    softmax,
    sqrt,
    tanh,
)
from tilewright_tvm.relay.qnn.legalized import asking, register_qnn_legalize
from tilewright_tvm.relay.qnn.rescale import requantize, requantize_config
from tilewright_tvm.relay.qnn.simulated import simulated_dequantize, simulated_quantize

__all__ = [
    "abs", "add", "avg_pool2d", "batch_matmul", "concatenate", "conv2d", "conv2d_transpose",
    "dense", "dequantize", "erf", "exp", "hardswish", "leaky_relu", "log", "mul", "quantize",
    "register_qnn_legalize", "requantize", "requantize_config", "rsqrt", "sigmoid",
    "simulated_dequantize", "simulated_quantize", "softmax", "sqrt", "subtract", "tanh",
]  # fmt: skip
OPERATORS = [n for n in __all__ if n not in ("register_qnn_legalize", "requantize_config")]
globals().update((name, asking(globals()[name])) for name in OPERATORS)
open_doors(globals(), __all__, ModelError)
defer(globals(), OPERATORS)

__path__: list[str] = []  # so that imports of other names say what to use, too


def __getattr__(name: str) -> Any:
    raise absent("relay.qnn.op", name, {})
