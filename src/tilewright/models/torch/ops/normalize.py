"""Normalisation and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tilewright.graph.expr import Expr
from tilewright.graph.functions import nn, tensor
from tilewright.graph.functions.normalize import standardize
from tilewright.graph.leaves import const
from tilewright.models.torch.node import Converter, Node, as_type, first_of_several
from tilewright.models.torch.ops.movement import reshaped, with_axis


def _batch_norm(n: Node) -> Expr:
    data = n["input"]
    channels, kind = data.shape[1], str(data.dtype)
    weight, bias = n.optional("weight"), n.optional("bias")
    if n.args.get("running_mean") is None:  # the statistics are those of the data
        axes = [k for k in range(len(data.shape)) if k != 1]
        made = standardize(data, axes, float(n.args["eps"]))
        return affine(made, weight, bias, (channels, *(1,) * (len(data.shape) - 2)))
    n.require(not n.get("training", False), "it is in training mode",
              "Export the module after .eval().")  # fmt: skip
    one, zero = (const(np.full(channels, v), data.dtype) for v in (1, 0))
    vectors = (one if weight is None else weight, zero if bias is None else bias,
               n["running_mean"], n["running_var"])  # fmt: skip
    gamma, beta, mean, variance = (as_type(v, kind) for v in vectors)
    made = nn.batch_norm(
        data, gamma, beta, mean, variance, epsilon=float(n.args["eps"]), center=bias is not None,
        scale=weight is not None,
    )  # fmt: skip
    return made[0]


def _batch_norm_of_batch(n: Node) -> list[Expr | None]:
    """In training mode: by the statistics of the data, which move the running ones."""
    if not n.get("training", True):
        return [_batch_norm(n), None, None, n["running_mean"], n["running_var"]]
    data, momentum, eps = n["input"], float(n.args["momentum"]), float(n.args["eps"])
    axes = [k for k in range(len(data.shape)) if k != 1]
    count, channels = math.prod(data.shape[k] for k in axes), data.shape[1]
    mean = tensor.mean(data, axes, True)
    away = tensor.subtract(data, mean)
    variance = tensor.mean(tensor.multiply(away, away), axes, True)
    scale = tensor.rsqrt(tensor.add(variance, const(eps, str(data.dtype))))
    shape = (channels, *(1,) * (len(data.shape) - 2))
    made = affine(
        tensor.multiply(away, scale), n.optional("weight"), n.optional("bias"), shape
    )  # fmt: skip

    def moved(name: str, value: Expr, factor: float = 1.0) -> Expr:
        old = n[name]
        kind = str(old.dtype)
        new = tensor.multiply(as_type(reshaped(value, (channels,)), kind),
                              const(momentum * factor, kind))  # fmt: skip
        return tensor.add(tensor.multiply(old, const(1 - momentum, kind)), new)

    return [
        made, reshaped(mean, (channels,)), reshaped(scale, (channels,)),
        moved("running_mean", mean), moved("running_var", variance, count / max(count - 1, 1)),
    ]  # fmt: skip


def affine(
    made: Expr, weight: Expr | None, bias: Expr | None, shape: tuple[int, ...] | None = None
) -> Expr:
    """`made` times the weight and plus the bias, where there are any, each under `shape`."""
    for vector, join in ((weight, tensor.multiply), (bias, tensor.add)):
        if vector is not None:
            as_made = as_type(vector, str(made.dtype))
            made = join(made, as_made if shape is None else reshaped(as_made, shape))
    return made


def _of_last_axes(center: bool, epsilon: float) -> Converter:
    """Those of `normalized_shape` standardised; epsilon: where none is given."""

    def convert(n: Node) -> Expr:
        data, shape = n["input"], n.ints("normalized_shape")
        axes = tuple(range(len(data.shape) - len(shape), len(data.shape)))
        made = standardize(data, axes, float(n.get("eps", epsilon)), center=center)
        return affine(made, n.optional("weight"), n.optional("bias"), shape)

    return convert


_layer_norm = _of_last_axes(center=True, epsilon=1e-5)


def _grouped(groups: Callable[[Node], int]) -> Converter:
    """Groups of neighbouring channels of each image, and the rest of it, standardised."""

    def convert(n: Node) -> Expr:
        data, count = n["input"], groups(n)
        batch, channels, *rest = data.shape
        flat = reshaped(data, (batch, count, channels // count * math.prod(rest)))
        made = reshaped(standardize(flat, -1, float(n.get("eps", 1e-5))), data.shape)
        return affine(made, n.optional("weight"), n.optional("bias"), (channels, *(1,) * len(rest)))

    return convert


def _channels(n: Node) -> int:
    n.require(bool(n.get("use_input_stats", True)), "it uses stored statistics",
              "Use track_running_stats=False.")  # fmt: skip
    return n["input"].shape[1]


def _softmax(function: Callable[..., Expr]) -> Converter:
    return lambda n: reshaped(
        function(with_axis(as_type(n["self"], n.dtype)), axis=n.axis()), n.shape
    )


CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(("_native_batch_norm_legit_no_training.default", "native_batch_norm.default",
                     "_native_batch_norm_legit.no_stats", "_batch_norm_no_update.default"),
                    first_of_several(_batch_norm)),
    "_native_batch_norm_legit_functional.default": _batch_norm_of_batch,
    "batch_norm.default": _batch_norm,
    "native_layer_norm.default": first_of_several(_layer_norm),
    "layer_norm.default": _layer_norm,
    "rms_norm.default": _of_last_axes(center=False, epsilon=float(np.finfo(np.float32).eps)),
    "native_group_norm.default": first_of_several(_grouped(lambda n: n.integer("group"))),
    "group_norm.default": _grouped(lambda n: n.integer("num_groups")),
    "instance_norm.default": _grouped(_channels),
    **dict.fromkeys(("_softmax.default", "softmax.int", "_safe_softmax.default"),
                    _softmax(nn.softmax)),
    **dict.fromkeys(("_log_softmax.default", "log_softmax.int"), _softmax(nn.log_softmax)),
}  # fmt: skip
