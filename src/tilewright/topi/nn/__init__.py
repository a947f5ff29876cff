"""Operators of neural networks under TVM's names: `topi.nn.conv2d`, `topi.nn.relu`, ...

In: `te` tensors.  Out: `te` tensors whose stages carry TVM's names and tags.
Read next: `conv2d.py`, `window.py`.
"""

from typing import Any

from tilewright.base import forward
from tilewright.base.doors import open_doors
from tilewright.base.errors import ExpressionError
from tilewright.topi.nn.conv import (
    conv,
    conv1d,
    conv3d,
)
from tilewright.topi.nn.conv2d import (
    conv2d,
    conv2d_nchw,
    conv2d_NCHWc,
    conv2d_nhwc,
)
from tilewright.topi.nn.conv_transpose import (
    conv_transpose,
)
from tilewright.topi.nn.dense import batch_matmul, dense, matmul
from tilewright.topi.nn.depthwise import (
    depthwise_conv,
    depthwise_conv2d_nchw,
    depthwise_conv2d_NCHWc,
    depthwise_conv2d_nhwc,
)
from tilewright.topi.nn.elementwise import bias_add, dropout, leaky_relu, relu
from tilewright.topi.nn.narrow import dense_narrow, unpack_narrow
from tilewright.topi.nn.norm import batch_norm
from tilewright.topi.nn.pooling import (
    adaptive_pool,
    adaptive_pool1d,
    adaptive_pool3d,
    global_pool,
    lp_pool,
    max_pool_indices,
    pool1d,
    pool2d,
    pool3d,
)
from tilewright.topi.nn.softmax import log_softmax, softmax
from tilewright.topi.nn.standardize import standardize
from tilewright.topi.nn.window import get_pad_tuple, pad
from tilewright.topi.transform import flatten

batch_flatten = flatten

__all__ = [
    "adaptive_pool", "adaptive_pool1d", "adaptive_pool3d", "batch_flatten", "batch_matmul",
    "batch_norm", "bias_add", "conv", "conv1d", "conv2d", "conv2d_NCHWc", "conv2d_nchw",
    "conv2d_nhwc", "conv3d", "conv_transpose", "dense", "dense_narrow", "depthwise_conv",
    "depthwise_conv2d_NCHWc", "depthwise_conv2d_nchw", "depthwise_conv2d_nhwc", "dropout",
    "flatten", "get_pad_tuple",
    "global_pool", "leaky_relu", "log_softmax", "lp_pool", "matmul", "max_pool_indices", "pad",
    "pool1d", "pool2d", "pool3d", "relu", "softmax", "standardize",
    "unpack_narrow",
]  # fmt: skip

open_doors(globals(), __all__, ExpressionError)


def __getattr__(name: str) -> Any:
    return forward.find(__name__, name)
