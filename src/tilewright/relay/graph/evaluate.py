"""The reference: a graph computed by numpy, one operator at a time, sharing no code with lowering.

In: a function or module and arrays by parameter name.  Out: arrays; in float64 if asked for.  It is
the oracle of the passes and of import, and what folds constants.  Read next: `op/row.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.base.dtype import DType
from tilewright.base.errors import ModelError
from tilewright.relay.graph.expr import (
    Array,
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
    as_array,
)
from tilewright.relay.graph.traversal import children, free_vars, post_order

Value = Any  # an array, or a tuple of values
Observer = Callable[[Expr, Value], None]


def evaluate(
    graph: Expr | IRModule,
    inputs: Mapping[str, Any] | None = None,
    dtype: str | None = None,
    observe: Observer | None = None,
) -> Value:
    """The value of `graph` (of its "main" if it is a module) for `inputs`.

    inputs:  one array for every parameter or free variable, by name; extra ones are ignored
    dtype:   "float32" or "float64" computes every floating-point value in that type
    observe: called with each node and its value, in order
    Raises ModelError for a missing input or one of the wrong shape.
    """
    root = graph["main"] if isinstance(graph, IRModule) else graph
    body = root.body if isinstance(root, Function) else root
    variables = root.params if isinstance(root, Function) else free_vars(body)
    given = dict(inputs or {})
    if missing := [v.name_hint for v in variables if v.name_hint not in given]:
        raise ModelError(
            "evaluate", f"no value is given for {', '.join(missing)}", "Add it to inputs, by name."
        )
    bound = {v: _fitting(given[v.name_hint], v) for v in variables}
    if dtype is not None:
        bound = {v: _as(a, dtype) for v, a in bound.items()}
    return _run(body, bound, dtype, observe)


def evaluate_call(op: Any, args: Sequence[Value], attrs: Any) -> Value:
    """One operator or fused function on values."""
    if isinstance(op, Function):
        return _run(op.body, dict(zip(op.params, args, strict=True)), None, None)
    return op.numpy(args, attrs)


def _run(
    body: Expr, bound: Mapping[Var, Value], dtype: str | None, observe: Observer | None
) -> Value:
    nodes = post_order(body)
    last_use = {c: k for k, node in enumerate(nodes) for c in children(node)}
    values: dict[Expr, Value] = {}
    for k, node in enumerate(nodes):
        values[node] = _value(node, values, bound, dtype)
        if observe is not None:
            observe(node, values[node])
        for child in set(children(node)):
            if last_use[child] == k and child is not body:
                del values[child]  # large networks would not fit otherwise
    return values[body]


def _value(
    node: Expr, values: Mapping[Expr, Value], bound: Mapping[Var, Value], dtype: str | None
) -> Value:
    if isinstance(node, Call):
        with np.errstate(all="ignore"):
            found = evaluate_call(node.op, [values[a] for a in node.args], node.attrs)
        return found if dtype is None else _as(found, dtype)
    if isinstance(node, Constant):
        return node.data if dtype is None else _as(node.data, dtype)
    if isinstance(node, Tuple):
        return tuple(values[f] for f in node.fields)
    if isinstance(node, TupleGetItem):
        return values[node.tuple_value][node.index]
    assert isinstance(node, Var)
    return bound[node]


def _fitting(value: Any, v: Var) -> Array:
    array, wanted, place = as_array(value), v.checked_type, f"evaluate({v.name_hint})"
    if not isinstance(wanted, TensorType):
        raise ModelError(place, "a tuple cannot be an input", "Give each of its tensors a name.")
    if array.shape != wanted.shape:
        raise ModelError(
            place, f"the array has shape {array.shape}, the parameter {wanted.shape}",
            "Reshape it, or build the network for that shape.",
        )  # fmt: skip
    return array.astype(wanted.dtype, copy=False)


def _as(value: Value, dtype: str) -> Value:
    if isinstance(value, tuple):
        return tuple(_as(v, dtype) for v in value)
    return value.astype(dtype, copy=False) if DType(value.dtype).is_float else value
