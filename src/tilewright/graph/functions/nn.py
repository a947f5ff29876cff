"""What users call: operators of networks, `relay.nn.conv2d`, `relay.nn.dense`, ...

In: graph values and TVM's keywords in their usual spellings.  Out: calls with normal attributes.  A
weight made by ``relay.var("w")`` without a shape takes the one the operator implies.  Read next:
`convolution.py`, `pooling.py`; `op/nn.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call, Expr
from tilewright.graph.functions.activations import *  # noqa: F403
from tilewright.graph.functions.activations import __all__ as _activations
from tilewright.graph.functions.attention import attention
from tilewright.graph.functions.blocks import batch_to_space_nd, dilate, space_to_batch_nd
from tilewright.graph.functions.convolution import *  # noqa: F403
from tilewright.graph.functions.convolution import __all__ as _convolutions
from tilewright.graph.functions.convolution import of_one_type
from tilewright.graph.functions.deformable import deformable_conv2d
from tilewright.graph.functions.indexing import (
    depth_to_space,
    mirror_pad,
    number,
    space_to_depth,
    strided_slice,
)
from tilewright.graph.functions.linear import nn_matmul as matmul
from tilewright.graph.functions.loss import nll_loss
from tilewright.graph.functions.normalize import (
    group_norm,
    instance_norm,
    l2_normalize,
    layer_norm,
    rms_norm,
    standardize,
)
from tilewright.graph.functions.pooling import *  # noqa: F403
from tilewright.graph.functions.pooling import __all__ as _pooling
from tilewright.graph.functions.sizes import per_axis, settle
from tilewright.graph.functions.tensor import as_shape, cast, logical_and, where
from tilewright.graph.leaves import const
from tilewright.graph.op import call


def dense(data: Expr, weight: Expr, units: int | None = None, out_dtype: str = "") -> Expr:
    """data [..., features] times the transpose of weight [units, features].

    out_dtype: of the result; default: that of floating-point operands, int32 for narrow integers;
    integers of two types need it
    """
    if units is not None and data.shape:
        settle(weight, (units, data.shape[-1]), data)
    data, weight = of_one_type(data, weight, str(out_dtype))
    rows = data
    if len(data.shape) > 2:
        rows = as_shape(data, (math.prod(data.shape[:-1]), data.shape[-1]))
    made = call("nn.dense", rows, weight, out_dtype=str(out_dtype))
    if units is not None and units != made.shape[1]:
        raise ModelError(
            f"nn.dense(weight={weight.shape}, units={units})",
            f"the weight has {made.shape[1]} units",
            "Leave units out, or transpose the weight.",
        )
    shape = (*data.shape[:-1], made.shape[1])
    return made if rows is data else call("reshape", made, newshape=shape)


def batch_matmul(
    tensor_a: Expr,
    tensor_b: Expr,
    out_dtype: str = "",
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Call:
    """tensor_a [batch, M, K] times the transpose of tensor_b [batch, N, K], for each of the batch.

    A batch of 1 serves every element of the other.  The flags say how each operand is stored.
    out_dtype: of the result; default: that of floating-point operands, int32 for narrow integers
    """
    return call(
        "nn.batch_matmul", tensor_a, tensor_b, out_dtype=out_dtype, transpose_a=bool(transpose_a),
        transpose_b=bool(transpose_b),
    )  # fmt: skip


def bias_add(data: Expr, bias: Expr, axis: int = 1) -> Call:
    """data plus the vector `bias` along `axis`."""
    _settle_vectors(data, (bias,), axis)
    return call("nn.bias_add", data, bias, axis=axis)


def batch_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    moving_mean: Expr,
    moving_var: Expr,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    """Normalisation with stored statistics; three values, of which users want `[0]`.

    center: add beta; scale: multiply by gamma.
    """
    _settle_vectors(data, (gamma, beta, moving_mean, moving_var), axis)
    return call(
        "nn.batch_norm", data, gamma, beta, moving_mean, moving_var, axis=axis,
        epsilon=float(epsilon), center=bool(center), scale=bool(scale),
    )  # fmt: skip


def _settle_vectors(data: Expr, vectors: Sequence[Expr], axis: int) -> None:
    if -len(data.shape) <= axis < len(data.shape):
        for v in vectors:
            settle(v, (data.shape[axis],), data)


def relu(data: Expr) -> Call:
    """max(data, 0)."""
    return call("nn.relu", data)


def leaky_relu(data: Expr, alpha: float = 0.01) -> Call:
    """data where positive, alpha * data elsewhere."""
    return call("nn.leaky_relu", data, alpha=float(alpha))


def dropout(data: Expr, rate: float = 0.5) -> Call:
    """data itself: nothing is dropped at inference."""
    return call("nn.dropout", data, rate=float(rate))


def softmax(data: Expr, axis: int = -1) -> Call:
    """exp(data) over its sum along `axis`."""
    return call("nn.softmax", data, axis=axis)


fast_softmax = softmax  # under TVM's other name, and not less exact


def log_softmax(data: Expr, axis: int = -1) -> Call:
    """Logarithm of softmax along `axis`."""
    return call("nn.log_softmax", data, axis=axis)


def batch_flatten(data: Expr) -> Call:
    """[N, ...] as [N, product of the rest]."""
    return call("nn.batch_flatten", data)


def pad(
    data: Expr,
    pad_width: Sequence[Any],
    pad_value: float | Expr = 0.0,
    pad_mode: str = "constant",
) -> Expr:
    """`data` with `pad_value` around it; pad_width: one (before, after) per axis, negative numbers
    cut off.

    pad_value: a number, or a value of one element
    pad_mode: "constant", or a mode of `mirror_pad`
    """
    width = [per_axis(w, 2, "pad_width", "nn.pad") for w in pad_width]
    if len(width) == len(data.shape) and any(n < 0 for w in width for n in w):
        begins = [max(-w[0], 0) for w in width]
        ends = [n + min(w[1], 0) for n, w in zip(data.shape, width, strict=True)]
        if any(b > e for b, e in zip(begins, ends, strict=True)):
            raise ModelError(
                f"nn.pad(data={data.shape}, pad_width={tuple(width)})",
                "more is cut off than there is", "Cut off less.",
            )  # fmt: skip
        data = strided_slice(data, begins, ends)
        width = [(max(w[0], 0), max(w[1], 0)) for w in width]
    if pad_mode != "constant":
        return mirror_pad(data, width, pad_mode)
    value = number(pad_value)
    known = value.as_numbers() if isinstance(value, Expr) and not value.waits else value
    if known is not None and not isinstance(known, Expr):
        return call("nn.pad", data, pad_width=tuple(width), pad_value=float(number(known)))
    return _padded_with(value, data, width)


def _padded_with(value: Expr, data: Expr, width: Sequence[tuple[int, ...]]) -> Expr:
    """`data` with a number around it that is known when the network runs."""
    if any(extent != 1 for extent in value.shape):
        raise ModelError(
            "nn.pad", f"pad_value has the shape {value.shape}, not one element",
            "Pass a number, or a value of one element.",
        )  # fmt: skip
    made: Expr = call("nn.pad", data, pad_width=tuple(width), pad_value=0.0)
    rank = len(data.shape)
    inside: Expr = const(np.ones((1,) * rank, bool))
    for axis, (before, after) in enumerate(width):
        there = np.pad(np.ones(data.shape[axis], bool), (before, after))
        inside = logical_and(inside, const(there.reshape((-1, *(1,) * (rank - 1 - axis)))))
    return where(inside, made, cast(as_shape(value, ()), data.dtype))


__all__ = [
    "attention", "batch_flatten", "batch_matmul", "batch_norm", "batch_to_space_nd", "bias_add",
    "deformable_conv2d", "dense", "depth_to_space", "dilate", "dropout", "fast_softmax",
    "group_norm", "instance_norm", "l2_normalize", "layer_norm", "leaky_relu", "log_softmax",
    "matmul", "mirror_pad", "nll_loss", "pad", "relu", "rms_norm", "softmax", "space_to_batch_nd",
    "space_to_depth", "standardize", *_activations, *_convolutions, *_pooling,
]  # fmt: skip
open_doors(globals(), __all__, ModelError, "relay.nn")
