"""Images resized under TVM's names: `relay.image.resize2d`, `relay.nn.upsampling`, ...

In: graph values and TVM's keywords.  Out: calls of `image.resize`, which takes any axes.
Read next: `graph/functions/image.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call, Expr
from tilewright.graph.functions.image import resize_numbers
from tilewright.graph.functions.sizes import per_axis
from tilewright.graph.op.window import IMAGE, layouts

METHODS = {"nearest_neighbor": "nearest", "linear": "linear", "cubic": "cubic"}
# TVM's names of layers' methods, which say the rank, too
LAYERS = {
    "nearest_neighbor": "nearest", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic",
}  # fmt: skip
ROUNDINGS = {"round": "round_prefer_ceil"}


def resize1d(
    data: Expr,
    size: Any,
    roi: Sequence[float] | None = None,
    layout: str = "NCW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    cubic_alpha: float = -0.5,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
) -> Call:
    """`resize2d` of the one axis W."""
    return _resize(
        1, data, size, roi, layout, method, coordinate_transformation_mode, rounding_method,
        cubic_alpha, cubic_exclude, extrapolation_value,
    )  # fmt: skip


def resize2d(
    data: Expr,
    size: Any,
    roi: Sequence[float] | None = None,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    cubic_alpha: float = -0.5,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
) -> Call:
    """Images of another size, an int or one per axis.

    method: "nearest_neighbor", "linear" or "cubic"; coordinate_transformation_mode: ONNX's names;
    rounding_method: for "nearest_neighbor", by default "floor", with "align_corners" "round";
    roi: all starts, then all ends, for "tf_crop_and_resize"; cubic_exclude: elements outside the
    image do not count.  Between elements of integers float32 is computed in, and cut off.
    """
    return _resize(
        2, data, size, roi, layout, method, coordinate_transformation_mode, rounding_method,
        cubic_alpha, cubic_exclude, extrapolation_value,
    )  # fmt: skip


def resize3d(
    data: Expr,
    size: Any,
    roi: Sequence[float] | None = None,
    layout: str = "NCDHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    cubic_alpha: float = -0.5,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
) -> Call:
    """`resize2d` of the axes D, H and W."""
    return _resize(
        3, data, size, roi, layout, method, coordinate_transformation_mode, rounding_method,
        cubic_alpha, cubic_exclude, extrapolation_value,
    )  # fmt: skip


def _resize(
    rank: int,
    data: Expr,
    size: Any,
    roi: Sequence[float] | None,
    layout: str,
    method: str,
    coordinates: str,
    rounding: str,
    cubic_alpha: float,
    cubic_exclude: int,
    extrapolation_value: float,
) -> Call:
    place = f"image.resize{rank}d"
    if method not in METHODS:
        raise ModelError(
            place, f"method {method!r} is not known", f"Use {', '.join(METHODS)}."
        )  # fmt: skip
    if not rounding:
        rounding = "round" if coordinates == "align_corners" else "floor"
    return resize_numbers(
        data, _axes(data, layout, rank, place), per_axis(size, rank, "size", place), (),
        METHODS[method], coordinates, ROUNDINGS.get(rounding, rounding), cubic_alpha,
        bool(cubic_exclude), False,
        roi or () if coordinates == "tf_crop_and_resize" else (), extrapolation_value,
    )  # fmt: skip


def _axes(data: Expr, layout: str, rank: int, place: str) -> list[int]:
    """Where the image's axes lie; batches and channels may be in blocks, as in NCHW4c."""
    letters = [a for a in str(layout) if a.isalpha()]
    whole = sorted(a for a in letters if a.isupper()) == sorted("NC" + IMAGE[rank])
    blocks = {a for a in letters if a.islower()} <= {"n", "c"}
    if not (whole and blocks and len(data.shape) == len(letters)):
        raise ModelError(
            f"{place}(layout={layout!r})", f"data of shape {data.shape} has another one",
            f"Use {' or '.join(layouts(rank))} and {rank + 2} axes.",
        )  # fmt: skip
    return [letters.index(letter) for letter in IMAGE[rank]]


def upsampling(
    data: Expr,
    scale_h: float = 1,
    scale_w: float = 1,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
) -> Call:
    """Images enlarged by `scale_h` and `scale_w`; method: nearest_neighbor, bilinear, bicubic.

    Element o of the result lies at o / scale, or, with align_corners, so that corners stay.
    """
    coordinates = "align_corners" if align_corners else "asymmetric"
    return _enlarged("nn.upsampling", data, (scale_h, scale_w), layout, method, coordinates)


def upsampling3d(
    data: Expr,
    scale_d: float = 1,
    scale_h: float = 1,
    scale_w: float = 1,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
) -> Call:
    """`upsampling` of the axes D, H and W; method: nearest_neighbor or trilinear.

    coordinate_transformation_mode: where elements lie, "half_pixel", "align_corners", "asymmetric"
    """
    scales = (scale_d, scale_h, scale_w)
    return _enlarged(
        "nn.upsampling3d", data, scales, layout, method, coordinate_transformation_mode
    )


def _enlarged(
    place: str, data: Expr, scales: Sequence[float], layout: str, method: str,
    coordinates: str,
) -> Call:  # fmt: skip
    if method not in LAYERS:
        raise ModelError(place, f"method {method!r} is not known", f"Use {', '.join(LAYERS)}.")
    if not all(0 < scale < math.inf for scale in scales):
        raise ModelError(place, f"scales {tuple(scales)} are not all above 0", "Use 2 or so.")
    axes = _axes(data, layout, len(scales), place)
    sizes = [round(data.shape[axis] * scale) for axis, scale in zip(axes, scales, strict=True)]
    nearest = LAYERS[method] == "nearest"
    coordinates = "asymmetric" if nearest else coordinates
    return resize_numbers(
        data, axes, sizes, mode=LAYERS[method], coordinates=coordinates,
        rounding="floor" if nearest else "round_prefer_floor",
    )  # fmt: skip


open_doors(globals(), ("resize1d", "resize2d", "resize3d"), ModelError, "relay.image")
open_doors(globals(), ("upsampling", "upsampling3d"), ModelError, "relay.nn")
