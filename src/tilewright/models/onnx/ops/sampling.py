"""Images read where data says: at places, in regions, under taps that move."""

from __future__ import annotations

from math import prod

from tilewright.graph.expr import Expr
from tilewright.graph.functions import image, nn, vision
from tilewright.graph.functions.tensor import cast, concatenate, expand_dims, transpose
from tilewright.models.onnx.node import Converter, Node, shape_input
from tilewright.models.onnx.ops.window import biased, weight_window

METHODS = {"linear": "bilinear", "cubic": "bicubic"}  # since opset 20
MODES = {"avg": "avg", "max": "max_weighted"}


def _affine_grid(n: Node) -> Expr:
    size = shape_input(n, 1)
    n.require(
        len(size) in (4, 5) and size[0] == n[0].shape[0],
        f"its size is {size} for matrices {n[0].shape}",
        "[N, C, H, W] or [N, C, D, H, W] is needed.",
    )  # fmt: skip
    n.room(prod(size[2:]) * len(size) * n[0].dtype.bytes)
    return image.affine_grid(n[0], size[2:], n.flag("align_corners"), channels_last=True)


def grid_sample(n: Node) -> Expr:
    """ONNX has the coordinates on the last axis, TVM on the second."""
    data, grid, rank = n[0], n[1], len(n[0].shape)
    n.require(
        rank in (4, 5) and len(grid.shape) == rank,
        f"its data has shape {data.shape}, its grid {grid.shape}",
        "Images of two or three axes are supported, the grid has as many.",
    )
    method = str(n.attr("mode", "linear"))
    made = image.grid_sample(
        cast(data, grid.dtype), transpose(grid, (0, rank - 1, *range(1, rank - 1))),
        METHODS.get(method, method), "NCHW" if rank == 4 else "NCDHW",
        str(n.attr("padding_mode", "zeros")), n.flag("align_corners"),
    )  # fmt: skip
    return cast(made, data.dtype)


def _roi_align(n: Node) -> Expr:
    data, rois, numbers = n[0], n[1], n[2]
    n.require(
        len(rois.shape) == 2 and rois.shape[1] == 4 and numbers.shape == rois.shape[:1],
        f"its regions have shape {rois.shape}, their images {numbers.shape}",
        "[regions, 4] and [regions] are needed.",
    )  # fmt: skip
    aligned = n.attr(
        "coordinate_transformation_mode", "half_pixel" if n.opset >= 16 else "output_half_pixel"
    )
    n.require(
        aligned in ("half_pixel", "output_half_pixel"),
        f"coordinate_transformation_mode={aligned} is not known", "Use half_pixel.",
    )  # fmt: skip
    mode, ratio = n.attr("mode", "avg"), int(n.attr("sampling_ratio", 0))
    n.require(mode in MODES, f"mode={mode} is not known", f"Use {' or '.join(MODES)}.")
    n.require(
        ratio > 0, "sampling_ratio=0: how many samples a region takes depends on the data",
        "Export it with sampling_ratio=2.",
    )  # fmt: skip
    regions = concatenate([cast(expand_dims(numbers, 1), rois.dtype), rois], 1)
    size = (int(n.attr("output_height", 1)), int(n.attr("output_width", 1)))
    return vision.roi_align(
        data, cast(regions, data.dtype), size, float(n.attr("spatial_scale", 1.0)), ratio,
        mode=MODES[mode], aligned=aligned == "half_pixel",
    )  # fmt: skip


def _max_roi_pool(n: Node) -> Expr:
    data, rois = n[0], n[1]
    n.require(
        len(data.shape) == 4 and len(rois.shape) == 2 and rois.shape[1] == 5,
        f"its data has shape {data.shape}, its regions {rois.shape}",
        "[N, C, H, W] and [regions, 5] are needed.",
    )  # fmt: skip
    size = n.ints("pooled_shape") or []
    n.require(len(size) == 2, f"pooled_shape={size} is not two numbers", "Give [1, 1].")
    return vision.roi_pool(data, rois, size, float(n.attr("spatial_scale", 1.0)))


def _deform_conv(n: Node) -> Expr:
    data, weight = n[0], n[1]
    n.require(
        len(data.shape) == 4, f"its data has shape {data.shape}",
        "Images of two axes are supported: [N, C, H, W].",
    )  # fmt: skip
    weight_window(n, weight)
    made = nn.deformable_conv2d(
        data, n[2], weight, n.ints("strides") or 1, n.ints("pads") or 0, n.ints("dilations") or 1,
        int(n.attr("offset_group", 1)), int(n.attr("group", 1)), mask=n[4] if n.has(4) else None,
    )  # fmt: skip
    return biased(n, made, 3)


CONVERTERS: dict[str, Converter] = {
    "AffineGrid": _affine_grid,
    "DeformConv": _deform_conv,
    "GridSample": grid_sample,
    "MaxRoiPool": _max_roi_pool,
    "RoiAlign": _roi_align,
}
