"""Regions of images: `relay.vision.roi_align`.

In: graph values and TVM's keywords.  Out: calls.  Read next: `op/sampling.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError, absent
from tilewright.relay.graph.expr import Call, Expr
from tilewright.relay.op import call
from tilewright.relay.sizes import per_axis


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
    if layout != "NCHW":
        raise ModelError(
            f"vision.roi_align(layout={layout!r})", "only NCHW is supported",
            "Transpose the data: relay.transpose(data, (0, 3, 1, 2)).",
        )  # fmt: skip
    return call(
        "vision.roi_align", data, rois,
        pooled_size=per_axis(pooled_size, 2, "pooled_size", "vision.roi_align"),
        spatial_scale=float(spatial_scale), sample_ratio=int(sample_ratio), mode=mode,
        aligned=bool(aligned),
    )  # fmt: skip


__all__ = ["roi_align"]
open_doors(globals(), __all__, ModelError)

_BOXES = "How many boxes are left depends on the data: do it on the results, outside the network."
_ELSEWHERE = {
    "all_class_non_max_suppression": _BOXES, "get_valid_counts": _BOXES, "nms": _BOXES,
    "non_max_suppression": _BOXES,
}  # fmt: skip


def __getattr__(name: str) -> Any:
    raise absent("relay.vision", name, _ELSEWHERE)
