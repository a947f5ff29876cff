"""Names for values, as TVM writes them: `relay.Let`, `relay.ScopeBuilder`, `relay.bind`.

In: variables and values.  Out: graphs, in which a value that is read several times is one node: it
needs no name, so none of these leaves a trace.  Read next: `traversal.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.relay.graph.expr import Expr, Function, Var, const, free_vars
from tilewright.relay.graph.traversal import substitute


def Let(variable: Var, value: Expr, body: Expr) -> Expr:
    """`body` with `value` in the place of `variable`.

    Raises ModelError where their types differ.
    """
    if variable.is_typed and variable.checked_type != value.checked_type:
        raise ModelError(
            f"relay.Let({variable.name_hint})",
            f"the variable has type {variable.checked_type}, the value {value.checked_type}",
            "Leave the variable's type out.",
        )  # fmt: skip
    return substitute(body, {variable: value})


def bind(expr: Expr, binds: Mapping[Var, Expr]) -> Expr:
    """`expr` with values in the place of free variables; of a function, of its parameters, which
    it loses.  What the values read becomes parameters."""
    values: dict[Expr, Expr] = {v: x if isinstance(x, Expr) else const(x) for v, x in binds.items()}
    if not isinstance(expr, Function):
        return substitute(expr, values)
    body = substitute(expr.body, values)
    kept = [p for p in expr.params if p not in values]
    return Function([*kept, *(v for v in free_vars(body) if v not in kept)], body, attrs=expr.attrs)


class ScopeBuilder:
    """Collects a result: `let` gives a value back, `ret` says which is the result."""

    def __init__(self) -> None:
        self._result: Expr | None = None

    def let(self, var: Any, value: Any) -> Expr:
        """The value; what it would be called is not kept."""
        return value if isinstance(value, Expr) else const(value)

    def ret(self, value: Any) -> None:
        if self._result is not None:
            raise ModelError("ScopeBuilder.ret", "there is a result already", "Return once.")
        self._result = value if isinstance(value, Expr) else const(value)

    def get(self) -> Expr:
        if self._result is None:
            raise ModelError("ScopeBuilder.get", "nothing was returned", "Call ret(value) first.")
        return self._result

    def if_scope(self, cond: Any) -> Any:
        raise ModelError(
            "ScopeBuilder.if_scope", "graphs have no branches",
            "Use relay.where, which computes both sides.",
        )  # fmt: skip

    else_scope = if_scope
