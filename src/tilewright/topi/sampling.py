"""Images read at places that are data: `grid_sample`, `roi_align`.

In: data [N, C, image..] and where to look.  Out: `T_grid_sample`; `roi_align_sum` and `roi_align`,
or `roi_align_max`.  A place may be any number, or none (NaN): it is limited before it becomes an
index, so nothing outside is read.  Between elements values are sums of near ones, with weights that
follow the place.  Read next: `resize.py`, whose places are known; `graph/op/sampling.py`.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensor,
    check_tensors,
    per_axis,
    require,
    require_float,
    stage,
    wide,
)

METHODS = ("nearest", "bilinear", "bicubic")
PADDINGS = ("zeros", "border", "reflection")
LAYOUTS = {"NCHW": 2, "NCDHW": 3}
POOLS = ("avg", "max", "max_weighted")
CUBIC = -0.75
FAR = float(1 << 30)  # in elements; what lies beyond is taken to lie there

Tap = tuple[Expr, Expr | None]  # an index, which may be outside, and its weight, None for 1


def grid_sample(
    data: Tensor,
    grid: Tensor,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
    normalized: bool = True,
) -> Tensor:
    """data [N, C, H, W] at the places of grid [N, 2, h, w]: x, then y; with layout NCDHW
    data [N, C, D, H, W] at those of grid [N, 3, d, h, w]: x, y, z.

    method: "nearest" (of two equally near the even one), "bilinear" (on three axes trilinear),
            "bicubic"
    padding_mode: what is outside: "zeros", the nearest element ("border"), the image mirrored
            ("reflection")
    align_corners: -1 and 1 are the centres of the first and last element, else their outer ends
    normalized: places go from -1 to 1, else they count elements; align_corners then says only
            about what a reflection mirrors
    """
    place = call_text(
        "grid_sample", data=data, grid=grid, method=method, layout=layout,
        padding_mode=padding_mode,
    )  # fmt: skip
    require(layout in LAYOUTS, place, f"layout {layout!r} is unknown", _one_of(LAYOUTS))
    require(method in METHODS, place, f"method {method!r} is unknown", _one_of(METHODS))
    require(padding_mode in PADDINGS, place, f"padding_mode {padding_mode!r} is unknown",
            _one_of(PADDINGS))  # fmt: skip
    rank = LAYOUTS[layout]
    check_tensor(data, "data", layout, place)
    check_tensor(grid, "grid", layout, place)
    require_float(data, "a value between elements", place)
    require(
        grid.dtype is data.dtype and grid.shape[:2] == (data.shape[0], rank), place,
        f"a {grid.dtype} grid does not fit {data.dtype} data",
        f"Give [{data.shape[0]}, {rank}, ...] in {data.dtype}.",
    )  # fmt: skip
    image = data.shape[2:]

    def along(i: Indices, axis: int) -> list[Tap]:
        """Of an axis of the image; the grid starts with the last."""
        at = wide(grid[(i[0], te.const(rank - 1 - axis), *i[2:])])
        if normalized:
            at = _in_elements(at, image[axis], align_corners)
        at = limited(at)
        if method == "bicubic":  # outside is decided for each element
            return _cubic(at)
        at = _PADDED[padding_mode](at, image[axis], align_corners)
        return _nearest(at) if method == "nearest" else _linear(at)

    def inside(at: Expr, extent: int) -> Expr:
        if method == "bicubic" and padding_mode == "reflection":
            at = _mirrored_index(at, extent, align_corners)
        return kept(at, extent)

    def body(i: Indices) -> Expr:
        found = []
        for taps in itertools.product(*(along(i, axis) for axis in range(rank))):
            places = [at for at, _ in taps]
            value = wide(data[(*i[:2], *map(inside, places, image))])
            if padding_mode == "zeros":
                tests = [t for at, n in zip(places, image, strict=True) for t in (at >= 0, at < n)]
                value = te.if_then_else(te.all(*tests), value, te.const(0.0, value.dtype))
            found.append(_weighted(value, [weight for _, weight in taps]))
        return reduce(operator.add, found).astype(data.dtype)

    return stage((*data.shape[:2], *grid.shape[2:]), body, "T_grid_sample", "injective")


def roi_align(
    data: Tensor,
    rois: Tensor,
    pooled_size: Any,
    spatial_scale: float,
    sample_ratio: int,
    mode: str = "avg",
    aligned: bool = False,
) -> Tensor:
    """Regions of data [N, C, H, W], each cut into pooled_size bins: [regions, C, h, w].

    rois: [regions, 5]: the number of the image, then x and y of two corners; times `spatial_scale`
          they count elements of data
    sample_ratio: a bin is the mean ("avg") of so many samples along each axis, their maximum
          ("max"), or the greatest of the products they are summed of ("max_weighted", as ONNX
          defines its mode max)
    aligned: centres of elements lie at halves, and regions may be smaller than one element
    """
    place = call_text(
        "roi_align", data=data, rois=rois, pooled_size=pooled_size, spatial_scale=spatial_scale,
        sample_ratio=sample_ratio, mode=mode,
    )  # fmt: skip
    check_tensor(data, "data", "NCHW", place)
    check_tensors(place, rois=rois)
    require_float(data, "a value between elements", place)
    require(
        rois.ndim == 2 and rois.shape[1] == 5 and rois.dtype is data.dtype, place,
        f"{rois.dtype} rois of shape {list(rois.shape)} are no regions",
        f"Give [regions, 5] in {data.dtype}.",
    )  # fmt: skip
    require(mode in POOLS, place, f"mode {mode!r} is unknown", _one_of(POOLS))
    require(
        sample_ratio >= 1, place, "how many samples a region takes would depend on the data",
        "Use sample_ratio=2.",
    )  # fmt: skip
    pooled = per_axis(pooled_size, 2, "pooled_size", place)
    images, image = data.shape[0], data.shape[2:]
    begin, corner = (0.5 if aligned else 0.0), te.const

    def starts(axis: int) -> Callable[[Indices], Expr]:
        """Where sample s of bin b lies in region r: [region, bin, sample]."""

        def body(i: Indices) -> Expr:
            first, last = (
                wide(rois[i[0], corner(k)]) * spatial_scale - begin for k in (2 - axis, 4 - axis)
            )
            size = last - first
            if not aligned:
                size = te.maximum(size, te.const(1.0, size.dtype))
            share = i[1] * (2 * sample_ratio) + (i[2] * 2 + 1)
            steps = te.cast(size.dtype, share) / float(2 * sample_ratio * pooled[axis])
            return first + steps * size

        return body

    places = [
        stage((rois.shape[0], pooled[k], sample_ratio), starts(k), f"roi_align_{name}", "injective")
        for k, name in enumerate("yx")
    ]

    def products(i: Indices, samples: Sequence[Any]) -> list[Expr]:
        """What a sample is the sum of; nothing where it lies outside the image."""
        number = kept(limited(wide(rois[i[0], corner(0)])).astype("int32"), images)
        at = [limited(p[i[0], i[2 + k], samples[k]]) for k, p in enumerate(places)]
        tests = [t for p, n in zip(at, image, strict=True) for t in (p >= -1.0, p <= float(n))]
        axes = [_linear(_border(p, n, True)) for p, n in zip(at, image, strict=True)]
        found = []
        for taps in itertools.product(*axes):
            indices = [kept(place, n) for (place, _), n in zip(taps, image, strict=True)]
            value = _weighted(wide(data[(number, i[1], *indices)]), [weight for _, weight in taps])
            found.append(te.if_then_else(te.all(*tests), value, te.const(0.0, value.dtype)))
        return found

    samples = [te.reduce_axis((0, sample_ratio), f"s{name}") for name in "yx"]
    combine = te.maximum if mode == "max_weighted" else operator.add
    over = te.sum if mode == "avg" else te.max

    def pool(i: Indices) -> Expr:
        return over(reduce(combine, products(i, samples)), axis=samples)

    shape = (rois.shape[0], data.shape[1], *pooled)
    if mode != "avg":
        best = stage(shape, pool, "roi_align_max", "roi_align_max")
        return best if best.dtype is data.dtype else stage(
            shape, lambda i: best[i].astype(data.dtype), "roi_align", "elemwise"
        )  # fmt: skip
    total = stage(shape, pool, "roi_align_sum", "roi_align_sum")
    count = float(sample_ratio * sample_ratio)
    return stage(shape, lambda i: (total[i] / count).astype(data.dtype), "roi_align", "elemwise")


# -- places ----------------------------------------------------------------------------------------


def _one_of(names: Any) -> str:
    return f"Use one of {', '.join(names)}."


def _in_elements(at: Expr, extent: int, align_corners: bool) -> Expr:
    """A place from -1 to 1, in elements: the first lies at 0."""
    if align_corners:
        return (at + 1.0) * ((extent - 1) / 2)
    return ((at + 1.0) * float(extent) - 1.0) * 0.5


def limited(at: Expr) -> Expr:
    """A number that an index can be made of, whatever `at` is; comparisons with NaN are false."""
    far = te.const(FAR, at.dtype)
    below = te.select(at < far, at, far)
    return te.select(below > -far, below, -far)


def _border(at: Expr, extent: int, align_corners: bool) -> Expr:
    return te.maximum(te.minimum(at, te.const(float(extent - 1), at.dtype)), 0.0)


def _mirrored(at: Expr, extent: int, align_corners: bool) -> Expr:
    """Mirrored about the first and last element, or about their outer ends, as often as needed."""
    low, span = (0.0, extent - 1) if align_corners else (-0.5, extent)
    if span == 0:
        return at * 0.0
    there = at - low
    there = there - te.floor(there / float(2 * span)) * float(2 * span)
    return _border(te.minimum(there, float(2 * span) - there) + low, extent, align_corners)


def _mirrored_index(at: Expr, extent: int, align_corners: bool) -> Expr:
    period = 2 * (extent - 1 if align_corners else extent)
    if period == 0:
        return te.const(0, at.dtype)
    there = at % period
    return te.minimum(there, period - int(not align_corners) - there)


_PADDED: dict[str, Callable[[Expr, int, bool], Expr]] = {
    "zeros": lambda at, extent, align_corners: at,
    "border": _border,
    "reflection": _mirrored,
}


def kept(at: Expr, extent: int) -> Expr:
    """The nearest index there is."""
    return te.maximum(te.minimum(at, te.const(extent - 1)), te.const(0))


def _nearest(at: Expr) -> list[Tap]:
    return [(te.round(at).astype("int32"), None)]


def _linear(at: Expr) -> list[Tap]:
    low = te.floor(at)
    index, share = low.astype("int32"), at - low
    return [(index, 1.0 - share), (index + 1, share)]


def _cubic(at: Expr) -> list[Tap]:
    low = te.floor(at)
    index, x, a = low.astype("int32"), at - low, CUBIC

    def near(x: Expr) -> Expr:
        return ((a + 2) * x - (a + 3)) * x * x + 1.0

    def far(x: Expr) -> Expr:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    weights = (far(x + 1.0), near(x), near(1.0 - x), far(2.0 - x))
    return [(index + (k - 1), weight) for k, weight in enumerate(weights)]


def _weighted(value: Expr, weights: Sequence[Expr | None]) -> Expr:
    return reduce(operator.mul, (w for w in weights if w is not None), value)
