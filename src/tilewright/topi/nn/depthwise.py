"""Depthwise convolution: every input channel has its own kernels.

In: data and a kernel of (channels, multiplier).  Out: `PaddedInput` and `DepthwiseConv2d`.
Output channel c reads input channel c // multiplier.  Read next: `conv2d.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.nn.window import Window, pad
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensor,
    product_dtype,
    require,
    stage,
    sum_of_products,
    workload,
)

KERNEL_LAYOUT = {"NCHW": "CMHW", "NHWC": "HWCM"}
AXIS_NAME = {"N": "b", "C": "c", "H": "i", "W": "j"}


def depthwise_conv2d_nchw(
    data: Tensor,
    kernel: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """data [N, C, H, W], kernel [C, M, KH, KW]; result [N, C*M, OH, OW]."""
    return _depthwise(data, kernel, stride, padding, dilation, out_dtype, "NCHW")


def depthwise_conv2d_nhwc(
    data: Tensor,
    kernel: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """data [N, H, W, C], kernel [KH, KW, C, M]; result [N, OH, OW, C*M]."""
    return _depthwise(data, kernel, stride, padding, dilation, out_dtype, "NHWC")


def _depthwise(
    data: Tensor,
    kernel: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    out_dtype: str | None,
    layout: str,
) -> Tensor:
    name = f"depthwise_conv2d_{layout.lower()}"
    kernel_layout = KERNEL_LAYOUT[layout]
    place = call_text(
        name, data=data, kernel=kernel, stride=stride, padding=padding, dilation=dilation
    )
    check_tensor(data, "data", layout, place)
    check_tensor(kernel, "kernel", kernel_layout, place)
    size = dict(zip(layout, data.shape, strict=True))
    weight = dict(zip(kernel_layout, kernel.shape, strict=True))
    require(
        size["C"] == weight["C"], place,
        f"data has {size['C']} channels, the kernel {weight['C']}",
        f"Give a kernel with axes {', '.join(kernel_layout)} and C={size['C']}.",
    )  # fmt: skip
    window = Window.of((weight["H"], weight["W"]), stride, padding, dilation, place)
    height, width = window.output_size(size["H"], size["W"], place)
    dtype = product_dtype(place, out_dtype, data=data, kernel=kernel)
    multiplier = weight["M"]

    pads = window.pads(layout.index("H"), layout.index("W"), 4)
    padded = pad(data, *pads, name="PaddedInput")
    di, dj = te.reduce_axis((0, weight["H"]), "di"), te.reduce_axis((0, weight["W"]), "dj")

    def body(i: Indices) -> Expr:
        at = dict(zip(layout, i, strict=True))
        y, x = window.taps(at["H"], at["W"], di, dj)
        channel, copy = at["C"] // multiplier, at["C"] % multiplier
        source = {"N": at["N"], "C": channel, "H": y, "W": x}
        tap = {"C": channel, "M": copy, "H": di, "W": dj}
        return sum_of_products(
            padded[tuple(source[a] for a in layout)],
            kernel[tuple(tap[a] for a in kernel_layout)],
            dtype,
            [di, dj],
        )

    out_size = {"N": size["N"], "C": size["C"] * multiplier, "H": height, "W": width}
    args = (data, kernel, window.stride, window.padding, window.dilation, dtype)
    return stage(
        [out_size[a] for a in layout],
        body,
        "DepthwiseConv2d",
        name,
        axes=[AXIS_NAME[a] for a in layout],
        workload=workload(name, *args),
    )


def depthwise_conv2d_NCHWc(
    data: Tensor,
    kernel: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """Depthwise convolution over blocks of channels, multiplier 1.

    data [N, C/c, H, W, c], kernel [C/c, 1, KH, KW, 1, c]; result [N, C/c, OH, OW, c].
    """
    name = "depthwise_conv2d_NCHWc"
    place = call_text(
        name, data=data, kernel=kernel, stride=stride, padding=padding, dilation=dilation
    )
    check_tensor(data, "data", "N C H W c", place)
    check_tensor(kernel, "kernel", "C M H W m c", place)
    batch, chunks, in_height, in_width, block = data.shape
    kernel_chunks, multiplier, kh, kw, inner_multiplier, kernel_block = kernel.shape
    require(
        (chunks, block) == (kernel_chunks, kernel_block), place,
        f"data has {chunks} blocks of {block} channels, "
        f"the kernel {kernel_chunks} of {kernel_block}", "Store both in blocks of one size.",
    )  # fmt: skip
    require(
        multiplier == inner_multiplier == 1, place,
        "a channel multiplier is not supported in blocks",
        "Use depthwise_conv2d_nchw.",
    )  # fmt: skip
    window = Window.of((kh, kw), stride, padding, dilation, place)
    height, width = window.output_size(in_height, in_width, place)
    dtype = product_dtype(place, out_dtype, data=data, kernel=kernel)

    padded = pad(data, *window.pads(2, 3, 5), name="data_pad") if any(window.padding) else data
    ry, rx = te.reduce_axis((0, kh), "kh"), te.reduce_axis((0, kw), "kw")

    def body(i: Indices) -> Expr:
        b, oco, oh, ow, oci = i
        y, x = window.taps(oh, ow, ry, rx)
        return sum_of_products(
            padded[b, oco, y, x, oci], kernel[oco, 0, ry, rx, 0, oci], dtype, [ry, rx]
        )

    args = (data, kernel, window.stride, window.padding, window.dilation, dtype)
    return stage(
        (batch, chunks, height, width, block),
        body,
        "DepthwiseConv2d",
        name,
        axes=["b", "oco", "oh", "ow", "oci"],
        workload=workload(name, *args),
    )
