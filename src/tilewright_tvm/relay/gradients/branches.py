"""Branches (`relay.If`) while a gradient is made: each stands as a variable of its type.

In: a graph.  Out: the same with variables in the place of branches, so that all types are known;
afterwards graphs with the branches again.  Read next: `backward.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graph.deferred import Branch
from tilewright.graph.expr import Expr, Tuple, Var, children, post_order
from tilewright.graph.traversal import rewrite, with_children


class Branches:
    """body: the graph without them; where the two values of one differ in type it stays."""

    def __init__(self, body: Expr) -> None:
        self._known: dict[Expr, Branch] = {}
        self.body = rewrite(body, self._visit) if body.waits else body

    def _visit(self, old: Expr, node: Expr) -> Expr:
        if not isinstance(node, Branch) or any(p.waits for p in node.parts[1:]):
            return node
        kind = node.parts[1].checked_type
        if kind != node.parts[2].checked_type:
            return node
        stands = Var("branch", kind)
        self._known[stands] = node
        return stands

    def is_one(self, node: Expr) -> bool:
        return node in self._known

    def both(self, node: Expr) -> Sequence[Expr]:
        """The value where the condition holds, and the other."""
        return self._known[node].parts[1:]

    def read(self, node: Expr) -> Sequence[Expr]:
        """What `node` is made of that it may grow with."""
        return self.both(node) if node in self._known else children(node)

    def chosen(self, node: Expr, taken: Expr, other: Expr) -> Expr:
        """One of two values by the condition of `node`."""
        return self._known[node].with_parts([self._known[node].parts[0], taken, other])

    def restored(self, values: Sequence[Expr]) -> list[Expr]:
        """`values` with the branches in their places."""
        if not self._known:
            return list(values)
        new: dict[Expr, Expr] = {}
        root = Tuple(values)

        def parts(node: Expr) -> Sequence[Expr]:
            return self._known[node].parts if node in self._known else children(node)

        for node in post_order(root, parts):
            made = tuple(new[c] for c in parts(node))
            new[node] = (
                self._known[node].with_parts(made)
                if node in self._known
                else with_children(node, made)
            )
        return [new[v] for v in values]
