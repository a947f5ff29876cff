"""TVM's `topi.nn`: the operators of ours, and the names that only TVM has."""

import sys
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ExpressionError
from tilewright.topi import nn
from tilewright.topi.nn import *  # noqa: F403
from tilewright_tvm.topi import of_networks
from tilewright_tvm.topi.nn import conv2d_names
from tilewright_tvm.topi.nn import utils as util  # noqa: F401  # its name before TVM 0.8
from tilewright_tvm.topi.nn import utils as utils
from tilewright_tvm.topi.nn.bits import (
    binarize_pack,
    binary_dense,
    bitserial_conv2d_nchw,
    bitserial_conv2d_nhwc,
    bitserial_dense,
)
from tilewright_tvm.topi.nn.by_layout import (
    conv1d_ncw,
    conv1d_nwc,
    conv1d_transpose_ncw,
    conv2d_hwcn,
    conv2d_transpose_nchw,
    conv3d_ncdhw,
    conv3d_ndhwc,
    conv3d_transpose_ncdhw,
    group_conv1d_ncw,
    group_conv1d_nwc,
    group_conv1d_transpose_ncw,
    group_conv2d_nchw,
    group_conv2d_nhwc,
    group_conv2d_transpose_nchw,
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
from tilewright_tvm.topi.nn.winograd import (
    conv2d_winograd_nchw,
    conv2d_winograd_nchw_without_weight_transform,
    conv2d_winograd_nhwc,
    conv2d_winograd_nhwc_without_weight_transform,
    conv2d_winograd_weight_transform,
    winograd_transform_matrices,
)

__all__ = [
    "binarize_pack", "binary_dense", "bitserial_conv2d_nchw", "bitserial_conv2d_nhwc",
    "bitserial_dense", "conv1d_ncw", "conv1d_nwc", "conv1d_transpose_ncw", "conv2d_hwcn",
    "conv2d_transpose_nchw", "conv2d_winograd_nchw",
    "conv2d_winograd_nchw_without_weight_transform", "conv2d_winograd_nhwc",
    "conv2d_winograd_nhwc_without_weight_transform", "conv2d_winograd_weight_transform",
    "conv3d_ncdhw", "conv3d_ndhwc", "conv3d_transpose_ncdhw", "correlation_nchw",
    "deformable_conv2d_nchw", "deformable_conv2d_nhwc", "depthwise_conv2d_backward_input_nhwc",
    "depthwise_conv2d_backward_weight_nhwc", "group_conv1d_ncw", "group_conv1d_nwc",
    "group_conv1d_transpose_ncw", "group_conv2d_nchw", "group_conv2d_nhwc",
    "group_conv2d_transpose_nchw", "lstm", "pool_grad", "scale_shift_nchw", "scale_shift_nchwc",
    "scale_shift_nhwc", "sparse_dense", "winograd_transform_matrices",
]  # fmt: skip
open_doors(globals(), __all__, ExpressionError)
__all__ += [*nn.__all__, *of_networks.NAMES["topi.nn"]]


def __getattr__(name: str) -> Any:
    return of_networks.find("topi.nn", name)


# As a module too, but not as an attribute, which is the function.
sys.modules.setdefault(f"{__name__}.conv2d", conv2d_names)
