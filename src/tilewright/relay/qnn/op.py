"""`relay.qnn.op`: quantised tensors under TVM's names.

Read next: `steps.py` (from real numbers to integers and back), `arithmetic.py`.
"""

from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError, absent
from tilewright.relay.qnn.arithmetic import (
    abs,
    add,
    batch_matmul,
    concatenate,
    conv2d,
    dense,
    erf,
    exp,
    log,
    mul,
    requantize,
    rsqrt,
    sigmoid,
    sqrt,
    subtract,
    tanh,
)
from tilewright.relay.qnn.steps import dequantize, quantize

__all__ = [
    "abs", "add", "batch_matmul", "concatenate", "conv2d", "dense", "dequantize", "erf", "exp",
    "log", "mul", "quantize", "requantize", "rsqrt", "sigmoid", "sqrt", "subtract", "tanh",
]  # fmt: skip
open_doors(globals(), __all__, ModelError)

_ELSEWHERE = dict.fromkeys(
    ("simulated_quantize", "simulated_dequantize"), "Use quantize, then dequantize."
) | dict.fromkeys(
    ("softmax", "leaky_relu"),
    "Use dequantize, the operator of relay or relay.nn, then quantize: they become one kernel.",
)


def __getattr__(name: str) -> Any:
    raise absent("relay.qnn.op", name, _ELSEWHERE)
