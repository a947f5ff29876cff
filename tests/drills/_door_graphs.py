"""Right arguments for the doors of patterns and texts of graphs: rows of `_door_arguments.py`."""

from __future__ import annotations

from typing import Any

from tilewright import relay
from tilewright.relay import dataflow_pattern as dfp


def _pair() -> relay.Expr:
    return relay.var("x", shape=(2,)) + relay.var("y", shape=(2,))


def _image(channels: int, size: int) -> relay.Expr:
    return relay.var("image", shape=(1, channels, size, size))


def _adds() -> dfp.DFPattern:
    return dfp.is_op("add")(None)


class _Twice(dfp.DFPatternCallback):
    pattern = dfp.is_op("exp")(None)


# Of the classes of patterns, which hold what they are given.
_CLASSES: dict[str, dict[str, Any]] = {
    "Alt": {"left": _adds, "right": _adds},
    "Attr": {"pattern": _adds, "attrs": dict},
    "Call": {"op": _adds, "args": lambda: [_adds()]},
    "DataType": {"pattern": _adds, "dtype": "float32"},
    "Dominator": dict.fromkeys(("parent", "path", "child"), _adds),
    "Expr": {"expr": _pair},
    "Function": {"params": lambda: [_adds()], "body": _adds},
    "If": dict.fromkeys(("cond", "true_branch", "false_branch"), _adds),
    "Shape": {"pattern": _adds, "shape": [2]},
    "TupleGetItem": {"tuple_value": _adds},
    "Tuple": {"fields": lambda: [_adds()]},
    "Type": {"pattern": _adds, "ttype": lambda: relay.TensorType((2,))},
}

GRAPHS: dict[str, dict[str, Any]] = {
    **{f"relay.dataflow_pattern.{kind}Pattern": row for kind, row in _CLASSES.items()},
    "relay.parse relay.fromtext relay.parse_expr relay.parser.parse relay.parser.fromtext "
    "relay.parser.parse_expr": {"source": "fn (%x: float32) { %x }"},
    "relay.transform.gradient": {"expr": lambda: relay.Function((f := _pair()).args, f)},
    "relay.nn.max_pool2d_grad relay.nn.avg_pool2d_grad": {
        "out_grad": lambda: _image(4, 4), "data": lambda: _image(4, 8), "pool_size": 2,
        "strides": 2, "padding": 0,
    },
    "relay.nn.conv2d_backward_weight": {
        "grad": lambda: _image(6, 6), "data": lambda: _image(4, 8), "kernel_size": 3,
    },
    "relay.dataflow_pattern.is_op": {"op_name": "add"},
    "relay.dataflow_pattern.is_expr": {"expr": _pair},
    "relay.dataflow_pattern.is_tuple": {"fields": lambda: [_adds()]},
    "relay.dataflow_pattern.is_tuple_get_item": {"tuple_value": _adds},
    "relay.dataflow_pattern.is_if": dict.fromkeys(("cond", "true_branch", "false_branch"), _adds),
    "relay.dataflow_pattern.has_attr": {"attrs": dict},
    "relay.dataflow_pattern.has_type": {"ttype": lambda: relay.TensorType((2,))},
    "relay.dataflow_pattern.has_dtype": {"dtype": "float32"},
    "relay.dataflow_pattern.has_shape": {"shape": [2]},
    "relay.dataflow_pattern.dominates": dict.fromkeys(("parent", "path", "child"), _adds),
    "relay.dataflow_pattern.match": {"pattern": _adds, "expr": _pair},
    "relay.dataflow_pattern.rewrite": {"callbacks": _Twice, "expr": _pair},
    "relay.dataflow_pattern.partition": {
        "pattern": _adds, "expr": _pair, "attrs": dict, "check": lambda: lambda node: True,
    },
}  # fmt: skip
