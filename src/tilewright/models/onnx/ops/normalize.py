"""Normalisation, softmax, and the losses on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tilewright.graph.expr import Expr
from tilewright.graph.functions import nn, tensor
from tilewright.graph.functions.loss import REDUCTIONS, nll_loss
from tilewright.graph.functions.normalize import standardize
from tilewright.graph.leaves import const
from tilewright.models.onnx.node import Converter, Node

TINY = 1e-18  # the square of what MeanVarianceNormalization adds to a deviation of zero


def _batch_norm(n: Node) -> Expr | Sequence[Expr]:
    n.require(n.flag("spatial", True), "spatial=0 is not supported", "Export it with spatial=1.")
    data, scale, bias, mean, variance = (n[k] for k in range(5))
    epsilon, momentum = n.attr("epsilon", 1e-5), n.attr("momentum", 0.9)
    n.attr("consumed_inputs")
    training = n.flag("training_mode") if n.opset >= 14 else len(n.outputs) > 1
    training |= n.opset < 7 and not n.flag("is_test")
    n.require(
        not training or n.opset >= 14, "it is in training mode", "Export the model for inference."
    )
    dtype, kept = data.dtype, mean.dtype
    if len({v.dtype for v in (data, scale, bias, mean, variance)}) > 1:
        data, scale, bias, mean, variance = (
            tensor.cast(v, "float32") for v in (data, scale, bias, mean, variance)
        )
    if not training:
        made = nn.batch_norm(data, scale, bias, mean, variance, epsilon=epsilon)[0]
        return tensor.cast(made, dtype)
    axes = [k for k in range(len(data.shape)) if k != 1]
    own = tensor.mean(data, axis=axes, keepdims=True)
    apart = tensor.subtract(data, own)
    spread = tensor.mean(tensor.multiply(apart, apart), axis=axes)
    running = [
        tensor.cast(tensor.add(old * momentum, new * (1 - momentum)), kept)
        for old, new in ((mean, tensor.as_shape(own, mean.shape)), (variance, spread))
    ]
    return [tensor.cast(_affine(standardize(data, axes, epsilon), scale, bias), dtype), *running]


def _affine(data: Expr, scale: Expr, bias: Expr) -> Expr:
    """data * scale + bias, vectors along axis 1."""
    along = (-1, *(1,) * (len(data.shape) - 2))
    scaled = tensor.multiply(data, tensor.as_shape(scale, along))
    return tensor.add(scaled, tensor.as_shape(bias, along))


def _instance_norm(n: Node) -> Expr:
    n.attr("consumed_inputs")
    data = n[0]
    n.require(
        len(data.shape) > 2, f"its data has shape {data.shape}", "It needs axes behind channels."
    )
    axes = range(2, len(data.shape))
    return _affine(standardize(data, tuple(axes), n.attr("epsilon", 1e-5)), n[1], n[2])


def _group_norm(n: Node) -> Expr:
    data, groups = n[0], int(n.attr("num_groups", 0))
    n.attr("stash_type")
    n.require(
        len(data.shape) > 1 and groups >= 1 and data.shape[1] % groups == 0,
        f"{groups} groups do not divide the channels of {data.shape}", "Use a divisor.",
    )  # fmt: skip
    scale, bias = n[1], n[2]
    if n.opset < 21:  # one number for each group
        each = (groups, data.shape[1] // groups)
        scale, bias = (
            tensor.as_shape(tensor.broadcast_to(tensor.as_shape(v, (groups, 1)), each), -1)
            for v in (scale, bias)
        )
    return nn.group_norm(data, scale, bias, groups, epsilon=n.attr("epsilon", 1e-5))


def _layer_norm(n: Node) -> Sequence[Expr]:
    return layer_norm(n, n[0], n[1], n[2] if n.has(2) else None, n.attr("epsilon", 1e-5))


def layer_norm(
    n: Node, data: Expr, scale: Expr, bias: Expr | None, epsilon: float
) -> Sequence[Expr]:
    """The mean and the inverse deviation are results of their own, of what reads them."""
    axes = _behind(n, data)
    made: Expr = tensor.multiply(standardize(data, axes, epsilon), scale)
    wide = tensor.cast(data, "float32")
    mean = tensor.mean(wide, axis=axes, keepdims=True)
    apart = tensor.subtract(wide, mean)
    return [made if bias is None else tensor.add(made, bias), mean, _inverse(apart, axes, epsilon)]


def _behind(n: Node, data: Expr) -> tuple[int, ...]:
    """The axes from `axis` on."""
    n.require(n.attr("stash_type", 1) == 1, "its statistics are not float32", "Use stash_type=1.")
    rank = len(data.shape)
    return tuple(range(n.axis(n.attr("axis", -1), rank), rank))


def _inverse(apart: Expr, axes: tuple[int, ...], epsilon: float) -> Expr:
    variance = tensor.mean(tensor.multiply(apart, apart), axis=axes, keepdims=True)
    return tensor.rsqrt(tensor.add(variance, epsilon))


def _rms_norm(n: Node) -> Sequence[Expr]:
    return rms_norm(n, n[0], n[1], n.attr("epsilon", 1e-5))


def rms_norm(n: Node, data: Expr, scale: Expr, epsilon: float) -> Sequence[Expr]:
    """`layer_norm` around zero."""
    axes = _behind(n, data)
    made = standardize(data, axes, epsilon, center=False)
    made = tensor.cast(tensor.multiply(tensor.cast(made, scale.dtype), scale), scale.dtype)
    return [made, _inverse(tensor.cast(data, "float32"), axes, epsilon)]


def _mean_variance(n: Node) -> Expr:
    axes = n.attr("axes")
    return standardize(n[0], tuple(axes) if axes else (0, 2, 3), TINY)


def _lp_norm(n: Node) -> Expr:
    data, axis, p = n[0], n.attr("axis", -1), n.attr("p", 2)
    n.require(p in (1, 2), f"p={p} is not supported", "Use 1 or 2.")
    at = n.axis(axis, len(data.shape))
    sizes = tensor.abs(data) if p == 1 else tensor.multiply(data, data)
    total: Expr = tensor.sum(sizes, axis=at, keepdims=True)
    norm = total if p == 1 else tensor.sqrt(total)
    zero = const(0, data.dtype)
    return tensor.divide(data, tensor.where(tensor.equal(norm, zero), const(1, data.dtype), norm))


def hardmax(data: Expr, axis: int) -> Expr:
    """1 at the first of the greatest elements along `axis`, a NaN being greater than all; 0
    elsewhere."""
    rank, extent = len(data.shape), data.shape[axis]
    shape = [extent if k == axis % rank else 1 for k in range(rank)]
    places = const(np.arange(extent, dtype="int32").reshape(shape))
    greatest = tensor.equal(data, tensor.max(data, axis=axis, keepdims=True))
    if data.tensor_type.dtype.is_float:  # no number equals a maximum that is none
        greatest = tensor.logical_or(greatest, tensor.isnan(data))
    found = tensor.where(greatest, places, const(extent, "int32"))
    first = tensor.min(found, axis=axis, keepdims=True)
    return tensor.cast(tensor.equal(found, first), data.dtype)


def _softmax(function: Callable[..., Expr]) -> Converter:
    return lambda n: softmax_of(n, n[0], function, n.opset)


def softmax_of(n: Node, data: Expr, function: Callable[..., Expr], opset: int) -> Expr:
    """Before opset 13 over everything from `axis` on, later along `axis`."""
    axis = n.attr("axis", -1 if opset >= 13 else 1)
    at = n.axis(axis, len(data.shape))
    if opset >= 13 or at == len(data.shape) - 1:
        return function(data, axis)
    rows = tensor.as_shape(data, (math.prod(data.shape[:at]), math.prod(data.shape[at:])))
    return tensor.as_shape(function(rows, -1), data.shape)


def _cross_entropy(n: Node) -> Sequence[Expr]:
    probabilities = nn.log_softmax(n[0], axis=1)
    return [_loss(n, probabilities), probabilities]


def _loss(n: Node, predictions: Expr) -> Expr:
    reduction = n.attr("reduction", "mean")
    n.require(reduction in REDUCTIONS, f"reduction={reduction} is not known", "Use mean.")
    weights = n[2] if n.has(2) else None
    return nll_loss(predictions, n[1], weights, reduction, n.attr("ignore_index"))


CONVERTERS: dict[str, Converter] = {
    "BatchNormalization": _batch_norm,
    "GroupNormalization": _group_norm,
    "Hardmax": _softmax(hardmax),
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "LogSoftmax": _softmax(nn.log_softmax),
    "LpNormalization": _lp_norm,
    "MeanVarianceNormalization": _mean_variance,
    "NegativeLogLikelihoodLoss": lambda n: _loss(n, n[0]),
    "RMSNormalization": lambda n: _rms_norm(n)[0],
    "SimplifiedLayerNormalization": _rms_norm,
    "Softmax": _softmax(nn.softmax),
    "SoftmaxCrossEntropyLoss": _cross_entropy,
}
