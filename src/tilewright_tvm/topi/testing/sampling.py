"""Numpy references of images read at places that are data, one result at a time.

In: arrays.  Out: arrays.  Read next: `pooling.py`.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from tilewright.topi.references.windows import Array

CUBIC = -0.75


def roi_align_python(
    data: Array, rois: Array, pooled_size: Any, spatial_scale: float, sample_ratio: int,
    mode: str = "avg", aligned: bool = False,
) -> Array:  # fmt: skip
    """Regions [number, x, y, x, y] of images: [regions, C, height, width].

    sample_ratio: samples of a bin along each axis; 0 or less: as many as elements begin in it
    """
    height, width = pooled_size
    out = np.zeros((len(rois), data.shape[1], height, width), np.float64)
    for r, (number, *corners) in enumerate(rois.astype(np.float64)):
        left, top, right, bottom = (c * spatial_scale - (0.5 if aligned else 0) for c in corners)
        w, h = right - left, bottom - top
        if not aligned:
            w, h = max(w, 1), max(h, 1)
        for i, j in np.ndindex(height, width):
            found = []
            each = [
                sample_ratio if sample_ratio > 0 else max(math.ceil(length / bins), 1)
                for length, bins in ((h, height), (w, width))
            ]
            for s, t in np.ndindex(*each):
                y = top + (i + (s + 0.5) / each[0]) * h / height
                x = left + (j + (t + 0.5) / each[1]) * w / width
                found.append(_sample(data[int(number)], y, x, mode))
            out[r, :, i, j] = np.mean(found, 0) if mode == "avg" else np.max(found, 0)
    return out.astype(data.dtype)


def _sample(image: Array, y: float, x: float, mode: str) -> Array:
    terms = []
    for at, extent in ((y, image.shape[1]), (x, image.shape[2])):
        if not -1 <= at <= extent:
            return np.zeros(len(image))
        at = min(max(at, 0.0), extent - 1.0)
        low = math.floor(at)
        terms.append([(low, low + 1 - at), (min(low + 1, extent - 1), at - low)])
    parts = [image[:, i, j] * (u * v) for (i, u), (j, v) in itertools.product(*terms)]
    return np.asarray(np.max(parts, 0) if mode == "max_weighted" else np.sum(parts, 0))


def resize1d_python(data: Array, scale: Any, layout: str = "NCW", *how: Any) -> Array:
    """Images [N, C, W] enlarged; see `resize2d_python`."""
    return _resized(data, scale, layout, "W", *how)


def resize2d_python(
    data: Array, scale: Any, layout: str = "NCHW", *how: Any, **named: Any
) -> Array:
    """Images enlarged by `scale`, one for each axis.

    Then the method, "nearest_neighbor", "linear" or "cubic", and the coordinates, "align_corners",
    "asymmetric" or "half_pixel"
    """
    return _resized(data, scale, layout, "HW", *how)


def resize3d_python(
    data: Array, scale: Any, layout: str = "NCDHW", *how: Any, **named: Any
) -> Array:
    """Images of three axes enlarged; see `resize2d_python`."""
    return _resized(data, scale, layout, "DHW", *how)


def _resized(
    data: Array, scale: Any, layout: str, letters: str, method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "align_corners",
) -> Array:  # fmt: skip
    made: Array = data.astype(np.float64)
    for letter, factor in zip(letters, scale, strict=True):
        axis = layout.index(letter)
        extent = made.shape[axis]
        size = round(extent * factor)
        o = np.arange(size)
        if coordinate_transformation_mode == "align_corners":
            at = o * ((extent - 1) / (size - 1)) if size > 1 else o * 0.0
        elif coordinate_transformation_mode == "asymmetric":
            at = o * (extent / size)
        else:
            at = (o + 0.5) * (extent / size) - 0.5
        if method == "nearest_neighbor":
            down = coordinate_transformation_mode != "align_corners"
            near = np.floor(at + 1e-9) if down else np.floor(at + 0.5)
            made = np.take(made, near.clip(0, extent - 1).astype(int), axis)
            continue
        low = np.floor(at).astype(int)
        if method == "cubic":
            made = _cubic(made, axis, low, at - low)
            continue
        share = (at - low).reshape([-1 if k == axis else 1 for k in range(made.ndim)])
        first, second = (np.take(made, (low + k).clip(0, extent - 1), axis) for k in (0, 1))
        made = first * (1 - share) + second * share
    return made.astype(data.dtype)


def _cubic(data: Array, axis: int, low: Array, share: Array) -> Array:
    """Sums of four elements along `axis`, by the cubic of Keys with -0.5."""
    parts = []
    for k in range(-1, 3):
        x = np.abs(share - k)
        weight = np.where(
            x <= 1, 1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
        ).reshape([-1 if n == axis else 1 for n in range(data.ndim)])
        parts.append(np.take(data, (low + k).clip(0, data.shape[axis] - 1), axis) * weight)
    return np.asarray(np.sum(parts, 0))


def grid_sample_python(
    data: Array, grid: Array, method: str = "bilinear", layout: str = "NCHW",
    padding_mode: str = "zeros", align_corners: bool = True, normalized: bool = True,
) -> Array:  # fmt: skip
    """data [N, C, image..] at the places of grid [N, rank, out..], the last axis first.

    layout: "NCHW" or "NCDHW"; the rank of `data` tells which
    Raises ValueError for a layout or a padding mode that is none.
    """
    if layout not in ("NCHW", "NCDHW"):
        raise ValueError(f"grid_sample_python: layout={layout!r}: use 'NCHW' or 'NCDHW'")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            f"grid_sample_python: padding_mode={padding_mode!r}: use 'zeros', 'border' or "
            "'reflection'"
        )
    rank, image = grid.shape[1], data.shape[2:]
    out = np.zeros((*data.shape[:2], *grid.shape[2:]), np.float64)
    for n, *o in np.ndindex(grid.shape[0], *grid.shape[2:]):
        axes = []
        for axis, extent in enumerate(image):
            at = float(grid[(n, rank - 1 - axis, *o)])
            if normalized:
                ends = (0, extent - 1) if align_corners else (-0.5, extent - 0.5)
                at = ends[0] + (at + 1) / 2 * (ends[1] - ends[0])
            if method != "bicubic":
                at = _settled(at, extent, padding_mode, align_corners)
            axes.append([
                (int(_settled(near, extent, padding_mode, align_corners)), weight)
                for near, weight in _taps(at, method)
            ])  # fmt: skip
        for taps in itertools.product(*axes):
            places = tuple(at for at, _ in taps)
            if all(0 <= at < extent for at, extent in zip(places, image, strict=True)):
                weight = math.prod(w for _, w in taps)
                out[(n, slice(None), *o)] += weight * data[(n, slice(None), *places)]
    return out.astype(data.dtype)


def _settled(at: float, extent: int, padding_mode: str, align_corners: bool) -> float:
    """A place moved to the border, or mirrored until it is inside."""
    if padding_mode == "zeros":
        return at
    if padding_mode == "reflection":
        low, high = (0.0, extent - 1.0) if align_corners else (-0.5, extent - 0.5)
        while low < high and not low <= at <= high:
            at = 2 * low - at if at < low else 2 * high - at
    return min(max(at, 0.0), extent - 1.0)


def _taps(at: float, method: str) -> list[tuple[float, float]]:
    if method == "nearest":
        return [(float(np.rint(at)), 1.0)]
    low = math.floor(at)
    if method == "bilinear":
        return [(low, low + 1 - at), (low + 1, at - low)]
    return [(low + k, _kernel(abs(at - low - k))) for k in (-1, 0, 1, 2)]


def _kernel(x: float) -> float:
    a = CUBIC
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
