"""Operators of boxes in images: the boxes that a detector starts from, and what lies in them.

In: images [N, C, H, W], and boxes as rows of numbers.  Out: one stage or a few.
Read next: `sampling.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.sampling import kept, limited, roi_align
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensor,
    per_axis,
    require,
    stage,
    wide,
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


def roi_pool_nchw(data: Tensor, rois: Tensor, pooled_size: Any, spatial_scale: float) -> Tensor:
    """The greatest element of each bin of regions of data [N, C, H, W]; 0 of empty bins.

    rois: [regions, 5]: the number of the image, then x and y of two corners, rounded after they
    are multiplied by `spatial_scale`
    """
    place = call_text("roi_pool_nchw", data=data, rois=rois, pooled_size=pooled_size)
    check_tensor(data, "data", "NCHW", place)
    check_tensor(rois, "rois", "regions corners", place)
    require(rois.shape[1] == 5, place, f"rows of {rois.shape[1]} numbers", "Give [regions, 5].")
    bins = per_axis(pooled_size, 2, "pooled_size", place)
    images, channels, *extents = data.shape
    y, x = (te.reduce_axis((0, n), name) for n, name in zip(extents, ("ry", "rx"), strict=True))

    def span(r: Expr, bin_: Expr, axis: int) -> tuple[Expr, Expr]:
        """The first index of a bin, and the one behind its last."""
        ends = [
            te.cast("int32", _round(limited(wide(rois[r, 2 - axis + k]) * spatial_scale)))
            for k in (0, 2)
        ]
        size = te.maximum(ends[1] - ends[0] + 1, 1)
        step = te.cast("float32", size) / float(bins[axis])
        first = te.cast("int32", te.floor(te.cast("float32", bin_) * step))
        last = te.cast("int32", te.ceil(te.cast("float32", bin_ + 1) * step))
        edge = te.const(extents[axis])
        return tuple(te.maximum(te.minimum(e + ends[0], edge), 0) for e in (first, last))  # type: ignore[return-value]

    lowest = te.min_value(str(data.dtype))

    def most(i: Indices) -> Expr:
        r, c, h, w = i
        number = kept(limited(wide(rois[r, 0])).astype("int32"), images)
        (top, bottom), (left, right) = span(r, h, 0), span(r, w, 1)
        at = y.as_expr(), x.as_expr()
        inside = te.all(at[0] >= top, at[0] < bottom, at[1] >= left, at[1] < right)
        return te.max(te.if_then_else(inside, data[number, c, at[0], at[1]], lowest), axis=[y, x])

    shape = (rois.shape[0], channels, *bins)
    best = stage(shape, most, "roi_pool_max", "roi_pool_max")

    def body(i: Indices) -> Expr:
        (top, bottom), (left, right) = span(i[0], i[2], 0), span(i[0], i[3], 1)
        empty = te.any(bottom <= top, right <= left)
        return te.select(empty, E.const(0, data.dtype), best[i])

    return stage(shape, body, "roi_pool", "injective")


def _round(value: Expr) -> Expr:
    """Halves away from zero, as the original counts."""
    return te.select(value < 0.0, te.ceil(value - 0.5), te.floor(value + 0.5))
