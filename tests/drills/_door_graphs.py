"""Right arguments for the doors of patterns and texts of graphs: rows of `_door_arguments.py`."""

from __future__ import annotations

from typing import Any

from tilewright_tvm import relay
from tilewright_tvm.relay import dataflow_pattern as dfp
from tilewright_tvm.relay.prelude import Prelude


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
    "Let": dict.fromkeys(("var", "value", "body"), _adds),
    "Shape": {"pattern": _adds, "shape": [2]},
    "TupleGetItem": {"tuple_value": _adds},
    "Tuple": {"fields": lambda: [_adds()]},
    "Type": {"pattern": _adds, "ttype": lambda: relay.TensorType((2,))},
}


def _shape() -> relay.GlobalTypeVar:
    return relay.GlobalTypeVar("shape")


def _circle(of: relay.GlobalTypeVar | None = None) -> relay.Constructor:
    return relay.Constructor("Circle", [relay.TensorType((2,))], of or _shape())


def _clause() -> relay.Clause:
    return relay.Clause(relay.PatternWildcard(), relay.const(1.0))


def _nil() -> Any:
    return Prelude().mod.get_type("List")[2]


_HEADER = _shape()
_FUNCTIONAL: dict[str, dict[str, Any]] = {
    "Clause": {"lhs": relay.PatternWildcard, "rhs": _pair},
    "Constructor": {
        "name_hint": "Circle", "inputs": lambda: [relay.TensorType((2,))], "belong_to": _shape,
    },
    "GlobalTypeVar": {"name_hint": "shape"},
    "Match": {"data": _pair, "clauses": lambda: [_clause()]},
    "PatternConstructor": {
        "constructor": _circle, "patterns": lambda: [relay.PatternWildcard()],
    },
    "PatternTuple": {"patterns": lambda: [relay.PatternWildcard()]},
    "PatternVar": {"var": lambda: relay.var("x", shape=(2,))},
    "RefCreate": {"value": _pair},
    "RefRead": {"ref": _pair},
    "RefType": {"value": lambda: relay.TensorType((2,))},
    "RefWrite": {"ref": _pair, "value": _pair},
    "TypeCall": {"func": _shape, "args": list},
    "TypeData": {
        "header": lambda: _HEADER, "type_vars": list,
        "constructors": lambda: [_circle(_HEADER)],
    },
    "TypeVar": {"name": "a"},
}  # fmt: skip

GRAPHS: dict[str, dict[str, Any]] = {
    **{f"relay.{kind} relay.adt.{kind}": row for kind, row in _FUNCTIONAL.items()},
    "relay.If": {"true_branch": _pair, "false_branch": _pair},
    "relay.Span": {
        "source_name": lambda: relay.SourceName("net"),
        **dict.fromkeys(("line", "end_line", "column", "end_column"), 1),
    },
    "relay.analysis.CallGraph": {"module": lambda: relay.IRModule.from_expr(_pair())},
    "relay.transform.MergeComposite": {"pattern_table": lambda: [("own.add", _adds())]},
    "relay.analysis.unmatched_cases": {
        "match": lambda: relay.Match(_pair(), [_clause()])
    },
    "relay.backend.interpreter.ConstructorValue": {
        "tag": 1, "fields": list, "constructor": _nil,
    },
    "relay.prelude.StaticTensorArrayOps relay.prelude.TensorArrayOps": {
        "prelude": Prelude, "dtype": "float32",
    },
    "relay.prelude.StaticTensorArrayOps": {"shape": [2, 3]},
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
    "relay.dataflow_pattern.is_let": dict.fromkeys(("var", "value", "body"), _adds),
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
    "relay.transform.recast": {"expr": _pair, "dtype": "int8", "out_dtype": "int32"},
}  # fmt: skip
