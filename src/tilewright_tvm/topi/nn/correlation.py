"""Correlation of the neighbourhoods of two images: `topi.nn.correlation_nchw`.

In: two images [N, C, H, W].  Out: a channel for each displacement, in two stages.
Read next: `window.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.nn.window import get_pad_tuple, pad
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensor,
    is_integer,
    require,
    require_float,
    stage,
    wide,
)


def correlation_nchw(
    data1: Tensor,
    data2: Tensor,
    kernel_size: int,
    max_displacement: int,
    stride1: int,
    stride2: int,
    padding: Any,
    is_multiply: bool,
) -> Tensor:
    """The mean product (is_multiply) or distance of each patch of data1 and of patches of data2
    around the same place: [N, D*D, OH, OW], D being 2 * (max_displacement // stride2) + 1.

    kernel_size: the extent of a patch, odd
    stride1:     between patches of data1; stride2: between displacements
    """
    place = call_text(
        "correlation_nchw", data1=data1, data2=data2, kernel_size=kernel_size,
        max_displacement=max_displacement, stride1=stride1, stride2=stride2, padding=padding,
    )  # fmt: skip
    check_tensor(data1, "data1", "NCHW", place)
    check_tensor(data2, "data2", "NCHW", place)
    require_float(data1, "the mean", place)
    require(
        list(data1.shape) == list(data2.shape) and data1.dtype is data2.dtype, place,
        "the images differ in shape or type", "Give two alike.",
    )  # fmt: skip
    numbers = (kernel_size, max_displacement, stride1, stride2)
    require(
        all(map(is_integer, numbers)) and kernel_size > 0 and kernel_size % 2 == 1
        and max_displacement >= 0 and min(stride1, stride2) >= 1,
        place, "a patch has an odd extent, and strides are at least 1",
        "Use kernel_size=1, max_displacement=4, stride1=1, stride2=1.",
    )  # fmt: skip
    top, left, bottom, right = get_pad_tuple(padding, (1, 1), place)
    padded = [
        pad(t, (0, 0, top, left), (0, 0, bottom, right), name="pad_temp")
        if top + left + bottom + right else t
        for t in (data1, data2)
    ]  # fmt: skip
    batch, channels = data1.shape[:2]
    border = max_displacement + kernel_size // 2
    image = [-(-(n - 2 * border) // stride1) for n in padded[0].shape[2:]]
    require(min(image) >= 1, place, "no patch fits the padded images", "Use more padding.")
    radius = max_displacement // stride2
    across = 2 * radius + 1
    rc = te.reduce_axis((0, channels), "rc")
    ry, rx = te.reduce_axis((0, kernel_size), "ry"), te.reduce_axis((0, kernel_size), "rx")

    def body(i: Indices) -> Expr:
        n, displacement, y, x = i
        at = y * stride1 + max_displacement + ry, x * stride1 + max_displacement + rx
        moved = displacement // across - radius, displacement % across - radius
        a = wide(padded[0][(n, rc, *at)])
        b = wide(padded[1][(n, rc, *(p + m * stride2 for p, m in zip(at, moved, strict=True)))])
        return te.sum(a * b if is_multiply else te.abs(a - b), axis=[rc, ry, rx])

    total = stage((batch, across * across, *image), body, "correlation", "correlation_nchw")
    size = float(kernel_size * kernel_size * channels)
    return stage(
        total.shape, lambda i: (total[i] / size).astype(data1.dtype), "T_divide", "elemwise"
    )
