"""A float32 computation in another floating-point type, as its author would have written it there.

In: a DAG.  Out: a DAG of the same stages, whose sums have the accumulator of the new type.
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.base.dtype import DType
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.te import ComputeDAG, Tensor

REDUCERS = {"sum": te.sum, "prod": te.prod, "max": te.max, "min": te.min}


def retyped(dag: ComputeDAG, dtype: str) -> ComputeDAG:
    """`dag` with `dtype` instead of float32; constants beyond its range become its ends."""
    new: dict[Tensor, Tensor] = {}
    for old in (op.output_tensor for op in dag.placeholders):
        kind = dtype if old.dtype == "float32" else old.dtype
        new[old] = te.placeholder(old.shape, kind, name=old.name)
    for op in dag.compute_ops:
        new[op.output_tensor] = _stage(op, new, DType(dtype))
    return ComputeDAG([new[t] for t in dag.args])


def _stage(op: Any, new: dict[Tensor, Tensor], dtype: DType) -> Tensor:
    reduced = [te.reduce_axis(ax.dom.extent, ax.name) for ax in op.reduce_axis]

    def element(*axes: Expr) -> Any:
        variables = {a.var: b for a, b in zip(op.axis, axes, strict=True)}
        variables |= {a.var: b.as_expr() for a, b in zip(op.reduce_axis, reduced, strict=True)}

        def visit(node: Expr) -> Expr:
            if node in variables:
                return variables[node]
            if node.op == "const" and node.dtype == "float32":
                return te.const(min(max(node.attr, dtype.least), dtype.greatest), dtype)
            if node.op == "read":
                return new[node.attr][tuple(map(visit, node.args))]
            if node.op == "cast" and node.dtype == "float32":
                return E.cast(dtype, visit(node.args[0]))
            return E.rebuild(node, tuple(map(visit, node.args)))

        if op.combiner is None:
            return visit(op.body)
        return _reducer(op.combiner, visit)(visit(op.reduced), axis=reduced)

    return te.compute(op.shape, lambda *i: element(*i), name=op.name)


def _reducer(combiner: Any, visit: Any) -> Any:
    if combiner.name in REDUCERS:
        return REDUCERS[combiner.name]

    def combine(a: Expr, b: Expr) -> Expr:
        return E.substitute(visit(combiner.result), {combiner.lhs: a, combiner.rhs: b})

    return te.comm_reducer(
        combine, lambda t: E.cast(t, te.const(combiner.identity.attr)), name=combiner.name
    )
