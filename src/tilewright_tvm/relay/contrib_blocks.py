"""Convolutions of blocks of channels under TVM's names: `relay.nn.contrib_conv2d_nchwc`, ...

In: graph values, data and kernels both in blocks.  Out: calls of `nn.conv2d`.
Read next: `graph/functions/convolution.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.base.doors import named, open_doors
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr, Var
from tilewright.graph.functions.convolution import conv2d

_BLOCKED = 5  # axes of data in blocks of channels; a kernel has one more


def _over_blocks(name: str, meaning: str, each_channel: bool) -> Callable[..., Expr]:
    """each_channel: groups of 1 stand for as many as there are channels"""

    @named(name, f"{meaning}; kernel_layout: OIHW has the blocks of the kernel's shape.")
    def convolution(
        data: Expr, kernel: Expr, strides: Any = (1, 1), padding: Any = (0, 0),
        dilation: Any = (1, 1), groups: int = 1, channels: int | None = None,
        kernel_size: Any = None, data_layout: str = "NCHW8c", kernel_layout: str = "OIHW",
        out_layout: str = "", out_dtype: str = "",
    ) -> Expr:  # fmt: skip
        if each_channel and groups == 1 and len(data.shape) == _BLOCKED:
            groups = data.shape[1] * data.shape[4]
        return conv2d(
            data, kernel, strides, padding, dilation, groups, channels, kernel_size, data_layout,
            _in_blocks(kernel, kernel_layout), out_layout, out_dtype,
        )  # fmt: skip

    return convolution


def _in_blocks(kernel: Expr, layout: str) -> str:
    whole = layout == "OIHW" and not (isinstance(kernel, Var) and not kernel.is_typed)
    if whole and len(kernel.shape) == _BLOCKED + 1:
        return f"OIHW{kernel.shape[4]}i{kernel.shape[5]}o"
    return layout


contrib_conv2d_nchwc = _over_blocks(
    "contrib_conv2d_nchwc",
    "`conv2d` of data [N, C/c, H, W, c] with a kernel [O/o, I/i, KH, KW, i, o]", False,
)  # fmt: skip
contrib_depthwise_conv2d_nchwc = _over_blocks(
    "contrib_depthwise_conv2d_nchwc",
    "`conv2d` of data [N, C/c, H, W, c], each channel with its own kernel of [C/c, 1, KH, KW, 1, "
    "c]", True,
)  # fmt: skip

__all__ = ["contrib_conv2d_nchwc", "contrib_depthwise_conv2d_nchwc"]
open_doors(globals(), __all__, ModelError, "relay.nn")
