"""Convolutions by TVM's names, which say in which layout the data are: `topi.nn.conv1d_ncw`, ...

In: data and kernel tensors.  Out: what `conv` and `conv_transpose` of the compiler give for that
layout.  Read next: `tilewright/topi/nn/conv.py`, `winograd.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.base.doors import named
from tilewright.te.tensor import Tensor
from tilewright.topi.nn.conv import conv, conv1d, conv3d
from tilewright.topi.nn.conv_transpose import conv_transpose


def _in_layout(name: str, layout: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def operator(
        data: Tensor, kernel: Tensor, strides: Any = 1, padding: Any = "VALID", dilation: Any = 1,
        out_dtype: str | None = None,
    ) -> Tensor:  # fmt: skip
        return function(
            data, kernel, strides, padding, dilation, data_layout=layout, out_dtype=out_dtype
        )

    operator.__name__ = operator.__qualname__ = name
    operator.__doc__ = f"`{function.__name__}` of data in {layout}."
    return operator


conv1d_ncw = _in_layout("conv1d_ncw", "NCW", conv1d)
conv1d_nwc = _in_layout("conv1d_nwc", "NWC", conv1d)


def group_conv1d_ncw(
    data: Tensor, kernel: Tensor, strides: Any = 1, padding: Any = "VALID", dilation: Any = 1,
    groups: int = 1, out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """data [N, CI, W], kernel [CO, CI / groups, KW]; result [N, CO, OW]."""
    return conv(data, kernel, strides, padding, dilation, groups, "NCW", out_dtype=out_dtype)


def group_conv1d_nwc(
    data: Tensor, kernel: Tensor, strides: Any = 1, padding: Any = "VALID", dilation: Any = 1,
    groups: int = 1, out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """data [N, W, CI], kernel [KW, CI / groups, CO]; result [N, OW, CO]."""
    return conv(data, kernel, strides, padding, dilation, groups, "NWC", out_dtype=out_dtype)


def conv3d_ncdhw(
    data: Tensor, kernel: Tensor, strides: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """`conv3d` of data in NCDHW."""
    return conv3d(data, kernel, strides, padding, dilation, groups, out_dtype=out_dtype)


def conv3d_ndhwc(
    data: Tensor, kernel: Tensor, strides: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """`conv3d` of data in NDHWC."""
    return conv3d(data, kernel, strides, padding, dilation, groups, "NDHWC", out_dtype=out_dtype)


def conv2d_hwcn(
    data: Tensor, kernel: Tensor, stride: Any, padding: Any, dilation: Any = 1,
    out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """data [H, W, CI, N], kernel [KH, KW, CI, CO]; result [OH, OW, CO, N]."""
    return conv(data, kernel, stride, padding, dilation, 1, "HWCN", "", out_dtype)


def _groups_in(layout: str, meaning: str) -> Callable[..., Tensor]:
    @named(f"group_conv2d_{layout.lower()}", meaning)
    def convolution(
        data: Tensor, kernel: Tensor, stride: Any, padding: Any, dilation: Any, groups: int,
        out_dtype: str | None = None,
    ) -> Tensor:  # fmt: skip
        return conv(data, kernel, stride, padding, dilation, groups, layout, "", out_dtype)

    return convolution


group_conv2d_nchw = _groups_in(
    "NCHW", "data [N, CI, H, W], kernel [CO, CI / groups, KH, KW]; result [N, CO, OH, OW]."
)
group_conv2d_nhwc = _groups_in(
    "NHWC", "data [N, H, W, CI], kernel [KH, KW, CI / groups, CO]; result [N, OH, OW, CO]."
)


def _transposed_in(layout: str, meaning: str, grouped: bool = False) -> Callable[..., Tensor]:
    @named(
        f"{'group_' if grouped else ''}conv{len(layout) - 2}d_transpose_{layout.lower()}", meaning
    )
    def transposed(
        data: Tensor, kernel: Tensor, strides: Any, padding: Any, out_dtype: str | None = None,
        output_padding: Any = 0, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        return conv_transpose(
            data, kernel, strides, padding, out_dtype, output_padding, groups=groups,
            data_layout=layout,
        )  # fmt: skip

    return transposed


conv1d_transpose_ncw = _transposed_in(
    "NCW", "data [N, CI, W], kernel [CI, CO, KW]; result [N, CO, OW]."
)
conv2d_transpose_nchw = _transposed_in(
    "NCHW", "data [N, CI, H, W], kernel [CI, CO, KH, KW]; result [N, CO, OH, OW]."
)
conv3d_transpose_ncdhw = _transposed_in(
    "NCDHW", "data [N, CI, D, H, W], kernel [CI, CO, KD, KH, KW]; result [N, CO, OD, OH, OW]."
)
group_conv1d_transpose_ncw = _transposed_in(
    "NCW", "data [N, CI, W], kernel [CI, CO/groups, KW]; result [N, CO, OW].", True
)
group_conv2d_transpose_nchw = _transposed_in(
    "NCHW", "data [N, CI, H, W], kernel [CI, CO/groups, KH, KW]; result [N, CO, OH, OW].", True
)
