"""Where functional graphs differ.

In: nodes.  Out: rows of the table of `equality.py`.  Read next: `nodes.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.graph.expr import Expr, GlobalVar, children
from tilewright.graph.types import same_type
from tilewright_tvm.relay.equality import FIRST, RULES, Comparison
from tilewright_tvm.relay.functional.later import CallByName
from tilewright_tvm.relay.functional.nodes import (
    Apply,
    Constructor,
    GeneralFunction,
    LetNode,
    Match,
    NamedFunction,
    Pattern,
    PatternConstructor,
    PatternVar,
)


def _called(node: Expr) -> str:
    """The name by which a node calls a function; "" where it does not."""
    if isinstance(node, CallByName):
        return node.name
    return node.op if isinstance(node, Apply) and isinstance(node.op, GlobalVar) else ""


def _by_name(a: Expr, b: Expr) -> str | None:
    """Calls by names, known or not when they were made."""
    one, other = _called(a), _called(b)
    if not one or not other:
        return None
    same = one == other and len(children(a)) == len(children(b))
    return "" if same else f"calls of @{one} and @{other}"


def _functions(comparison: Comparison, a: GeneralFunction, b: GeneralFunction) -> str:
    if len(a.type_params) != len(b.type_params):
        return f"functions of {len(a.type_params)} and {len(b.type_params)} type parameters"
    comparison.types.update(zip(a.type_params, b.type_params, strict=True))
    if what := comparison.functions(a, b):
        return what
    told = a.told_ret_type, b.told_ret_type
    return "" if same_type(*told, comparison.types) else f"results of type {told[0]} and {told[1]}"


def _matches(comparison: Comparison, a: Match, b: Match) -> str:
    if len(a.clauses) != len(b.clauses) or a.complete != b.complete:
        return "matches with other clauses"
    pairs = zip(a.clauses, b.clauses, strict=True)
    return next((w for c, d in pairs if (w := _patterns(comparison, c.lhs, d.lhs))), "")


def _patterns(comparison: Comparison, a: Pattern, b: Pattern) -> str:
    if type(a) is not type(b) or len(a.patterns) != len(b.patterns):
        return "other patterns"
    if isinstance(a, PatternVar) and isinstance(b, PatternVar):
        return comparison.bound(a.var, b.var)
    what = ""
    if isinstance(a, PatternConstructor) and isinstance(b, PatternConstructor):
        what = _constructors(comparison, a.constructor, b.constructor)
    pairs = zip(a.patterns, b.patterns, strict=True)
    return what or next((w for c, d in pairs if (w := _patterns(comparison, c, d))), "")


def _constructors(comparison: Comparison, a: Constructor, b: Constructor) -> str:
    same = (a.name_hint, a.belong_to) == (b.name_hint, b.belong_to)
    return "" if same else f"constructors {a.name_hint} and {b.name_hint}"


def _named(comparison: Comparison, a: NamedFunction, b: NamedFunction) -> str:
    return "" if a.name == b.name else f"@{a.name} and @{b.name}"


def _applied(comparison: Comparison, a: Apply, b: Apply) -> str:
    same = len(children(a)) == len(children(b))
    return "" if same else "calls with other numbers of arguments"


def _let(comparison: Comparison, a: LetNode, b: LetNode) -> str:
    return comparison.bound(a.var, b.var)


_RULES: dict[type[Expr], Any] = {
    Apply: _applied, Constructor: _constructors, GeneralFunction: _functions, LetNode: _let,
    Match: _matches, NamedFunction: _named,
}  # fmt: skip


def add_rules() -> None:
    """Add the rows, once."""
    if _by_name not in FIRST:
        RULES.update(_RULES)
        FIRST.append(_by_name)
