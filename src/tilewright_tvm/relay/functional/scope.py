"""Names for values and branches, as TVM writes them: `relay.Let`, `relay.If`, `ScopeBuilder`.

In: variables and values.  Out: graphs, in which a value that is read several times is one node: it
needs no name, so a name leaves no trace.  Read next: `later.py`, `graph/traversal.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.graph.deferred import branch
from tilewright.graph.expr import Expr, Function, GlobalVar, Var, free_vars
from tilewright.graph.leaves import const
from tilewright.graph.traversal import substitute
from tilewright.graph.types import holds_other
from tilewright_tvm.relay.functional.nodes import (
    LetNode,
    as_value,
    make_function,
    must_be_named,
)


def If(cond: Expr, true_branch: Expr | GlobalVar, false_branch: Expr | GlobalVar) -> Expr:
    """The value of one of two branches; the other one is not computed.

    cond: one element
    """
    return branch(cond, as_value(true_branch), as_value(false_branch))


def Let(variable: Var, value: Expr | GlobalVar, body: Expr | GlobalVar) -> Expr:
    """`body` with `value` in the place of `variable`: a node of its own where the value makes or
    uses references, calls functions that may, or is a function that calls itself by that name.

    Raises ModelError where their types differ.
    """
    value, body = as_value(value), as_value(body)
    if must_be_named(value, variable):
        return LetNode(variable, value, body)
    if isinstance(value, Function) or value.waits or holds_other(value._type):
        return substitute(body, {variable: value})
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
    return make_function(
        [*kept, *(v for v in free_vars(body) if v not in kept)], body, attrs=expr.attrs
    )


_BEHIND = "Write `with sb.else_scope():` right behind the if_scope that it belongs to."


class ScopeBuilder:
    """Collects a result: `let` gives a value back, `ret` says which is the result.

    `with sb.if_scope(cond): sb.ret(x)` and, right behind, `with sb.else_scope(): sb.ret(y)` return
    `relay.If(cond, x, y)`.
    """

    def __init__(self) -> None:
        self._results: list[Expr | None] = [None]  # of the scopes around, the innermost last
        self._names: list[list[tuple[Var, Expr]]] = [[]]  # of values that are computed in order
        self._open: tuple[Expr, Expr] | None = None  # of an if_scope that ended: If's first two

    def let(self, var: Any, value: Any) -> Any:
        """The value; what it would be called is not kept, where it need not be computed in order
        (`relay.Let`)."""
        if isinstance(value, GlobalVar):
            return value
        value = value if isinstance(value, Expr) else const(value)
        variable = var if isinstance(var, Var) else Var(str(var))
        if not must_be_named(value, variable):
            return value
        self._names[-1].append((variable, value))
        return variable

    def ret(self, value: Any) -> None:
        if self._results[-1] is not None:
            raise ModelError("ScopeBuilder.ret", "there is a result already", "Return once.")
        result = value if isinstance(value, Expr) else const(value)
        for variable, named in reversed(self._names[-1]):
            result = Let(variable, named, result)
        self._results[-1] = result

    def get(self) -> Expr:
        if self._open is not None:
            raise ModelError("ScopeBuilder.get", "an if_scope has no else_scope", _BEHIND)
        return self._returned("get")

    @contextmanager
    def if_scope(self, cond: Expr) -> Iterator[None]:
        """What is returned in it is returned where `cond`, one element, holds."""
        self._results.append(None)
        self._names.append([])
        yield
        self._open = (cond, self._returned("if_scope"))
        self._results.pop()
        self._names.pop()

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """What is returned in it is returned where the condition of the if_scope does not hold."""
        if self._open is None:
            raise ModelError("ScopeBuilder.else_scope", "no if_scope ended before it", _BEHIND)
        (cond, value), self._open = self._open, None
        self._results.append(None)
        self._names.append([])
        yield
        other = self._returned("else_scope")
        self._results.pop()
        self._names.pop()
        self.ret(If(cond, value, other))

    def _returned(self, where: str) -> Expr:
        result = self._results[-1]
        if result is None:
            raise ModelError(
                f"ScopeBuilder.{where}", "nothing was returned", "Call ret(value) first."
            )
        return result
