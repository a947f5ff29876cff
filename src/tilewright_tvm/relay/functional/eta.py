"""Names of functions, and constructors, that are values become functions that call them.

In: a module.  Out: an equal one.  Read next: `lift.py`, the other way round.
"""

from __future__ import annotations

from tilewright.graph.expr import Expr, Function, IRModule, Var, children
from tilewright.graph.traversal import each_function, rewrite, with_children
from tilewright_tvm.relay.functional.infer import constructor_type, inferred_type
from tilewright_tvm.relay.functional.nodes import (
    Apply,
    Constructor,
    NamedFunction,
    make_call,
    make_function,
)


def eta_expand(mod: IRModule, constructors: bool, names: bool) -> IRModule:
    """@map(Some, xs)  ->  @map(fn (x0) { Some(x0) }, xs)

    constructors, names: which of the two
    """
    kinds = (*((Constructor,) if constructors else ()), *((NamedFunction,) if names else ()))

    def changed(function: Function) -> Function:
        def visit(old: Expr, node: Expr) -> Expr:
            if isinstance(node, Function):
                return changed(node)
            parts = children(node)
            called = 1 if isinstance(node, Apply) and node.callee is not None else 0
            new = [_expanded(p) if isinstance(p, kinds) else p for p in parts[called:]]
            return with_children(node, (*parts[:called], *new))

        body = rewrite(function.body, visit)
        return function.with_body(_expanded(body) if isinstance(body, kinds) else body)

    return each_function(mod, changed)


def _expanded(value: Expr) -> Expr:
    """A function that calls it; itself where its type is not known."""
    is_data = isinstance(value, Constructor)
    kind = constructor_type(value) if is_data else inferred_type(value)  # type: ignore[arg-type]
    if kind is None:
        return value
    params = [Var(f"x{k}", t) for k, t in enumerate(kind.arg_types)]
    called = value if isinstance(value, Constructor) else value.name  # type: ignore[attr-defined]
    return make_function(params, make_call(called, params), kind.ret_type, kind.type_params)
