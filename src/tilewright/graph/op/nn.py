"""Rows of the operators of neural networks: matrix products, normalisation, softmax.

In: tensors; attributes as `graph/functions/nn.py` normalises them.  Out: rows for `op/__init__.py`.
Read next: `conv.py`, `pooling.py`; `graph/functions/nn.py`, what users call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.graph.expr import Array, Attrs, TensorType, TupleType, Type
from tilewright.graph.op import window
from tilewright.graph.op.row import Op, Pattern, Site, first_array


def _dense_type(site: Site) -> Type:
    data, weight = site.tensor(0, 2, "[batch, features]"), site.tensor(1, 2, "[units, features]")
    site.require(
        data.shape[1] == weight.shape[1],
        f"data has {data.shape[1]} features, the weight takes {weight.shape[1]}",
        "The weight is [units, features]; transpose it if it is stored the other way.",
    )
    return TensorType((data.shape[0], weight.shape[0]), site.product_dtype())


def _dense_numpy(arrays: Sequence[Any], a: Attrs) -> Array:
    data, weight = window.summands(a, *arrays)
    return np.asarray(data @ weight.T)


def _batch_matmul_type(site: Site) -> Type:
    a, b = site.tensor(0, 3, "[batch, rows, columns]"), site.tensor(1, 3, "[batch, rows, columns]")
    rows, inner = reversed(a.shape[1:]) if site.attrs.transpose_a else a.shape[1:]
    inner_b, columns = reversed(b.shape[1:]) if site.attrs.transpose_b else b.shape[1:]
    site.require(
        inner == inner_b, f"the reduced extents differ: {inner} and {inner_b}",
        "Check which operand is stored transposed: transpose_b=True is the default.",
    )  # fmt: skip
    batches = {a.shape[0], b.shape[0]} - {1}
    site.require(
        len(batches) <= 1, f"batches of {a.shape[0]} and {b.shape[0]}",
        "They must be equal, or one of them 1.",
    )  # fmt: skip
    return TensorType((max(a.shape[0], b.shape[0]), rows, columns), site.product_dtype())


def _batch_matmul_numpy(arrays: Sequence[Any], a: Attrs) -> Array:
    left, right = window.summands(a, *arrays)
    product: Array = np.matmul(
        np.swapaxes(left, 1, 2) if a.transpose_a else left,
        np.swapaxes(right, 1, 2) if a.transpose_b else right,
    )
    return product


def channel_vectors(site: Site, names: Sequence[int], axis: int) -> TensorType:
    """The type of the data; its other arguments `names` must be vectors along `axis`."""
    data = site.tensor(0)
    k = site.axis(axis, len(data.shape))
    for index in names:
        found = site.tensor(index).shape
        site.require(
            found == (data.shape[k],),
            f"{site.op.inputs[index]} has shape {found}, "
            f"axis {axis} of the data has {data.shape[k]} elements",
            f"Give a vector of {data.shape[k]}, or name the channel axis with axis=.",
        )
    site.same_dtype()
    return data


def _along(vector: Array, axis: int, rank: int) -> Array:
    return vector.reshape([-1 if k == axis % rank else 1 for k in range(rank)])


def _bias_add_numpy(arrays: Sequence[Any], a: Attrs) -> Array:
    x = first_array(arrays)
    return x + _along(arrays[1], a.axis, x.ndim)


def _batch_norm_type(site: Site) -> Type:
    data = channel_vectors(site, (1, 2, 3, 4), site.attrs.axis)
    site.float_dtype()
    vector = site.tensor(3)
    return TupleType((data, vector, vector))


def _batch_norm_numpy(arrays: Sequence[Any], a: Attrs) -> Any:
    x, gamma, beta, mean, var = arrays
    scale = 1 / np.sqrt(var + var.dtype.type(a.epsilon))
    scale = scale * gamma if a.scale else scale
    result = (x - _along(mean, a.axis, x.ndim)) * _along(scale, a.axis, x.ndim)
    return (result + _along(beta, a.axis, x.ndim) if a.center else result), mean, var


def _batch_norm_te(tensors: Sequence[Any], a: Attrs, result: Type) -> Any:
    data, gamma, beta, mean, var = tensors
    return topi.nn.batch_norm(
        data, gamma, beta, mean, var, axis=a.axis, epsilon=a.epsilon, center=a.center, scale=a.scale
    )


def _softmax_type(site: Site) -> Type:
    data = site.tensor(0)
    site.float_dtype()
    site.axis(site.attrs.axis, len(data.shape))
    return data


def _softmax_numpy(arrays: Sequence[Any], a: Attrs) -> Array:
    x = first_array(arrays)
    e = np.exp(x - x.max(a.axis, keepdims=True, initial=-np.inf))
    return np.asarray(e / e.sum(a.axis, keepdims=True))


def _log_softmax_numpy(arrays: Sequence[Any], a: Attrs) -> Array:
    x = first_array(arrays)
    shifted = x - x.max(a.axis, keepdims=True, initial=-np.inf)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(a.axis, keepdims=True)))


ROWS = (
    Op(
        "nn.dense", ("data", "weight"), Pattern.ANCHOR, _dense_type,
        _dense_numpy,
        lambda t, a, result: topi.nn.dense(t[0], t[1], out_dtype=a.out_dtype or None),
        "data [batch, features] times the transpose of weight [units, features].",
        {"out_dtype": ""}, ("Gemm", "MatMul"),
        follows=lambda types, a: {"units": types[1].shape[0]},
    ),
    Op(
        "nn.batch_matmul", ("tensor_a", "tensor_b"), Pattern.ANCHOR, _batch_matmul_type,
        _batch_matmul_numpy,
        lambda t, a, result: topi.nn.batch_matmul(
            t[0], t[1], a.out_dtype or None, a.transpose_a, a.transpose_b
        ),
        "A product of matrices for each element of a batch; the second is stored transposed.",
        {"transpose_a": False, "transpose_b": True, "out_dtype": ""}, ("MatMul",),
    ),
    Op(
        "nn.bias_add", ("data", "bias"), Pattern.BROADCAST,
        lambda site: channel_vectors(site, (1,), site.attrs.axis), _bias_add_numpy,
        lambda t, a, result: topi.nn.bias_add(t[0], t[1], a.axis),
        "data plus a vector along `axis`.", {"axis": 1}, ("Add",),
    ),
    Op(
        "nn.batch_norm", ("data", "gamma", "beta", "moving_mean", "moving_var"), Pattern.BROADCAST,
        _batch_norm_type, _batch_norm_numpy, _batch_norm_te,
        "(data - mean) / sqrt(var + epsilon) * gamma + beta, with stored statistics.",
        {"axis": 1, "epsilon": 1e-5, "center": True, "scale": True}, ("BatchNormalization",),
    ),
    Op(
        "nn.softmax", ("data",), Pattern.OPAQUE, _softmax_type, _softmax_numpy,
        lambda t, a, result: topi.nn.softmax(t[0], a.axis),
        "exp(data) over its sum along `axis`.", {"axis": -1}, ("Softmax",),
    ),
    Op(
        "nn.log_softmax", ("data",), Pattern.OPAQUE, _softmax_type, _log_softmax_numpy,
        lambda t, a, result: topi.nn.log_softmax(t[0], a.axis),
        "Logarithm of softmax along `axis`.", {"axis": -1}, ("LogSoftmax",),
    ),
)  # fmt: skip
