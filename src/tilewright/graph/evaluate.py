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
from tilewright.graph.deferred import Deferred
from tilewright.graph.expr import (
    Array,
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    as_array,
    check_dtype,
    children,
    free_vars,
    post_order,
)
from tilewright.graph.extension import extension

Value = Any  # an array, or a tuple of values
MOST_STEPS, MOST_NUMBERS = 64, 1024  # of a value that is asked for while a graph is made
ROOM = 8.0  # between the largest of a few random deviations and what must be an error
Observer = Callable[[Expr, Value], None]


def evaluate(
    graph: Expr | IRModule,
    inputs: Mapping[str, Any] | None = None,
    dtype: str | None = None,
    observe: Observer | None = None,
    change: Callable[[Value], Value] | None = None,
) -> Value:
    """The value of `graph` (of its "main" if it is a module) for `inputs`.

    inputs:  one array for every parameter or free variable, by name; extra ones are ignored
    dtype:   "float32" or "float64" computes every floating-point value in that type
    observe: called with each node and its value, in order
    change:  what each value is replaced by as soon as it is known
    Raises ModelError for a missing input or one of the wrong shape, for calls that go too deep, and
    for a graph that has other values than tensors.
    """
    if dtype is not None:
        dtype = str(check_dtype(dtype, "relay.evaluate"))
    root = graph["main"] if isinstance(graph, IRModule) else graph
    root = extension().typed(root)
    body = root.body if isinstance(root, Function) else root
    variables = root.params if isinstance(root, Function) else free_vars(body)
    given = dict(inputs or {})
    if missing := [v.name_hint for v in variables if v.name_hint not in given]:
        raise ModelError(
            "evaluate", f"no value is given for {', '.join(missing)}", "Add it to inputs, by name."
        )
    bound = {v: _fitting(given[v.name_hint], v) for v in variables}
    if body.waits:
        found = _run(body, bound, None, observe, change)
        return found if dtype is None else _as(found, dtype)
    if dtype is not None:
        bound = {v: _as(a, dtype) for v, a in bound.items()}
    return _run(body, bound, dtype, observe, change)


def in_float64(function: Function, arrays: Sequence[Array]) -> Value:
    """The value of a function, computed in float64 of arrays, one for each parameter, that are not
    rounded to the types of the parameters before; where types wait, in its own types."""
    given = list(zip(function.params, arrays, strict=True))
    if function.body.waits:
        return _run(function.body, {p: _fitting(a, p) for p, a in given}, None, None)
    return _run(function.body, {p: _as(a, "float64") for p, a in given}, "float64", None)


def rounding_tolerance(
    graph: Expr | IRModule, inputs: Mapping[str, Any], dtype: str, runs: int = 2
) -> float:
    """How far results may be off, by the largest result, where every value is rounded to `dtype`.

    Monte Carlo arithmetic: the graph is computed `runs` times with each value, inputs and constants
    included, off by a random part of the type's rounding unit, and the largest deviation times
    `ROOM` is what rounding may do.  It costs `runs` + 1 evaluations in float32.
    """
    unit = DType(dtype).eps / 2
    rng = np.random.default_rng(0)

    def disturbed(value: Value) -> Value:
        if isinstance(value, tuple):
            return tuple(map(disturbed, value))
        if not DType(value.dtype).is_float:
            return value
        noise = rng.uniform(1 - unit, 1 + unit, value.shape)
        return value * noise.astype(value.dtype)

    exact = _flat(evaluate(graph, inputs, "float32"))
    worst = 0.0
    for _ in range(runs):
        found = _flat(evaluate(graph, inputs, "float32", change=disturbed))
        worst = max(worst, *(largest_deviation(f, e) for f, e in zip(found, exact, strict=True)))
    return ROOM * worst


def largest_deviation(out: Array, want: Array) -> float:
    """The largest |out - want| by the largest |want|; infinity where a NaN is among them."""
    largest = float(np.max(np.abs(want), initial=0.0))  # arrays may have no elements
    error = np.max(np.abs(out.astype(np.float64) - want), initial=0.0) / max(largest, 1e-30)
    return float(error) if np.isfinite(error) else float("inf")


def _flat(value: Value) -> list[Array]:
    return [a for v in value for a in _flat(v)] if isinstance(value, tuple) else [value]


def known_value(node: Expr) -> Any:
    """A number, or a list of them, where all that `node` is made of is constant and small; else
    None."""
    nodes = post_order(node)
    known = len(nodes) <= MOST_STEPS and not any(isinstance(n, (Var, Function)) for n in nodes)
    if not known or any(t.size > MOST_NUMBERS for n in nodes for t in _tensors(n.known_type)):
        return None
    value = _run(node, {}, None, None)
    return None if isinstance(value, tuple) else value.tolist()


def _tensors(kind: Type) -> list[TensorType]:
    return [t for f in kind.fields for t in _tensors(f)] if isinstance(kind, TupleType) else [kind]


def evaluate_call(call: Call, args: Sequence[Value], dtype: str | None = None) -> Value:
    """One operator or fused function on values; narrow floats are computed in a wider type and
    rounded once."""
    if isinstance(call.op, Function):
        return _run(call.op.body, dict(zip(call.op.params, args, strict=True)), dtype, None)
    if dtype is not None:
        between_floats = call.op.name == "cast" and DType(call.attrs.dtype).is_float
        return _as(args[0] if between_floats else call.op.numpy(args, call.attrs), dtype)
    found = call.op.numpy([_widened(a) for a in args], call.attrs)
    return _rounded(found, call.checked_type)


def _widened(value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple(map(_widened, value))
    kind = DType(value.dtype)
    return value.astype(kind.compute.storage, copy=False) if kind.is_float else value


def _rounded(value: Value, kind: Type) -> Value:
    if isinstance(kind, TupleType):
        return tuple(_rounded(v, f) for v, f in zip(value, kind.fields, strict=True))
    return value.astype(kind.dtype.storage, copy=False) if kind.dtype.is_float else value


def _run(
    body: Expr,
    bound: Mapping[Var, Value],
    dtype: str | None,
    observe: Observer | None,
    change: Callable[[Value], Value] | None = None,
) -> Value:
    nodes = post_order(body, _read_first)
    last_use = {c: k for k, node in enumerate(nodes) for c in _read_first(node)}
    values: dict[Expr, Value] = {}
    tables = _tables(nodes) if change is None and observe is None and dtype is not None else set()
    for k, node in enumerate(nodes):
        value = _value(node, values, bound, None if node in tables else dtype)
        values[node] = value if change is None else change(value)
        if observe is not None:
            observe(node, values[node])
        for child in set(_read_first(node)):
            if last_use[child] == k and child is not body:
                del values[child]  # large networks would not fit otherwise
    return values[body]


def _tables(nodes: Sequence[Expr]) -> set[Expr]:
    """Constants that are only looked up in: of large ones little is read, so they stay as they are,
    and what is read is converted."""
    found: set[Expr] = {n for n in nodes if isinstance(n, Constant)}
    found.difference_update(nodes[-1:])
    for node in nodes:
        looks_up = isinstance(node, Call) and getattr(node.op, "name", "") == "take"
        found.difference_update(_read_first(node)[1 if looks_up else 0 :])
    return found


def _value(
    node: Expr, values: Mapping[Expr, Value], bound: Mapping[Var, Value], dtype: str | None
) -> Value:
    if isinstance(node, Call):
        if node.waits:
            given = [values[a] for a in node.args]
            node = Call(node.op, [*map(_constant, given)], node.attrs)
            values = dict(zip(node.args, given, strict=True))
        with np.errstate(all="ignore"):
            return evaluate_call(node, [values[a] for a in node.args], dtype)
    if isinstance(node, Constant):
        return node.data if dtype is None else _as(node.data, dtype)
    if isinstance(node, Tuple):
        return tuple(values[f] for f in node.fields)
    if isinstance(node, TupleGetItem):
        return values[node.tuple_value][node.index]
    if isinstance(node, Deferred):
        return _made_now(node, values, bound, dtype)
    if isinstance(node, Var):
        return bound[node]
    raise ModelError(
        "evaluate", "there are functions as values, data types or references in it",
        'Run it with tilewright.relay.create_executor("vm", mod).',
    )  # fmt: skip


def _read_first(node: Expr) -> Sequence[Expr]:
    """What is computed before `node`."""
    return node.first if isinstance(node, Deferred) else children(node)


def _made_now(
    node: Deferred, values: Mapping[Expr, Value], bound: Mapping[Var, Value], dtype: str | None
) -> Value:
    """The value of a node that is made for the values of its parts; of a branch that is not taken
    nothing is computed."""
    try:
        found = node.make([_constant(values[p]) if p in values else p for p in node.parts])
        return _run(found, bound, dtype, None)
    except RecursionError:
        raise ModelError(
            node.error.place, "functions call one another too deeply, or for ever",
            'End them sooner, or run it with tilewright.relay.create_executor("vm", mod).',
        ) from None  # fmt: skip


def _constant(value: Value) -> Expr:
    return Tuple([*map(_constant, value)]) if isinstance(value, tuple) else Constant(value)


def _fitting(value: Any, v: Var) -> Array:
    array, wanted, place = as_array(value), v.checked_type, f"evaluate({v.name_hint})"
    if not isinstance(wanted, TensorType):
        raise ModelError(place, "a tuple cannot be an input", "Give each of its tensors a name.")
    if array.shape != wanted.shape:
        raise ModelError(
            place, f"the array has shape {array.shape}, the parameter {wanted.shape}",
            "Reshape it, or build the network for that shape.",
        )  # fmt: skip
    return array.astype(wanted.dtype.storage, copy=False)


def _as(value: Value, dtype: str) -> Value:
    if isinstance(value, tuple):
        return tuple(_as(v, dtype) for v in value)
    return value.astype(dtype, copy=False) if DType(value.dtype).is_float else value
