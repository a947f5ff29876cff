"""Calls of functions that a user wrote become what the functions compute.

In: any module.  Out: an equal one that calls no functions but fused groups, which have a name.
Read next: `canonicalize.py`.
"""

from __future__ import annotations

from tilewright.relay.graph.expr import Call, Expr, Function, IRModule, TupleGetItem
from tilewright.relay.graph.traversal import each_function, rewrite, substitute, unpacked, with_body


def inline_calls(mod: IRModule) -> IRModule:
    """Put the body of each function without a name in the place of its calls.

    (fn(x) { exp(x) + 1 })(y)  ->  exp(y) + 1
    """
    return each_function(mod, lambda f: with_body(f, inlined(f.body)))


def inlined(body: Expr) -> Expr:
    return rewrite(body, _visit)


def _visit(old: Expr, node: Expr) -> Expr:
    if isinstance(node, TupleGetItem):
        return unpacked(node)
    if not (isinstance(node, Call) and isinstance(node.op, Function) and not node.op.attrs):
        return node
    arguments: dict[Expr, Expr] = dict(zip(node.op.params, node.args, strict=True))
    return substitute(inlined(node.op.body), arguments)
