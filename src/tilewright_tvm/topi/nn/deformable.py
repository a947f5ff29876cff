"""Convolution whose taps lie where data says: `topi.nn.deformable_conv2d_nchw`, and of NHWC.

In: an image, offsets and weights.  Out: places, the image there (`T_grid_sample`), and a sum of
products.  Read next: `topi/sampling.py`; `graph/functions/deformable.py` for networks.
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.nn.window import Window
from tilewright.topi.sampling import grid_sample
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensor,
    is_integer,
    product_dtype,
    require,
    stage,
    sum_of_products,
    wide,
)
from tilewright.topi.transform import reshape, transpose


def deformable_conv2d_nchw(
    data: Tensor,
    offset: Tensor,
    kernel: Tensor,
    strides: Any,
    padding: Any,
    dilation: Any,
    deformable_groups: int,
    groups: int,
    out_dtype: str | None = None,
) -> Tensor:
    """`conv2d_nchw` of data [N, CI, H, W] and kernel [CO, CI / groups, KH, KW] each of whose taps
    is moved by its own offset; outside the image are zeros.

    offset: [N, deformable_groups * KH * KW * 2, OH, OW]: for each tap how far it moves along H,
            then along W.  A group of offsets serves CI / deformable_groups channels.
    """
    place = call_text(
        "deformable_conv2d_nchw", data=data, offset=offset, kernel=kernel, strides=strides,
        padding=padding, dilation=dilation, deformable_groups=deformable_groups, groups=groups,
    )  # fmt: skip
    for what, tensor in (("data", data), ("offset", offset), ("kernel", kernel)):
        check_tensor(tensor, what, "NCHW", place)
    batch, channels, *image = data.shape
    outer, each, kh, kw = kernel.shape
    ok = is_integer(groups) and groups >= 1 and each * groups == channels and outer % groups == 0
    require(ok, place, f"{groups} groups do not fit {channels} and {outer} channels",
            "Give a kernel [CO, CI / groups, KH, KW].")  # fmt: skip
    ok = (
        is_integer(deformable_groups) and deformable_groups >= 1
        and channels % deformable_groups == 0
    )  # fmt: skip
    require(ok, place, f"{deformable_groups} groups of offsets do not divide {channels} channels",
            "Use a divisor.")  # fmt: skip
    window = Window.of([kh, kw], strides, padding, dilation, place)
    height, width = window.output_size(image, place)
    taps, moved = kh * kw, batch * deformable_groups
    wanted = [batch, deformable_groups * taps * 2, height, width]
    require(
        list(offset.shape) == wanted and offset.dtype is data.dtype, place,
        f"the offsets are no {data.dtype} tensor of {wanted}", "Give one for each tap and axis.",
    )  # fmt: skip
    dtype = product_dtype(place, out_dtype, data=data, kernel=kernel)

    def where(i: Indices) -> Expr:
        """[moved, (x, y), taps * OH, OW], in elements of the image."""
        n, axis, row, x = i
        tap, y = row // height, row % height
        back = 1 - axis  # of the offsets: y comes first
        channel = ((n % deformable_groups) * taps + tap) * 2 + back
        far = offset[n // deformable_groups, channel, y, x]
        down, across = window.taps((y, x), (tap // kw, tap % kw))
        at = te.if_then_else(
            axis.equal(0), across - window.before[1], down - window.before[0]
        )  # fmt: skip
        return (wide(far) + te.cast(far.dtype.compute, at)).astype(data.dtype)

    grid = stage((moved, 2, taps * height, width), where, "T_places", "injective")
    share = channels // deformable_groups
    read = grid_sample(reshape(data, (moved, share, *image)), grid, normalized=False)
    c = te.reduce_axis((0, each), "rc")
    ky, kx = te.reduce_axis((0, kh), "ry"), te.reduce_axis((0, kw), "rx")

    def body(i: Indices) -> Expr:
        n, f, y, x = i
        channel = f // (outer // groups) * each + c
        group, own = channel // share, channel % share
        at = read[n * deformable_groups + group, own, (ky * kw + kx) * height + y, x]
        return sum_of_products(at, kernel[f, c, ky, kx], dtype, [c, ky, kx])

    return stage((batch, outer, height, width), body, "deformable_conv2d", "deformable_conv2d_nchw")


def deformable_conv2d_nhwc(
    data: Tensor,
    offset: Tensor,
    kernel: Tensor,
    strides: Any,
    padding: Any,
    dilation: Any,
    deformable_groups: int,
    groups: int,
    out_dtype: str | None = None,
) -> Tensor:
    """`deformable_conv2d_nchw` of data [N, H, W, CI] and kernel [KH, KW, CI / groups, CO]; offset
    [N, OH, OW, deformable_groups * KH * KW * 2]; result [N, OH, OW, CO]."""
    place = call_text("deformable_conv2d_nhwc", data=data, offset=offset, kernel=kernel)
    for what, tensor in (("data", data), ("offset", offset)):
        check_tensor(tensor, what, "NHWC", place)
    check_tensor(kernel, "kernel", "HWIO", place)
    inner = deformable_conv2d_nchw(
        transpose(data, (0, 3, 1, 2)), transpose(offset, (0, 3, 1, 2)),
        transpose(kernel, (3, 2, 0, 1)), strides, padding, dilation, deformable_groups, groups,
        out_dtype,
    )  # fmt: skip
    return transpose(inner, (0, 2, 3, 1))
