"""Rows of the operators of neural networks: contractions, pooling, normalisation, softmax.

In: tensors; attributes as `relay/nn.py` normalises them (pairs, four sides of padding).  Out: rows
for `op/__init__.py`.  Read next: `relay/nn.py`, what users call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.relay.graph.expr import Array, Attrs, TensorType, TupleType, Type
from tilewright.relay.op import window
from tilewright.relay.op.row import Op, Pattern, Site, first_array

WINDOW = {"strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1)}


def _layout(site: Site, layout: str) -> str:
    site.require(
        layout in window.LAYOUTS,
        f"layout {layout!r} is not known",
        f"Use {' or '.join(window.LAYOUTS)}.",
    )
    return layout


def _conv2d_type(site: Site) -> Type:
    a = site.attrs
    layout = _layout(site, a.data_layout)
    site.require(
        sorted(a.kernel_layout) == list("HIOW"), f"kernel layout {a.kernel_layout!r} is not known",
        "Use an order of the letters O, I, H, W.",
    )  # fmt: skip
    data, weight = site.tensor(0, 4, layout), site.tensor(1, 4, a.kernel_layout)
    d = dict(zip(layout, data.shape, strict=True))
    w = dict(zip(a.kernel_layout, weight.shape, strict=True))
    site.require(a.groups >= 1, f"groups is {a.groups}", "Use 1, or a divisor of the channels.")
    site.require(
        d["C"] == w["I"] * a.groups,
        f"data has {d['C']} channels, the weight takes {w['I']} x {a.groups} groups",
        f"With this data the weight's extent at I must be {d['C'] / a.groups:g}.",
    )
    site.require(
        w["O"] % a.groups == 0,
        f"{w['O']} output channels do not fall into {a.groups} groups",
        "Use a divisor of the channels.",
    )
    d["H"], d["W"] = window.image_size(site, d["H"], d["W"], (w["H"], w["W"]))
    d["C"] = w["O"]
    return TensorType(tuple(d[x] for x in layout), site.product_dtype())


def _conv2d_te(tensors: Sequence[Any], a: Attrs, result: Type) -> Any:
    data, weight = tensors
    depthwise = {"NCHW": "OIHW", "NHWC": "HWOI"}[a.data_layout]
    channels = data.shape[a.data_layout.index("C")]
    plain = a.kernel_layout == depthwise and weight.shape[depthwise.index("O")] == channels
    out_dtype = a.out_dtype or None
    if 1 < a.groups == channels and plain:
        function = getattr(topi.nn, f"depthwise_conv2d_{a.data_layout.lower()}")
        return function(data, weight, a.strides, a.padding, a.dilation, out_dtype=out_dtype)
    return topi.nn.conv2d(
        data, weight, a.strides, a.padding, a.dilation, data_layout=a.data_layout,
        kernel_layout=a.kernel_layout, groups=a.groups, out_dtype=out_dtype,
    )  # fmt: skip


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


def _avg_pool_type(site: Site) -> Type:
    site.float_dtype()
    return _pool_type(site)


def _pool_type(site: Site) -> Type:
    a = site.attrs
    data = site.tensor(0, 4, _layout(site, a.layout))
    d = dict(zip(a.layout, data.shape, strict=True))
    reach = [(k - 1) * s + 1 for k, s in zip(a.pool_size, a.dilation, strict=True)]
    top, left, bottom, right = a.padding
    site.require(
        max(top, bottom) < reach[0] and max(left, right) < reach[1],
        f"with padding {a.padding} a window of {tuple(reach)} can lie wholly outside",
        "Pad by less.",
    )  # fmt: skip
    d["H"], d["W"] = window.image_size(site, d["H"], d["W"], a.pool_size)
    return TensorType(tuple(d[x] for x in a.layout), site.number_dtype())


def _pool_te(kind: str) -> Any:
    def compute(tensors: Sequence[Any], a: Attrs, result: Type) -> Any:
        return topi.nn.pool2d(
            tensors[0], a.pool_size, a.strides, a.dilation, a.padding, kind, layout=a.layout,
            count_include_pad=a.get("count_include_pad", True),
        )  # fmt: skip

    return compute


def _resized(site: Site, size: tuple[int, int]) -> Type:
    layout = _layout(site, site.attrs.layout)
    data = site.tensor(0, 4, layout)
    site.float_dtype()
    d = dict(zip(layout, data.shape, strict=True))
    d["H"], d["W"] = size
    return TensorType(tuple(d[x] for x in layout), data.dtype)


def _adaptive_type(site: Site) -> Type:
    size = tuple(site.attrs.output_size)
    site.require(
        len(size) == 2 and min(size) >= 1,
        f"output_size {size} is not a pair of sizes",
        "Use output_size=(1, 1), or larger.",
    )
    return _resized(site, (size[0], size[1]))


def _global_numpy(kind: str) -> Any:
    def evaluate(arrays: Sequence[Any], a: Attrs) -> Array:
        axes = (a.layout.index("H"), a.layout.index("W"))
        return np.asarray(getattr(np, kind)(arrays[0], axis=axes, keepdims=True), arrays[0].dtype)

    return evaluate


def _global(name: str, kind: str, te_kind: str, doc: str, onnx: str) -> Op:
    return Op(
        name, ("data",), Pattern.ANCHOR, lambda site: _resized(site, (1, 1)), _global_numpy(kind),
        lambda t, a, result: topi.nn.global_pool(t[0], te_kind, a.layout), doc,
        {"layout": "NCHW"}, (onnx,),
    )  # fmt: skip


def _softmax_type(site: Site) -> Type:
    data = site.tensor(0)
    site.float_dtype()
    site.axis(site.attrs.axis, len(data.shape))
    return data


def _softmax_numpy(arrays: Sequence[Any], a: Attrs) -> Array:
    x = first_array(arrays)
    e = np.exp(x - x.max(a.axis, keepdims=True))
    return np.asarray(e / e.sum(a.axis, keepdims=True))


def _log_softmax_numpy(arrays: Sequence[Any], a: Attrs) -> Array:
    x = first_array(arrays)
    shifted = x - x.max(a.axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(a.axis, keepdims=True)))


ROWS = (
    Op(
        "nn.conv2d", ("data", "weight"), Pattern.ANCHOR, _conv2d_type, window.conv2d, _conv2d_te,
        "Two-dimensional convolution; groups equal to the channels make it depthwise.",
        {**WINDOW, "groups": 1, "data_layout": "NCHW", "kernel_layout": "OIHW", "out_dtype": ""},
        ("Conv",),
    ),
    Op(
        "nn.dense", ("data", "weight"), Pattern.ANCHOR, _dense_type,
        _dense_numpy,
        lambda t, a, result: topi.nn.dense(t[0], t[1], out_dtype=a.out_dtype or None),
        "data [batch, features] times the transpose of weight [units, features].",
        {"out_dtype": ""}, ("Gemm", "MatMul"),
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
        "nn.max_pool2d", ("data",), Pattern.ANCHOR, _pool_type, window.max_pool2d, _pool_te("max"),
        "Greatest element of each window.",
        {"pool_size": (1, 1), **WINDOW, "layout": "NCHW"}, ("MaxPool",),
    ),
    Op(
        "nn.avg_pool2d", ("data",), Pattern.ANCHOR, _avg_pool_type, window.avg_pool2d,
        _pool_te("avg"),
        "Mean of each window; count_include_pad: padding counts as elements.",
        {"pool_size": (1, 1), **WINDOW, "layout": "NCHW", "count_include_pad": False},
        ("AveragePool",),
    ),
    _global("nn.global_avg_pool2d", "mean", "avg", "Mean of each image.", "GlobalAveragePool"),
    _global(
        "nn.global_max_pool2d", "max", "max", "Greatest element of each image.", "GlobalMaxPool"
    ),
    Op(
        "nn.adaptive_avg_pool2d", ("data",), Pattern.ANCHOR, _adaptive_type,
        window.adaptive_avg_pool2d,
        lambda t, a, result: topi.nn.adaptive_pool(t[0], a.output_size, "avg", a.layout),
        "Mean over as many windows as `output_size` asks for.",
        {"output_size": (1, 1), "layout": "NCHW"},
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
