"""The row of resizing along any axes.

In: data; attributes as `graph/functions/image.py` makes them.  Out: a row for `op/__init__.py`.
Its value on arrays is a product with a matrix of weights for each axis.  Read next:
`topi/resize.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor, prod
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.graph.expr import Array, Attrs, TensorType, Type
from tilewright.graph.op.row import Op, Pattern, Site
from tilewright.graph.types import MAX_EXTENT
from tilewright.topi.resize import COORDINATES, MODES, ROUNDINGS

MOST_TAPS = 4096  # of a kernel that is stretched over the input


def scales_of(a: Attrs, extents: Sequence[int]) -> list[Fraction]:
    """The scale of each axis: as given, or what the sizes say."""
    if a.scales:
        return [simplest(s) for s in a.scales]
    return [Fraction(size, n) for size, n in zip(a.sizes, extents, strict=True)]


def simplest(value: float) -> Fraction:
    """The fraction that a float32 means: the simplest that has the same float32, if one is."""
    near = Fraction(value).limit_denominator(1 << 12)
    return near if np.float32(float(near)) == np.float32(value) else Fraction(str(value))


def _ways(a: Attrs, extents: Sequence[int]) -> list[topi.Resizing]:
    """What `topi` is told of each axis."""
    count = len(a.axes)
    roi = [simplest(v) for v in a.roi] or [Fraction(0)] * count + [Fraction(1)] * count
    return [
        topi.Resizing(
            a.sizes[k], scale, a.mode, a.coordinates, a.rounding, a.cubic_alpha,
            a.exclude_outside, a.antialias, (roi[k], roi[count + k]), a.extrapolation_value,
        )
        for k, scale in enumerate(scales_of(a, extents))
    ]  # fmt: skip


def _type(site: Site) -> Type:
    a, data = site.attrs, site.tensor(0)
    rank, count = len(data.shape), len(a.axes)
    axes = [site.axis(k, rank) for k in a.axes]
    site.require(len(set(axes)) == count, f"axes {a.axes} name one twice", "Name each axis once.")
    site.require(
        len(a.sizes) == count and len(a.scales) in (0, count) and len(a.roi) in (0, 2 * count),
        f"{count} axes, {len(a.sizes)} sizes, {len(a.scales)} scales and {len(a.roi)} roi numbers",
        "Give one size per axis, one scale or none, two numbers of roi or none.",
    )
    for what, value, known in (
        ("mode", a.mode, MODES), ("coordinates", a.coordinates, COORDINATES),
        ("rounding", a.rounding, ROUNDINGS),
    ):  # fmt: skip
        site.require(value in known, f"{what} {value!r} is not known", f"Use {', '.join(known)}.")
    site.require(
        all(1 <= n <= MAX_EXTENT for n in a.sizes), f"sizes {a.sizes} are not extents",
        "Use 1 or more.",
    )  # fmt: skip
    site.require(
        all(2**-20 <= s <= 2**20 for s in a.scales), f"scales {a.scales} are out of range",
        "Use positive numbers of a usual size.",
    )  # fmt: skip
    site.require(
        all(abs(v) <= 2**20 for v in a.roi), f"roi {a.roi} is out of range",
        "They are shares of an axis, usually from 0 to 1.",
    )  # fmt: skip
    if a.mode != "nearest":
        site.float_dtype()
    site.number_dtype()
    extents = [data.shape[k] for k in axes]
    if a.antialias and a.mode != "nearest":
        taps = max(4 / s for s in scales_of(a, extents))
        site.require(
            taps <= MOST_TAPS, f"one output would take {float(taps):g} elements of an axis",
            "Shrink it in steps, or leave antialias out.",
        )  # fmt: skip
    shape = list(data.shape)
    for axis, size in zip(axes, a.sizes, strict=True):
        shape[axis] = size
    return TensorType(tuple(shape), data.dtype)


def _te(tensors: Sequence[Any], a: Attrs, result: Type) -> Any:
    data = tensors[0]
    return topi.resize(data, a.axes, _ways(a, [data.shape[k] for k in a.axes]))


# -- on arrays -------------------------------------------------------------------------------------


def _numpy(arrays: Sequence[Any], a: Attrs) -> Array:
    x: Array = arrays[0]
    scales = scales_of(a, [x.shape[k] for k in a.axes])
    for k, (axis, scale) in enumerate(zip(a.axes, scales, strict=True)):
        axis %= x.ndim
        extent = x.shape[axis]
        places = [_place(a, k, o, extent, scale) for o in range(a.sizes[k])]
        if a.mode == "nearest":
            picked = [_rounded(p, a.rounding) for p in places]
            x = np.take(x, np.clip(picked, 0, extent - 1), axis)
        else:
            matrix = np.array([_weights(a, p, extent, scale) for p in places], x.dtype)
            x = np.moveaxis(_weighted(matrix, np.moveaxis(x, axis, 0)), 0, axis)
        if a.coordinates == "tf_crop_and_resize":
            outside = np.array([not 0 <= p <= extent - 1 for p in places])
            spread = outside.reshape(-1, *[1] * (x.ndim - 1 - axis))
            x = np.where(spread, np.asarray(a.extrapolation_value, x.dtype), x)
    return x


def _weighted(matrix: Array, x: Array) -> Array:
    """`matrix` times `x`; what has no weight is not multiplied, as it may be infinite."""
    if np.isfinite(x).all():
        return np.tensordot(matrix, x, (1, 0))
    parts = [(np.flatnonzero(row), row) for row in matrix]
    return np.stack([np.tensordot(row[at], x[at], (0, 0)) for at, row in parts])


def _place(a: Attrs, k: int, o: int, extent: int, scale: Fraction) -> Fraction:
    """Where output `o` of the k-th axis lies in the input."""
    half, whole, size = Fraction(1, 2), scale * extent, int(a.sizes[k])
    centre = (o + half) / scale - half
    if a.coordinates == "half_pixel_symmetric":
        return centre + Fraction(extent, 2) * (1 - size / whole)
    if a.coordinates == "pytorch_half_pixel":
        return centre if whole != 1 else -half
    if a.coordinates == "align_corners":
        return Fraction(0) if whole == 1 else o * (extent - 1) / (whole - 1)
    if a.coordinates == "asymmetric":
        return o / scale
    if a.coordinates == "tf_half_pixel_for_nn":
        return (o + half) / scale
    if a.coordinates == "tf_crop_and_resize":
        roi = a.roi or (*(0,) * len(a.axes), *(1,) * len(a.axes))
        start, end = simplest(roi[k]), simplest(roi[len(a.axes) + k])
        share = half if whole == 1 else o / (whole - 1)
        return Fraction((extent - 1) * (start + share * (end - start)))
    return centre


def _rounded(place: Fraction, rounding: str) -> int:
    if rounding in ("floor", "ceil"):
        return floor(place) if rounding == "floor" else ceil(place)
    below, above = floor(place), ceil(place)
    if place - below == above - place:
        return below if rounding == "round_prefer_floor" else above
    return below if place - below < above - place else above


def _weights(a: Attrs, place: Fraction, extent: int, scale: Fraction) -> Array:
    """Of each element of the input."""
    shrink = float(min(scale, Fraction(1))) if a.antialias else 1.0
    reach = ceil((2 if a.mode == "cubic" else 1) / shrink) + 1
    near = np.arange(floor(place) - reach, floor(place) + reach + 2)
    x = np.abs(near - float(place)) * shrink
    if a.mode == "linear":
        found = np.maximum(1 - x, 0)
    else:
        b = a.cubic_alpha
        inner, outer = (b + 2) * x**3 - (b + 3) * x**2 + 1, b * (x**3 - 5 * x**2 + 8 * x - 4)
        found = np.where(x <= 1, inner, np.where(x < 2, outer, 0))
    if a.exclude_outside:
        found = np.where((near >= 0) & (near < extent), found, 0)
    weights = np.zeros(extent)
    np.add.at(weights, np.clip(near, 0, extent - 1), found / found.sum())
    return weights


def taps(attrs: Attrs, extents: Sequence[int]) -> int:
    """Elements that one output is made of."""
    radius = {"nearest": 0, "linear": 1, "cubic": 2}[attrs.mode]
    return prod(
        max(ceil(2 * radius / (min(s, Fraction(1)) if attrs.antialias else 1)), 1)
        for s in scales_of(attrs, extents)
    )


ROWS = (
    Op(
        "image.resize", ("data",), Pattern.ANCHOR, _type, _numpy, _te,
        "The data with other extents along some axes: nearest elements, or sums of near ones.",
        {
            "axes": (), "sizes": (), "scales": (), "mode": "linear", "coordinates": "half_pixel",
            "rounding": "round_prefer_floor", "cubic_alpha": -0.75, "exclude_outside": False,
            "antialias": False, "roi": (), "extrapolation_value": 0.0,
        },
        ("Resize",), follows=lambda types, a: {"size": list(a.sizes)},
    ),
)  # fmt: skip
