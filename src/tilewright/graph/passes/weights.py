"""What folding needs to know of contractions: channel axes, and how a scale enters a weight.

In: calls of convolutions and dense.  Out: axes and scaled weights.  Read next: `scale.py`.
"""

from __future__ import annotations

import numpy as np

from tilewright.graph.expr import Array, Call, Constant, Expr
from tilewright.graph.op.conv import CONVOLUTIONS
from tilewright.graph.op.window import IMAGE, to_order
from tilewright.graph.traversal import is_call

CONTRACTIONS = (*CONVOLUTIONS, "nn.dense")
_AT_A_TIME = 1 << 16  # elements


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
    made = np.empty(weight.shape, weight.dtype)
    rows = max(1, _AT_A_TIME // max(weight.shape[1], 1))
    for k in range(0, len(weight), rows):
        part = slice(k, k + rows)
        made[part] = weight[part] * (vector if len(vector) == 1 else vector[part])
    return made


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
