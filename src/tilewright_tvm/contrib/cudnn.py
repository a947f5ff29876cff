"""`contrib.cudnn`: what scripts of TVM ask before they use it.

In: nothing.  Out: an answer.  Kernels are compiled and tuned, and call no library.
Read next: `nvcc.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import absent

__all__ = ["exists"]


def exists() -> bool:
    """Whether kernels can call cuDNN: never."""
    return False


_CALLED = "Libraries are not called from kernels; topi.nn.{} is tuned instead."
_ELSEWHERE = {
    "conv_forward": _CALLED.format("conv2d_nchw"),
    "conv_output_shape": "The shape of the tensor that topi.nn.conv2d_nchw gives is known.",
    "log_softmax": _CALLED.format("log_softmax"),
    "softmax": _CALLED.format("softmax"),
}


def __getattr__(name: str) -> Any:
    raise absent("contrib.cudnn", name, _ELSEWHERE)
