"""The computations that AutoTVM's task names stand for, with the arguments that its logs hold.

In: tensors and attributes, in the order of TVM's functions.  Out: the result, by `topi.nn`.  The
second tensor of a convolution or dense layer is its weights, which a network knows when it is
built, so they are constants here, as in the tasks of a network.
Read next: `gpu_conv.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import SpaceError
from tilewright.te.tensor import Tensor, placeholder
from tilewright.topi import nn


def weights(tensor: Any) -> Tensor:
    """The tensor as a constant."""
    if not isinstance(tensor, Tensor):
        raise SpaceError(
            "arguments of a task", f"weights are a tensor, not {tensor!r:.100}",
            'Give ("TENSOR", shape, dtype).',
        )  # fmt: skip
    return placeholder(tensor.shape, str(tensor.dtype), tensor.name, constant=True)


def conv1d_ncw(
    data: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any, out_dtype: Any = None
) -> Tensor:
    return nn.conv(data, weights(kernel), strides, padding, dilation, 1, "NCW", "OIW", out_dtype)


def conv2d_nchw(
    data: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any, out_dtype: Any = None
) -> Tensor:
    return nn.conv2d_nchw(data, weights(kernel), strides, padding, dilation, out_dtype)


def conv2d_nhwc(
    data: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any, out_dtype: Any = None
) -> Tensor:
    return nn.conv2d_nhwc(data, weights(kernel), strides, padding, dilation, out_dtype)


def conv2d_nchw_or_blocked(
    data: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any, layout: str = "NCHW",
    out_layout: str = "", out_dtype: Any = None,
) -> Tensor:  # fmt: skip
    """data NCHW, or in blocks of channels; the layouts are labels."""
    blocked = isinstance(data, Tensor) and data.ndim == 5
    compute = nn.conv2d_NCHWc if blocked else nn.conv2d_nchw
    result: Tensor = compute(data, weights(kernel), strides, padding, dilation, out_dtype)
    return result


def conv2d_nchw_winograd(
    data: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any, out_dtype: Any = None
) -> Tensor:
    return nn.conv2d_winograd_nchw(data, weights(kernel), strides, padding, dilation, out_dtype)


def conv2d_nchw_winograd_mali(
    data: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any, out_dtype: Any = None
) -> Tensor:
    """Tiles of 4 x 4 outputs where they divide the rows of the data."""
    tile = 4 if isinstance(data, Tensor) and data.ndim == 4 and data.shape[2] % 4 == 0 else 2
    own = weights(kernel)
    return nn.conv2d_winograd_nchw(data, own, strides, padding, dilation, out_dtype, False, tile)


def conv2d_nchw_winograd_packed(
    data: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any, out_dtype: Any = None
) -> Tensor:
    """The kernel comes as [alpha, alpha, CI, CO], of which alpha tells the size of a tile."""
    u = weights(kernel)
    tile = u.shape[0] - 2
    return nn.conv2d_winograd_nchw(data, u, strides, padding, dilation, out_dtype, True, tile)


def group_conv2d_nchw(
    data: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any, groups: int,
    out_dtype: Any = None,
) -> Tensor:  # fmt: skip
    return nn.group_conv2d_nchw(
        data, weights(kernel), strides, padding, dilation, groups, out_dtype
    )


def conv2d_transpose_nchw(
    data: Tensor, kernel: Tensor, strides: Any, padding: Any, out_dtype: Any = None,
    output_padding: Any = 0, groups: int = 1,
) -> Tensor:  # fmt: skip
    return nn.conv_transpose(
        data, weights(kernel), strides, padding, out_dtype, output_padding, 1, groups
    )


def conv3d_ncdhw(
    data: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any, groups: Any = 1,
    out_dtype: Any = None,
) -> Tensor:  # fmt: skip
    """Earlier versions have no groups: the type comes in their place."""
    if groups is None or isinstance(groups, str):
        groups, out_dtype = 1, groups
    own = weights(kernel)
    return nn.conv3d(data, own, strides, padding, dilation, groups, "NCDHW", "OIDHW", out_dtype)


def conv2d_hwcn(
    data: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any, out_dtype: Any = None
) -> Tensor:
    return nn.conv2d_hwcn(data, weights(kernel), strides, padding, dilation, out_dtype)


def depthwise_conv2d_nchw(
    data: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any, out_dtype: Any = None
) -> Tensor:
    return nn.depthwise_conv2d_nchw(data, weights(kernel), strides, padding, dilation, out_dtype)


def depthwise_conv2d_nhwc(
    data: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any, out_dtype: Any = None
) -> Tensor:
    return nn.depthwise_conv2d_nhwc(data, weights(kernel), strides, padding, dilation, out_dtype)


def depthwise_conv2d_nchw_or_blocked(
    data: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any, layout: str = "NCHW",
    out_layout: str = "", out_dtype: Any = None,
) -> Tensor:  # fmt: skip
    """data NCHW, or in blocks of channels; the layouts are labels."""
    blocked = isinstance(data, Tensor) and data.ndim == 5
    compute = nn.depthwise_conv2d_NCHWc if blocked else nn.depthwise_conv2d_nchw
    result: Tensor = compute(data, weights(kernel), strides, padding, dilation, out_dtype)
    return result


def dense(
    data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:
    return nn.dense(data, weights(weight), bias, out_dtype)


def batch_matmul(
    tensor_a: Tensor, tensor_b: Tensor, out_shape: Any = None, out_dtype: Any = None,
    transpose_a: bool = False, transpose_b: bool = True,
) -> Tensor:  # fmt: skip
    """out_shape is what the others make it."""
    return nn.batch_matmul(tensor_a, tensor_b, out_dtype, transpose_a, transpose_b)
