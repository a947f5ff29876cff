"""Calls of functions become what the functions compute.

In: any module.  Out: an equal one without calls of functions, or with those of fused groups only,
which have a name.  Read next: `canonicalize.py`, `fuse.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.relay.graph.expr import Call, Expr, Function, IRModule, post_order
from tilewright.relay.graph.traversal import (
    each_function,
    made_of,
    remade,
    substitute,
    unpacked,
    with_body,
)


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
    new: dict[Expr, Expr] = {}
    for node in post_order(body, made_of):
        if not (isinstance(node, Call) and isinstance(node.op, Function) and wanted(node.op)):
            new[node] = unpacked(remade(node, new))
            continue
        if node.op not in known:
            known[node.op] = _inlined(node.op.body, wanted)
        arguments = (new[a] for a in node.args)
        new[node] = substitute(known[node.op], dict(zip(node.op.params, arguments, strict=True)))
    return new[body]
