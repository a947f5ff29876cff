"""Numpy references of parts of images, and of convolutions whose taps lie where data says.

In: arrays.  Out: arrays.  Read next: `sampling.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.topi.references.windows import Array, around, per_axis
from tilewright_tvm.topi.boxes import pooling_name
from tilewright_tvm.topi.testing.sampling import grid_sample_python, roi_align_python


def affine_grid_python(data: Array, target_shape: Any) -> Array:
    """[N, 2, H, W]: matrices [N, 2, 3] times the places (x, y, 1) of an image's elements."""
    height, width = target_shape
    y, x = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    places = np.stack([x, y, np.ones_like(x)]).reshape(3, -1)
    return (data.astype(np.float64) @ places).reshape(-1, 2, height, width).astype(data.dtype)


def roi_align_nchw_python(
    a_np: Array, rois_np: Array, pooled_size: Any, spatial_scale: float, sample_ratio: int,
    mode: bytes | str | int = "avg", aligned: bool = False,
) -> Array:  # fmt: skip
    """`roi_align_python` of bins that may be as many along both axes."""
    bins = per_axis(pooled_size, 2)
    name = pooling_name(mode)
    return roi_align_python(a_np, rois_np, bins, spatial_scale, sample_ratio, name, aligned)


def roi_align_nhwc_python(
    a_np: Array, rois_np: Array, pooled_size: Any, spatial_scale: float, sample_ratio: int,
    mode: str = "avg", aligned: bool = False,
) -> Array:  # fmt: skip
    """`roi_align_nchw_python` of images NHWC."""
    image = a_np.transpose(0, 3, 1, 2)
    made = roi_align_nchw_python(
        image, rois_np, pooled_size, spatial_scale, sample_ratio, mode, aligned
    )
    return made.transpose(0, 2, 3, 1)


def deformable_conv2d_nchw_python(
    a_np: Array, offset_np: Array, w_np: Array, stride: Any, padding: Any, dilation: Any,
    deformable_groups: int, groups: int,
) -> Array:  # fmt: skip
    """Each tap of a convolution read between elements, moved by its offset."""
    (sh, sw), (dh, dw) = per_axis(stride, 2), per_axis(dilation, 2)
    batch, channels = a_np.shape[:2]
    outer, each, kh, kw = w_np.shape
    (top, _), (left, _) = around(padding, ((kh - 1) * dh + 1, (kw - 1) * dw + 1))
    size = offset_np.shape[2:]
    far = offset_np.astype(np.float64).reshape(batch, deformable_groups, kh, kw, 2, *size)
    y, x = np.indices(size)
    share = channels // deformable_groups
    made = np.zeros((batch, outer, *size))
    for n, g, ky, kx in np.ndindex(batch, deformable_groups, kh, kw):
        down = y * sh - top + ky * dh + far[n, g, ky, kx, 0]
        across = x * sw - left + kx * dw + far[n, g, ky, kx, 1]
        image = a_np[n : n + 1, g * share : (g + 1) * share].astype(np.float64)
        read = grid_sample_python(image, np.stack([across, down])[None], normalized=False)[0]
        for f in range(outer):
            first = f // (outer // groups) * each
            for c in range(each):
                if (first + c) // share == g:
                    made[n, f] += read[(first + c) % share] * w_np[f, c, ky, kx]
    return made.astype(a_np.dtype)


def deformable_conv2d_nhwc_python(
    a_np: Array, offset_np: Array, w_np: Array, stride: Any, padding: Any, dilation: Any,
    deformable_groups: int, groups: int,
) -> Array:  # fmt: skip
    """`deformable_conv2d_nchw_python` with channels last; w_np [KH, KW, CI / groups, CO]."""
    made = deformable_conv2d_nchw_python(
        a_np.transpose(0, 3, 1, 2), offset_np.transpose(0, 3, 1, 2), w_np.transpose(3, 2, 0, 1),
        stride, padding, dilation, deformable_groups, groups,
    )  # fmt: skip
    return made.transpose(0, 2, 3, 1)


def crop_and_resize_python(
    image: Array, boxes: Array, box_indices: Array, crop_size: Any, layout: str,
    method: str = "bilinear", extrapolation_value: float = 0,
) -> Array:  # fmt: skip
    """Boxes [y, x, y, x] of images, in shares of them, each in `crop_size`."""
    if layout == "NHWC":
        moved = image.transpose(0, 3, 1, 2)
        return crop_and_resize_python(
            moved, boxes, box_indices, crop_size, "NCHW", method, extrapolation_value
        ).transpose(0, 2, 3, 1)
    ends = np.array(image.shape[2:], np.float64) - 1
    kind = "nearest" if method == "nearest_neighbor" else "bilinear"
    made = np.full((len(boxes), image.shape[1], *crop_size), extrapolation_value, image.dtype)
    for b, (box, number) in enumerate(zip(boxes.astype(np.float64), box_indices, strict=True)):
        lines = [
            np.linspace(box[k], box[k + 2], n) * ends[k] if n > 1
            else np.array([(box[k] + box[k + 2]) / 2 * ends[k]])
            for k, n in enumerate(crop_size)
        ]  # fmt: skip
        y, x = np.meshgrid(*lines, indexing="ij")
        places = np.stack([x, y])[None]
        read = grid_sample_python(
            image[number : number + 1].astype(np.float64),
            places,
            kind,
            "NCHW",
            "border",
            True,
            False,
        )
        inside = (y >= 0) & (y <= ends[0]) & (x >= 0) & (x <= ends[1])
        made[b][:, inside] = read[0][:, inside]
    return made


def dilation2d_nchw_python(
    input_np: Array, filter_np: Array, stride: Any, padding: Any, dilation: Any = 1
) -> Array:
    """The greatest sum of each window of [N, C, H, W] and the filter [C, KH, KW]."""
    (sh, sw), (dh, dw) = per_axis(stride, 2), per_axis(dilation, 2)
    _, kh, kw = filter_np.shape
    reach = (kh - 1) * dh + 1, (kw - 1) * dw + 1
    wide = np.pad(
        input_np.astype(np.float64), [(0, 0), (0, 0), *around(padding, reach)],
        constant_values=-np.inf,
    )  # fmt: skip
    rows, columns = (n - r + 1 for n, r in zip(wide.shape[2:], reach, strict=True))
    sums = []
    for y, x in np.ndindex(kh, kw):
        read = wide[:, :, y * dh : rows + y * dh : sh, x * dw : columns + x * dw : sw]
        sums.append(read + filter_np[None, :, y, x, None, None])
    greatest: Array = np.max(sums, 0)
    return greatest.astype(input_np.dtype)


def correlation_nchw_python(
    data1: Array, data2: Array, kernel_size: int, max_displacement: int, stride1: int,
    stride2: int, padding: int, is_multiply: bool,
) -> Array:  # fmt: skip
    """The mean product or distance of patches of two images, a channel for each displacement."""
    sides = [(0, 0), (0, 0), (padding, padding), (padding, padding)]
    a, b = (np.pad(d.astype(np.float64), sides) for d in (data1, data2))
    border = max_displacement + kernel_size // 2
    rows, columns = (range(0, n - 2 * border, stride1) for n in a.shape[2:])
    radius = max_displacement // stride2
    moves = [m * stride2 for m in range(-radius, radius + 1)]
    made = np.zeros((len(a), len(moves) ** 2, len(rows), len(columns)))
    for r, y in enumerate(rows):
        for c, x in enumerate(columns):
            top, left = y + max_displacement, x + max_displacement
            patch = a[:, :, top : top + kernel_size, left : left + kernel_size]
            for d, (dy, dx) in enumerate((dy, dx) for dy in moves for dx in moves):
                y2, x2 = top + dy, left + dx
                other = b[:, :, y2 : y2 + kernel_size, x2 : x2 + kernel_size]
                both = patch * other if is_multiply else np.abs(patch - other)
                made[:, d, r, c] = both.mean((1, 2, 3))
    return made.astype(data1.dtype)
