"""Operators of boxes in images: the boxes that a detector starts from, and what lies in them.

In: images [N, C, H, W], and boxes as rows of numbers.  Out: one stage or a few.
Read next: `sampling.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.sampling import kept, limited
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensor,
    per_axis,
    require,
    stage,
    wide,
)


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
