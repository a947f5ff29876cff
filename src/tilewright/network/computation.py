"""A fused group as a computation: what task extraction and code generation start from.

In: a fused function.  Out: its `te` tensors, its `ComputeDAG`.  Read next: `graph/passes/fuse.py`,
`te/dag.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tilewright import te, topi
from tilewright.base.errors import InternalError, ModelError
from tilewright.graph.counts import Count, counted
from tilewright.graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    post_order,
)
from tilewright.graph.op import takes_numbers
from tilewright.topi.stage import stage

Lower = Callable[[Sequence[Any], Type], te.Tensor]


@dataclass(frozen=True)
class Instead:
    """Another computation of one call of a fused function, which gives the same.

    shapes: of parameters that it reads in another form; lower: its value, from the tensors of the
    call's arguments and the call's type
    """

    call: Call
    shapes: Mapping[Var, tuple[int, ...]]
    lower: Lower


def compute_dag(
    function: Function, constant: Sequence[bool] = (), instead: Instead | None = None
) -> te.ComputeDAG:
    """Give the computation of a fused function; its arguments are the parameters, then the results,
    which one stage gives where there are several.

    constant: for each parameter, whether its value is known when the network is built.
    """
    inputs, results = tensors_of(function, constant, instead)
    if len(results) > 1:
        values = results

        def every(*index: te.IterVar) -> tuple[Any, ...]:
            return tuple(value[index] for value in values)

        results = cast("Sequence[te.Tensor]", te.compute(values[0].shape, every, "results"))
    elif isinstance(results[0].op, te.PlaceholderOp):  # a group that only hands its input on
        results = [topi.identity(results[0])]
    return te.ComputeDAG([*inputs, *results])


def tensors_of(
    function: Function, constant: Sequence[bool] = (), instead: Instead | None = None
) -> tuple[list[te.Tensor], Sequence[te.Tensor]]:
    """Give placeholders for the parameters (named as they are) and the tensors of the results."""
    flags = [*constant, *[False] * (len(function.params) - len(constant))]
    other: Mapping[Var, tuple[int, ...]] = {} if instead is None else instead.shapes
    inputs = [
        te.placeholder(other.get(p, p.shape), p.dtype, p.name_hint, constant=flag)
        for p, flag in zip(function.params, flags, strict=True)
    ]
    result = value_of(function.body, dict(zip(function.params, inputs, strict=True)), instead)
    results = result if isinstance(result, tuple) else (result,)
    if not all(isinstance(r, te.Tensor) and r.shape == results[0].shape for r in results):
        raise ModelError(
            f"lower({function.attrs.get('name', 'function')})",
            "the results of a kernel are tensors of one shape", "Fuse the module first.",
        )  # fmt: skip
    return inputs, results


def value_of(body: Expr, known: Mapping[Expr, Any], instead: Instead | None = None) -> Any:
    """Give the tensor, or tuple of tensors, of an expression; known: those of nodes behind it."""
    values = dict(known)
    for node in post_order(body):
        if node in values:
            continue
        if instead is not None and node is instead.call:
            args = [values[a] for a in instead.call.args]
            values[node] = instead.lower(args, instead.call.checked_type)
        else:
            values[node] = _value(node, values)
    return values[body]


def _value(node: Expr, values: dict[Expr, Any]) -> Any:
    if isinstance(node, Call):
        return _call(node, values)
    if isinstance(node, Tuple):
        return tuple(values[f] for f in node.fields)
    if isinstance(node, TupleGetItem):
        return values[node.tuple_value][node.index]
    if isinstance(node, Constant):
        return _constant(node)
    assert isinstance(node, Var)
    raise InternalError("lower", f"{node.name_hint} is not a parameter of its group")


def _constant(node: Constant) -> te.Tensor:
    """A constant inside a group: a tensor filled with its one number, or one that counts."""
    if node.tensor_type.size != 1:
        count = counted(node)
        if count is None:
            raise InternalError("lower", f"{node} is inside a group, only what counts may be")
        return _counted(node, count)
    return topi.full(node.shape, node.dtype, _number(node))


def _counted(node: Constant, count: Count) -> te.Tensor:
    def at(index: Sequence[Any]) -> Any:
        # by 32 bits: the table was made, so none of its axes is longer
        value = te.const(count.begin, "int32")
        for k, step in zip(index, count.steps, strict=True):
            value = value + te.cast("int32", k) * te.const(step, "int32") if step else value
        return te.cast(str(node.dtype), value)

    return stage(node.shape, at, "T_count", "elemwise")


def _number(node: Constant) -> Any:
    value = node.data.reshape(-1)[0].item()
    return float(value) if node.dtype.is_float else value


def _call(node: Call, values: dict[Expr, Any]) -> Any:
    if isinstance(node.op, Function):
        raise ModelError("lower", "a group calls another group", "Lower the inner one by itself.")
    args = [_argument(node, a, values) for a in node.args]
    result = node.op.compute(args, node.attrs, node.checked_type)
    if (found := _type_of(result)) != node.checked_type:
        raise InternalError(
            f"lower({node.op.name})",
            f"the computation has type {found}, the graph {node.checked_type}",
        )
    return result


def _type_of(value: Any) -> Type:
    if isinstance(value, te.Tensor):
        return TensorType(value.shape, value.dtype)
    return TupleType(tuple(map(_type_of, value)))


def _argument(node: Call, arg: Expr, values: dict[Expr, Any]) -> Any:
    """A single number next to a tensor of the result's shape becomes part of the expression."""
    if not isinstance(arg, Constant) or arg.tensor_type.size != 1 or not takes_numbers(node):
        return values[arg]
    other = node.args[1 if arg is node.args[0] else 0]
    plain = not isinstance(other, Constant) and isinstance(other.checked_type, TensorType)
    return _number(arg) if plain and other.shape == node.shape else values[arg]
