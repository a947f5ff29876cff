"""What folding needs to know of contractions: channel axes, and how a scale enters a weight.

In: calls of convolutions and dense.  Out: axes and scaled weights.  Read next: `scale.py`.
"""

from __future__ import annotations

from math import isfinite

import numpy as np

from tilewright.base.concurrency import in_threads
from tilewright.base.dtype import DType
from tilewright.graph.expr import Array, Call, Constant, Expr
from tilewright.graph.floats import AT_A_TIME, largest, widened
from tilewright.graph.op.conv import CONVOLUTIONS
from tilewright.graph.op.window import IMAGE, to_order
from tilewright.graph.traversal import is_call

CONTRACTIONS = (*CONVOLUTIONS, "nn.dense")


def is_contraction(node: Expr) -> bool:
    """Say whether `node` is one whose channels are one axis, not blocks."""
    return isinstance(node, Call) and is_call(node, *CONTRACTIONS) and len(channel_axes(node)) == 1


def channel_axis(node: Call) -> int:
    """Give the axis of a contraction's data and of its result that its channels run along."""
    return channel_axes(node)[0]


def channel_axes(node: Call) -> tuple[int, ...]:
    """Give the same; where they lie in blocks two axes, the second that of a block."""
    if not is_call(node, *CONVOLUTIONS):
        return (1,)
    letters = filter(str.isalpha, str(node.attrs.data_layout))
    return tuple(k for k, letter in enumerate(letters) if letter in "Cc")


def varies_only_at(scale: Array, *axes: int) -> bool:
    """Say whether a full-rank `scale` is the same along every axis but `axes`."""
    return all(n == 1 or k in axes for k, n in enumerate(scale.shape))


def constant_operand(node: Expr) -> Array | None:
    """Give c in `x op c` when c is a constant that does not stretch x."""
    if not isinstance(node, Call) or len(node.args) != 2:
        return None
    x, c = node.args
    if (
        isinstance(c, Constant)
        and not isinstance(x, Constant)
        and x.checked_type == node.checked_type
    ):
        return c.data
    return None


def _scaled(weight: Array, vector: Array) -> Array:
    """A matrix times a vector along one of its axes, some rows at a time: of a large one in float64
    much would be written that is read once."""
    if np.all(vector == 1):
        return weight
    made = np.empty(weight.shape, weight.dtype)
    rows = max(1, AT_A_TIME // max(weight.shape[1], 1))
    times = _times_of_bits if _is_exact(weight, vector) else np.multiply

    def scale(first: int) -> None:
        part = slice(first, first + rows)
        made[part] = times(weight[part], vector if len(vector) == 1 else vector[part])

    in_threads(scale, range(0, len(weight), rows))
    return made


def _is_exact(weight: Array, vector: Array) -> bool:
    """Whether float32 holds each product of numbers of bfloat16 with these, but the smallest."""
    short = vector.astype(np.float32)
    bits = short.view(np.uint32)
    return weight.dtype == DType("bfloat16").storage and bool(
        np.all(short == vector) and not np.any(bits & 0xFF)
    )


def _times_of_bits(weight: Array, vector: Array) -> Array:
    """The product of numbers of bfloat16, rounded once, by integers: numpy's loops over its own
    types run beside each other."""
    numbers = widened(weight)
    wide = numbers.view(np.uint32)
    with np.errstate(over="ignore"):
        numbers *= vector.astype(np.float32)
    odd = wide >> 16
    odd &= 1
    wide += odd
    wide += 0x7FFF
    wide >>= 16
    return wide.astype(np.uint16).view(weight.dtype)


def all_finite(array: Array) -> bool:
    """Whether no element is infinite or no number."""
    return isfinite(largest(array))


def scaled_weight(node: Call, scale: Array, side: str) -> Constant:
    """Give the constant weight of `node` times `scale` [channels or 1] of its input or output
    channels.

    side: "I" or "O".  Computed in float64, rounded once.
    """
    weight = node.args[1]
    assert isinstance(weight, Constant)
    if scale.size > 1:  # of as many values as there are channels, in blocks or not
        value, axes = node if side == "O" else node.args[0], channel_axes(node)
        extents = [n if k in axes else 1 for k, n in enumerate(value.shape)]
        scale = np.broadcast_to(scale, extents).reshape(-1)
    if not is_call(node, *CONVOLUTIONS):
        vector = scale.reshape((1, -1) if side == "I" else (-1, 1))
        return Constant(_scaled(weight.data, vector))
    a = node.attrs
    image = IMAGE[len(a.strides)]
    order = f"OI{image}"
    w = to_order(weight.data, a.kernel_layout, order).astype("float64")
    ones = [1] * len(image)
    if side == "O" or scale.size == 1:
        w = w * scale.reshape(-1, 1, *ones)
    else:  # output channel o of group g reads the input channels of g
        per_group = scale.reshape(a.groups, 1, w.shape[1], *ones)
        w = (w.reshape(a.groups, -1, *w.shape[1:]) * per_group).reshape(w.shape)
    back = to_order(w, order, a.kernel_layout)
    return Constant(np.ascontiguousarray(back, weight.data.dtype))
