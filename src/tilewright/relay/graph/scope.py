"""Names for values and branches, as TVM writes them: `relay.Let`, `relay.If`, `ScopeBuilder`.

In: variables and values.  Out: graphs, in which a value that is read several times is one node: it
needs no name, so a name leaves no trace.  Read next: `later.py`, `traversal.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.relay.graph.expr import Expr, Function, Var, const, free_vars
from tilewright.relay.graph.global_var import GlobalVar
from tilewright.relay.graph.later import WAY_OUT, Branch, Later, advanced
from tilewright.relay.graph.traversal import substitute


def If(cond: Expr, true_branch: Expr, false_branch: Expr) -> Expr:
    """The value of one of two branches; the other one is not computed.

    cond: one element
    """

    def chosen(parts: Sequence[Expr]) -> Expr:
        return parts[1] if holds(parts[0], "relay.If") else parts[2]

    error = ModelError("relay.If", "values decide which branch is taken", WAY_OUT)
    return advanced(Branch([cond, true_branch, false_branch], (0,), chosen, error, lazy=True))


def holds(condition: Expr, place: str) -> bool:
    """What a condition of one element is.  Raises ModelError for more of them."""
    known = np.asarray(condition.as_numbers())
    if known.size != 1:
        raise ModelError(place, f"its condition has {known.size} elements", "Give one.")
    return bool(known.reshape(-1)[0])


def call_by_name(name: GlobalVar, args: Sequence[Expr]) -> Expr:
    """A call of the function that a module will have under this name; it may call itself."""
    place = f"@{name}"

    def called(parts: Sequence[Expr]) -> Expr:
        if name.function is None:
            raise ModelError(place, "no module has that function", "Set it: mod[name] = function.")
        name.function.check(parts)
        return substitute(name.function.body, dict(zip(name.function.params, parts, strict=True)))

    error = ModelError(place, "it is called before its module has it", WAY_OUT)
    return Later(args, range(len(args)), called, error)


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


_BEHIND = "Write `with sb.else_scope():` right behind the if_scope that it belongs to."


class ScopeBuilder:
    """Collects a result: `let` gives a value back, `ret` says which is the result.

    `with sb.if_scope(cond): sb.ret(x)` and, right behind, `with sb.else_scope(): sb.ret(y)` return
    `relay.If(cond, x, y)`.
    """

    def __init__(self) -> None:
        self._results: list[Expr | None] = [None]  # of the scopes around, the innermost last
        self._open: tuple[Expr, Expr] | None = None  # of an if_scope that ended: If's first two

    def let(self, var: Any, value: Any) -> Expr:
        """The value; what it would be called is not kept."""
        return value if isinstance(value, Expr) else const(value)

    def ret(self, value: Any) -> None:
        if self._results[-1] is not None:
            raise ModelError("ScopeBuilder.ret", "there is a result already", "Return once.")
        self._results[-1] = value if isinstance(value, Expr) else const(value)

    def get(self) -> Expr:
        if self._open is not None:
            raise ModelError("ScopeBuilder.get", "an if_scope has no else_scope", _BEHIND)
        return self._returned("get")

    @contextmanager
    def if_scope(self, cond: Expr) -> Iterator[None]:
        """What is returned in it is returned where `cond`, one element, holds."""
        self._results.append(None)
        yield
        self._open = (cond, self._returned("if_scope"))
        self._results.pop()

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """What is returned in it is returned where the condition of the if_scope does not hold."""
        if self._open is None:
            raise ModelError("ScopeBuilder.else_scope", "no if_scope ended before it", _BEHIND)
        (cond, value), self._open = self._open, None
        self._results.append(None)
        yield
        other = self._returned("else_scope")
        self._results.pop()
        self.ret(If(cond, value, other))

    def _returned(self, where: str) -> Expr:
        result = self._results[-1]
        if result is None:
            raise ModelError(
                f"ScopeBuilder.{where}", "nothing was returned", "Call ret(value) first."
            )
        return result
