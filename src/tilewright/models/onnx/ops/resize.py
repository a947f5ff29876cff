"""Images of other sizes."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, inf
from typing import TypeVar

from tilewright.graph.expr import Expr
from tilewright.graph.functions import image
from tilewright.graph.op.resize import simplest
from tilewright.models.onnx.node import Converter, Node

T = TypeVar("T", int, float)
POLICIES = {"not_larger": min, "not_smaller": max}


def _floats(n: Node, index: int, what: str) -> list[float]:
    """A constant input, empty where it is left out."""
    array = n.static(index, what)
    return [] if array is None else [float(v) for v in array.reshape(-1)]


def _resize(n: Node) -> Expr:
    data, rank = n[0], len(n[0].shape)
    old = n.opset < 11  # scales alone, asymmetric, rounded down
    axes = [n.axis(k, rank) for k in n.ints("axes") or range(rank)]
    n.require(len(set(axes)) == len(axes), f"axes {axes} name one twice", "Name each axis once.")
    roi = [] if old else _floats(n, 1, "its roi")
    scales = _floats(n, 1 if old else 2, "its scales")
    sizes = [] if old else [int(v) for v in _floats(n, 3, "its sizes")]
    n.require(
        bool(scales) != bool(sizes) and len(scales or sizes) == len(axes),
        f"{len(scales)} scales and {len(sizes)} sizes are given for {len(axes)} axes",
        "Give one of the two, a number per axis.",
    )
    n.require(
        all(0 < s < inf for s in (*scales, *sizes)),
        f"scales {scales} or sizes {sizes} are not positive", "The model is damaged.",
    )  # fmt: skip
    usual = "asymmetric" if old else "half_pixel"
    coordinates = str(n.attr("coordinate_transformation_mode", usual))
    policy = str(n.attr("keep_aspect_ratio_policy", "stretch"))
    n.require(
        policy in (*POLICIES, "stretch"), f"keep_aspect_ratio_policy={policy} is not known",
        f"Use stretch, {' or '.join(POLICIES)}.",
    )  # fmt: skip
    extents = [data.shape[k] for k in axes]
    if sizes and policy in POLICIES:
        scale = POLICIES[policy](size / e for size, e in zip(sizes, extents, strict=True))
        scales = [scale] * len(axes)
        sizes = [floor(simplest(scale) * e + 0.5) for e in extents]
    elif scales:
        sizes = [floor(simplest(s) * e) for s, e in zip(scales, extents, strict=True)]
    crops = coordinates == "tf_crop_and_resize"
    mode, rounding = str(n.attr("mode", "nearest")), n.attr("nearest_mode", "round_prefer_floor")
    alpha = n.attr("cubic_coeff_a", -0.75)
    exclude, smooth = n.flag("exclude_outside"), n.flag("antialias")
    outside = n.attr("extrapolation_value", 0.0)
    n.require(
        not (crops and len(roi) != 2 * len(axes)), f"its roi has {len(roi)} numbers",
        f"{2 * len(axes)} are needed: all starts, then all ends.",
    )  # fmt: skip
    kept = [
        k
        for k, (size, e) in enumerate(zip(sizes, extents, strict=True))
        if size != e
        or (scales and scales[k] != 1)
        or (crops and (roi[k], roi[len(axes) + k]) != (0, 1))
    ]
    if not kept:
        return data
    made = image.resize(
        data, _of(axes, kept), _of(sizes, kept), _of(scales, kept), mode, coordinates,
        "floor" if old else str(rounding), alpha, exclude, smooth and mode != "nearest",
        [*_of(roi[: len(axes)], kept), *_of(roi[len(axes) :], kept)] if crops else (),
        outside,
    )  # fmt: skip
    return made


def _of(values: Sequence[T], kept: Sequence[int]) -> list[T]:
    return [values[k] for k in kept] if values else []


def _upsample(n: Node) -> Expr:
    """What Resize was called first; "linear" has the coordinates of its time."""
    given = n.attr("scales") or _floats(n, 1, "its scales")
    data, mode = n[0], str(n.attr("mode", "nearest"))
    n.require(
        len(given) == len(data.shape), f"{len(given)} scales for data of shape {data.shape}",
        "Give one for each axis.",
    )  # fmt: skip
    n.require(
        all(0 < s < inf for s in given), f"scales {given} are not positive", "The model is damaged."
    )
    mode = "linear" if mode in ("linear", "bilinear") else mode
    sizes = [floor(simplest(s) * e) for s, e in zip(given, data.shape, strict=True)]
    kept = [k for k, s in enumerate(given) if s != 1]
    if not kept:
        return data
    return image.resize(data, kept, _of(sizes, kept), _of(given, kept), mode, "asymmetric", "floor")


CONVERTERS: dict[str, Converter] = {
    "Resize": _resize,
    "Upsample": _upsample,
}
