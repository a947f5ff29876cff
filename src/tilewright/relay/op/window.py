"""Sliding windows: what convolution and pooling rows share, and their values on numpy arrays.

In: arrays in any layout of N, C, H, W.  Out: arrays.  Every tap of a window is one view of the
input.  Read next: `nn.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.base.dtype import DType
from tilewright.relay.graph.expr import MAX_EXTENT, Array, Attrs
from tilewright.relay.op.row import Site

LAYOUTS = ("NCHW", "NHWC")
FURTHEST = 256  # that padding may go beyond the extent: windows far out meet no element


def to_order(x: Array, source: str, wanted: str) -> Array:
    """`x`, whose axes are the letters of `source`, with the axes in the order `wanted`."""
    return x if source == wanted else np.transpose(x, [source.index(a) for a in wanted])


def output_extent(extent: int, before: int, after: int, reach: int, stride: int) -> int:
    """Positions of a window that spans `reach` elements over a padded extent."""
    return (extent + before + after - reach) // stride + 1


def image_size(site: Site, height: int, width: int, kernel: Sequence[int]) -> tuple[int, int]:
    """Height and width of the result of a window; refuses a window that does not fit."""
    a = site.attrs
    site.require(
        min((*a.strides, *a.dilation, *kernel)) >= 1,
        "strides, dilation and kernel sizes start at 1",
        "Use 1 or more.",
    )
    site.require(
        max(*a.strides, *a.dilation) <= MAX_EXTENT,
        f"strides {a.strides} or dilation {a.dilation} are beyond {MAX_EXTENT}",
        "A stride of the whole extent gives one window.",
    )
    site.require(
        min(a.padding) >= 0, f"padding {a.padding} is negative", "Slice the input instead."
    )
    top, left, bottom, right = a.padding
    sizes = []
    for extent, before, after, k, s, d in zip(
        (height, width), (top, left), (bottom, right), kernel, a.strides, a.dilation, strict=True
    ):
        reach = (k - 1) * d + 1
        site.require(
            max(before, after) <= extent + FURTHEST,
            f"padding {a.padding} is much more than the extent {extent}",
            "Use relay.nn.pad if it is meant.",
        )
        site.require(
            extent + before + after >= reach,
            f"a window of {reach} does not fit the padded extent {extent + before + after}",
            "Use more padding, a smaller kernel or less dilation.",
        )
        sizes.append(output_extent(extent, before, after, reach, s))
    return sizes[0], sizes[1]


def _taps(x: Array, kernel: Sequence[int], a: Attrs, fill: Any) -> Iterator[Array]:
    """For every tap of the window: the elements of NCHW `x` it meets, [N, C, OH, OW]."""
    top, left, bottom, right = a.padding
    if any(a.padding):
        x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    (sh, sw), (dh, dw) = a.strides, a.dilation
    rows = output_extent(x.shape[2], 0, 0, (kernel[0] - 1) * dh + 1, sh)
    columns = output_extent(x.shape[3], 0, 0, (kernel[1] - 1) * dw + 1, sw)
    for r in range(kernel[0]):
        for s in range(kernel[1]):
            y, z = r * dh, s * dw
            yield x[:, :, y : y + (rows - 1) * sh + 1 : sh, z : z + (columns - 1) * sw + 1 : sw]


def summands(a: Attrs, *arrays: Array) -> tuple[Array, ...]:
    """The operands of a sum of products in the type of the sum: narrow integers would wrap."""
    kind = DType(arrays[0].dtype)
    wanted = a.out_dtype or (kind if kind.is_float else kind.accumulator)
    if DType(wanted).bits <= kind.bits:
        return arrays
    return tuple(x.astype(DType(wanted).storage) for x in arrays)


def conv2d(arrays: Sequence[Any], a: Attrs) -> Array:
    """Convolution, grouped or not."""
    x = to_order(arrays[0], a.data_layout, "NCHW")
    w = to_order(arrays[1], a.kernel_layout, "OIHW")
    groups, n = a.groups, x.shape[0]
    out_channels, in_channels, kh, kw = w.shape
    x, w = summands(a, x, w)
    met = np.stack(list(_taps(x, (kh, kw), a, 0)), 2)  # [N, C, KH*KW, OH, OW]
    columns = met.reshape(n, groups, in_channels * kh * kw, -1)
    result = w.reshape(groups, out_channels // groups, -1) @ columns
    return to_order(result.reshape(n, out_channels, *met.shape[3:]), "NCHW", a.data_layout)


def max_pool2d(arrays: Sequence[Any], a: Attrs) -> Array:
    x = to_order(arrays[0], a.layout, "NCHW")
    best: Any = None
    for met in _taps(x, a.pool_size, a, DType(x.dtype).identity_of_max):
        best = met if best is None else np.maximum(best, met)
    return to_order(best, "NCHW", a.layout)


def avg_pool2d(arrays: Sequence[Any], a: Attrs) -> Array:
    x = to_order(arrays[0], a.layout, "NCHW")
    weights = np.ones((1, 1, *x.shape[2:]), x.dtype)
    outside = 1 if a.count_include_pad else 0
    total = sum(_taps(x, a.pool_size, a, 0))
    count = sum(_taps(weights, a.pool_size, a, outside))
    return to_order(np.asarray(total / count, x.dtype), "NCHW", a.layout)


def adaptive_avg_pool2d(arrays: Sequence[Any], a: Attrs) -> Array:
    """Output o of O over an extent I averages [floor(o*I/O), ceil((o+1)*I/O))."""
    x = to_order(arrays[0], a.layout, "NCHW")
    for axis, size in zip((2, 3), a.output_size, strict=True):
        extent = x.shape[axis]
        parts = [
            np.take(x, range(o * extent // size, -(-(o + 1) * extent // size)), axis).mean(
                axis, keepdims=True
            )
            for o in range(size)
        ]
        x = np.concatenate(parts, axis)
    return to_order(x, "NCHW", a.layout)
