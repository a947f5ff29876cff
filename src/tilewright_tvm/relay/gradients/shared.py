"""What rules of gradients share: sums over what was stretched, zeros, products along an axis.

In: graph values.  Out: graph values.  Read next: `elementwise.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.graph.expr import Array, Call, Expr, TensorType, Tuple, TupleType, Type
from tilewright.graph.functions import tensor
from tilewright.graph.leaves import const
from tilewright.graph.op import call
from tilewright.graph.op.reduction import reduced_axes
from tilewright_tvm.relay.shapes import collapse_sum_to

# What a value's gradient is: None where it is zero; of a tuple one for each field.
Cotangent = Expr | None | Sequence[Any]
# Of a call and the gradient of its result: the gradient of each argument.
Rule = Callable[[Call, Any], Sequence[Cotangent]]


def filled(kind: Type, value: int) -> Expr:
    """A value of this type that holds one number everywhere, as an expression, not an array."""
    if isinstance(kind, TupleType):
        return Tuple([filled(f, value) for f in kind.fields])
    single = const(np.full((), value, kind.dtype.storage))
    return call("broadcast_to", single, shape=kind.shape) if kind.shape else single


def whole(grad: Cotangent, kind: Type) -> Expr:
    """`grad` with zeros where it is zero."""
    if grad is None:
        return filled(kind, 0)
    if isinstance(grad, Expr):
        return grad
    assert isinstance(kind, TupleType) and isinstance(grad, Sequence)
    return Tuple([whole(g, f) for g, f in zip(grad, kind.fields, strict=True)])


def zeros(like: Expr) -> Expr:
    """Zeros of the type of `like`."""
    return filled(like.checked_type, 0)


def summed(grad: Expr, like: Expr) -> Expr:
    """`grad` summed over the axes along which `like` was stretched to its shape."""
    return collapse_sum_to(grad, like.shape)


def masked(condition: Expr, grad: Expr) -> Expr:
    """`grad` where the condition holds, else 0."""
    return tensor.where(condition, grad, 0.0)


def gone(node: Call) -> tuple[int, ...]:
    """The axes that a reduction takes away."""
    return reduced_axes(node.attrs.axis, node.attrs.exclude, len(node.args[0].shape))


def standing(value: Expr, node: Call) -> Expr:
    """A value of the shape of a reduction's result, with its axes again, of extent 1."""
    axes, data = gone(node), node.args[0]
    shape = tuple(1 if k in axes else n for k, n in enumerate(data.shape))
    return value if value.shape == shape else call("reshape", value, newshape=shape)


def spread(value: Expr, node: Call) -> Expr:
    """A value of the shape of a reduction's result, stretched to the shape of what it reads."""
    return tensor.broadcast_to(standing(value, node), node.args[0].shape)


def in_type(value: Expr, kind: TensorType | Expr) -> Expr:
    """`value` in the element type of `kind`."""
    return value if value.dtype == kind.dtype else tensor.cast(value, str(kind.dtype))


def along_axis(data: Expr, axis: int, matrix: Array) -> Expr:
    """`data` with its elements along `axis` as matrix @ them; matrix: [new extent, extent]."""
    rank, rows = len(data.shape), matrix.shape[0]
    last = [k for k in range(rank) if k != axis] + [axis]
    moved = data if axis == rank - 1 else tensor.transpose(data, last)
    outer = moved.shape[:-1]
    flat = call("reshape", moved, newshape=(int(np.prod(outer, dtype=int)), matrix.shape[1]))
    weight = const(np.ascontiguousarray(matrix, data.dtype.storage))
    product = call("nn.dense", flat, weight)
    made: Expr = call("reshape", product, newshape=(*outer, rows))
    return made if axis == rank - 1 else tensor.transpose(made, np.argsort(last).tolist())
