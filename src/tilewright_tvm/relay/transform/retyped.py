"""Operators that compute in another element type, whatever that costs: TVM's `recast`.

In: a graph and names of operators.  Out: one whose other operators are as before.
Read next: `graph/passes/mixed_precision.py`, which keeps results close to what they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call, Expr, Function, IRModule, children, post_order
from tilewright.graph.functions.tensor import cast
from tilewright.graph.traversal import op_name, rewrite, with_body


@door(ModelError)
def recast(
    expr: Expr | IRModule,
    dtype: str,
    out_dtype: str,
    ops: Sequence[str] = ("nn.conv2d",),
    skip_layers: Sequence[int] = (),
) -> Any:
    """Cast what operators read to `dtype`, let them give `out_dtype`, and cast that back.

    For timing: values that do not fit are cut off.
    expr: an expression, a function, or a module, whose main is changed; the same comes back
    out_dtype: of operators that can be asked for one
    ops: names of operators
    skip_layers: calls that stay, counted along the longest path; -1 is the last
    Raises ModelError for types that an operator cannot have.
    """
    if isinstance(expr, IRModule):
        main = recast(expr["main"], dtype, out_dtype, ops, skip_layers)
        return expr.with_functions({**expr.functions, "main": main})
    body = expr.body if isinstance(expr, Function) else expr
    behind = _calls_behind(body, ops)
    layers = max((behind[n] + 1 for n in behind if op_name(n) in ops), default=0)
    skipped = {layer % layers for layer in skip_layers} if layers else set()

    def visit(old: Expr, node: Expr) -> Expr:
        if not isinstance(node, Call) or op_name(node) not in ops:
            return node
        if layers - 1 - behind[old] in skipped:
            return node
        asked = {"out_dtype": out_dtype} if "out_dtype" in node.attrs else {}
        args = [cast(a, dtype) for a in node.args]
        return cast(Call(node.op, args, {**node.attrs, **asked}), str(old.dtype))

    made = rewrite(body, visit)
    return with_body(expr, made) if isinstance(expr, Function) else made


def _calls_behind(body: Expr, ops: Sequence[str]) -> dict[Expr, int]:
    """How many calls of `ops` are on the longest path from each node to the result, without it."""
    behind = dict.fromkeys(post_order(body), 0)
    for node in reversed(behind):
        for child in children(node):
            behind[child] = max(behind[child], behind[node] + (op_name(node) in ops))
    return behind
