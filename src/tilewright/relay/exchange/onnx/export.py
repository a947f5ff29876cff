"""Export to ONNX, so that peers and references run the same network.

In: a module as it was built or imported, and its weights.  Out: an `onnx.ModelProto` (opset 17).
NHWC operators are written between transpositions, ONNX knows NCHW only.  Read next:
`export_window.py`, `writer.py`; `importer.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.relay.exchange.onnx import export_indexing
from tilewright.relay.exchange.onnx import export_window as window
from tilewright.relay.exchange.onnx.writer import Exporter
from tilewright.relay.exchange.onnx.writer import Writer as _Writer
from tilewright.relay.graph.expr import (
    Call,
    Expr,
    Function,
    IRModule,
    Tuple,
)
from tilewright.relay.op import TABLE
from tilewright.relay.op.reduction import reduced_axes

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET, IR_VERSION = 17, 8


def to_onnx(
    mod: IRModule | Function, params: Mapping[str, Any] | None = None, name: str = "main"
) -> ModelProto:
    """`mod` as an ONNX model; `params` (arrays by name) become its initializers.

    Raises ModelError for a fused module, and for an operator ONNX has no word for.
    """
    try:
        from onnx import checker, helper, numpy_helper
    except ImportError:
        raise ModelError(
            "to_onnx", "the package onnx is not installed", "pip install onnx"
        ) from None
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
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, producer_name="tilewright")
    model.ir_version = IR_VERSION
    checker.check_model(model)
    return model


def _info(helper: Any, name: str, value: Expr) -> Any:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    return helper.make_tensor_value_info(name, kind, value.shape)


class _Writer:
    """The nodes and initializers written so far, and the ONNX name of each value."""

    def __init__(self, params: dict[str, Any], function: Function) -> None:
        self.function = function
        self.params = {n: as_array(v) for n, v in params.items()}
        self.nodes: list[Any] = []
        self.arrays: dict[str, Array] = {}
        self.names: dict[Expr, Names] = {}
        self.taken = {p.name_hint for p in function.params}

    def run(self) -> list[str]:
        """Write the function; the names of its results."""
        for p in self.function.params:
            self.names[p] = p.name_hint
            if p.name_hint in self.params:
                self.arrays[p.name_hint] = self.params[p.name_hint]
        body = self.function.body
        for node in post_order(body):
            if node not in self.names:
                self.names[node] = self._write(node)
        found = self.names[body]
        finals = [found] if isinstance(found, str) else list(found)
        # a result must be the output of a node of its own
        return [self.op("Identity", f) for f in finals]

    def _write(self, node: Expr) -> Names:
        if isinstance(node, Constant):
            return self.array(node.data, "const")
        if isinstance(node, Tuple):
            return tuple(self.name(f) for f in node.fields)
        if isinstance(node, TupleGetItem):
            return self.names[node.tuple_value][node.index]
        assert isinstance(node, Call)
        if isinstance(node.op, Function):
            raise ModelError(
                "to_onnx", "the module is fused already", "Export it before relay.optimize."
            )
        return EXPORTERS[node.op.name](self, node)

    def name(self, value: Expr) -> str:
        found = self.names[value]
        assert isinstance(found, str)
        return found

    def fresh(self, base: str) -> str:
        k = 0
        while (name := f"{base}_{k}") in self.taken:
            k += 1
        self.taken.add(name)
        return name

    def array(self, value: Any, base: str, dtype: str | None = None) -> str:
        """The name of a new initializer."""
        name = self.fresh(base)
        self.arrays[name] = np.ascontiguousarray(value, dtype).reshape(np.shape(value))
        return name

    def ints(self, values: Any, base: str) -> str:
        return self.array(np.asarray(values, "int64"), base)

    def op(self, onnx_op: str, *inputs: str, **attrs: Any) -> str:
        """Write one node with one result; attributes that are None are left out."""
        return self.ops(onnx_op, 1, *inputs, **attrs)[0]

    def ops(self, onnx_op: str, results: int, *inputs: str, **attrs: Any) -> list[str]:
        """Write one node; the names of its results."""
        from onnx import helper

        outputs = [self.fresh(onnx_op.lower()) for _ in range(results)]
        given = {k: v for k, v in attrs.items() if v is not None}
        self.nodes.append(
            helper.make_node(onnx_op, list(inputs), outputs, name=outputs[0], **given)
        )
        return outputs

    def cast(self, name: str, dtype: str) -> str:
        from onnx import helper

        return self.op("Cast", name, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def transposed(self, name: str, source: str, wanted: str) -> str:
        """`name`, whose axes are the letters of `source`, in the order `wanted`."""
        return (
            name
            if source == wanted
            else self.op("Transpose", name, perm=[source.index(a) for a in wanted])
        )


Exporter = Callable[[_Writer, Call], Names]


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
            "Apply relay.passes.simplify_inference first.",
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
        x = w.op("Sub", x, w.op("ReduceMean", x, axes=axes, keepdims=1))
    variance = w.op("ReduceMean", w.op("Mul", x, x), axes=axes, keepdims=1)
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
    limits = [
        w.array(np.asarray(v, node.dtype), "limit") if np.isfinite(v) else ""
        for v in (node.attrs.a_min, node.attrs.a_max)
    ]
    return w.op("Clip", w.name(node.args[0]), *limits)


def _cast(w: _Writer, node: Call) -> str:
    return w.cast(w.name(node.args[0]), node.dtype)


def _reduce(w: _Writer, node: Call) -> str:
    a, data = node.attrs, w.name(node.args[0])
    axes = list(reduced_axes(a.axis, a.exclude, len(node.args[0].shape)))
    onnx_op = TABLE[node.op.name].onnx[0]  # type: ignore[union-attr]
    if not axes:
        return w.op("Identity", data)
    if onnx_op == "ReduceSum":  # its axes became an input before the others'
        return w.op(onnx_op, data, w.ints(axes, "axes"), keepdims=int(a.keepdims))
    return w.op(onnx_op, data, axes=axes, keepdims=int(a.keepdims))


def _reshape(w: _Writer, node: Call) -> str:
    return w.op("Reshape", w.name(node.args[0]), w.ints(node.shape, "shape"))


def _pad(w: _Writer, node: Call) -> str:
    before, after = zip(*node.attrs.pad_width, strict=True)
    value = w.array(np.asarray(node.attrs.pad_value, node.dtype), "value")
    return w.op("Pad", w.name(node.args[0]), w.ints([*before, *after], "pads"), value)


def _concatenate(w: _Writer, node: Call) -> str:
    parts = w.names[node.args[0]]
    return w.op("Concat", *parts, axis=node.attrs.axis)


EXPORTERS: dict[str, Exporter] = {
    **{r.name: _plain for r in TABLE.values() if r.onnx and not r.attrs},
    **export_indexing.EXPORTERS,
    "cast": _cast,
    "clip": _clip,
    "concatenate": _concatenate,
    "broadcast_to": lambda w, n: w.op("Expand", w.name(n.args[0]), w.ints(n.shape, "shape")),
    "expand_dims": _reshape,
    "nn.batch_matmul": _batch_matmul,
    "nn.batch_norm": _batch_norm,
    "nn.bias_add": _bias_add,
    "nn.dense": lambda w, n: w.op("Gemm", *map(w.name, n.args), transB=1),
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
