"""ONNX nodes here and in onnxruntime.

In: `Node`s of `onnx_operators.py`.  Out: a model of one node for each, run by both.
Read next: `onnx_operators.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from drills.differential import onnx_windows  # noqa: F401  (adds operators)
from drills.differential.built import both_ways
from drills.differential.case import Case, NoAnswer, Refused, noted
from drills.differential.draw import Array, Draw
from drills.differential.known import earlier_onnxruntime
from drills.differential.onnx_operators import OPERATORS, Given, Node
from drills.differential.sides import Side
from tilewright_tvm import relay

ABSENT = ("NOT_IMPLEMENTED", "Could not find an implementation", "not support", "onsupported")
# messages of a peer that gave up, not of a standard
INNER = ("bad allocation", "SafeInt", "integer overflow")
ours_first = 9  # the version of models that both read


onnxruntime.set_default_logger_severity(4)


def model(node: Node) -> onnx.ModelProto:
    names = ["" if x is None else f"i{k}" for k, x in enumerate(node.inputs)]
    given = [(n, x) for n, x in zip(names, node.inputs, strict=True) if x is not None]
    outs = [f"o{k}" for k in range(node.outputs)]
    graph = helper.make_graph(
        [helper.make_node(node.op, names, outs, **node.attrs)], "g",
        [
            helper.make_tensor_value_info(
                n, helper.np_dtype_to_tensor_dtype(x.value.dtype), x.value.shape
            )
            for n, x in given if not x.constant
        ],
        [helper.make_empty_tensor_value_info(o) for o in outs],
        [numpy_helper.from_array(x.value, n) for n, x in given if x.constant],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", node.opset)])
    made.ir_version = ours_first
    return made


def _session(made: onnx.ModelProto) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(
        made.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def make(build: Any, draw: Draw) -> Case:
    node: Node = build(draw)
    given = [(k, x) for k, x in enumerate(node.inputs) if x is not None]
    smooth = [k for k, x in given if not x.fixed]

    def peer(data: Sequence[Array]) -> list[Array]:
        moved = dict(zip(smooth, data, strict=True))
        inputs = [
            x if x is None or k not in moved else Given(moved[k], x.constant)
            for k, x in enumerate(node.inputs)
        ]
        if (
            earlier_onnxruntime()
            and node.op == "TopK"
            and any(x and not x.value.size for x in inputs)
        ):
            raise NoAnswer("onnxruntime 1.30 dies of TopK of nothing")
        made = model(Node(node.op, inputs, node.attrs, node.outputs, node.opset))
        feeds = {f"i{k}": x.value for k, x in enumerate(inputs) if x is not None and not x.constant}
        try:
            return [np.asarray(v) for v in _session(made).run(None, feeds)]
        except Exception as error:
            if any(word in str(error) for word in (*ABSENT, *INNER)):
                raise NoAnswer(str(error)) from None
            raise Refused(str(error)) from None

    def imported() -> Any:
        return relay.frontend.from_onnx(model(node))

    feeds = {f"i{k}": x.value for k, x in given if not x.constant}
    shown = [
        "-" if x is None else f"{x.value.dtype}{list(x.value.shape)}"
        + (f"={x.value.reshape(-1)[:8].tolist()}" if x.fixed else "")
        for x in node.inputs
    ]  # fmt: skip
    notes = noted([x.value for _, x in given])
    text = f"{node.op}-{node.opset}({', '.join(shown)}) {node.attrs or ''}{notes}"
    data = [node.inputs[k].value for k in smooth]  # type: ignore[union-attr]
    return Case(text, data, peer, both_ways(imported, feeds, draw), node.strict, node.absolute)


SIDE = Side(
    {name: weight for name, (weight, _) in OPERATORS.items()},
    lambda name, draw: make(OPERATORS[name][1], draw),
)
