"""Depthwise convolution: every input channel has its own kernels.

In: data and a kernel of (channels, multiplier).  Out: `PaddedInput` and `DepthwiseConv2d`.
Output channel c reads input channel c // multiplier.  Read next: `conv2d.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.base.doors import named
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.nn.blocks import over_blocks
from tilewright.topi.nn.window import Window, image_letters, pad
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

AXIS_NAME = {"N": "b", "C": "c", "D": "k", "H": "i", "W": "j"}
TAP_NAME = {"D": "dk", "H": "di", "W": "dj"}


def depthwise_conv(
    data: Tensor,
    kernel: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    out_dtype: str | None = None,
    layout: str = "NCHW",
) -> Tensor:
    """Depthwise convolution of the rank that `layout` has: NCW, NWC, NCHW, NHWC, NCDHW, NDHWC.

    kernel: [C, M, *window] where channels come first, else [*window, C, M].
    """
    rank = len(layout) - 2
    image = image_letters(rank)
    name = f"depthwise_conv{rank}d_{layout.lower()}"
    place = call_text(
        name, data=data, kernel=kernel, stride=stride, padding=padding, dilation=dilation
    )
    require(
        layout in (f"NC{image}", f"N{image}C"), place, f"data layout {layout!r} is unknown",
        "Use NCW, NWC, NCHW, NHWC, NCDHW or NDHWC.",
    )  # fmt: skip
    kernel_layout = f"CM{image}" if layout.index("C") == 1 else f"{image}CM"
    check_tensor(data, "data", layout, place)
    check_tensor(kernel, "kernel", kernel_layout, place)
    size = dict(zip(layout, data.shape, strict=True))
    weight = dict(zip(kernel_layout, kernel.shape, strict=True))
    require(
        size["C"] == weight["C"], place,
        f"data has {size['C']} channels, the kernel {weight['C']}",
        f"Give a kernel with axes {', '.join(kernel_layout)} and C={size['C']}.",
    )  # fmt: skip
    window = Window.of([weight[a] for a in image], stride, padding, dilation, place, rank)
    positions = window.output_size([size[a] for a in image], place)
    dtype = product_dtype(place, out_dtype, data=data, kernel=kernel)
    multiplier = weight["M"]

    pads = window.pads([layout.index(a) for a in image], len(layout))
    padded = pad(data, *pads, name="PaddedInput")
    taps = [te.reduce_axis((0, weight[a]), TAP_NAME[a]) for a in image]

    def body(i: Indices) -> Expr:
        at = dict(zip(layout, i, strict=True))
        channel, copy = at["C"] // multiplier, at["C"] % multiplier
        read = window.taps([at[a] for a in image], taps)
        source = {"N": at["N"], "C": channel, **dict(zip(image, read, strict=True))}
        tap = {"C": channel, "M": copy, **dict(zip(image, taps, strict=True))}
        return sum_of_products(
            padded[tuple(source[a] for a in layout)],
            kernel[tuple(tap[a] for a in kernel_layout)],
            dtype,
            taps,
        )

    out_size = {
        "N": size["N"], "C": size["C"] * multiplier, **dict(zip(image, positions, strict=True)),
    }  # fmt: skip
    args = (data, kernel, window.stride, window.padding, window.dilation, dtype)
    return stage(
        [out_size[a] for a in layout],
        body,
        f"DepthwiseConv{rank}d",
        name,
        axes=[AXIS_NAME[a] for a in layout],
        workload=workload(name, *args),
    )


def _in(layout: str, meaning: str) -> Callable[..., Tensor]:
    @named(f"depthwise_conv2d_{layout.lower()}", meaning)
    def convolution(
        data: Tensor, kernel: Tensor, stride: Any, padding: Any, dilation: Any = 1,
        out_dtype: str | None = None,
    ) -> Tensor:  # fmt: skip
        return depthwise_conv(data, kernel, stride, padding, dilation, out_dtype, layout)

    return convolution


depthwise_conv2d_nchw = _in(
    "NCHW", "data [N, C, H, W], kernel [C, M, KH, KW]; result [N, C*M, OH, OW]."
)
depthwise_conv2d_nhwc = _in(
    "NHWC", "data [N, H, W, C], kernel [KH, KW, C, M]; result [N, OH, OW, C*M]."
)


def depthwise_conv2d_NCHWc(
    data: Tensor,
    kernel: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any = 1,
    layout: str | None = None,
    out_layout: str | None = None,
    out_dtype: str | None = None,
) -> Tensor:
    """Depthwise convolution over blocks of channels, multiplier 1.

    data [N, C/c, H, W, c], kernel [C/c, 1, KH, KW, 1, c]; result [N, C/c, OH, OW, c].
    layout, out_layout: "NCHW8c" for blocks of 8, as the shapes tell, too.
    """
    name = "depthwise_conv2d_NCHWc"
    held = over_blocks(
        name, data, kernel, "CMHWmc", "Cc", stride, padding, dilation, layout, out_layout,
        out_dtype,
    )  # fmt: skip
    window, padded, dtype = held.window, held.padded, held.dtype
    batch, chunks, _, _, block = data.shape
    _, multiplier, kh, kw, inner_multiplier, _ = kernel.shape
    require(
        multiplier == inner_multiplier == 1, held.place,
        "a channel multiplier is not supported in blocks",
        "Use depthwise_conv2d_nchw.",
    )  # fmt: skip
    ry, rx = te.reduce_axis((0, kh), "kh"), te.reduce_axis((0, kw), "kw")

    def body(i: Indices) -> Expr:
        b, oco, oh, ow, oci = i
        y, x = window.taps((oh, ow), (ry, rx))
        return sum_of_products(
            padded[b, oco, y, x, oci], kernel[oco, 0, ry, rx, 0, oci], dtype, [ry, rx]
        )

    args = (data, kernel, window.stride, window.padding, window.dilation, dtype)
    return stage(
        (batch, chunks, *held.image, block),
        body,
        "DepthwiseConv2d",
        name,
        axes=["b", "oco", "oh", "ow", "oci"],
        workload=workload(name, *args),
    )
