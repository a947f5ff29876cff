"""Rows of operators that only scripts of TVM have: of detectors, of moved images, marks.

In: images, and boxes or filters.  Out: rows in the operator table, once this is imported.
Read next: `graph/op/regions.py`, `topi/boxes.py`, `topi/crops.py`, `topi/suppression.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.graph.expr import Array, Attrs
from tilewright.graph.op import register
from tilewright.graph.op.regions import row_of_stages, whole_numbers
from tilewright.graph.op.row import Op, Pattern
from tilewright.graph.passes.dead_code import NEUTRAL
from tilewright.models.onnx.export import EXPORTERS, refused
from tilewright_tvm.topi import boxes, crops, dilation, suppression
from tilewright_tvm.topi.nn.correlation import correlation_nchw
from tilewright_tvm.topi.testing import boxes as box_references
from tilewright_tvm.topi.testing import crops as references


def _crop_and_resize(arrays: Sequence[Any], a: Attrs) -> Array:
    data, boxes, at = arrays
    made = references.crop_and_resize_python(
        data, boxes, whole_numbers(at, len(data)).astype("int32"), a.crop_size, a.layout, a.method,
        a.extrapolation_value,
    )  # fmt: skip
    return np.asarray(made).astype(a.out_dtype or data.dtype)


def _dilation2d(arrays: Sequence[Any], a: Attrs) -> Array:
    data, kernel = arrays
    last = a.layout == "NHWC"
    if last:
        data, kernel = np.moveaxis(data, 3, 1), np.moveaxis(kernel, 2, 0)
    made = references.dilation2d_nchw_python(data, kernel, a.strides, a.padding, a.dilations)
    made = np.moveaxis(made, 1, 3) if last else made
    return made.astype(a.out_dtype or data.dtype)


def _correlation(arrays: Sequence[Any], a: Attrs) -> Array:
    first, second = arrays
    made = references.correlation_nchw_python(first, second, *(a[k] for k in _CORRELATION))
    return made.astype(first.dtype)


def _valid_boxes(arrays: Sequence[Any], a: Attrs) -> Array:
    (data,) = arrays
    holds = data[..., a.score_index] > np.float32(a.score_threshold)
    if a.id_index >= 0:
        holds &= data[..., a.id_index] >= 0
    made = np.full(holds.shape, -1, "int32")
    for row, kept in zip(made, holds, strict=True):
        row[: kept.sum()] = np.flatnonzero(kept)
    return made


def _suppress(arrays: Sequence[Any], a: Attrs) -> Array:
    boxes, labels, states = arrays
    made = states.copy()
    for corners, names, row in zip(boxes, labels, made, strict=True):
        low, high = (f(corners[:, :2], corners[:, 2:]) for f in (np.minimum, np.maximum))
        for _ in range(a.rounds):
            still = row == suppression.OPEN
            if not still.any():
                break
            best = int(np.argmax(still))
            sides = np.minimum(high, high[best]) - np.maximum(low, low[best])
            common = np.prod(np.maximum(sides, 0), -1)
            areas = np.prod(high - low, -1)
            union = areas[best] + areas - common
            share = np.where(union > 0, common / np.where(union > 0, union, 1), 0)
            meets = share > a.iou_threshold if a.strict else share >= a.iou_threshold
            row[still & meets & (names == names[best])] = suppression.GONE
            row[best] = suppression.KEPT
    return np.asarray(made)


def _dilation2d_stages(t: Sequence[Any], a: Attrs) -> Any:
    function = getattr(dilation, f"dilation2d_{a.layout.lower()}")
    return function(*t, a.strides, a.padding, a.dilations, a.out_dtype)


_PRIOR = ("sizes", "ratios", "steps", "offsets", "clip")


_CORRELATION = (
    "kernel_size", "max_displacement", "stride1", "stride2", "padding", "is_multiply",
)  # fmt: skip
ROWS = (
    row_of_stages(
        "image.crop_and_resize", ("data", "boxes", "box_indices"), Pattern.ANCHOR,
        lambda t, a: crops.crop_and_resize(
            t[0], t[1], t[2], a.crop_size, a.layout, a.method, a.extrapolation_value, a.out_dtype
        ),
        _crop_and_resize, "Boxes of images, each resized to `crop_size`.",
        {
            "crop_size": (1, 1), "layout": "NCHW", "method": "bilinear",
            "extrapolation_value": 0.0, "out_dtype": None,
        },
    ),
    row_of_stages(
        "image.dilation2d", ("data", "weight"), Pattern.ANCHOR, _dilation2d_stages, _dilation2d,
        "The greatest sums of elements of windows and those of a filter.",
        {
            "strides": (1, 1), "padding": (0, 0, 0, 0), "dilations": (1, 1), "layout": "NCHW",
            "out_dtype": None,
        },
    ),
    row_of_stages(
        "nn.correlation", ("data1", "data2"), Pattern.OPAQUE,
        lambda t, a: correlation_nchw(*t, *(a[k] for k in _CORRELATION)), _correlation,
        "Mean products or distances of patches of two images around the same places.",
        dict(zip(_CORRELATION, (1, 4, 1, 1, 0, True), strict=True)),
    ),
    row_of_stages(
        "vision.multibox_prior", ("data",), Pattern.OPAQUE,
        lambda t, a: boxes.multibox_prior(*t, *(a[k] for k in _PRIOR)),
        lambda arrays, a: box_references.multibox_prior_python(
            arrays[0].shape, *(a[k] for k in _PRIOR)
        ),
        "Boxes about each element of an image, as shares of it.",
        dict(zip(_PRIOR, ((1.0,), (1.0,), (-1.0, -1.0), (0.5, 0.5), False), strict=True)),
    ),
    row_of_stages(
        "vision.suppress", ("boxes", "labels", "states"), Pattern.OPAQUE,
        lambda t, a: suppression.suppress(
            t[0], t[1], t[2], a.iou_threshold, a.rounds, a.strict
        ), _suppress,
        "States of boxes after `rounds` more of them were kept.",
        {"iou_threshold": 0.5, "rounds": 1, "strict": False},
    ),
    row_of_stages(
        "vision.valid_boxes", ("data",), Pattern.OPAQUE,
        lambda t, a: suppression.valid_boxes(t[0], a.score_threshold, a.id_index, a.score_index),
        _valid_boxes, "The places of boxes whose score is high enough, in their order.",
        {"score_threshold": -math.inf, "id_index": 0, "score_index": 1},
    ),
    row_of_stages(
        "vision.yolo_reorg", ("data",), Pattern.INJECTIVE,
        lambda t, a: boxes.reorg(t[0], a.stride),
        lambda arrays, a: box_references.reorg_python(arrays[0], a.stride),
        "Blocks of stride by stride pixels as channels, in YOLO's order.", {"stride": 1},
    ),
    Op(
        "annotation.stop_fusion", ("data",), Pattern.ELEMENTWISE, lambda site: site.tensor(0),
        lambda arrays, a: arrays[0], lambda t, a, result: topi.identity(t[0]),
        "data itself, where `FuseOps` ends a function.",
    ),
)  # fmt: skip
register(ROWS)
EXPORTERS.update((row.name, refused) for row in ROWS)
EXPORTERS["annotation.stop_fusion"] = EXPORTERS["annotation.checkpoint"]
NEUTRAL["annotation.stop_fusion"] = lambda node: True
