"""`relay.qnn.op`: quantised tensors under TVM's names.

Read next: `steps.py` (from real numbers to integers and back), `arithmetic.py`.
"""

from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError, absent
from tilewright.relay.qnn.arithmetic import (
    add,
    batch_matmul,
    concatenate,
    conv2d,
    dense,
    mul,
    requantize,
    subtract,
)
from tilewright.relay.qnn.steps import dequantize, quantize

__all__ = [
    "add", "batch_matmul", "concatenate", "conv2d", "dense", "dequantize", "mul", "quantize",
    "requantize", "subtract",
]  # fmt: skip
open_doors(globals(), __all__, ModelError)

_ELSEWHERE = dict.fromkeys(
    ("simulated_quantize", "simulated_dequantize"), "Use quantize, then dequantize."
) | dict.fromkeys(
    ("softmax", "sigmoid", "tanh", "exp", "sqrt", "rsqrt", "erf", "abs", "log", "leaky_relu"),
    "Use dequantize, the operator of relay or relay.nn, then quantize: they become one kernel.",
)


def __getattr__(name: str) -> Any:
    raise absent("relay.qnn.op", name, _ELSEWHERE)
