"""Graphs for the row of resizing; `cases.py` takes them in."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.graph.expr import Expr
from tilewright_tvm import relay
from tilewright_tvm.relay import image, nn


def _x(*shape: int) -> relay.Var:
    return relay.var("x", shape=shape)


def _axes(mode: str, coordinates: str, **options: object) -> Callable[[], Expr]:
    return lambda: image.resize(
        _x(2, 3, 5, 6), (2, 3), (9, 4), mode=mode, coordinates=coordinates, **options
    )


LABELS: dict[str, Callable[[], Expr]] = {
    **{
        f"{mode}-{coordinates}": _axes(mode, coordinates)
        for mode in ("nearest", "linear", "cubic")
        for coordinates in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    },
    **{
        f"nearest-{rounding}": _axes("nearest", "asymmetric", rounding=rounding)
        for rounding in ("round_prefer_ceil", "floor", "ceil")
    },
    "cubic-exclude": _axes("cubic", "half_pixel", exclude_outside=True, cubic_alpha=-0.5),
    "crop": lambda: image.resize(
        _x(2, 3, 5, 6), (2, 3), (4, 7), mode="linear", coordinates="tf_crop_and_resize",
        roi=(0.0, 0.4, 0.7, 1.25), extrapolation_value=2.5,
    ),
    "scales": lambda: image.resize(_x(1, 2, 6, 5), (2, 3), (4, 7), (0.7, 1.5)),
    "1d": lambda: image.resize1d(_x(2, 3, 5), 8),
    "2d-channels-last": lambda: image.resize2d(_x(2, 5, 6, 3), (7, 9), layout="NHWC"),
    "3d": lambda: image.resize3d(_x(1, 2, 3, 4, 5), (6, 2, 5)),
    "upsampling": lambda: nn.upsampling(_x(2, 3, 4, 5), 2, 3),
    "upsampling-bilinear": lambda: nn.upsampling(
        _x(2, 3, 4, 5), 2, 2, method="bilinear", align_corners=True
    ),
    "upsampling-asymmetric": lambda: nn.upsampling(_x(2, 3, 4, 5), 2, 3, method="bilinear"),
    "upsampling-blocks": lambda: nn.upsampling(
        _x(1, 2, 3, 4, 2), 2, 1.5, layout="NCHW2c", method="bilinear"
    ),
    "upsampling3d": lambda: nn.upsampling3d(_x(1, 2, 3, 4, 3), 2, 1, 2),
}  # fmt: skip
MADE = tuple(("image.resize", build, label) for label, build in LABELS.items())
