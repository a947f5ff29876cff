"""Convolution over images of any rank, in any layout of N, C and the image's axes, with groups.

In: data and kernel tensors.  Out: a padding stage and the reduction, which carries its workload.
Index expressions are `y*stride + ry*dilation`.  Read next: `conv2d.py`, `conv_transpose.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.nn.window import Window, image_letters, pad
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensor,
    is_integer,
    product_dtype,
    require,
    stage,
    sum_of_products,
    workload,
)

AXIS_NAME = {"N": "nn", "C": "ff", "D": "zz", "H": "yy", "W": "xx"}
TAP_NAME = {"C": "rc", "D": "rz", "H": "ry", "W": "rx"}


def kernel_layout_of(layout: str) -> str:
    """The usual order of a kernel: OIHW for NCHW, HWIO for NHWC."""
    image = image_letters(len(layout) - 2)
    return f"OI{image}" if layout.index("C") == 1 else f"{image}IO"


def conv(
    data: Tensor,
    kernel: Tensor,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Tensor:
    """Convolution of the rank that `data_layout` has: NCW, NWC, NCHW, NHWC, HWCN, NCDHW, NDHWC.

    kernel_layout: any order of O, I and the image's axes, I being channels / groups.
    """
    rank = len(data_layout) - 2
    name = f"conv{rank}d_{data_layout.lower()}"
    name = name if groups == 1 else f"group_{name}"
    layout, image = data_layout, image_letters(rank)
    place = call_text(
        name, data=data, kernel=kernel, stride=strides, padding=padding, dilation=dilation
    )
    require(
        layout in (f"NC{image}", f"N{image}C", f"{image}CN"), place,
        f"data layout {layout!r} is unknown", "Use NCW, NWC, NCHW, NHWC, HWCN, NCDHW or NDHWC.",
    )  # fmt: skip
    check_tensor(data, "data", layout, place)
    kernel_layout = kernel_layout or kernel_layout_of(layout)
    check_kernel(kernel, kernel_layout, image, place)
    size = dict(zip(layout, data.shape, strict=True))
    weight = dict(zip(kernel_layout, kernel.shape, strict=True))
    check_channels(size["C"], weight["O"], weight["I"], groups, place)
    window = Window.of([weight[a] for a in image], strides, padding, dilation, place, rank)
    positions = window.output_size([size[a] for a in image], place)
    dtype = product_dtype(place, out_dtype, data=data, kernel=kernel)

    pads = window.pads([layout.index(a) for a in image], len(layout))
    padded = pad(data, *pads, name="pad_temp")
    reduced = {a: te.reduce_axis((0, weight["I" if a == "C" else a]), TAP_NAME[a])
               for a in f"C{image}"}  # fmt: skip
    rc, *taps = reduced.values()
    out_group = weight["O"] // groups

    def body(i: Indices) -> Expr:
        at = dict(zip(layout, i, strict=True))
        ff = at["C"]
        channel = rc.as_expr() if groups == 1 else ff // out_group * weight["I"] + rc
        read = window.taps([at[a] for a in image], taps)
        source = {"N": at["N"], "C": channel, **dict(zip(image, read, strict=True))}
        tap = {"O": ff, "I": rc, **dict(zip(image, taps, strict=True))}
        return sum_of_products(
            padded[tuple(source[a] for a in layout)],
            kernel[tuple(tap[a] for a in kernel_layout)],
            dtype,
            [reduced[a] for a in layout if a != "N"],
        )

    out_size = {"N": size["N"], "C": weight["O"], **dict(zip(image, positions, strict=True))}
    extra = [groups] if groups > 1 else []
    args = (data, kernel, window.stride, window.padding, window.dilation, *extra, dtype)
    return stage(
        [out_size[a] for a in layout],
        body,
        "compute" if name == "conv2d_nchw" else name,
        name,
        axes=[AXIS_NAME[a] for a in layout],
        workload=workload(name, *args),
    )


def check_kernel(kernel: Tensor, kernel_layout: str, image: str, place: str) -> None:
    require(
        sorted(kernel_layout) == sorted(f"OI{image}"), place,
        f"kernel layout {kernel_layout!r} is unknown",
        f"Use an order of the letters O, I, {', '.join(image)}.",
    )  # fmt: skip
    check_tensor(kernel, "kernel", kernel_layout, place)


def check_channels(channels: int, outputs: int, per_group: int, groups: int, place: str) -> None:
    """Refuse channels that do not fall into groups, and a kernel that reads others."""
    require(
        is_integer(groups) and groups >= 1,
        place,
        f"groups={groups!r} is not an int of at least 1",
        "Use groups=1, or a divisor of the channels.",
    )
    require(
        channels % groups == 0 and outputs % groups == 0, place,
        f"{channels} input and {outputs} output channels do not divide into {groups} groups",
        "Use a divisor of both.",
    )  # fmt: skip
    require(
        per_group * groups == channels, place,
        f"the kernel reads {per_group} channels per group, data has {channels} in {groups}",
        f"Give a kernel of {channels // groups} input channels.",
    )  # fmt: skip


def conv1d(
    data: Tensor,
    kernel: Tensor,
    strides: Any = 1,
    padding: Any = "VALID",
    dilation: Any = 1,
    data_layout: str = "NCW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Tensor:
    """data [N, CI, W], kernel [CO, CI, KW]; result [N, CO, OW].

    data_layout: NCW or NWC; kernel_layout: any order of OIW, by default OIW for NCW, WIO for NWC.
    """
    return conv(data, kernel, strides, padding, dilation, 1, data_layout, kernel_layout, out_dtype)


def conv3d(
    data: Tensor,
    kernel: Tensor,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_layout: str = "NCDHW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Tensor:
    """data [N, CI, D, H, W], kernel [CO, CI / groups, KD, KH, KW]; result [N, CO, OD, OH, OW].

    data_layout: NCDHW or NDHWC; kernel_layout: any order of OIDHW, by default OIDHW or DHWIO.
    """
    return conv(
        data, kernel, strides, padding, dilation, groups, data_layout, kernel_layout, out_dtype
    )
