"""Equality of graphs by structure, whatever their variables are called.

In: expressions, functions, modules.  Out: whether they compute the same in the same way, and where
they first differ.  Read next: `traversal.py`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.graph.deferred import Deferred
from tilewright.graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    OtherType,
    TensorType,
    TupleGetItem,
    TupleType,
    Var,
    children,
)
from tilewright.graph.printer import deferred_key, structural_key
from tilewright.graph.types import same_type
from tilewright.ir.expr import Expr as Number

Graph = Expr | IRModule | TensorType | TupleType | OtherType
# What else is compared; a text is a sequence.
Plain = Sequence[Any] | Mapping[Any, Any] | Number | int | float | None


def first_difference(lhs: Graph | Plain, rhs: Graph | Plain, map_free_vars: bool = False) -> str:
    """Where two graphs differ, in words; "" where they do not.  Of lists and dicts of them, where
    the first that differ do.

    map_free_vars: variables that are no parameters need not be the same ones, as long as each of
        the one graph stands for one of the other
    """
    if isinstance(lhs, Mapping) and isinstance(rhs, Mapping):
        if lhs.keys() != rhs.keys():
            return f"keys {', '.join(map(str, lhs))} and {', '.join(map(str, rhs))}"
        held = ((k, first_difference(v, rhs[k], map_free_vars)) for k, v in lhs.items())
        return next((f"in {k}: {what}" for k, what in held if what), "")
    if isinstance(lhs, (list, tuple)) and isinstance(rhs, (list, tuple)):
        if len(lhs) != len(rhs):
            return f"{len(lhs)} and {len(rhs)} values"
        pairs = zip(lhs, rhs, strict=True)
        return next((d for a, b in pairs if (d := first_difference(a, b, map_free_vars))), "")
    if isinstance(lhs, IRModule) and isinstance(rhs, IRModule):
        if set(lhs.functions) != set(rhs.functions):
            return f"functions {', '.join(lhs.functions)} and {', '.join(rhs.functions)}"
        found = ((n, first_difference(f, rhs[n])) for n, f in lhs.functions.items())
        return next((f"in {name}: {what}" for name, what in found if what), "")
    if isinstance(lhs, IRModule) or isinstance(rhs, IRModule):
        return "a module and an expression"
    if not isinstance(lhs, Expr) or not isinstance(rhs, Expr):
        if isinstance(lhs, Number) or isinstance(rhs, Number):  # of te: equal ones are one
            return "" if lhs is rhs else f"{lhs} and {rhs}"
        same = type(lhs) is type(rhs) and lhs == rhs
        return "" if same else f"{_what(lhs)} {lhs} and {rhs}"
    return Comparison(map_free_vars).run(lhs, rhs)


def _what(value: Any) -> str:
    return "types" if isinstance(value, TensorType | TupleType | OtherType) else "values"


class Comparison:
    """One comparison: which variables, and which type variables, stand for which of the other."""

    def __init__(self, map_free_vars: bool) -> None:
        self.map_free_vars = map_free_vars
        self.types: dict[Any, Any] = {}
        self.there: dict[Var, Var] = {}
        self.back: dict[Var, Var] = {}

    def run(self, lhs: Expr, rhs: Expr) -> str:
        done: set[tuple[Expr, Expr]] = set()
        stack = [(lhs, rhs)]
        while stack:
            pair = stack.pop()
            if pair in done:
                continue
            done.add(pair)
            a, b = pair
            if what := self._differ(a, b):
                return what
            if isinstance(a, Function) and isinstance(b, Function):
                stack.append((a.body, b.body))
            if isinstance(a, Call) and isinstance(b, Call) and isinstance(a.op, Function):
                assert isinstance(b.op, Function)
                stack.append((a.op, b.op))
            stack.extend(reversed(list(zip(children(a), children(b), strict=True))))
        return ""

    def _differ(self, a: Expr, b: Expr) -> str:
        for first in FIRST:
            if (known := first(a, b)) is not None:
                return known
        if type(a) is not type(b):
            return f"a {type(a).__name__} and a {type(b).__name__}"
        if not same_type(a._type, b._type, self.types):
            return f"types {a._type} and {b._type}"
        rule = next(RULES[k] for k in type(a).__mro__ if k in RULES)
        if what := rule(self, a, b):
            return what
        return "" if len(children(a)) == len(children(b)) else "tuples of other lengths"

    def variables(self, a: Var, b: Var) -> str:
        if self.map_free_vars:
            self.there.setdefault(a, b)
            self.back.setdefault(b, a)
        same = self.there.get(a, a) is b and self.back.get(b, b) is a
        return "" if same else f"variables {a.name_hint} and {b.name_hint}"

    def constants(self, a: Constant, b: Constant) -> str:
        nan = a.data.dtype.kind == "f"
        return "" if np.array_equal(a.data, b.data, equal_nan=nan) else f"constants {a} and {b}"

    def functions(self, a: Function, b: Function) -> str:
        if len(a.params) != len(b.params):
            return f"functions of {len(a.params)} and {len(b.params)} parameters"
        return next(
            (w for p, q in zip(a.params, b.params, strict=True) if (w := self.bound(p, q))), ""
        )

    def bound(self, p: Var, q: Var) -> str:
        """Variables that get their values in the same place."""
        if not same_type(p.type_annotation, q.type_annotation, self.types):
            return f"parameters {p.name_hint} and {q.name_hint}"
        self.there[p], self.back[q] = q, p
        return ""

    def calls(self, a: Call, b: Call) -> str:
        if isinstance(a.op, Function) != isinstance(b.op, Function):
            return "a call of a function and one of an operator"
        if not isinstance(a.op, Function) and a.op is not b.op:
            assert not isinstance(b.op, Function)
            return f"operators {a.op.name} and {b.op.name}"
        if len(a.args) != len(b.args):
            return "calls with other numbers of arguments"
        if not _equal_attributes(dict(a.attrs), dict(b.attrs)):
            return f"attributes {dict(a.attrs)} and {dict(b.attrs)}"
        return ""

    def picked(self, a: TupleGetItem, b: TupleGetItem) -> str:
        return "" if a.index == b.index else f"values {a.index} and {b.index} of a tuple"

    def deferred(self, a: Deferred, b: Deferred) -> str:
        one, other = deferred_key(a), deferred_key(b)
        return "" if one == other else f"{one} and {other}"


Rule = Callable[[Comparison, Any, Any], str]
# What differs between two nodes of one kind, besides their types and what they read; languages over
# these nodes add theirs, and what is asked of two nodes of any kinds before.
RULES: dict[type[Expr], Rule] = {
    Expr: lambda comparison, a, b: "", Var: Comparison.variables, Constant: Comparison.constants,
    Function: Comparison.functions, Call: Comparison.calls, TupleGetItem: Comparison.picked,
    Deferred: Comparison.deferred,
}  # fmt: skip
FIRST: list[Callable[[Expr, Expr], str | None]] = []


def _equal_attributes(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(_equal_values(v, b[k]) for k, v in a.items())


def _equal_values(a: Any, b: Any) -> bool:
    """Numbers that are one in float32 are one: an epsilon that went through a constant."""
    if isinstance(a, float) and isinstance(b, float):
        with np.errstate(over="ignore"):
            return bool(np.array_equal(np.float32(a), np.float32(b), equal_nan=True))
    return bool(np.array_equal(a, b))


def hash_of(graph: Graph) -> int:
    """Equal for graphs without a difference, but for attributes that are equal in float32 only;
    names of parameters and weights do not count."""
    if isinstance(graph, IRModule):
        parts = sorted((str(name), hash_of(f)) for name, f in graph.functions.items())
        return zlib.crc32(repr(parts).encode())
    text = structural_key(graph) if isinstance(graph, Function) else str(graph)
    return zlib.crc32(text.encode())
