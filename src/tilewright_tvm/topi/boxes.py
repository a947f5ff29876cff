"""Boxes about the elements of an image, and blocks of pixels as channels, in YOLO's order.

In: `te` tensors.  Out: `te` tensors, one stage each.  Read next: `topi/sampling.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.sampling import roi_align
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensor,
    require,
    stage,
)


def multibox_prior(
    data: Tensor,
    sizes: Sequence[float] = (1,),
    ratios: Sequence[float] = (1,),
    steps: Sequence[float] = (-1, -1),
    offsets: Sequence[float] = (0.5, 0.5),
    clip: bool = False,
) -> Tensor:
    """Boxes about each element of data [N, C, H, W]: [1, H * W * boxes, 4], of shares of the image.

    boxes: one of each size with the first ratio, then one of each further ratio with the first
    size; a row is left, top, right, bottom
    steps: between elements, down and across; -1 is the image over their number
    offsets: of the first centre, in steps; clip: to the image
    """
    place = call_text("multibox_prior", data=data, sizes=list(sizes), ratios=list(ratios))
    check_tensor(data, "data", "NCHW", place)
    positive = [*sizes, *ratios]
    require(
        bool(sizes) and bool(ratios) and min(positive) > 0, place,
        "sizes and ratios are not positive", "Give at least one of each.",
    )  # fmt: skip
    require(len(steps) == len(offsets) == 2, place, "steps or offsets are not two", "Give (y, x).")
    height, width = data.shape[2:]
    down, across = (s if s > 0 else 1.0 / n for s, n in zip(steps, (height, width), strict=True))
    square = height / width
    halves = [(s * square / 2, s / 2) for s in sizes] + [
        (sizes[0] * square * math.sqrt(r) / 2, sizes[0] / math.sqrt(r) / 2) for r in ratios[1:]
    ]
    count = len(halves)

    def body(i: Indices) -> Expr:
        box, element = i[1] % count, i[1] // count
        y = (te.cast("float32", element // width) + float(offsets[0])) * down
        x = (te.cast("float32", element % width) + float(offsets[1])) * across
        half_x, half_y = (_chosen(box, [h[k] for h in halves]) for k in (0, 1))
        ends = (x - half_x, y - half_y, x + half_x, y + half_y)
        value = ends[3]
        for k in (2, 1, 0):
            value = te.select(i[2].equal(k), ends[k], value)
        return te.maximum(te.minimum(value, 1.0), 0.0) if clip else value

    return stage((1, height * width * count, 4), body, "multibox_prior", "multibox_prior")


def _chosen(index: Expr, numbers: Sequence[float]) -> Expr:
    value = te.const(numbers[-1], "float32")
    for k, number in reversed(list(enumerate(numbers[:-1]))):
        value = te.select(index.equal(k), te.const(number, "float32"), value)
    return value


def reorg(data: Tensor, stride: int) -> Tensor:
    """data [N, C, H, W] with blocks of stride by stride pixels as channels, in YOLO's order.

    The order is that of Darknet: data are read as [N, C / stride**2, H * stride, W * stride].
    """
    place = call_text("reorg", data=data, stride=stride)
    check_tensor(data, "data", "NCHW", place)
    batch, channels, height, width = data.shape
    area = stride * stride
    require(
        stride >= 1 and channels % area == height % stride == width % stride == 0, place,
        f"blocks of {stride} do not divide {[channels, height, width]}",
        "Use one that divides height and width, and whose square divides the channels.",
    )  # fmt: skip
    few, out = channels // area, (channels * area, height // stride, width // stride)

    def body(i: Indices) -> Expr:
        n, c, y, x = i
        # Darknet's number of the element, read as one of data's, spread over a larger image.
        flat = (c * out[1] + y) * out[2] + x
        across, down, channel = flat % width, flat // width % height, flat // (height * width)
        offset, source = channel // few, channel % few
        row = source * (height * stride) + down * stride + offset // stride
        read = row * (width * stride) + across * stride + offset % stride
        return data[n, read // (height * width), read // width % height, read % width]

    return stage((batch, *out), body, "reorg", "injective")


def roi_align_nchw(
    data: Tensor, rois: Tensor, pooled_size: Any, spatial_scale: float,
    mode: bytes | str | int = "avg", sample_ratio: int = -1,
) -> Tensor:  # fmt: skip
    """Regions of data [N, C, H, W], each cut into pooled_size bins; mode: "avg" or "max", which TVM
    also writes 0 and 1."""
    name = pooling_name(mode)
    return roi_align(data, rois, pooled_size, spatial_scale, sample_ratio, mode=name)


def pooling_name(mode: bytes | str | int) -> str:
    """The name of a way to pool, which TVM also writes as bytes or as its number."""
    if isinstance(mode, int):
        return {0: "avg", 1: "max"}.get(mode, str(mode))
    return mode.decode() if isinstance(mode, bytes) else mode
