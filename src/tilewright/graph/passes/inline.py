"""Calls of functions become what the functions compute.

In: any module.  Out: an equal one without calls of functions, or with those of fused groups only,
which have a name.  Read next: `canonicalize.py`, `fuse.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.functional.call_graph import CallGraph
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
    """`fuse` undone: each call of a function becomes what the function computes."""
    return each_function(mod, lambda f: with_body(f, _inlined(f.body, lambda g: True)))


def _inlined(body: Expr, wanted: Callable[[Function], bool]) -> Expr:
    known: dict[Function, Expr] = {}

    def changed(call: Call, op: Function, args: Sequence[Expr]) -> Expr | None:
        if not wanted(op):
            return None
        if op not in known:
            known[op] = _inlined(op.body, wanted)
        return substitute(known[op], dict(zip(op.params, args, strict=True)))

    return _with_calls(body, changed)


def inline_marked(mod: IRModule) -> IRModule:
    """Put the body of each function with the attribute "Inline" in the place of its calls; such
    functions of the module are gone, unless they call themselves, or are main.  One that also has
    the attribute "Compiler" is called as it is.
    """
    graph = CallGraph(mod)
    kept = {f for name, f in mod.functions.items() if graph.is_recursive(name)}
    known: dict[Function, Function] = {}

    def inside(function: Function) -> Function:
        if function not in known:
            known[function] = with_body(function, _with_calls(function.body, changed))
        return known[function]

    def changed(call: Call, op: Function, args: Sequence[Expr]) -> Expr | None:
        new = inside(op)
        if _is_marked(op) and op not in kept and "Compiler" not in op.attrs:
            return substitute(new.body, dict(zip(new.params, args, strict=True)))
        return None if new is op else Call(new, args, call.attrs)

    gone = {n for n, f in mod.functions.items() if _is_marked(f) and f not in kept and n != "main"}
    return IRModule({n: inside(f) for n, f in mod.functions.items() if n not in gone})


def _with_calls(
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


def _is_marked(function: Function) -> bool:
    mark = function.attrs.get("Inline", 0)
    return bool(getattr(mark, "value", mark))
