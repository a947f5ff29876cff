"""Tiles that overhang their tensor: when a tile is whole, and a loop nest more for those that are.

In: the guards of a tile and its loop variables.  Out: the condition under which no guard is needed;
a copy of a statement with loop variables of its own.  Read next: `nest.py`, which emits both nests.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import For, Stmt, map_children

_GROWS = {"lt": 1, "le": 1, "gt": -1, "ge": -1}  # comparison -> sign of the side that may break it


def whole_tile(guard: Expr, own: set[Expr], simplify: Simplifier) -> Expr | None:
    """When `guard` holds for all values of the variables `own`; None where there is no guard, where
    that never happens, or where the form of the guard does not say it."""
    if guard.op == "const":
        return None
    tests = []
    for test in E.conjuncts(guard):
        sign = _GROWS.get(test.op)
        if sign is None:
            return None
        form = simplify.linear(test.args[0]).add(simplify.linear(test.args[1]), -1)
        worst: dict[Expr, E.Value] = {}
        for atom, c in form.terms.items():
            if atom in own:
                worst[atom] = simplify.ranges[atom][1 if c * sign > 0 else 0]
            elif own & E.free_variables(atom):
                return None
        tests.append(E.substitute(simplify(test), worst))
    inside = simplify(E.all_of(*tests))
    return None if inside.op == "const" else inside


def fresh_loops(stmt: Stmt, limits: dict[Expr, int]) -> Stmt:
    """The same statement with loop variables of its own; limits: per loop variable, grows."""
    names: dict[Expr, E.Value] = {}

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
