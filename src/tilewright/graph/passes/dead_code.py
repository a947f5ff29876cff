"""Operators that do nothing disappear; values nobody reads are gone with them.

In: any module.  Out: an equal, smaller one.  (A graph holds only what its result reads, so dropping
a reader drops its whole branch.)  Read next: `fuse.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.graph.expr import Call, Constant, Expr, IRModule, Tuple
from tilewright.graph.op import TABLE, call
from tilewright.graph.traversal import (
    each_function,
    is_call,
    op_name,
    rewrite,
    unpacked,
    with_body,
)


def eliminate_dead_code(mod: IRModule) -> IRModule:
    """Drop what does not change its input.

    copy(x), x + 0 (a zero of x keeps its sign), x * 1, cast to x's own type, padding by nothing, a
    slice of everything, a transposition that keeps the order, a concatenation of one, a reshape to
    x's own shape                                       ->  x
    view(view(x))                                       ->  reshape(x)
    relu(relu(x))                                       ->  relu(x)
    (a, b, ...).k                                       ->  the k-th value
    """
    return each_function(mod, lambda f: with_body(f, rewrite(f.body, lambda old, n: simpler(n))))


def simpler(node: Expr) -> Expr:
    """Give what `node` gives, without an operator that does nothing; `node` where there is none."""
    if not isinstance(node, Call) or not op_name(node):
        return unpacked(node)
    if (test := NEUTRAL.get(op_name(node))) is not None and test(node):
        kept = node.args[0]
        return kept.fields[0] if isinstance(kept, Tuple) else kept
    if is_view(node):
        return merged_view(node)
    if is_call(node, "nn.relu") and is_call(node.args[0], "nn.relu"):
        return node.args[0]
    return node


def is_view(node: Expr) -> bool:
    """Say whether `node` only renames the axes of its argument."""
    name = op_name(node)
    return name != "" and TABLE[name].view


def merged_view(node: Call) -> Expr:
    """Give a view of a view as one; what is viewed, where its shape is the same."""
    source = node.args[0]
    if is_view(source):
        assert isinstance(source, Call)
        source = source.args[0]
    elif source.shape != node.shape:
        return node
    return source if source.shape == node.shape else call("reshape", source, newshape=node.shape)


def _all_equal(node: Call, number: float) -> bool:
    x, c = node.args
    return (
        isinstance(c, Constant)
        and x.checked_type == node.checked_type
        and bool(np.all(c.data == number))
    )


NEUTRAL: dict[str, Callable[[Call], bool]] = {
    "copy": lambda n: True,
    "nn.dropout": lambda n: True,
    "annotation.checkpoint": lambda n: True,
    "add": lambda n: _all_equal(n, 0),
    "multiply": lambda n: _all_equal(n, 1),
    "cast": lambda n: n.args[0].dtype == n.dtype,
    "nn.pad": lambda n: n.args[0].shape == n.shape,
    "nn.mirror_pad": lambda n: n.args[0].shape == n.shape,
    "strided_slice": lambda n: n.args[0].shape == n.shape and min(n.attrs.strides, default=1) > 0,
    "broadcast_to": lambda n: n.args[0].shape == n.shape,
    "transpose": lambda n: list(n.attrs.axes) == sorted(n.attrs.axes),
    "concatenate": lambda n: isinstance(n.args[0], Tuple) and len(n.args[0].fields) == 1,
    "clip": lambda n: n.attrs.a_min == -np.inf and n.attrs.a_max == np.inf,
}
