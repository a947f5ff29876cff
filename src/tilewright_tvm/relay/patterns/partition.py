"""What becomes of the parts of a graph that match a pattern.

In: patterns of `matching.py`, with functions or attributes.  Out: the graph with each such part
replaced, or in a function of its own.  Read next: `../dataflow_pattern.py`, what users call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.doors import check_arguments
from tilewright.base.errors import ModelError
from tilewright.graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    Tuple,
    Var,
    children,
    post_order,
)
from tilewright.graph.op import Op
from tilewright.graph.traversal import rewrite as rebuilt_from_leaves
from tilewright.graph.traversal import substitute, users, with_body
from tilewright_tvm.relay.equality import first_difference
from tilewright_tvm.relay.functional.nodes import make_call, make_function
from tilewright_tvm.relay.patterns.matching import (
    CallPattern,
    ConstantPattern,
    DFPattern,
    DominatorPattern,
    ExprPattern,
    IfPattern,
    TupleGetItemPattern,
    TuplePattern,
    matched,
)

MOST_ROUNDS = 1000  # of one rewriting
_SPELLED = (
    CallPattern, ConstantPattern, DominatorPattern, ExprPattern, IfPattern, TupleGetItemPattern,
    TuplePattern,
)  # fmt: skip


class DFPatternCallback:
    """A user's rewriting: `pattern`, and `callback`, which says what becomes of what matches.

    require_type: accepted; types are known as soon as a graph is made
    rewrite_once: what `callback` gave is not matched again
    """

    pattern: DFPattern

    def __init__(self, require_type: bool = False, rewrite_once: bool = False) -> None:
        self.require_type, self.rewrite_once = require_type, rewrite_once

    def callback(self, pre: Expr, post: Expr, node_map: Mapping[DFPattern, Sequence[Any]]) -> Expr:
        """The value in the place of `post`.

        pre: what matched; post: the same, of values that were rewritten already
        node_map: for each part of the pattern the nodes that it stands for, as a list
        """
        raise NotImplementedError(f"{type(self).__name__} has no callback")

    def rewrite(self, expr: Expr) -> Expr:
        """`dataflow_pattern.rewrite` with this callback."""
        return rewrite(self, expr)


def rewrite(callbacks: DFPatternCallback | Sequence[DFPatternCallback], expr: Expr) -> Expr:
    """`expr`, an expression or a function, with all that matches replaced, until nothing changes.

    Raises ModelError for a callback that gives no value, and where there is no end.
    """
    several = [callbacks] if isinstance(callbacks, DFPatternCallback) else list(callbacks)
    if isinstance(expr, Function):
        return with_body(expr, rewrite(several, expr.body))
    for _ in range(MOST_ROUNDS):
        before = expr
        for one in several:
            expr = _rewritten(one, expr)
        several = [c for c in several if not c.rewrite_once]
        if not several or expr is before or not first_difference(before, expr):
            return expr
    raise ModelError(
        "dataflow_pattern.rewrite", f"it has not ended after {MOST_ROUNDS} rounds",
        "Give rewrite_once=True, or a pattern that does not match what the callback makes.",
    )  # fmt: skip


def _rewritten(one: DFPatternCallback, expr: Expr) -> Expr:
    """One round, from the result back: parts that match do not overlap."""
    groups = _groups(one.pattern, expr, lambda node: True)
    taken = {n for g in groups.values() for n in g.inside}
    new: dict[Expr, Expr] = {}

    def visit(old: Expr, node: Expr) -> Expr:
        if isinstance(node, Call) and isinstance(node.op, Function) and old not in taken:
            inner = with_body(node.op, _rewritten(one, node.op.body))
            node = node if inner is node.op else make_call(inner, node.args, node.attrs)
        new[old] = node
        if old in groups:
            nodes = {p: [_now(n, new) for n in ns] for p, ns in groups[old].found.items()}
            made = one.callback(old, node, nodes)
            if not isinstance(made, Expr):
                raise ModelError(
                    f"{type(one).__name__}.callback", f"it gave a {type(made).__name__}",
                    "Return a value of relay; post to leave it as it is.",
                )  # fmt: skip
            new[old] = made
        return new[old]

    return rebuilt_from_leaves(expr, visit)


def _now(node: Any, new: Mapping[Expr, Expr]) -> Any:
    """What `node` has become; one that was regrouped to match reads what its parts have become."""
    if not isinstance(node, Expr) or isinstance(node, Function):
        return node
    return new[node] if node in new else substitute(node, new)


def partition(
    pattern: DFPattern,
    expr: Expr,
    attrs: Mapping[str, Any] | None = None,
    check: Callable[[Expr], bool] = lambda expr: True,
) -> Expr:
    """`expr`, an expression or a function, in which each part that matches is a call of a function
    of its own.  Parts of which another value is read outside stay, unless all that is made of it
    is read by the part: what it needs is then computed there, too.

    attrs: of these functions; "PartitionedFromPattern" names their operators
    check: of what matches, whether it is taken
    """
    if isinstance(expr, Function):
        return with_body(expr, partition(pattern, expr.body, attrs, check))
    check_arguments(check, [expr], "partition(check=)", ModelError)
    return _called(expr, _groups(pattern, expr, check), dict(attrs or {}))


@dataclass(frozen=True)
class _Group:
    """A part that matches.

    found: what the parts of the pattern stand for
    inside: its nodes, in order
    inputs: what they read
    """

    found: dict[DFPattern, list[Any]]
    inside: list[Expr]
    inputs: list[Expr]


def _groups(pattern: DFPattern, expr: Expr, check: Callable[[Expr], bool]) -> dict[Expr, _Group]:
    """Parts that match and do not overlap, by their results, the last ones first."""
    readers = users(expr)
    taken: set[Expr] = set()
    groups: dict[Expr, _Group] = {}
    for node in reversed(list(readers)):
        found = None if node in taken else matched(pattern, node)
        if found is None:
            continue
        group = _group(node, found)
        if taken.isdisjoint(group.inside) and _closed(node, group, readers) and check(node):
            taken.update(n for n in group.inside if not isinstance(n, Constant))
            groups[node] = group
    return groups


def _group(root: Expr, found: dict[DFPattern, list[Any]]) -> _Group:
    """Of nodes that a pattern spells out; where it has a wildcard or a variable, they read."""
    nodes = {n for p, ns in found.items() if isinstance(p, _SPELLED) for n in ns} | {root}
    nodes = {n for n in nodes if isinstance(n, Expr) and not isinstance(n, (Var, Function))}
    order = post_order(root, lambda n: children(n) if n in nodes else ())
    inside = [n for n in order if n in nodes]
    return _Group(found, inside, [n for n in order if n not in nodes])


def _closed(root: Expr, group: _Group, readers: Mapping[Expr, Sequence[Expr]]) -> bool:
    """Whether nothing but its result leaves the part: what else reads its values ends in it."""
    inner = [n for n in group.inside if n is not root and not isinstance(n, Constant)]
    members, stack = set(group.inside), [reader for n in inner for reader in readers[n]]
    done: set[Expr] = set()
    while stack:
        node = stack.pop()
        if node in members or node in done:
            continue
        if not readers[node]:
            return False
        done.add(node)
        stack += readers[node]
    return True


def _called(expr: Expr, groups: Mapping[Expr, _Group], attrs: dict[str, Any]) -> Expr:
    new: dict[Expr, Expr] = {}
    count = 0

    def visit(old: Expr, node: Expr) -> Expr:
        nonlocal count
        if old not in groups:
            new[old] = node
            return node
        inside, inputs = groups[old].inside, groups[old].inputs
        params = [
            Var(f"FunctionVar_{count}_{k}", None if i.waits or old.waits else i.checked_type)
            for k, i in enumerate(inputs)
        ]
        count += 1
        body = substitute(old, dict(zip(inputs, params, strict=True)))
        label = "".join(f"{name}_" for n in inside if (name := _label(n)))
        made = make_function(params, body, attrs={**attrs, "PartitionedFromPattern": label})
        new[old] = made(*(new[i] for i in inputs))
        return new[old]

    return rebuilt_from_leaves(expr, visit)


def _label(node: Expr) -> str:
    if isinstance(node, Call):
        if isinstance(node.op, Op):
            return node.op.name
        return (
            "".join(f"{_label(n)}_" for n in post_order(node.op.body) if _label(n)) + "FunctionCall"
        )
    return type(node).__name__ if isinstance(node, Tuple) else ""
