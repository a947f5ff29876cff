"""Rows of images read at places that are data.

In: images, and places or regions.  Out: rows for `op/__init__.py`.  Their values on arrays gather
from padded images.  Read next: `topi/sampling.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.graph.expr import Array, Attrs, TensorType, Type
from tilewright.graph.op.row import Op, Pattern, Site
from tilewright.topi.sampling import CUBIC, FAR, LAYOUTS, METHODS, PADDINGS, POOLS

TAPS = {"nearest": 1, "bilinear": 2, "bicubic": 4}
MOST_SAMPLES = 64  # of a bin along one axis


def _known(site: Site, what: str, value: object, known: Sequence[str]) -> None:
    site.require(value in known, f"{what} {value!r} is not known", f"Use {', '.join(known)}.")


def _grid_sample_type(site: Site) -> Type:
    a = site.attrs
    _known(site, "layout", a.layout, tuple(LAYOUTS))
    _known(site, "method", a.method, METHODS)
    _known(site, "padding_mode", a.padding_mode, PADDINGS)
    rank = LAYOUTS[a.layout]
    data, grid = (site.tensor(k, rank + 2, a.layout) for k in range(2))
    site.float_dtype()
    site.require(
        grid.shape[:2] == (data.shape[0], rank),
        f"a grid of shape {grid.shape} does not name {rank} coordinates for {data.shape[0]} images",
        f"Give {(data.shape[0], rank, *grid.shape[2:])}.",
    )
    site.require(0 not in data.shape[2:], "its image is empty", "Leave it out.")
    return TensorType((*data.shape[:2], *grid.shape[2:]), data.dtype)


def _roi_align_type(site: Site) -> Type:
    a = site.attrs
    _known(site, "mode", a.mode, POOLS)
    data, rois = site.tensor(0, 4, "NCHW"), site.tensor(1, 2, "[regions, 5]")
    site.float_dtype()
    site.require(
        rois.shape[1] == 5, f"regions of {rois.shape[1]} numbers",
        "Give [image, x, y, x, y] for each.",
    )  # fmt: skip
    site.require(0 not in (data.shape[0], *data.shape[2:]), "it has no image", "Leave it out.")
    site.require(
        len(a.pooled_size) == 2 and min(a.pooled_size) >= 1,
        f"pooled_size={a.pooled_size} is no extent", "Give (height, width), 1 or more.",
    )  # fmt: skip
    site.require(
        a.sample_ratio >= 1,
        f"sample_ratio={a.sample_ratio}: how many samples a region takes depends on the data",
        "Use sample_ratio=2, or export the model with another sampling_ratio.",
    )
    site.require(
        a.sample_ratio <= MOST_SAMPLES, f"sample_ratio={a.sample_ratio} samples for each axis",
        f"Use at most {MOST_SAMPLES}.",
    )  # fmt: skip
    site.require(
        0 < abs(a.spatial_scale) < FAR, f"spatial_scale={a.spatial_scale} is out of range",
        "Use the extent of the data by that of the image, such as 0.25.",
    )  # fmt: skip
    return TensorType((rois.shape[0], data.shape[1], *a.pooled_size), data.dtype)


# -- on arrays -------------------------------------------------------------------------------------


def _wide(x: Array) -> Array:
    return x if x.dtype == np.float64 else x.astype(np.float32)


def _grid_sample_numpy(arrays: Sequence[Any], a: Attrs) -> Array:
    data, grid = arrays
    rank = grid.shape[1]
    around = [(0, 0), (0, 0), *[(1, 1)] * rank]
    zeros = a.padding_mode == "zeros"
    padded = np.pad(_wide(data), around) if zeros else np.pad(_wide(data), around, "edge")
    axes = []
    for axis, extent in enumerate(data.shape[2:]):
        at = _wide(grid[:, rank - 1 - axis])
        if a.normalized and a.align_corners:
            at = (at + 1) / 2 * (extent - 1)
        elif a.normalized:
            at = ((at + 1) * extent - 1) / 2
        at = np.clip(np.nan_to_num(at, nan=FAR, posinf=FAR, neginf=-FAR), -FAR, FAR)
        if a.method != "bicubic":
            at = _placed(at, extent, a)
        axes.append(
            [
                (np.clip(_placed(near, extent, a), -1, extent).astype(np.int64) + 1, weight)
                for near, weight in _near(at, a.method)
            ]
        )
    channels_last = np.moveaxis(padded, 1, -1)
    first = np.arange(len(data)).reshape(-1, *[1] * rank)
    made: Array = np.zeros((*grid.shape[:1], *grid.shape[2:], data.shape[1]), padded.dtype)
    for taps in itertools.product(*axes):
        weight = np.prod(np.stack(np.broadcast_arrays(*(w for _, w in taps))), 0)
        made += channels_last[(first, *(at for at, _ in taps))] * weight[..., None]
    return np.moveaxis(made, -1, 1).astype(data.dtype)


def _placed(at: Array, extent: int, a: Attrs) -> Array:
    """Where the padding puts a place, of an element or between them."""
    if a.padding_mode == "zeros":
        return at
    if a.padding_mode == "reflection":
        low, high = (0.0, extent - 1.0) if a.align_corners else (-0.5, extent - 0.5)
        period = 2 * (high - low)
        there = np.mod(at - low, period) if period else np.zeros_like(at)
        at = np.where(there > high - low, period - there, there) + low
    return np.clip(at, 0, extent - 1)


def _near(at: Array, method: str) -> list[tuple[Array, Array]]:
    """Elements near places, and their weights."""
    if method == "nearest":
        return [(np.rint(at), np.ones_like(at))]
    low = np.floor(at)
    if method == "bilinear":
        return [(low, low + 1 - at), (low + 1, at - low)]
    found = []
    for near in (low - 1, low, low + 1, low + 2):
        x = np.abs(at - near)
        inner = (CUBIC + 2) * x**3 - (CUBIC + 3) * x**2 + 1
        outer = CUBIC * (x**3 - 5 * x**2 + 8 * x - 4)
        found.append((near, np.where(x <= 1, inner, outer)))
    return found


def _roi_align_numpy(arrays: Sequence[Any], a: Attrs) -> Array:
    data, rois = (_wide(x) for x in arrays)
    made = np.zeros((len(rois), data.shape[1], *a.pooled_size), data.dtype)
    ratio = int(a.sample_ratio)
    for region, roi in enumerate(rois):
        number = np.clip(np.nan_to_num(roi[0], nan=FAR), 0, len(data) - 1)
        rows, columns = (
            _along(roi[[2 - k, 4 - k]] * a.spatial_scale, a, int(a.pooled_size[k]))
            for k in range(2)
        )
        image = data[int(number)]
        within = _inside(rows, image.shape[1])[:, None] & _inside(columns, image.shape[2])
        terms = [
            np.where(within, image[:, y][:, :, x] * wy[:, None] * wx, 0)
            for y, wy in _weights(rows, image.shape[1])
            for x, wx in _weights(columns, image.shape[2])
        ]
        combine = np.maximum if a.mode == "max_weighted" else np.add
        found = combine.reduce(terms)
        bins = found.reshape(-1, a.pooled_size[0], ratio, a.pooled_size[1], ratio)
        made[region] = bins.mean((2, 4)) if a.mode == "avg" else bins.max((2, 4))
    return made.astype(arrays[0].dtype)


def _along(ends: Array, a: Attrs, bins: int) -> Array:
    """The samples of one axis of a region."""
    first, last = ends - (0.5 if a.aligned else 0)
    size = last - first if a.aligned else np.maximum(last - first, 1)
    count = bins * int(a.sample_ratio)
    return np.asarray(first + (np.arange(count) + 0.5) / count * size, ends.dtype)


def _inside(at: Array, extent: int) -> Array:
    """Which places belong to the image; what lies elsewhere is 0, whatever is near."""
    with np.errstate(invalid="ignore"):
        return np.asarray((at >= -1) & (at <= extent))


def _weights(at: Array, extent: int) -> list[tuple[Array, Array]]:
    """The two elements around each place, and their weights."""
    at = np.clip(np.where(_inside(at, extent), at, 0), 0, extent - 1)
    low = np.floor(at).astype(np.int64)
    share = at - low
    high = np.minimum(low + 1, extent - 1)
    return [(low, 1 - share), (high, share)]


ROWS = (
    Op(
        "image.grid_sample", ("data", "grid"), Pattern.ANCHOR, _grid_sample_type,
        _grid_sample_numpy,
        lambda t, a, result: topi.grid_sample(
            t[0], t[1], a.method, a.layout, a.padding_mode, a.align_corners, a.normalized
        ),
        "Images at the places that a grid names.",
        {
            "method": "bilinear", "layout": "NCHW", "padding_mode": "zeros", "align_corners": True,
            "normalized": True,
        },
        ("GridSample",),
    ),
    Op(
        "vision.roi_align", ("data", "rois"), Pattern.ANCHOR, _roi_align_type, _roi_align_numpy,
        lambda t, a, result: topi.roi_align(
            t[0], t[1], a.pooled_size, a.spatial_scale, a.sample_ratio, a.mode, a.aligned
        ),
        "Regions of images, each cut into bins.",
        {
            "pooled_size": (1, 1), "spatial_scale": 1.0, "sample_ratio": 2, "mode": "avg",
            "aligned": False,
        },
        ("RoiAlign",),
    ),
)  # fmt: skip
