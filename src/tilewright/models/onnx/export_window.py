"""Convolution and pooling as ONNX nodes; other layouts go between transpositions.

In: a call and the graph that is written.  Out: names of results.  Read next: `ops/window.py`, the
way back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call
from tilewright.graph.op import TABLE
from tilewright.graph.op.conv import CONVOLUTIONS, TRANSPOSED
from tilewright.graph.op.window import (
    IMAGE,
    RANKS,
    channels_first,
    image_rank,
    in_order,
    out_layout,
)
from tilewright.models.onnx.writer import Exporter, Writer


def _channels_first(onnx_op: str, attrs_of: Callable[[Call], dict[str, Any]]) -> Exporter:
    def export(w: Writer, node: Call) -> str:
        layout = node.attrs.layout
        order = channels_first(image_rank(layout))
        data = w.transposed(w.name(node.args[0]), layout, order, node.args[0].shape)
        made = w.op(onnx_op, data, **attrs_of(node))
        return w.transposed(made, order, layout, in_order(node.shape, layout, order))

    return export


def _conv(w: Writer, node: Call) -> str:
    a = node.attrs
    rank = len(a.strides)
    transposed = "output_padding" in a
    order, kernel = channels_first(rank), f"{'IO' if transposed else 'OI'}{IMAGE[rank]}"
    data = w.transposed(w.name(node.args[0]), a.data_layout, order, node.args[0].shape)
    weight = w.transposed(w.name(node.args[1]), a.kernel_layout, kernel, node.args[1].shape)
    extra = {"output_padding": list(a.output_padding)} if transposed else {}
    made = w.op(
        "ConvTranspose" if transposed else "Conv", data, weight, group=a.groups,
        dilations=list(a.dilation), strides=list(a.strides), pads=list(a.padding), **extra,
    )  # fmt: skip
    layout = a.data_layout if transposed else out_layout(a)
    return w.transposed(made, order, layout, in_order(node.shape, layout, order))


def _window(node: Call) -> dict[str, Any]:
    a = node.attrs
    written = {
        "kernel_shape": list(a.pool_size), "strides": list(a.strides), "pads": list(a.padding),
        "ceil_mode": int(a.ceil_mode) or None, "dilations": list(a.dilation),
    }  # fmt: skip
    if "count_include_pad" in a:
        written["count_include_pad"] = int(a.count_include_pad)
    if "p" in a:
        _require(node, float(a.p).is_integer(), f"ONNX has no p={a.p}", "Use a whole number.")
        written["p"] = int(a.p)
    if "count_include_pad" in a or "p" in a:
        _require(node, set(a.dilation) == {1}, "opset 18 has no dilation for it", "Use dilation=1.")
        del written["dilations"]
    if "p" in a:
        _require(node, not a.ceil_mode, "opset 18 has no ceil_mode for it", "Leave it out.")
    return written


def _require(node: Call, holds: bool, reason: str, way_out: str) -> None:
    if not holds:
        raise ModelError(f"to_onnx: {node.op.name}", reason, way_out)  # type: ignore[union-attr]


def _indices(w: Writer, node: Call) -> str:
    order = node.attrs.storage_order or None
    values = w.name(node.args[0])
    _, indices = w.ops("MaxPool", 2, values, storage_order=order, **_window(node))
    return indices


def _adaptive(onnx_op: str) -> Exporter:
    def export(w: Writer, node: Call) -> str:
        a = node.attrs
        order = channels_first(len(a.output_size))
        shape = node.args[0].shape
        data = w.transposed(w.name(node.args[0]), a.layout, order, shape)
        extents = list(in_order(shape, a.layout, order))[2:]
        steps = [n // o for n, o in zip(extents, a.output_size, strict=True)]
        _require(
            node, [s * o for s, o in zip(steps, a.output_size, strict=True)] == extents,
            f"{extents} does not divide into {list(a.output_size)} windows",
            "Use an output_size that divides the image.",
        )  # fmt: skip
        made = w.op(onnx_op, data, kernel_shape=steps, strides=steps)
        return w.transposed(made, order, a.layout, in_order(node.shape, a.layout, order))

    return export


def _resize(w: Writer, node: Call) -> str:
    """`scales` fix the result's extents, too, so a size they do not give has no words."""
    a, shape = node.attrs, node.args[0].shape
    _require(node, not a.antialias, "opset 17 has no antialias", "Leave it out.")
    scales, roi = [1.0] * len(shape), [0.0] * len(shape) + [1.0] * len(shape)
    sizes = list(node.shape)
    for k, axis in enumerate(a.axes):
        if a.scales:
            scales[axis] = a.scales[k]
            fits = int(np.float32(a.scales[k]) * shape[axis]) == a.sizes[k]
            _require(node, fits, "its sizes do not follow from its scales", "Leave scales out.")
        if a.roi:
            roi[axis], roi[len(shape) + axis] = a.roi[k], a.roi[len(a.axes) + k]
    given = [w.name(node.args[0]), w.array(np.array(roi, "float32"), "roi") if a.roi else ""]
    given += [w.array(np.array(scales, "float32"), "scales")] if a.scales else ["", w.ints(
        sizes, "sizes")]  # fmt: skip
    return w.op(
        "Resize", *given, mode=a.mode, coordinate_transformation_mode=a.coordinates,
        nearest_mode=a.rounding, cubic_coeff_a=a.cubic_alpha,
        exclude_outside=int(a.exclude_outside), extrapolation_value=a.extrapolation_value,
    )  # fmt: skip


def _pools(rank: int) -> dict[str, Exporter]:
    found: dict[str, Exporter] = {f"nn.max_pool{rank}d_indices": _indices}
    for kind, onnx_op in (("avg", "AveragePool"), ("max", "MaxPool"), ("lp", "LpPool")):
        found[f"nn.{kind}_pool{rank}d"] = _channels_first(onnx_op, _window)
        if f"nn.global_{kind}_pool{rank}d" in TABLE:
            found[f"nn.global_{kind}_pool{rank}d"] = _channels_first(
                f"Global{onnx_op}", lambda n: {}
            )
            found[f"nn.adaptive_{kind}_pool{rank}d"] = _adaptive(onnx_op)
    return found


def _grid_sample(w: Writer, node: Call) -> str:
    """ONNX counts from -1 to 1 only, and has x, y, .. on the last axis."""
    a, grid = node.attrs, node.args[1]
    rank = len(grid.shape) - 2
    w.opset = max(w.opset, 20)
    places = w.op("Transpose", w.name(grid), perm=[0, *range(2, rank + 2), 1])
    align = a.align_corners and (a.normalized or a.padding_mode == "reflection")
    if not a.normalized:
        extents = np.array(node.args[0].shape[:1:-1], grid.dtype)
        step = 2 / np.maximum(extents - 1, 1) if align else 2 / extents
        start = np.zeros_like(step) if align else 1 / extents
        places = w.op("Mul", places, w.array(step, "step", grid.dtype))
        places = w.op("Add", places, w.array(start - 1, "start", grid.dtype))
    return w.op(
        "GridSample", w.name(node.args[0]), places, padding_mode=a.padding_mode,
        mode={"bilinear": "linear", "bicubic": "cubic"}.get(a.method, a.method),
        align_corners=int(align),
    )  # fmt: skip


def _roi_align(w: Writer, node: Call) -> str:
    """The numbers of images are integers of their own."""
    a, (data, rois) = node.attrs, node.args
    mode = {"avg": "avg", "max_weighted": "max"}.get(a.mode)
    _require(node, mode is not None, f"ONNX has no mode {a.mode}", 'Use "max_weighted".')
    number, corners = (
        w.op("Slice", w.name(rois), *(w.ints([k], "slice") for k in (begin, end, 1)))
        for begin, end in ((0, 1), (1, 5))
    )
    number = w.op("Reshape", w.cast(number, "int64"), w.ints([-1], "shape"))
    return w.op(
        "RoiAlign", w.name(data), corners, number, mode=mode, output_height=a.pooled_size[0],
        output_width=a.pooled_size[1], sampling_ratio=a.sample_ratio,
        spatial_scale=a.spatial_scale,
        coordinate_transformation_mode="half_pixel" if a.aligned else "output_half_pixel",
    )  # fmt: skip


EXPORTERS: dict[str, Exporter] = {
    "image.grid_sample": _grid_sample,
    "image.resize": _resize,
    "vision.roi_align": _roi_align,
    **dict.fromkeys((*CONVOLUTIONS, *TRANSPOSED), _conv),
    **{name: export for rank in RANKS for name, export in _pools(rank).items()},
}
