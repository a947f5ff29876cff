"""Calls of functions become what the functions compute.

In: any module.  Out: an equal one without calls of functions, or with those of fused groups only,
which have a name.  Read next: `canonicalize.py`, `fuse.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.graph.expr import Call, Expr, Function, IRModule, post_order
from tilewright.graph.traversal import (
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
    """Undo `fuse`: each call of a function becomes what the function computes."""
    return each_function(mod, lambda f: with_body(f, _inlined(f.body, lambda g: True)))


def _inlined(body: Expr, wanted: Callable[[Function], bool]) -> Expr:
    known: dict[Function, Expr] = {}

    def changed(call: Call, op: Function, args: Sequence[Expr]) -> Expr | None:
        if not wanted(op):
            return None
        if op not in known:
            known[op] = _inlined(op.body, wanted)
        return substitute(known[op], dict(zip(op.params, args, strict=True)))

    return with_calls(body, changed)


def with_calls(
    body: Expr, changed: Callable[[Call, Function, Sequence[Expr]], Expr | None]
) -> Expr:
    """`body` with what `changed` gives for calls of functions and their new arguments; None: the
    call as it is.  What was made of an open extent is made again of what is there now."""
    new: dict[Expr, Expr] = {}
    for node in post_order(body, made_of):
        found = None
        if isinstance(node, Call) and isinstance(node.op, Function):
            found = changed(node, node.op, [new[a] for a in node.args])
        new[node] = unpacked(remade(node, new)) if found is None else found
    return new[body]
