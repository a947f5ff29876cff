"""Calls of functions become what the functions compute.

In: any module.  Out: an equal one without calls of functions, or with those of fused groups only,
which have a name.  Read next: `canonicalize.py`, `fuse.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.relay.graph.call_graph import CallGraph
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


def inline_marked(mod: IRModule) -> IRModule:
    """Put the body of each function with the attribute "Inline" in the place of its calls; such
    functions of the module are gone, unless they call themselves, or are main.  One that also has
    the attribute "Compiler" is called as it is.
    """
    graph = CallGraph(mod)
    kept = {f for name, f in mod.functions.items() if graph.is_recursive(name)}
    known: dict[Function, Function] = {}

    def changed(function: Function) -> Function:
        if function not in known:
            known[function] = with_body(function, rewrite(function.body, visit))
        return known[function]

    def visit(old: Expr, node: Expr) -> Expr:
        if not (isinstance(node, Call) and isinstance(node.op, Function)):
            return unpacked(node)
        wanted = _is_marked(node.op) and node.op not in kept and "Compiler" not in node.op.attrs
        op = changed(node.op)
        if not wanted:
            return node if op is node.op else Call(op, node.args, node.attrs)
        return substitute(op.body, dict(zip(op.params, node.args, strict=True)))

    gone = {n for n, f in mod.functions.items() if _is_marked(f) and f not in kept and n != "main"}
    return IRModule({n: changed(f) for n, f in mod.functions.items() if n not in gone})


def _is_marked(function: Function) -> bool:
    mark = function.attrs.get("Inline", 0)
    return bool(getattr(mark, "value", mark))
