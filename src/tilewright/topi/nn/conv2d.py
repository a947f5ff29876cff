"""Two-dimensional convolution: NCHW and NHWC with groups, and the blocked NCHWc for CPUs.

In: data and kernel tensors.  Out: a padding stage and the reduction, which carries its workload.
Index expressions are `y*stride + ry*dilation`.  Read next: `depthwise.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.base.errors import ExpressionError
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi import layout as L
from tilewright.topi.nn.window import Window, pad
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

KERNEL_LAYOUT = {"NCHW": "OIHW", "NHWC": "HWIO"}
AXIS_NAME = {"N": "nn", "C": "ff", "H": "yy", "W": "xx"}


def conv2d(
    data: Tensor,
    kernel: Tensor,
    strides: Any,
    padding: Any,
    dilation: Any = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
    groups: int = 1,
) -> Tensor:
    """Convolution in any layout this room knows.

    data_layout: NCHW, NHWC or blocked (NCHW8c); kernel_layout: any order of OIHW, by default OIHW
    for NCHW and HWIO for NHWC.  A blocked convolution takes the kernel of `conv2d_NCHWc`.
    """
    if data_layout in KERNEL_LAYOUT:
        name = f"conv2d_{data_layout.lower()}"
        chosen = kernel_layout or KERNEL_LAYOUT[data_layout]
        return _convolution(
            name if groups == 1 else f"group_{name}",
            data, kernel, strides, padding, dilation, groups, data_layout, chosen, out_dtype,
        )  # fmt: skip
    place = call_text("conv2d", data=data, kernel=kernel, data_layout=data_layout)
    if L.parse(data_layout, place).axes != "NCHWc":
        raise ExpressionError(
            place, f"data layout {data_layout!r} has no convolution", "Use NCHW, NHWC or NCHW8c."
        )
    require(groups == 1, place, "a blocked convolution has no groups", "Use NCHW or NHWC.")
    L.extents(L.parse(data_layout, place), data.shape, place)
    return conv2d_NCHWc(data, kernel, strides, padding, dilation, out_dtype)


def conv2d_nchw(
    data: Tensor,
    kernel: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """data [N, CI, H, W], kernel [CO, CI, KH, KW]; result [N, CO, OH, OW]."""
    return _convolution(
        "conv2d_nchw", data, kernel, stride, padding, dilation, 1, "NCHW", "OIHW", out_dtype
    )


def conv2d_nhwc(
    data: Tensor,
    kernel: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """data [N, H, W, CI], kernel [KH, KW, CI, CO]; result [N, OH, OW, CO]."""
    return _convolution(
        "conv2d_nhwc", data, kernel, stride, padding, dilation, 1, "NHWC", "HWIO", out_dtype
    )


def group_conv2d_nchw(
    data: Tensor,
    kernel: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    out_dtype: str | None = None,
) -> Tensor:
    """data [N, CI, H, W], kernel [CO, CI / groups, KH, KW]; result [N, CO, OH, OW]."""
    name = "group_conv2d_nchw"
    return _convolution(
        name, data, kernel, stride, padding, dilation, groups, "NCHW", "OIHW", out_dtype
    )


def group_conv2d_nhwc(
    data: Tensor,
    kernel: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    out_dtype: str | None = None,
) -> Tensor:
    """data [N, H, W, CI], kernel [KH, KW, CI / groups, CO]; result [N, OH, OW, CO]."""
    name = "group_conv2d_nhwc"
    return _convolution(
        name, data, kernel, stride, padding, dilation, groups, "NHWC", "HWIO", out_dtype
    )


def _convolution(
    name: str,
    data: Tensor,
    kernel: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    layout: str,
    kernel_layout: str,
    out_dtype: str | None,
) -> Tensor:
    place = call_text(
        name, data=data, kernel=kernel, stride=stride, padding=padding, dilation=dilation
    )
    check_tensor(data, "data", layout, place)
    require(
        sorted(kernel_layout) == list("HIOW"), place, f"kernel layout {kernel_layout!r} is unknown",
        "Use an order of the letters O, I, H, W.",
    )  # fmt: skip
    check_tensor(kernel, "kernel", kernel_layout, place)
    size = dict(zip(layout, data.shape, strict=True))
    weight = dict(zip(kernel_layout, kernel.shape, strict=True))
    _check_channels(size["C"], weight["O"], weight["I"], groups, place)
    window = Window.of((weight["H"], weight["W"]), stride, padding, dilation, place)
    height, width = window.output_size(size["H"], size["W"], place)
    dtype = product_dtype(place, out_dtype, data=data, kernel=kernel)

    h_axis, w_axis = layout.index("H"), layout.index("W")
    padded = pad(data, *window.pads(h_axis, w_axis, 4), name="pad_temp")
    reduced = {
        "C": te.reduce_axis((0, weight["I"]), "rc"),
        "H": te.reduce_axis((0, weight["H"]), "ry"),
        "W": te.reduce_axis((0, weight["W"]), "rx"),
    }
    rc, ry, rx = reduced.values()
    out_group = weight["O"] // groups

    def body(i: Indices) -> Expr:
        at = dict(zip(layout, i, strict=True))
        y, x = window.taps(at["H"], at["W"], ry, rx)
        ff = at["C"]
        channel = rc.as_expr() if groups == 1 else ff // out_group * weight["I"] + rc
        source = {"N": at["N"], "C": channel, "H": y, "W": x}
        tap = {"O": ff, "I": rc, "H": ry, "W": rx}
        return sum_of_products(
            padded[tuple(source[a] for a in layout)],
            kernel[tuple(tap[a] for a in kernel_layout)],
            dtype,
            [reduced[a] for a in layout if a != "N"],
        )

    out_size = {"N": size["N"], "C": weight["O"], "H": height, "W": width}
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


def _check_channels(channels: int, outputs: int, per_group: int, groups: int, place: str) -> None:
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


def conv2d_NCHWc(
    data: Tensor,
    kernel: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """Convolution over blocks of channels.

    data [N, CI/c, H, W, c], kernel [CO/k, CI/c, KH, KW, c, k]; result [N, CO/k, OH, OW, k].
    """
    name = "conv2d_NCHWc"
    place = call_text(
        name, data=data, kernel=kernel, stride=stride, padding=padding, dilation=dilation
    )
    check_tensor(data, "data", "N C H W c", place)
    check_tensor(kernel, "kernel", "O I H W i o", place)
    batch, in_chunks, in_height, in_width, in_block = data.shape
    out_chunks, kernel_chunks, kh, kw, kernel_block, out_block = kernel.shape
    require(
        (in_chunks, in_block) == (kernel_chunks, kernel_block), place,
        f"data has {in_chunks} blocks of {in_block} channels, "
        f"the kernel {kernel_chunks} of {kernel_block}", "Store both in blocks of one size.",
    )  # fmt: skip
    window = Window.of((kh, kw), stride, padding, dilation, place)
    height, width = window.output_size(in_height, in_width, place)
    dtype = product_dtype(place, out_dtype, data=data, kernel=kernel)

    padded = pad(data, *window.pads(2, 3, 5), name="data_pad") if any(window.padding) else data
    ic_outer = te.reduce_axis((0, in_chunks), "ic_outer")
    ic_inner = te.reduce_axis((0, in_block), "ic_inner")
    ry, rx = te.reduce_axis((0, kh), "kh"), te.reduce_axis((0, kw), "kw")

    def body(i: Indices) -> Expr:
        n, oc_chunk, oh, ow, oc_block = i
        y, x = window.taps(oh, ow, ry, rx)
        return sum_of_products(
            padded[n, ic_outer, y, x, ic_inner],
            kernel[oc_chunk, ic_outer, ry, rx, ic_inner, oc_block],
            dtype,
            [ic_outer, ry, rx, ic_inner],
        )

    args = (data, kernel, window.stride, window.padding, window.dilation, dtype)
    return stage(
        (batch, out_chunks, height, width, out_block),
        body,
        name,
        name,
        axes=["n", "oc_chunk", "oh", "ow", "oc_block"],
        workload=workload(name, *args),
    )
