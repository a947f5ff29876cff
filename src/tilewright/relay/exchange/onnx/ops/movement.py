"""Operators that move elements."""

from __future__ import annotations

import math

from tilewright.relay import nn, tensor
from tilewright.relay.exchange.onnx.node import Converter, Node, number, shape_input
from tilewright.relay.graph.expr import Expr
from tilewright.relay.op import call


def _flatten(n: Node) -> Expr:
    data, axis = n[0], n.attr("axis", 1)
    at = axis if axis == len(data.shape) else n.axis(axis, len(data.shape))
    if at == 1:
        return nn.batch_flatten(data)
    return tensor.reshape(data, (math.prod(data.shape[:at]), math.prod(data.shape[at:])))


def _reshape(n: Node) -> Expr:
    shape = n.ints("shape", 1)
    n.require(shape is not None, "no shape is given", "Give it as a constant of the model.")
    if n.flag("allowzero") and 0 in (shape or ()):
        return call("reshape", n[0], newshape=tuple(shape or ()))
    return tensor.reshape(n[0], tuple(shape or ()))


def _pad(n: Node) -> Expr:
    data, mode = n[0], n.attr("mode", "constant")
    n.require(mode == "constant", f"mode={mode} is not supported", "Only constant padding is.")
    pads = n.ints("pads", 1) or []
    rank = len(data.shape)
    axes = [n.axis(a, rank) for a in n.ints("axes", 3) or range(rank)]
    n.require(len(set(axes)) == len(axes), "an axis is named twice", "Name each axis once.")
    n.require(
        len(pads) == 2 * len(axes),
        f"pads {pads} does not fit the shape {data.shape}",
        "Give one count before and one after each axis.",
    )
    width = [(0, 0)] * len(data.shape)
    for k, axis in enumerate(axes):
        width[axis] = (pads[k], pads[k + len(axes)])
    return nn.pad(data, width, number(n, "value", 2, 0.0))


def _squeeze(n: Node) -> Expr:
    return tensor.squeeze(n[0], n.ints("axes", 1))


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
    "Concat": lambda n: tensor.concatenate(n.all(), n.attr("axis", 1)),
    "Expand": _expand,
    "Flatten": _flatten,
    "Pad": _pad,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Transpose": lambda n: tensor.transpose(n[0], n.attr("perm")),
    "Unsqueeze": _unsqueeze,
}
