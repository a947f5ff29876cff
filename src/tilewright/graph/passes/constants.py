"""Constant folding.

In: any module.  Out: an equal one in which no call has constant arguments only.
Read next: `shift.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.evaluate import evaluate_call
from tilewright.graph.expr import Call, Constant, Expr, IRModule, TensorType, Tuple
from tilewright.graph.op.work import nbytes, work
from tilewright.graph.passes.canonicalize import canonicalize
from tilewright.graph.traversal import each_function, rewrite, unpacked, with_body

# Of one call: about a second of work, unless it only goes through what is there already, and no
# array much larger than those are.  A value that costs more is computed when the network runs.
MOST_WORK, MOST_BYTES, MOST_GROWTH = 10**8, 1 << 26, 4


def fold_constants(mod: IRModule) -> IRModule:
    """Compute now what depends on constants only, by the numpy rule of each operator.

    op(c1, c2, ...)  ->  its value, in the element type it would have at run time
    """
    return canonicalize(compute_constants(mod))


def compute_constants(mod: IRModule) -> IRModule:
    """Give `fold_constants` that leaves everything else spelled as it is."""
    return each_function(mod, lambda f: with_body(f, rewrite(f.body, _visit)))


def _visit(old: Expr, node: Expr) -> Expr:
    if not isinstance(node, Call) or not node.args:
        return unpacked(node)
    arrays: list[Any] = []
    for arg in node.args:
        if isinstance(arg, Constant):
            arrays.append(arg.data)
        elif isinstance(arg, Tuple) and all(isinstance(f, Constant) for f in arg.fields):
            arrays.append(tuple(f.data for f in arg.fields if isinstance(f, Constant)))
        else:
            return node
    return _as_expr(node, arrays) if _is_cheap(node) else node


def computed_of_constants(node: Expr) -> Expr:
    """Give `node`, with all under it that depends on constants only computed."""
    return rewrite(node, _visit)


def _is_cheap(node: Call) -> bool:
    given = sum(nbytes(a.checked_type) for a in node.args)
    made = nbytes(node.checked_type)
    return made <= max(MOST_BYTES, MOST_GROWTH * given) and work(node) <= max(MOST_WORK, given)


def _as_expr(node: Call, arrays: list[Any]) -> Expr:
    value = evaluate_call(node, arrays)
    if isinstance(value, tuple):
        return Tuple([Constant(np.ascontiguousarray(v)) for v in value])
    wanted = node.checked_type
    assert isinstance(wanted, TensorType)
    return Constant(np.ascontiguousarray(value, wanted.dtype.storage).reshape(wanted.shape))
