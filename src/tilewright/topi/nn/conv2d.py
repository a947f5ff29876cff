"""Two-dimensional convolution: NCHW and NHWC with groups, and the blocked NCHWc for CPUs.

In: data and kernel tensors.  Out: a padding stage and the reduction, which carries its workload.
Read next: `conv.py`, which computes all but the blocked one; `depthwise.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.base.doors import named
from tilewright.base.errors import ExpressionError
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi import layout as L
from tilewright.topi.nn.blocks import over_blocks
from tilewright.topi.nn.conv import conv
from tilewright.topi.stage import (
    Indices,
    call_text,
    require,
    stage,
    sum_of_products,
    workload,
)


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

    data_layout: NCHW, NHWC, HWCN or blocked (NCHW8c); kernel_layout: any order of OIHW, by default
    OIHW for NCHW, else HWIO.  A blocked convolution takes the kernel of `conv2d_NCHWc`.
    """
    if data_layout in ("NCHW", "NHWC", "HWCN"):
        return conv(
            data, kernel, strides, padding, dilation, groups, data_layout, kernel_layout, out_dtype
        )
    place = call_text("conv2d", data=data, kernel=kernel, data_layout=data_layout)
    if L.parse(data_layout, place).axes != "NCHWc":
        raise ExpressionError(
            place,
            f"data layout {data_layout!r} has no convolution",
            "Use NCHW, NHWC, HWCN or NCHW8c.",
        )
    require(groups == 1, place, "a blocked convolution has no groups", "Use NCHW or NHWC.")
    L.extents(L.parse(data_layout, place), data.shape, place)
    return conv2d_NCHWc(data, kernel, strides, padding, dilation, out_dtype=out_dtype)


def _in(layout: str, meaning: str) -> Callable[..., Tensor]:
    @named(f"conv2d_{layout.lower()}", meaning)
    def convolution(
        data: Tensor, kernel: Tensor, stride: Any, padding: Any, dilation: Any = 1,
        out_dtype: str | None = None,
    ) -> Tensor:  # fmt: skip
        return conv(data, kernel, stride, padding, dilation, 1, layout, "", out_dtype)

    return convolution


conv2d_nchw = _in("NCHW", "data [N, CI, H, W], kernel [CO, CI, KH, KW]; result [N, CO, OH, OW].")
conv2d_nhwc = _in("NHWC", "data [N, H, W, CI], kernel [KH, KW, CI, CO]; result [N, OH, OW, CO].")


def conv2d_NCHWc(
    data: Tensor,
    kernel: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any = 1,
    layout: str | None = None,
    out_layout: str | None = None,
    out_dtype: str | None = None,
) -> Tensor:
    """Convolution over blocks of channels.

    data [N, CI/c, H, W, c], kernel [CO/k, CI/groups/c, KH, KW, c, k]; result [N, CO/k, OH, OW, k].
    layout, out_layout: "NCHW8c" for blocks of 8, as the shapes tell, too; the kernel tells groups.
    """
    held = over_blocks(
        "conv2d_NCHWc", data, kernel, "OIHWio", "Ii", stride, padding, dilation, layout,
        out_layout, out_dtype,
    )  # fmt: skip
    window, padded, dtype, groups = held.window, held.padded, held.dtype, held.groups
    name = "conv2d_NCHWc" if groups == 1 else "group_conv2d_NCHWc"
    batch, _, _, _, in_block = data.shape
    out_chunks, in_chunks, kh, kw, _, out_block = kernel.shape
    ic_outer = te.reduce_axis((0, in_chunks), "ic_outer")
    ic_inner = te.reduce_axis((0, in_block), "ic_inner")
    ry, rx = te.reduce_axis((0, kh), "kh"), te.reduce_axis((0, kw), "kw")

    def body(i: Indices) -> Expr:
        n, oc_chunk, oh, ow, oc_block = i
        y, x = window.taps((oh, ow), (ry, rx))
        own = oc_chunk // (out_chunks // groups) * in_chunks + ic_outer if groups > 1 else ic_outer
        return sum_of_products(
            padded[n, own, y, x, ic_inner],
            kernel[oc_chunk, ic_outer, ry, rx, ic_inner, oc_block],
            dtype,
            [ic_outer, ry, rx, ic_inner],
        )

    args = (data, kernel, window.stride, window.padding, window.dilation, dtype)
    return stage(
        (batch, out_chunks, *held.image, out_block),
        body,
        name,
        name,
        axes=["n", "oc_chunk", "oh", "ow", "oc_block"],
        workload=workload(name, *args),
    )
