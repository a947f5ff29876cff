"""Regions of images and boxes in them: `relay.vision.roi_align`, `relay.vision.multibox_prior`.

In: graph values and TVM's keywords.  Out: calls.  Read next: `op/sampling.py`.
"""

from __future__ import annotations

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


def _nchw(name: str, layout: str) -> None:
    if layout != "NCHW":
        raise ModelError(
            f"vision.{name}(layout={layout!r})", "only NCHW is supported",
            "Transpose the data: axes (0, 3, 1, 2).",
        )  # fmt: skip


__all__ = ["roi_align", "roi_pool"]
open_doors(globals(), __all__, ModelError, "relay.vision")
