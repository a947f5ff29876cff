"""One spelling of everything, so that later passes know one form only.

In: any module.  Out: an equal one in which the rewrites below have been made.  Read next:
`constants.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.base.dtype import DType
from tilewright.graph.expr import Array, Call, Constant, Expr, IRModule, Tuple
from tilewright.graph.op import call
from tilewright.graph.passes.simplify import along
from tilewright.graph.traversal import each_function, op_name, rewrite, unpacked, with_body

# Tensors that one kernel concatenates: each takes an argument, of which a kernel has some hundreds
# at most, and a choice inside the choice of the one before.
WIDEST = 32


def canonicalize(mod: IRModule) -> IRModule:
    """Rewrite to the canonical spelling.

    bias_add(x, b)       ->  x + b, b along its axis and of full rank
    x - c                ->  x + (-c)
    x / c                ->  x * (1 / c), where 1 / c is as exact as any other number
    c + x, c * x         ->  x + c, x * c
    c of a lower rank    ->  c of full rank, unless it is a single number
    concatenate(many)    ->  concatenate(concatenate(some), concatenate(some), ...)
    transpose(x)         ->  reshape(x), where axes of one element change places only
    cast to x's own type ->  x
    where(c, x, y)       ->  x or y, where c is the same everywhere
    (a, b, ...).k        ->  the k-th value
    """
    return each_function(mod, lambda f: with_body(f, rewrite(f.body, _visit)))


def _visit(old: Expr, node: Expr) -> Expr:
    rule = RULES.get(op_name(node))
    return unpacked(node) if rule is None else rule(node)  # type: ignore[arg-type]


def _bias_add(node: Call) -> Expr:
    data, bias = node.args
    return _full_rank(call("add", data, along(bias, node.attrs.axis, len(data.shape))))


def _subtract(node: Call) -> Expr:
    x, c = node.args
    if isinstance(c, Constant):
        return _full_rank(call("add", x, Constant(np.asarray(-c.data))))
    return _full_rank(node)


def _divide(node: Call) -> Expr:
    x, c = node.args
    if isinstance(c, Constant) and c.dtype.is_float:
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            inverse = np.asarray(1 / c.data, c.data.dtype)
        if is_normal(inverse):
            return _full_rank(call("multiply", x, Constant(inverse)))
    return _full_rank(node)


def is_normal(numbers: Array) -> bool:
    """Say whether no number is zero, infinite, NaN, or so small that digits are missing."""
    kind = DType(numbers.dtype)
    return bool(np.all(np.isfinite(numbers) & (np.abs(numbers) >= kind.smallest / kind.eps)))


def _concatenate(node: Call) -> Expr:
    parts = node.args[0]
    if not isinstance(parts, Tuple) or len(parts.fields) <= WIDEST:
        return node
    fields, axis = parts.fields, node.attrs.axis
    while len(fields) > 1:
        cuts = range(0, len(fields), WIDEST)
        fields = tuple(call("concatenate", Tuple(fields[k : k + WIDEST]), axis=axis) for k in cuts)
    return fields[0]


def as_view(node: Call) -> Expr:
    """Give a transposition in which only axes of one element change places as a reshape."""
    moved = [k for k in node.attrs.axes if node.args[0].shape[k] != 1]
    return node if moved != sorted(moved) else call("reshape", node.args[0], newshape=node.shape)


def _cast(node: Call) -> Expr:
    return node.args[0] if node.args[0].dtype == node.dtype else node


def _where(node: Call) -> Expr:
    condition, *sides = node.args
    if isinstance(condition, Constant) and condition.data.size:
        for value, kept in zip((True, False), sides, strict=True):
            if np.all(condition.data == value) and kept.checked_type == node.checked_type:
                return kept
    return node


def _commutative(node: Call) -> Expr:
    a, b = node.args
    if isinstance(a, Constant) and not isinstance(b, Constant):
        return _full_rank(call(op_name(node), b, a))
    return _full_rank(node)


def _full_rank(node: Call) -> Call:
    """Constant operands with as many axes as the result, so that equal kernels look equal."""
    rank = len(node.shape)
    args = tuple(
        Constant(a.data.reshape((1,) * (rank - a.data.ndim) + a.data.shape))
        if isinstance(a, Constant) and a.data.size > 1 and a.data.ndim < rank
        else a
        for a in node.args
    )
    return node if args == node.args else Call(node.op, args, node.attrs)


RULES: dict[str, Callable[[Call], Expr]] = {
    "nn.bias_add": _bias_add,
    "subtract": _subtract,
    "concatenate": _concatenate,
    "divide": _divide,
    "cast": _cast,
    "transpose": as_view,
    "where": _where,
    "add": _commutative,
    "multiply": _commutative,
    "maximum": _commutative,
    "minimum": _commutative,
}
