"""Rows of operators of detectors and of moved images, for which ONNX has no operator.

In: images, and boxes or filters.  Out: rows for `op/__init__.py`.  Their types are those of the
stages of `topi`, their values on arrays those of its references.
Read next: `topi/boxes.py`, `topi/crops.py`, `topi/suppression.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import te, topi
from tilewright.base.errors import ExpressionError
from tilewright.graph.expr import Array, Attrs, TensorType, Type
from tilewright.graph.op.row import NumpyRule, Op, Pattern, Site, TypeRule
from tilewright.topi import boxes, crops, dilation, suppression
from tilewright.topi.references import boxes as box_references
from tilewright.topi.references import crops as references
from tilewright.topi.sampling import FAR

Stages = Callable[[Sequence[Any], Attrs], Any]


def _type_of(stages: Stages) -> TypeRule:
    """What `stages` make of placeholders, and their refusals."""

    def rule(site: Site) -> Type:
        types = [site.tensor(k) for k in range(len(site.types))]
        site.require(all(0 not in t.shape for t in types), "it is empty", "Leave it out.")
        given = [
            te.placeholder(t.shape, str(t.dtype), name=n)
            for n, t in zip(site.op.inputs, types, strict=True)
        ]
        try:
            made = stages(given, site.attrs)
        except ExpressionError as e:
            raise site.refuse(e.reason, e.way_out) from None
        return TensorType(tuple(made.shape), made.dtype)

    return rule


def _row(
    name: str, inputs: tuple[str, ...], pattern: Pattern, stages: Stages, numpy: NumpyRule,
    doc: str, attrs: dict[str, Any],
) -> Op:  # fmt: skip
    return Op(
        name, inputs, pattern, _type_of(stages), numpy, lambda t, a, result: stages(t, a), doc,
        attrs,
    )  # fmt: skip


def _whole(numbers: Array, most: int) -> Array:
    """Numbers of images, limited to those there are."""
    finite = np.nan_to_num(numbers, nan=FAR, posinf=FAR, neginf=-FAR)
    return np.asarray(np.clip(finite, 0, most - 1))


def _crop_and_resize(arrays: Sequence[Any], a: Attrs) -> Array:
    data, boxes, at = arrays
    made = references.crop_and_resize_python(
        data, boxes, _whole(at, len(data)).astype("int32"), a.crop_size, a.layout, a.method,
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


def _roi_pool(arrays: Sequence[Any], a: Attrs) -> Array:
    data, rois = arrays
    rois = np.clip(np.nan_to_num(rois, nan=FAR), -FAR, FAR)
    rois[:, 0] = _whole(rois[:, 0], len(data))
    return box_references.roi_pool_nchw_python(data, rois, a.pooled_size, a.spatial_scale)


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
    _row(
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
    _row(
        "image.dilation2d", ("data", "weight"), Pattern.ANCHOR, _dilation2d_stages, _dilation2d,
        "The greatest sums of elements of windows and those of a filter.",
        {
            "strides": (1, 1), "padding": (0, 0, 0, 0), "dilations": (1, 1), "layout": "NCHW",
            "out_dtype": None,
        },
    ),
    _row(
        "nn.correlation", ("data1", "data2"), Pattern.OPAQUE,
        lambda t, a: topi.nn.correlation_nchw(*t, *(a[k] for k in _CORRELATION)), _correlation,
        "Mean products or distances of patches of two images around the same places.",
        dict(zip(_CORRELATION, (1, 4, 1, 1, 0, True), strict=True)),
    ),
    _row(
        "vision.multibox_prior", ("data",), Pattern.OPAQUE,
        lambda t, a: boxes.multibox_prior(*t, *(a[k] for k in _PRIOR)),
        lambda arrays, a: box_references.multibox_prior_python(
            arrays[0].shape, *(a[k] for k in _PRIOR)
        ),
        "Boxes about each element of an image, as shares of it.",
        dict(zip(_PRIOR, ((1.0,), (1.0,), (-1.0, -1.0), (0.5, 0.5), False), strict=True)),
    ),
    _row(
        "vision.roi_pool", ("data", "rois"), Pattern.OPAQUE,
        lambda t, a: boxes.roi_pool_nchw(t[0], t[1], a.pooled_size, a.spatial_scale),
        _roi_pool, "The greatest element of each bin of regions of images.",
        {"pooled_size": (1, 1), "spatial_scale": 1.0},
    ),
    _row(
        "vision.suppress", ("boxes", "labels", "states"), Pattern.OPAQUE,
        lambda t, a: suppression.suppress(
            t[0], t[1], t[2], a.iou_threshold, a.rounds, a.strict
        ), _suppress,
        "States of boxes after `rounds` more of them were kept.",
        {"iou_threshold": 0.5, "rounds": 1, "strict": False},
    ),
    _row(
        "vision.valid_boxes", ("data",), Pattern.OPAQUE,
        lambda t, a: suppression.valid_boxes(t[0], a.score_threshold, a.id_index, a.score_index),
        _valid_boxes, "The places of boxes whose score is high enough, in their order.",
        {"score_threshold": -math.inf, "id_index": 0, "score_index": 1},
    ),
    _row(
        "vision.yolo_reorg", ("data",), Pattern.INJECTIVE,
        lambda t, a: boxes.reorg(t[0], a.stride),
        lambda arrays, a: box_references.reorg_python(arrays[0], a.stride),
        "Blocks of stride by stride pixels as channels, in YOLO's order.", {"stride": 1},
    ),
)  # fmt: skip
