"""Resizing along any axes: nearest, linear and cubic, with ONNX's coordinates.

In: data and a `Resizing` for each axis.  Out: a stage `T_resize` per axis; where a value is made of
more elements than a cubic takes, their sum `resize_sum` and that of their weights, `resize_norm`.

Coordinates are exact.  An output's place in the input is a fraction (step*o + offset) / unit with
whole numbers, so which elements it reads, and how far between them it lies, are divisions of
integers: they are the same on every device.  Read next: `graph/functions/image.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import ceil, floor, lcm
from typing import Any

from tilewright import te
from tilewright.base.dtype import DType
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensors,
    normal_axis,
    require,
    stage,
    wide,
)

MODES = ("nearest", "linear", "cubic")
COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_half_pixel_for_nn", "tf_crop_and_resize",
)  # fmt: skip
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
FEW = 5  # elements whose sum is written out
LONGEST = 1 << 31  # beyond it indices are computed in int64


@dataclass(frozen=True)
class Resizing:
    """How one axis is resized.

    scale: of the extent; it need not be size / extent
    coordinates: how an output's place in the input is found, as ONNX names it
    rounding: of that place, for "nearest"
    antialias: where the axis shrinks, a linear or cubic kernel covers as many elements as an output
    exclude_outside: elements outside the input do not count, else the nearest one stands for them
    roi: for "tf_crop_and_resize", what part of the axis is shown, as shares of it
    outside: for "tf_crop_and_resize", the value of what lies outside the input
    """

    size: int
    scale: Fraction
    mode: str = "linear"
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic_alpha: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    roi: tuple[Fraction, Fraction] = (Fraction(0), Fraction(1))
    outside: float = 0.0

    @property
    def shrinks(self) -> Fraction:
        """By how much the kernel is stretched."""
        return min(self.scale, Fraction(1)) if self.antialias else Fraction(1)

    def line(self, extent: int) -> tuple[Fraction, Fraction]:
        """(a, b): output o lies at a*o + b of an input of `extent` elements."""
        half, whole = Fraction(1, 2), self.scale * extent
        kind = self.coordinates
        if kind == "asymmetric":
            return 1 / self.scale, Fraction(0)
        if kind == "align_corners":
            return (Fraction(0) if whole == 1 else (extent - 1) / (whole - 1)), Fraction(0)
        if kind == "tf_crop_and_resize":
            first, last = (part * (extent - 1) for part in self.roi)
            if whole == 1:
                return Fraction(0), (first + last) / 2
            return (last - first) / (whole - 1), first
        if kind == "tf_half_pixel_for_nn":
            return 1 / self.scale, half / self.scale
        if kind == "pytorch_half_pixel" and whole == 1:
            return Fraction(0), -half
        moved = Fraction(0)
        if kind == "half_pixel_symmetric":
            moved = Fraction(extent, 2) * (1 - self.size / whole)
        return 1 / self.scale, moved + half / self.scale - half


@dataclass(frozen=True)
class Places:
    """Where outputs lie: at (step*o + offset) / unit."""

    step: int
    offset: int
    unit: int
    dtype: str

    @staticmethod
    def of(how: Resizing, extent: int) -> Places:
        a, b = how.line(extent)
        unit = lcm(a.denominator, b.denominator)
        step, offset = int(a * unit), int(b * unit)
        reach = abs(step) * how.size + abs(offset) + 2 * unit * (extent + 1)
        return Places(step, offset, unit, "int32" if 2 * reach < LONGEST else "int64")

    def scaled(self, o: Expr) -> Expr:
        """The place times `unit`."""
        return o.astype(self.dtype) * self.step + self.offset

    def floor(self, o: Expr) -> Expr:
        return self.scaled(o) // self.unit

    def share(self, o: Expr, dtype: DType) -> Expr:
        """Return how far behind its floor the place lies, from 0 to 1."""
        return te.cast(dtype, self.scaled(o) % self.unit) / te.const(self.unit, dtype)

    def rounded(self, o: Expr, rounding: str) -> Expr:
        if rounding == "floor":
            return self.floor(o)
        if rounding == "ceil":
            return (self.scaled(o) + (self.unit - 1)) // self.unit
        up = self.unit - 1 if rounding == "round_prefer_floor" else self.unit
        return (self.scaled(o) * 2 + up) // (2 * self.unit)


def resize(data: Tensor, axes: Sequence[int], how: Sequence[Resizing]) -> Tensor:
    """`data` with each of `axes` resized as `how` says.  Only "nearest" takes integers."""
    place = call_text("resize", data=data, axes=list(axes))
    check_tensors(place, data=data)
    require(len(axes) == len(how), place, "axes and ways to resize them differ in number",
            "Give one Resizing per axis.")  # fmt: skip
    made = data
    for axis, way in zip(axes, how, strict=True):
        for what, value, known in (
            ("mode", way.mode, MODES), ("coordinates", way.coordinates, COORDINATES),
            ("rounding", way.rounding, ROUNDINGS),
        ):  # fmt: skip
            require(value in known, place, f"{what} {value!r} is unknown",
                    f"Use one of {', '.join(known)}.")  # fmt: skip
        require(way.size >= 1 and way.scale > 0, place, "sizes and scales are positive", "")
        require(way.mode == "nearest" or data.dtype.is_float, place,
                f"values between elements of {data.dtype} are not whole",
                'Use mode "nearest", or cast the data to float32.')  # fmt: skip
        made = _along(made, normal_axis(axis, data.ndim, place), way)
    return made


def _along(data: Tensor, axis: int, how: Resizing) -> Tensor:
    extent = data.shape[axis]
    places = Places.of(how, extent)
    shape = (*data.shape[:axis], how.size, *data.shape[axis + 1 :])
    value = data.dtype.compute if data.dtype.is_float else data.dtype

    def element(i: Indices, at: Expr) -> Expr:
        return data[(*i[:axis], _inside(at, extent, places.dtype), *i[axis + 1 :])]

    def shown(i: Indices, made: Expr) -> Expr:
        """What lies outside the input has a value of its own."""
        if how.coordinates != "tf_crop_and_resize":
            return made.astype(data.dtype)
        at = places.scaled(i[axis])
        within = te.all(at >= 0, at <= (extent - 1) * places.unit)
        return te.if_then_else(within, made.astype(data.dtype), te.const(how.outside, data.dtype))

    def nearest(i: Indices) -> Expr:
        return shown(i, element(i, places.rounded(i[axis], how.rounding)))

    def linear(i: Indices) -> Expr:
        at, share = places.floor(i[axis]), places.share(i[axis], value)
        left, right = wide(element(i, at)), wide(element(i, at + 1))
        between = left * (1 - share) + right * share
        return shown(i, te.select(share.equal(0), left, between))  # no infinity meets a weight of 0

    if how.mode == "nearest":
        return stage(shape, nearest, "T_resize", "injective")
    if how.mode == "linear" and how.shrinks == 1 and not how.exclude_outside:
        return stage(shape, linear, "T_resize", "injective")

    first, count = _window(how)
    adds_up = how.shrinks == 1 and not how.exclude_outside

    def weight(o: Expr, tap: Any) -> Expr:
        distance = te.cast(value, tap + first) - places.share(o, value)
        found = _kernel(how, te.abs(distance * te.const(float(how.shrinks), value)))
        if not how.exclude_outside:
            return found
        at = places.floor(o) + first + tap
        return te.if_then_else(te.all(at >= 0, at < extent), found, te.const(0.0, value))

    def term(i: Indices, tap: Any) -> Expr:
        at = places.floor(i[axis]) + first + tap
        return weight(i[axis], tap) * wide(element(i, at))

    if count <= FEW:
        taps = [te.const(k, "int32") for k in range(count)]

        def of_few(i: Indices) -> Expr:
            made = reduce(operator.add, (term(i, tap) for tap in taps))
            total = reduce(operator.add, (weight(i[axis], tap) for tap in taps))
            return shown(i, made if adds_up else made / total)

        return stage(shape, of_few, "T_resize", "injective")

    tap, own = te.reduce_axis((0, count), "tap"), te.reduce_axis((0, count), "tap")
    summed = stage(shape, lambda i: te.sum(term(i, tap), axis=[tap]), "resize_sum", "resize_sum")
    norms = stage(
        (how.size,), lambda i: te.sum(weight(i[0], own), axis=[own]), "resize_norm", "resize_norm"
    )
    return stage(shape, lambda i: shown(i, summed[i] / norms[i[axis]]), "T_resize", "elemwise")


def _inside(at: Expr, extent: int, dtype: str) -> Expr:
    """The nearest index there is."""
    least, greatest = te.const(0, dtype), te.const(extent - 1, dtype)
    return te.maximum(te.minimum(at, greatest), least)


def _window(how: Resizing) -> tuple[int, int]:
    """(first tap, taps) of a kernel around the floor of a place."""
    radius = (2 if how.mode == "cubic" else 1) / how.shrinks
    first = floor(-radius) + 1
    return first, ceil(radius) + 1 - first


def _kernel(how: Resizing, distance: Expr) -> Expr:
    """The weight of an element at a distance."""
    if how.mode == "linear":
        return te.maximum(1 - distance, 0.0)
    a, x = how.cubic_alpha, distance
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return te.if_then_else(x <= 1.0, near, te.if_then_else(x < 2.0, far, 0.0))
