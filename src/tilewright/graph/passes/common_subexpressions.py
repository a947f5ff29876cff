"""Common subexpressions: what is computed twice from the same values is computed once.

In: any module.  Out: an equal one in which no two calls have the same operator, arguments and
attributes.  Read next: `dead_code.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.graph.expr import Call, Constant, Expr, IRModule, Tuple, TupleGetItem
from tilewright.graph.later import Later
from tilewright.graph.traversal import each_function, rewrite, with_body

SMALL = 64  # elements of constants that are compared by what they hold; others by identity


def eliminate_common(
    mod: IRModule, keep: Callable[[Expr], bool] | None = None, small: int = SMALL
) -> IRModule:
    """relu(x) + relu(x)  ->  y + y, where y = relu(x)

    keep: of a call, whether it stays by itself; small: elements of constants that are compared
    """

    def once(body: Expr) -> Expr:
        known: dict[Any, Expr] = {}

        def visit(old: Expr, node: Expr) -> Expr:
            if keep is not None and isinstance(node, Call) and keep(node):
                return node
            key = _key(node, small)
            return node if key is None else known.setdefault(key, node)

        return rewrite(body, visit)

    return each_function(mod, lambda f: with_body(f, once(f.body)))


def _key(node: Expr, small: int) -> Any:
    """Equal for nodes that give the same; None where only the node itself does."""
    if isinstance(node, Call):
        return node.op, node.args, tuple((k, repr(v)) for k, v in sorted(node.attrs.items()))
    if isinstance(node, Tuple):
        return node.fields
    if isinstance(node, TupleGetItem):
        return node.tuple_value, node.index
    if isinstance(node, Constant) and not isinstance(node, Later) and node.data.size <= small:
        return str(node.checked_type), node.data.tobytes()
    return None
