"""Operators that move elements."""

from __future__ import annotations

import math

import numpy as np

from tilewright.graph.expr import Expr
from tilewright.graph.functions import indexing, nn, tensor
from tilewright.graph.op import call
from tilewright.models.onnx.node import Converter, Node, number, shape_input


def _flatten(n: Node) -> Expr:
    data, axis = n[0], n.attr("axis", 1)
    at = axis if axis == len(data.shape) else n.axis(axis, len(data.shape))
    if at == 1:
        return nn.batch_flatten(data)
    return tensor.as_shape(data, (math.prod(data.shape[:at]), math.prod(data.shape[at:])))


def _reshape(n: Node) -> Expr:
    shape = n.ints("shape", 1)
    n.require(shape is not None, "no shape is given", "Give it as a constant of the model.")
    if n.flag("allowzero") and 0 in (shape or ()):
        return call("reshape", n[0], newshape=tuple(shape or ()))
    return tensor.reshape(n[0], tuple(shape or ()))  # where 0 keeps an extent


def _pad(n: Node) -> Expr:
    data, mode = n[0], n.attr("mode", "constant")
    given = n.attr("paddings") if n.opset == 1 else n.ints("pads", 1)
    pads = [int(p) for p in given or ()]
    rank = len(data.shape)
    listed = n.ints("axes", 3) if n.opset >= 18 else None
    axes = [n.axis(a, rank) for a in (range(rank) if listed is None else listed)]
    n.require(len(set(axes)) == len(axes), "an axis is named twice", "Name each axis once.")
    n.require(
        len(pads) == 2 * len(axes),
        f"pads {pads} does not fit the shape {data.shape}",
        "Give one count before and one after each axis.",
    )
    width = [(0, 0)] * rank
    for k, axis in enumerate(axes):
        width[axis] = (pads[k], pads[k + len(axes)])
    n.require(
        all(e + min(a, 0) + min(b, 0) >= 0 for e, (a, b) in zip(data.shape, width, strict=True)),
        f"pads {pads} cut more than the shape {data.shape} has", "Use smaller numbers.",
    )  # fmt: skip
    kept = [
        range(max(-before, 0), extent - max(-after, 0))
        for extent, (before, after) in zip(data.shape, width, strict=True)
    ]
    if any(min(w) < 0 for w in width):
        data = indexing.slice_of(data, kept)
    around = [(max(before, 0), max(after, 0)) for before, after in width]
    value = number(n, "value", 2, 0.0)
    if mode == "constant":
        return nn.pad(data, around, value)
    n.require(
        mode in ("edge", "reflect", "wrap"), f"mode={mode}", "Use constant, edge, reflect or wrap."
    )
    return nn.mirror_pad(data, around, mode)


def _slice(n: Node) -> Expr:
    data, rank = n[0], len(n[0].shape)
    starts, ends = n.ints("starts", 1) or [], n.ints("ends", 2) or []
    listed = n.ints("axes", 3)
    axes = [n.axis(a, rank) for a in (range(len(starts)) if listed is None else listed)]
    steps = (n.ints("steps", 4) if n.opset >= 10 else None) or [1] * len(starts)
    n.require(
        len(starts) == len(ends) == len(axes) == len(steps) and len(set(axes)) == len(axes),
        "its starts, ends, axes and steps do not belong together", "Give one of each.",
    )  # fmt: skip
    n.require(0 not in steps, "a step is 0", "Use 1 to keep every element.")
    ranges = [range(extent) for extent in data.shape]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        extent = data.shape[axis]
        if step < 0:  # ONNX begins at the first element, where Python has passed it
            start = max(start, -extent)
        ranges[axis] = range(extent)[slice(start, end, step)]
    return indexing.slice_of(data, ranges)


def _split(n: Node) -> list[Expr]:
    data = n[0]
    axis = n.axis(n.attr("axis", 0), len(data.shape))
    extent = data.shape[axis]
    sizes = n.ints("split", 1)
    if sizes is None:
        count = n.attr("num_outputs") or len(n.outputs)
        n.require(
            1 <= count <= max(extent, len(n.outputs)), f"{count} pieces of {extent} elements",
            "Use a number that is not greater.",
        )  # fmt: skip
        size = -(-extent // count)
        sizes = [size] * (count - 1) + [extent - size * (count - 1)]
    else:
        n.attr("num_outputs")
    n.require(
        sum(sizes) == extent and min(sizes, default=0) >= 0,
        f"pieces of {sizes} do not make {extent} elements",
        "Give extents that add up.",
    )
    ends = np.cumsum(sizes)
    return list(indexing.split(data, ends[:-1].tolist(), axis).fields)


def _tile(n: Node) -> Expr:
    data = n[0]
    if n.opset < 6:
        copies, axis = n.whole(1, "its number of copies"), n.whole(2, "its axis")
        reps = [1] * len(data.shape)
        reps[n.axis(axis or 0, len(reps))] = copies or 0
        return indexing.tile(data, reps)
    reps = n.ints("repeats", 1) or []
    n.require(
        len(reps) == len(data.shape), f"repeats {reps} do not fit the shape {data.shape}",
        "Give one for each axis.",
    )  # fmt: skip
    return indexing.tile(data, reps)


def _block(n: Node) -> int:
    size = n.attr("blocksize")
    n.require(size is not None, "its blocksize is not given", "Export the model again.")
    return int(size)


def _center_crop_pad(n: Node) -> Expr:
    data, rank = n[0], len(n[0].shape)
    wanted, listed = shape_input(n, 1), n.ints("axes")
    axes = [n.axis(a, rank) for a in (range(rank) if listed is None else listed)]
    n.require(len(axes) == len(wanted), "not one extent for each axis", "Give as many of each.")
    kept, around = [range(extent) for extent in data.shape], [(0, 0)] * rank
    for axis, extent in zip(axes, wanted, strict=True):
        missing = extent - data.shape[axis]
        if missing < 0:
            begin = -missing // 2
            kept[axis] = range(begin, begin + extent)
        else:
            around[axis] = (missing // 2, missing - missing // 2)
    return nn.pad(indexing.slice_of(data, kept), around)


def _unsqueeze(n: Node) -> Expr:
    data, axes = n[0], n.ints("axes", 1) or []
    rank = len(data.shape) + len(axes)
    places = sorted(n.axis(a, rank) for a in axes)
    n.require(len(set(places)) == len(places), "an axis is named twice", "Name each axis once.")
    for axis in places:
        data = tensor.expand_dims(data, axis)
    return data


def _expand(n: Node) -> Expr:
    data, shape = n[0].shape, shape_input(n, 1)
    rank = max(len(data), len(shape))
    given = zip((1,) * (rank - len(data)) + data, (1,) * (rank - len(shape)) + shape, strict=True)
    return tensor.broadcast_to(n[0], tuple(a if b == 1 else b for a, b in given))


CONVERTERS: dict[str, Converter] = {
    "CenterCropPad": _center_crop_pad,
    "Concat": lambda n: tensor.concatenate(n.all(), n.attr("axis", 1)),
    "DepthToSpace": lambda n: nn.depth_to_space(n[0], _block(n), mode=n.attr("mode", "DCR")),
    "Expand": _expand,
    "Flatten": _flatten,
    "Pad": _pad,
    "Reshape": _reshape,
    "Slice": _slice,
    "SpaceToDepth": lambda n: nn.space_to_depth(n[0], _block(n), mode=n.attr("mode", "DCR")),
    "Split": _split,
    "Squeeze": lambda n: tensor.squeeze(n[0], n.ints("axes", 1)),
    "Tile": _tile,
    "Transpose": lambda n: tensor.transpose(n[0], n.attr("perm")),
    "Trilu": lambda n: indexing.trilu(n[0], int(number(n, "k", 1, 0)), n.flag("upper", True)),
    "Unsqueeze": _unsqueeze,
}
