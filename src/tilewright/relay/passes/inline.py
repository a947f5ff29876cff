"""Calls of functions become what the functions compute.

In: any module.  Out: an equal one without calls of functions, or with those of fused groups only,
which have a name.  Read next: `canonicalize.py`, `fuse.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.relay.graph.expr import Call, Expr, Function, IRModule
from tilewright.relay.graph.traversal import each_function, rewrite, substitute, unpacked, with_body


def inline_calls(mod: IRModule) -> IRModule:
    """Put the body of each function that a user wrote in the place of its calls.

    (fn(x) { exp(x) + 1 })(y)  ->  exp(y) + 1
    """
    return each_function(mod, lambda f: with_body(f, _inlined(f.body, lambda g: not g.attrs)))


def defuse(mod: IRModule) -> IRModule:
    """`fuse` undone: each call of a function becomes what the function computes."""
    return each_function(mod, lambda f: with_body(f, _inlined(f.body, lambda g: True)))


def _inlined(body: Expr, wanted: Callable[[Function], bool]) -> Expr:
    known: dict[Function, Expr] = {}

    def visit(old: Expr, node: Expr) -> Expr:
        if not (isinstance(node, Call) and isinstance(node.op, Function) and wanted(node.op)):
            return unpacked(node)
        if node.op not in known:
            known[node.op] = _inlined(node.op.body, wanted)
        arguments: dict[Expr, Expr] = dict(zip(node.op.params, node.args, strict=True))
        return substitute(known[node.op], arguments)

    return rewrite(body, visit)
