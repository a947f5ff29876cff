"""Nodes that wait for values, made as far as constants tell.

In: a graph with such nodes (`deferred.py`).  Out: the same without those that wait for constants
only.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.base.errors import ModelError
from tilewright.graph.deferred import Deferred, advanced
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    children,
    free_vars,
    post_order,
)
from tilewright.graph.extension import extension
from tilewright.graph.traversal import rewrite, unpacked


def made_of_constants(function: Function) -> Function:
    """`function` without nodes that wait for constants only.

    Raises ModelError where others are left, which ends builds that know no values.
    """
    function = extension().typed(function)
    if not function.waits:
        return function
    body = advanced_body(function.body, {})
    if body.waits:
        raise _reason(body)
    return Function(function.params, body, attrs=function.attrs)


def _reason(body: Expr) -> ModelError:
    """Why `body` waits: for values, or a function that it calls does."""
    found = nodes_waited_for(body)
    if found:
        return found[0].error
    calls = (n.op for n in post_order(body) if isinstance(n, Call) and n.waits)
    return _reason(next(f.body for f in calls if isinstance(f, Function) and f.body.waits))


def advanced_body(body: Expr, new: Mapping[Expr, Expr]) -> Expr:
    """`body` with some nodes replaced, and what waits made as far as it can be."""

    def visit(old: Expr, rebuilt: Expr) -> Expr:
        if old in new:
            return new[old]
        node = unpacked(rebuilt)
        if not isinstance(node, Deferred):
            return node
        try:
            return _advanced(node)
        except ModelError as error:
            return node.failed(error)  # which counts if the network comes there

    return rewrite(body, visit)


def _advanced(node: Expr) -> Expr:
    """`node`, made as far as what it asks for depends on no input."""
    while isinstance(node, Deferred):
        if any(p.waits for p in node.first) or any(map(free_vars, node.asks)):
            return node
        known = {a: Constant(evaluate(a)) for a in node.asks}
        node = advanced(node.with_parts([known.get(p, p) for p in node.parts]))
    return node


def nodes_waited_for(root: Expr) -> list[Deferred]:
    """The nodes that `root` waits for, of which all that they read has a type."""
    found: dict[Deferred, None] = {}
    done: set[Expr] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node in done or not node.waits:
            continue
        done.add(node)
        if not isinstance(node, Deferred):
            stack.extend(children(node))
        elif any(p.waits for p in node.first):
            stack.extend(node.first)
        elif node.asks:
            found[node] = None
        else:
            raise node.error
    return list(found)
