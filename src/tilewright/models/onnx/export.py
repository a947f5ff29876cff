"""Export to ONNX, so that peers and references run the same network.

In: a module as it was built or imported, and its weights.  Out: an `onnx.ModelProto` (opset 18,
or a newer one that an operator needs).
NHWC operators are written between transpositions, ONNX knows NCHW only.  Read next:
`export_elementwise.py`, `export_window.py`, `writer.py`; `importer.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call, Expr, Function, IRModule, Tuple
from tilewright.graph.op import TABLE, narrow, regions
from tilewright.graph.op.reduction import reduced_axes
from tilewright.models.onnx import export_elementwise as elementwise
from tilewright.models.onnx import export_indexing as indexing
from tilewright.models.onnx import export_window as window
from tilewright.models.onnx.load import INSTALL
from tilewright.models.onnx.writer import Exporter
from tilewright.models.onnx.writer import Writer as _Writer
from tilewright.topi.elementwise import limits

if TYPE_CHECKING:
    from onnx import ModelProto

IR_VERSION = 8


def to_onnx(
    mod: IRModule | Function, params: Mapping[str, Any] | None = None, name: str = "main"
) -> ModelProto:
    """`mod` as an ONNX model; `params` (arrays by name) become its initializers.

    Raises ModelError for a fused module, and for an operator ONNX has no word for.
    """
    try:
        from onnx import checker, helper, numpy_helper
    except ImportError:
        raise ModelError("to_onnx", "the package onnx is not installed", INSTALL) from None
    if not name:
        raise ModelError("to_onnx(name='')", "a graph needs a name", 'Use name="main".')
    function = mod["main"] if isinstance(mod, IRModule) else mod
    writer = _Writer(dict(params or {}), function, EXPORTERS)
    outputs = writer.run()
    inputs = [
        _info(helper, p.name_hint, p) for p in function.params if p.name_hint not in writer.params
    ]
    results = function.body.fields if isinstance(function.body, Tuple) else (function.body,)
    graph = helper.make_graph(
        writer.nodes, name, inputs,
        [_info(helper, n, r) for n, r in zip(outputs, results, strict=True)],
        [numpy_helper.from_array(a, n) for n, a in writer.arrays.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", writer.opset)]
    model = helper.make_model(graph, opset_imports=opsets, producer_name="tilewright")
    model.ir_version = IR_VERSION
    checker.check_model(model)
    return model


def _info(helper: Any, name: str, value: Expr) -> Any:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    return helper.make_tensor_value_info(name, kind, value.shape)


def _plain(w: _Writer, node: Call) -> str:
    """An operator that ONNX has under the first name of its row."""
    return w.op(TABLE[node.op.name].onnx[0], *map(w.name, node.args))  # type: ignore[union-attr]


def _batch_norm(w: _Writer, node: Call) -> tuple[str, ...]:
    a, data = node.attrs, node.args[0]
    rank, axis = len(data.shape), node.attrs.axis % len(data.shape)
    gamma, beta, mean, var = (w.name(v) for v in node.args[1:])
    channels = data.shape[axis]
    gamma = gamma if a.scale else w.array(np.ones(channels, data.dtype), "ones")
    beta = beta if a.center else w.array(np.zeros(channels, data.dtype), "zeros")
    order = [0, axis, *(k for k in range(1, rank) if k != axis)]
    if axis == 0:
        raise ModelError(
            "to_onnx: nn.batch_norm(axis=0)", "ONNX normalises along axis 1 of a batch",
            "Apply graph.passes.simplify_inference first.",
        )  # fmt: skip
    moved = axis != 1
    x = w.op("Transpose", w.name(data), perm=order) if moved else w.name(data)
    made = w.op("BatchNormalization", x, gamma, beta, mean, var, epsilon=a.epsilon)
    if moved:
        made = w.op("Transpose", made, perm=[order.index(k) for k in range(rank)])
    return made, mean, var


def _batch_matmul(w: _Writer, node: Call) -> str:
    operands = [
        w.op("Transpose", w.name(value), perm=[0, 2, 1]) if transposed else w.name(value)
        for value, transposed in zip(
            node.args, (node.attrs.transpose_a, node.attrs.transpose_b), strict=True
        )
    ]
    return w.op("MatMul", *operands)


def _standardize(w: _Writer, node: Call) -> str:
    a, data = node.attrs, node.args[0]
    rank, x = len(data.shape), w.name(data)
    axes = sorted(k % rank for k in a.axis)
    if a.center and axes == list(range(axes[0], rank)):
        ones = w.array(np.ones(data.shape[axes[0] :], data.dtype), "ones")
        return w.op("LayerNormalization", x, ones, axis=axes[0], epsilon=a.epsilon)
    if a.center:
        x = w.op("Sub", x, w.op("ReduceMean", x, w.ints(axes, "axes"), keepdims=1))
    variance = w.op("ReduceMean", w.op("Mul", x, x), w.ints(axes, "axes"), keepdims=1)
    epsilon = w.array(np.asarray(a.epsilon, data.dtype), "epsilon")
    return w.op("Div", x, w.op("Sqrt", w.op("Add", variance, epsilon)))


def _bias_add(w: _Writer, node: Call) -> str:
    data, bias = node.args
    rank = len(data.shape)
    behind = rank - 1 - node.attrs.axis % rank
    name = w.name(bias)
    if behind:
        name = w.op("Reshape", name, w.ints([-1] + [1] * behind, "shape"))
    return w.op("Add", w.name(data), name)


def _clip(w: _Writer, node: Call) -> str:
    ends = [
        w.array(np.asarray(v, node.dtype), "limit") if np.isfinite(v) else ""
        for v in limits(node.dtype, node.attrs.a_min, node.attrs.a_max)
    ]
    return w.op("Clip", w.name(node.args[0]), *ends)


def _cast(w: _Writer, node: Call) -> str:
    return w.cast(w.name(node.args[0]), node.dtype)


def _reduce(w: _Writer, node: Call) -> str:
    a, data = node.attrs, w.name(node.args[0])
    axes = list(reduced_axes(a.axis, a.exclude, len(node.args[0].shape)))
    onnx_op = TABLE[node.op.name].onnx[0]  # type: ignore[union-attr]
    if not axes:
        return w.op("Identity", data)
    return w.op(onnx_op, data, w.ints(axes, "axes"), keepdims=int(a.keepdims))


def _reshape(w: _Writer, node: Call) -> str:
    return w.op("Reshape", w.name(node.args[0]), w.ints(node.shape, "shape"))


def _pad(w: _Writer, node: Call) -> str:
    before, after = zip(*node.attrs.pad_width, strict=True)
    value = w.array(np.asarray(node.attrs.pad_value, node.dtype), "value")
    return w.op("Pad", w.name(node.args[0]), w.ints([*before, *after], "pads"), value)


def _concatenate(w: _Writer, node: Call) -> str:
    parts = w.names[node.args[0]]
    return w.op("Concat", *parts, axis=node.attrs.axis)


def refused(w: _Writer, node: Call) -> str:
    """Say that there is no such operator in ONNX."""
    name = getattr(node.op, "name", "")
    raise ModelError(
        f"to_onnx: {name}", "ONNX has no operator for it",
        "Export the network as it is before it, and behind it.",
    )  # fmt: skip


EXPORTERS: dict[str, Exporter] = {
    **{r.name: refused for r in (*regions.ROWS, *narrow.ROWS)},
    **{r.name: _plain for r in TABLE.values() if r.onnx and not r.attrs},
    **indexing.EXPORTERS,
    **elementwise.EXPORTERS,
    "cast": _cast,
    "clip": _clip,
    "concatenate": _concatenate,
    "broadcast_to": lambda w, n: w.op("Expand", w.name(n.args[0]), w.ints(n.shape, "shape")),
    "expand_dims": _reshape,
    "nn.batch_matmul": _batch_matmul,
    "nn.batch_norm": _batch_norm,
    "nn.bias_add": _bias_add,
    "nn.dense": lambda w, n: w.op("Gemm", *map(w.name, n.args), transB=1),
    "annotation.checkpoint": lambda w, n: w.op("Identity", w.name(n.args[0])),
    "nn.dropout": lambda w, n: w.op("Identity", w.name(n.args[0])),
    "nn.leaky_relu": lambda w, n: w.op("LeakyRelu", w.name(n.args[0]), alpha=n.attrs.alpha),
    "nn.log_softmax": lambda w, n: w.op("LogSoftmax", w.name(n.args[0]), axis=n.attrs.axis),
    "nn.pad": _pad,
    "nn.standardize": _standardize,
    "nn.softmax": lambda w, n: w.op("Softmax", w.name(n.args[0]), axis=n.attrs.axis),
    "reshape": _reshape,
    "rsqrt": lambda w, n: w.op("Reciprocal", w.op("Sqrt", w.name(n.args[0]))),
    "squeeze": _reshape,
    "transpose": lambda w, n: w.op("Transpose", w.name(n.args[0]), perm=list(n.attrs.axes)),
    **window.EXPORTERS,
    **{name: _reduce for name in ("sum", "mean", "max", "min", "prod")},
}
