"""Gradients of operators that move elements: the elements go back.

In: calls and the gradient of their results.  Out: that of what they read.  Read next:
`indexing.py`.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np

from tilewright.graph.expr import Call, Expr
from tilewright.graph.functions import tensor as T
from tilewright.graph.functions.indexing import slice_of
from tilewright.graph.op import call
from tilewright_tvm.relay.gradients.shared import Cotangent, Rule, along_axis, summed, zeros


def _reshaped(node: Call, g: Expr) -> list[Expr]:
    return [call("reshape", g, newshape=node.args[0].shape)]


def _transpose(node: Call, g: Expr) -> list[Expr]:
    return [T.transpose(g, np.argsort(node.attrs.axes).tolist())]


def _concatenate(node: Call, g: Expr) -> list[Cotangent]:
    axis = node.attrs.axis % len(g.shape)
    kinds = node.args[0].checked_type.fields  # type: ignore[union-attr]
    ends = [0, *accumulate(kind.shape[axis] for kind in kinds)]
    return [[
        slice_of(g, [range(b, e) if k == axis else range(n) for k, n in enumerate(g.shape)])
        for b, e in pairwise(ends)
    ]]  # fmt: skip


def _broadcast_to(node: Call, g: Expr) -> list[Expr]:
    return [summed(g, node.args[0])]


def _pad(node: Call, g: Expr) -> list[Expr]:
    kept = zip(node.attrs.pad_width, node.args[0].shape, strict=True)
    return [slice_of(g, [range(before, before + n) for (before, _), n in kept])]


def _mirror_pad(node: Call, g: Expr) -> list[Expr]:
    """Each element has the sum of what its copies have: a product along each padded axis."""
    for axis, (width, n) in enumerate(zip(node.attrs.pad_width, node.args[0].shape, strict=True)):
        if any(width):
            copies = np.pad(np.eye(n), ((0, 0), width), node.attrs.mode)
            g = along_axis(g, axis, copies)
    return [g]


def _strided_slice(node: Call, g: Expr) -> list[Expr]:
    data, a = node.args[0], node.attrs
    if set(a.strides) <= {1}:
        parts = zip(data.shape, a.begin, a.extents, strict=True)
        return [call("nn.pad", g, pad_width=tuple((b, n - b - e) for n, b, e in parts))]
    return [call("strided_set", zeros(data), g, begin=a.begin, strides=a.strides)]


def _strided_set(node: Call, g: Expr) -> list[Expr]:
    v, a = node.args[1], node.attrs
    taken = call("strided_slice", g, begin=a.begin, extents=v.shape, strides=a.strides)
    return [call("strided_set", g, zeros(v), begin=a.begin, strides=a.strides), taken]


RULES: dict[str, Rule] = {
    **dict.fromkeys(("reshape", "nn.batch_flatten", "expand_dims", "squeeze"), _reshaped),
    "transpose": _transpose,
    "concatenate": _concatenate,
    "broadcast_to": _broadcast_to,
    "nn.pad": _pad,
    "nn.mirror_pad": _mirror_pad,
    "strided_slice": _strided_slice,
    "strided_set": _strided_set,
}
