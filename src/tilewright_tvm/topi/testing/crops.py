"""Numpy references of parts of images, and of convolutions whose taps lie where data says.

In: arrays.  Out: arrays.  Read next: `sampling.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tilewright.topi.references.conv2d import Array, around, per_axis

from tilewright.topi.boxes import pooling_name
from tilewright.topi.references.sampling import grid_sample_python, roi_align_python


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
