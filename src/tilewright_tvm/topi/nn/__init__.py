"""TVM's `topi.nn`: the operators of ours, and the names that only TVM has."""

from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ExpressionError
from tilewright.topi import nn
from tilewright.topi.nn import *  # noqa: F403
from tilewright_tvm.topi import of_networks
from tilewright_tvm.topi.nn import utils as util  # noqa: F401  # its name before TVM 0.8
from tilewright_tvm.topi.nn import utils as utils
from tilewright_tvm.topi.nn.bits import (
    binarize_pack,
    binary_dense,
    bitserial_conv2d_nchw,
    bitserial_conv2d_nhwc,
    bitserial_dense,
)
from tilewright_tvm.topi.nn.correlation import correlation_nchw
from tilewright_tvm.topi.nn.deformable import deformable_conv2d_nchw, deformable_conv2d_nhwc
from tilewright_tvm.topi.nn.gradients import (
    depthwise_conv2d_backward_input_nhwc,
    depthwise_conv2d_backward_weight_nhwc,
    pool_grad,
)
from tilewright_tvm.topi.nn.lstm import lstm
from tilewright_tvm.topi.nn.qnn import SQNN_DTYPE_TO_CODE as SQNN_DTYPE_TO_CODE
from tilewright_tvm.topi.nn.scale_shift import (
    scale_shift_nchw,
    scale_shift_nchwc,
    scale_shift_nhwc,
)
from tilewright_tvm.topi.nn.sparse import sparse_dense

__all__ = [
    "binarize_pack", "binary_dense", "bitserial_conv2d_nchw", "bitserial_conv2d_nhwc",
    "bitserial_dense", "correlation_nchw", "deformable_conv2d_nchw", "deformable_conv2d_nhwc",
    "depthwise_conv2d_backward_input_nhwc", "depthwise_conv2d_backward_weight_nhwc", "lstm",
    "pool_grad", "scale_shift_nchw", "scale_shift_nchwc", "scale_shift_nhwc", "sparse_dense",
]  # fmt: skip
open_doors(globals(), __all__, ExpressionError)
__all__ += [*nn.__all__, *of_networks.NAMES["topi.nn"]]


def __getattr__(name: str) -> Any:
    return of_networks.find("topi.nn", name)
