"""Patterns that are written as expressions, as scripts wrote them before there were patterns.

In: an expression of variables.  Out: the pattern of what looks like it.
Read next: `matching.py`.
"""

from __future__ import annotations

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Constant, Expr, Tuple, TupleGetItem, Var, children, post_order
from tilewright.graph.traversal import op_name
from tilewright_tvm.relay.patterns.matching import (
    DFPattern,
    is_constant,
    is_op,
    is_tuple,
    is_tuple_get_item,
    wildcard,
)


def pattern_of(expr: Expr) -> DFPattern:
    """The pattern of all that calls the same operators in the same way: a variable is anything, the
    same at each of its places; attributes do not count.

    Raises ModelError for an expression with other parts, such as functions.
    """
    made: dict[Expr, DFPattern] = {}
    for node in post_order(expr):
        parts = [made[child] for child in children(node)]
        if isinstance(node, Var):
            made[node] = wildcard()
        elif isinstance(node, Constant):
            made[node] = is_constant()
        elif isinstance(node, Tuple):
            made[node] = is_tuple(parts)
        elif isinstance(node, TupleGetItem):
            made[node] = is_tuple_get_item(parts[0], node.index)
        elif op_name(node):
            made[node] = is_op(op_name(node))(*parts)
        else:
            raise ModelError(
                "MergeComposite", f"a {type(node).__name__} in an expression is no pattern",
                "Make it with relay.dataflow_pattern: is_op(...)(wildcard(), ...).",
            )  # fmt: skip
    return made[expr]
