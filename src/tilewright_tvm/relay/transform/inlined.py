"""Calls of functions that are marked become what the functions compute: TVM's `Inline`.

In: any module.  Out: an equal one.  Read next: `graph/passes/inline.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graph.expr import Call, Expr, Function, IRModule
from tilewright.graph.passes.inline import with_calls
from tilewright.graph.traversal import substitute, with_body
from tilewright_tvm.relay.functional.call_graph import CallGraph


def inline_marked(mod: IRModule) -> IRModule:
    """Put the body of each function with the attribute "Inline" in the place of its calls; such
    functions of the module are gone, unless they call themselves, or nobody calls them: those are
    what a user enters by.  One that also has the attribute "Compiler" is called as it is.
    """
    graph = CallGraph(mod)
    kept = {f for name, f in mod.functions.items() if graph.is_recursive(name)}
    entries = {name for name in mod.functions if name == "main" or not graph.ref_count(name)}
    known: dict[Function, Function] = {}

    def inside(function: Function) -> Function:
        if function not in known:
            known[function] = with_body(function, with_calls(function.body, changed))
        return known[function]

    def changed(call: Call, op: Function, args: Sequence[Expr]) -> Expr | None:
        new = inside(op)
        if _is_marked(op) and op not in kept and "Compiler" not in op.attrs:
            return substitute(new.body, dict(zip(new.params, args, strict=True)))
        return None if new is op else Call(new, args, call.attrs)

    gone = {n for n, f in mod.functions.items() if _is_marked(f) and f not in kept} - entries
    return mod.with_functions({n: inside(f) for n, f in mod.functions.items() if n not in gone})


def _is_marked(function: Function) -> bool:
    mark = function.attrs.get("Inline", 0)
    return bool(getattr(mark, "value", mark))
