"""What the machine has to know of a function before it runs.

In: functions.  Out: the same functions with variables of their own for each name that a `let` or a
pattern gives; which nodes are read how often, and which depend on what the function is called with.
Read next: `machine.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from tilewright.graph.deferred import Deferred, made_again
from tilewright.graph.expr import Expr, Function, Var, children, post_order
from tilewright.graph.traversal import rewrite, substitute
from tilewright_tvm.relay.functional.calls import everything
from tilewright_tvm.relay.functional.later import CalledAgain
from tilewright_tvm.relay.functional.nodes import (
    Clause,
    LetNode,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
)


class Code:
    """Of one function.

    body:  what is run: that of the function, in which no two names are one variable
    reads: how many nodes read each node; kept: nodes that functions inside read, at any time
    own:   nodes that depend on parameters and names of this function, of which each call has its
           own; others may be known to the function around
    open_params: parameters that have open extents
    """

    def __init__(self, function: Function) -> None:
        self.function, self.body = function, named_apart(function)
        nodes = post_order(self.body, read_by)
        self.reads = Counter(c for n in nodes for c in set(read_by(n)))
        inside = [i for f in _functions(nodes) for i in everything(f.body)]
        self.kept = {self.body, *inside}
        if any(isinstance(n, Deferred) and not isinstance(n, CalledAgain) for n in nodes):
            self.kept.update(n for n in nodes if isinstance(n, Var))  # whose makers may read them
        self.open_params = [p for p in function.params if p.open_extents]
        mine = {*function.params, *(v for n in nodes for v in n.binds)}
        self.own: set[Expr] = set(mine)
        for n in nodes:
            free = n.free if isinstance(n, Function) else ()
            if any(c in self.own for c in (*read_by(n), *free)):
                self.own.add(n)


def read_by(node: Expr) -> Sequence[Expr]:
    """What `node` is made of; where extents are open, what it is made of again."""
    again = made_again(node)
    return children(node) if again is None else again.parts


class Codes:
    """Those of a program, each made once."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[Function, Code] = WeakKeyDictionary()

    def of(self, function: Function) -> Code:
        if function not in self._made:
            self._made[function] = Code(function)
        return self._made[function]


def named_apart(function: Function) -> Expr:
    """The body, in which a variable that several names of it are is a variable for each."""
    body = function.body
    counts = Counter(v for n in post_order(body) for v in n.binds)
    counts.update(function.params)
    twice = {v for v, count in counts.items() if count > 1}
    if not twice:
        return body

    def visit(old: Expr, node: Expr) -> Expr:  # names inside are apart before those around them
        if isinstance(node, LetNode) and node.var in twice:
            var = _like(node.var)
            return LetNode(var, node.value, substitute(node.body, {node.var: var}))
        if isinstance(node, Match):
            return Match(node.data, [_apart(c, twice) for c in node.clauses], node.complete)
        return node

    return rewrite(body, visit)


def _apart(clause: Clause, twice: set[Var]) -> Clause:
    there: dict[Expr, Expr] = {v: _like(v) for v in clause.lhs.variables() if v in twice}
    if not there:
        return clause
    return Clause(renamed(clause.lhs, there), substitute(clause.rhs, there))


def renamed(pattern: Pattern, there: dict[Expr, Expr]) -> Pattern:
    """`pattern` with other variables."""
    if isinstance(pattern, PatternVar):
        var = there.get(pattern.var, pattern.var)
        assert isinstance(var, Var)
        return PatternVar(var)
    parts = [renamed(p, there) for p in pattern.patterns]
    if isinstance(pattern, PatternConstructor):
        return PatternConstructor(pattern.constructor, parts)
    return PatternTuple(parts) if isinstance(pattern, PatternTuple) else pattern


def _like(var: Var) -> Var:
    return Var(var.name_hint, var.type_annotation)


def _functions(nodes: list[Expr]) -> list[Function]:
    return [n for n in nodes if isinstance(n, Function)]
