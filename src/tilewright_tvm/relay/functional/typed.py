"""Functional functions with a type for each variable, as `InferType` gives them.

In: functions.  Out: the same, checked.  Read next: `infer.py`.
"""

from __future__ import annotations

from tilewright.base.errors import ModelError
from tilewright.graph.deferred import HOW_TO_TYPE
from tilewright.graph.expr import Expr, Function, Var, post_order
from tilewright.graph.traversal import rewrite
from tilewright_tvm.relay.functional.code import renamed
from tilewright_tvm.relay.functional.infer import Inference
from tilewright_tvm.relay.functional.nodes import (
    Clause,
    LetNode,
    Match,
    make_function,
    told_ret_type,
    type_params,
)
from tilewright_tvm.relay.functional.unify import resolved, unknowns


def typed_program(function: Function) -> Function:
    """`function`, whose variables have the types that inference finds.

    Raises ModelError where they do not fit together, or do not follow from what is there.
    """
    inference = Inference()
    kind = inference.function(function)
    inference.finish()
    types = {n: resolved(k) for n, k in inference.types.items() if isinstance(n, Var)}
    open_ = [v.name_hint for v, k in types.items() if not v.is_typed and unknowns(k)]
    if open_ or unknowns(resolved(kind)):
        names = f"%{', %'.join(open_)}" if open_ else "the result"
        raise ModelError(names, "its type does not follow from what it is used for", HOW_TO_TYPE)
    there: dict[Expr, Var] = {v: Var(v.name_hint, k) for v, k in types.items() if not v.is_typed}
    return _with_types(function, there) if there else function


def _with_types(function: Function, there: dict[Expr, Var]) -> Function:
    inside = [n for n in post_order(function.body) if isinstance(n, Function)]
    if not any(v in there for v in (*function.params, *post_order(function.body))) and not inside:
        return function

    def visit(old: Expr, node: Expr) -> Expr:
        if old in there:
            return there[old]
        if isinstance(node, Function):
            return _with_types(node, there)
        if isinstance(node, LetNode):
            return LetNode(there.get(node.var, node.var), node.value, node.body)
        if isinstance(node, Match):
            patterns = [renamed(c.lhs, dict(there)) for c in node.clauses]
            pairs = zip(patterns, node.clauses, strict=True)
            return Match(node.data, [Clause(p, c.rhs) for p, c in pairs], node.complete)
        return node

    params = [there.get(p, p) for p in function.params]
    body = rewrite(function.body, visit)
    return make_function(
        params, body, told_ret_type(function), type_params(function), function.attrs
    )
