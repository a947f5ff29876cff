"""Copies of statements with loop variables of their own.

In: a statement that a program is to have twice.  Out: the same with other variables: each loop has
its own.  Read next: `stmt.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import For, Stmt, map_children


def fresh_loops(
    stmt: Stmt, limits: dict[Expr, int], values: Mapping[Expr, E.Value] | None = None
) -> Stmt:
    """The same statement with loop variables of its own; limits: per loop variable, grows.

    values: of other variables, which are put in their place
    """
    names: dict[Expr, E.Value] = dict(values or {})

    def on_expr(e: Expr) -> Expr:
        return E.substitute(e, names)

    def on_stmt(s: Stmt) -> Stmt:
        if isinstance(s, For):
            fresh = names[s.var] = E.var(str(s.var.attr))
            if s.var in limits:
                limits[fresh] = limits[s.var]
            return replace(s, var=fresh, body=on_stmt(s.body))
        return map_children(s, on_stmt, on_expr)

    return on_stmt(stmt)
