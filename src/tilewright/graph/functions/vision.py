"""Regions of images and boxes in them: `relay.vision.roi_align`, `relay.vision.multibox_prior`.

In: graph values and TVM's keywords.  Out: calls.  Read next: `op/sampling.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call, Expr
from tilewright.graph.functions.sizes import per_axis
from tilewright.graph.op import call


def roi_align(
    data: Expr,
    rois: Expr,
    pooled_size: Any,
    spatial_scale: float,
    sample_ratio: int = -1,
    layout: str = "NCHW",
    mode: str = "avg",
    *,
    aligned: bool = False,
) -> Call:
    """Regions of data [N, C, H, W], each cut into pooled_size bins: [regions, C, h, w].

    rois: [regions, 5]: the number of the image, then x and y of two corners; times `spatial_scale`
          they count elements of data
    sample_ratio: samples of a bin along each axis; a number that depends on the region, which TVM
          means by -1, is refused
    mode: "avg", "max"; "max_weighted" is what ONNX calls max, the greatest product of an element
          with its weight
    aligned: centres of elements lie at halves, and regions may be smaller than one element
    """
    _nchw("roi_align", layout)
    return call(
        "vision.roi_align", data, rois,
        pooled_size=per_axis(pooled_size, 2, "pooled_size", "vision.roi_align"),
        spatial_scale=float(spatial_scale), sample_ratio=int(sample_ratio), mode=mode,
        aligned=bool(aligned),
    )  # fmt: skip


def roi_pool(
    data: Expr, rois: Expr, pooled_size: Any, spatial_scale: float, layout: str = "NCHW"
) -> Call:
    """The greatest element of each of pooled_size bins of regions of data [N, C, H, W]; 0 of empty
    bins: [regions, C, h, w].

    rois: [regions, 5]: the number of the image, then x and y of two corners, rounded after they
          are multiplied by `spatial_scale`
    """
    _nchw("roi_pool", layout)
    return call(
        "vision.roi_pool", data, rois,
        pooled_size=per_axis(pooled_size, 2, "pooled_size", "vision.roi_pool"),
        spatial_scale=float(spatial_scale),
    )  # fmt: skip


def multibox_prior(
    data: Expr,
    sizes: Sequence[float] = (1.0,),
    ratios: Sequence[float] = (1.0,),
    steps: Sequence[float] = (-1.0, -1.0),
    offsets: Sequence[float] = (0.5, 0.5),
    clip: bool = False,
) -> Call:
    """Boxes about each element of data [N, C, H, W]: [1, H * W * boxes, 4], of shares of the image.

    boxes: one of each size with the first ratio, then one of each further ratio with the first
    size; a row is left, top, right, bottom
    steps: between elements, down and across; -1 is the image over their number
    offsets: of the first centre, in steps; clip: to the image
    """
    return call(
        "vision.multibox_prior", data, sizes=tuple(map(float, sizes)),
        ratios=tuple(map(float, ratios)), steps=tuple(map(float, steps)),
        offsets=tuple(map(float, offsets)), clip=bool(clip),
    )  # fmt: skip


def yolo_reorg(data: Expr, stride: int) -> Call:
    """data [N, C, H, W] with blocks of stride by stride pixels as channels, in Darknet's order."""
    return call("vision.yolo_reorg", data, stride=int(stride))


def _nchw(name: str, layout: str) -> None:
    if layout != "NCHW":
        raise ModelError(
            f"vision.{name}(layout={layout!r})", "only NCHW is supported",
            "Transpose the data: relay.transpose(data, (0, 3, 1, 2)).",
        )  # fmt: skip


__all__ = ["multibox_prior", "roi_align", "roi_pool", "yolo_reorg"]
open_doors(globals(), __all__, ModelError, "relay.vision")
