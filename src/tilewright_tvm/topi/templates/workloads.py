"""The computations that AutoTVM's task names stand for, with the arguments that its logs hold.

In: tensors and attributes, in the order of TVM's functions.  Out: the result, by `topi.nn`.  The
second tensor of a convolution or dense layer is its weights, which a network knows when it is
built, so they are constants here, as in the tasks of a network.
Read next: `gpu_conv.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tilewright.base.errors import SpaceError
from tilewright.te.tensor import Tensor, placeholder
from tilewright.topi import nn
from tilewright.topi.broadcast import add
from tilewright_tvm.topi.nn.winograd import conv2d_winograd_nchw


def weights(tensor: Any) -> Tensor:
    """The tensor as a constant."""
    if not isinstance(tensor, Tensor):
        raise SpaceError(
            "arguments of a task", f"weights are a tensor, not {tensor!r:.100}",
            'Give ("TENSOR", shape, dtype).',
        )  # fmt: skip
    return placeholder(tensor.shape, str(tensor.dtype), tensor.name, constant=True)


def convolution(compute: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """compute: takes data, weights, strides, padding and dilation, and out_dtype by name"""

    def computed(
        data: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any,
        out_dtype: Any = None,
    ) -> Tensor:  # fmt: skip
        return compute(data, weights(kernel), strides, padding, dilation, out_dtype=out_dtype)

    return computed


def grouped(layout: str) -> Callable[..., Tensor]:
    """A convolution in groups.  Where earlier versions have none the type comes in their place."""

    def computed(
        data: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any, groups: Any = 1,
        out_dtype: Any = None,
    ) -> Tensor:  # fmt: skip
        if groups is None or isinstance(groups, str):
            groups, out_dtype = 1, groups
        own = weights(kernel)
        return nn.conv(
            data, own, strides, padding, dilation, groups, layout, out_dtype=out_dtype
        )  # fmt: skip

    return computed


def transposed(layout: str) -> Callable[..., Tensor]:
    def computed(
        data: Tensor, kernel: Tensor, strides: Any, padding: Any, out_dtype: Any = None,
        output_padding: Any = 0, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        own = weights(kernel)
        return nn.conv_transpose(
            data, own, strides, padding, out_dtype, output_padding, 1, groups, layout
        )  # fmt: skip

    return computed


def maybe_blocked(
    plain: Callable[..., Tensor], blocked: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    """data NCHW, or in blocks of channels; the layouts are labels."""

    def computed(
        data: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any,
        layout: str = "NCHW", out_layout: str = "", out_dtype: Any = None,
    ) -> Tensor:  # fmt: skip
        compute = blocked if isinstance(data, Tensor) and data.ndim == 5 else plain
        return compute(data, weights(kernel), strides, padding, dilation, out_dtype=out_dtype)

    return computed


def winograd(
    tile_of: Callable[[tuple[int, ...], tuple[int, ...]], int | None], transformed: bool = False
) -> Callable[..., Tensor]:
    """tile_of: outputs of a tile along one axis, of the shapes of data and kernel; None: as TVM
    chooses for CUDA; transformed: the kernel comes as [alpha, alpha, CI, CO]"""

    def computed(
        data: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any, out_dtype: Any
    ) -> Tensor:
        shape = data.shape if isinstance(data, Tensor) and data.ndim == 4 else (0,) * 4
        tile = tile_of(shape, kernel.shape)
        return conv2d_winograd_nchw(
            data, kernel, strides, padding, dilation, out_dtype, transformed, tile
        )  # fmt: skip

    return convolution(computed)


def dense(
    data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:
    return nn.dense(data, weights(weight), bias, out_dtype)


def matmul(
    tensor_a: Tensor, tensor_b: Tensor, bias: Tensor | None = None, out_dtype: Any = None,
    transpose_a: bool = False, transpose_b: bool = False,
) -> Tensor:  # fmt: skip
    own = weights(tensor_b)
    product = nn.matmul(tensor_a, own, transpose_a, transpose_b, out_dtype)
    return product if bias is None else add(product, bias)


def batch_matmul(
    tensor_a: Tensor, tensor_b: Tensor, out_shape: Any = None, out_dtype: Any = None,
    transpose_a: bool = False, transpose_b: bool = True,
) -> Tensor:  # fmt: skip
    """out_shape is what the others make it."""
    return nn.batch_matmul(tensor_a, tensor_b, out_dtype, transpose_a, transpose_b)


LAYOUTS = ("NCW", "NWC", "NCHW", "NHWC", "HWCN", "NCDHW", "NDHWC")
CONV = {layout: convolution(partial(nn.conv, data_layout=layout)) for layout in LAYOUTS}
GROUPED = {layout: grouped(layout) for layout in LAYOUTS}
TRANSPOSED = {layout: transposed(layout) for layout in ("NCW", "NCHW", "NCDHW")}
DEPTHWISE = {
    "NCHW": convolution(nn.depthwise_conv2d_nchw), "NHWC": convolution(nn.depthwise_conv2d_nhwc),
}  # fmt: skip
MAYBE_BLOCKED = maybe_blocked(nn.conv2d_nchw, nn.conv2d_NCHWc)
DEPTHWISE_MAYBE_BLOCKED = maybe_blocked(nn.depthwise_conv2d_nchw, nn.depthwise_conv2d_NCHWc)
