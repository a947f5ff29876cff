"""Gradients of pooling and of images of another size.

In: calls and the gradient of their results.  Out: that of the image.  A mean gives each element of
its window the same share, a maximum all to the first greatest one.  Read next: `normalize.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Attrs, Call, Expr
from tilewright.graph.functions import tensor as T
from tilewright.graph.functions.blocks import dilate
from tilewright.graph.functions.indexing import slice_of, take
from tilewright.graph.functions.layout import layout_transform
from tilewright.graph.leaves import const
from tilewright.graph.op import call, get
from tilewright.graph.op.window import RANKS, channels_first, reaches
from tilewright.graph.traversal import op_name
from tilewright_tvm.relay.gradients.shared import Rule, along_axis, masked


def _image(layout: str) -> list[int]:
    """Which axes the image has."""
    return [k for k, letter in enumerate(filter(str.isalpha, layout)) if letter in "DHW"]


def _blocks(g: Expr, shape: Sequence[int]) -> Expr:
    """Each element as a block of equal ones, as large as fit `shape`."""
    apart = [n for old, new in zip(g.shape, shape, strict=True) for n in (old, new // old)]
    single = call("reshape", g, newshape=tuple(n for old in g.shape for n in (old, 1)))
    return call("reshape", T.broadcast_to(single, apart), newshape=tuple(shape))


def _means(node: Call, g: Expr) -> Expr:
    """For each element of the image the sum of `g` over the windows that it is in, by the size of
    the window: a mean over a window that goes over the gradient."""
    shape, a, image = node.args[0].shape, node.attrs, _image(node.attrs.layout)
    rank = len(image)
    tiled = all(g.shape[k] * s == shape[k] for k, s in zip(image, a.strides, strict=True))
    if a.pool_size == a.strides and not any(a.padding) and tiled and set(a.dilation) <= {1}:
        return _blocks(g * (1.0 / math.prod(a.pool_size)), shape)
    steps = [1] * len(shape)
    for k, axis in enumerate(image):
        steps[axis] = a.strides[k]
    apart = dilate(g, steps)
    ranges, sides = [range(n) for n in apart.shape], [(0, 0)] * len(shape)
    for k, (axis, reach) in enumerate(zip(image, reaches(a.pool_size, a.dilation), strict=True)):
        # element i is in the windows that begin at i + padding, and up to a reach before
        first = a.padding[k] - reach + 1
        behind = shape[axis] + a.padding[k] - apart.shape[axis]
        sides[axis] = max(-first, 0), max(behind, 0)
        begin = max(first, 0)
        ranges[axis] = range(begin, begin + shape[axis] + reach - 1)
    padded = call("nn.pad", apart, pad_width=tuple(sides)) if any(map(any, sides)) else apart
    cut = padded if [*map(len, ranges)] == [*padded.shape] else slice_of(padded, ranges)
    return call(
        f"nn.avg_pool{rank}d", cut, pool_size=a.pool_size, strides=(1,) * rank,
        dilation=a.dilation, padding=(0,) * 2 * rank, layout=a.layout,
    )  # fmt: skip


def avg_pool_gradient(node: Call, g: Expr) -> Expr:
    """The gradient of what the pooling `node` reads."""
    if any(node.attrs.padding) or node.attrs.ceil_mode:
        g = g * const(_excess(node, g), str(g.dtype))
    return _means(node, g)


def _excess(node: Call, g: Expr) -> np.ndarray:
    """By how much a window is larger than what its mean divides by, which is less at the edges."""
    data, a, image = node.args[0], node.attrs, _image(node.attrs.layout)
    rank = len(image)
    found = np.ones((1,) * len(data.shape))
    for k, axis in enumerate(image):
        before, after, size = a.padding[k], a.padding[rank + k], a.pool_size[k]
        first = 0 if a.count_include_pad else before
        end = before + data.shape[axis] + (after if a.count_include_pad else 0)
        at = np.arange(g.shape[axis])[:, None] * a.strides[k] + np.arange(size) * a.dilation[k]
        count = np.maximum(((at >= first) & (at < end)).sum(1), 1)
        found = found * (size / count).reshape([-1 if j == axis else 1 for j in range(found.ndim)])
    return found


def _max_pool(node: Call, g: Expr) -> list[Expr]:
    rank = len(node.attrs.strides)
    return [call(f"nn.max_pool{rank}d_grad", g, node.args[0], **node.attrs)]


def _max_pool_grad(node: Call, g: Expr) -> list[Expr | None]:
    """It moves elements of out_grad to places that the data say: they are read there."""
    a, rank = node.attrs, len(node.attrs.strides)
    order = channels_first(rank)
    data, back = (layout_transform(v, a.layout, order) for v in (node.args[1], g))
    window = {k: a[k] for k in ("pool_size", "strides", "padding", "dilation", "ceil_mode")}
    places = call(f"nn.max_pool{rank}d_indices", data, **window)
    return [layout_transform(take(back, places), order, a.layout), None]


def _lp_pool(node: Call, g: Expr) -> list[Expr]:
    x, a = node.args[0], node.attrs
    share = masked(T.not_equal(node, 0.0), g * T.power(node, float(1 - a.p)))
    own = T.power(T.abs(x), float(a.p - 1)) * T.sign(x) if a.p != 1 else T.sign(x)
    return [_means(node, share * float(math.prod(a.pool_size))) * own]


def _global_avg_pool(node: Call, g: Expr) -> list[Expr]:
    shape = node.args[0].shape
    count = math.prod(shape[k] for k in _image(node.attrs.layout))
    return [T.broadcast_to(g * (1.0 / count), shape)]


def _global_max_pool(node: Call, g: Expr) -> list[Expr]:
    data, axes = node.args[0], _image(node.attrs.layout)
    hit = T.cast(T.equal(data, node), str(data.dtype))
    return [hit * (g / T.sum(hit, axis=axes, keepdims=True))]


def _adaptive_avg_pool(node: Call, g: Expr) -> list[Expr]:
    data = node.args[0]
    for axis in _image(node.attrs.layout):
        size, extent = g.shape[axis], data.shape[axis]
        begins = [o * extent // size for o in range(size)]
        ends = [-(-(o + 1) * extent // size) for o in range(size)]
        if extent % size == 0:
            shape = [extent if k == axis else n for k, n in enumerate(g.shape)]
            g = _blocks(g * (size / extent), shape)
            continue
        shares = np.zeros((extent, size))
        for o, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            shares[begin:end, o] = 1 / (end - begin)
        g = along_axis(g, axis, shares)
    return [g]


def _adaptive_max_pool(node: Call, g: Expr) -> list[Expr]:
    data, layout = node.args[0], node.attrs.layout
    pairs = [(data.shape[k], g.shape[k]) for k in _image(layout)]
    if any(extent % size for extent, size in pairs):
        raise ModelError(
            f"gradient of {op_name(node)}(data={data.shape})",
            f"output_size={node.attrs.output_size} has windows of several sizes",
            "Use sizes that divide the image, or nn.max_pool.",
        )  # fmt: skip
    size, rank = tuple(extent // size for extent, size in pairs), len(pairs)
    return [call(
        f"nn.max_pool{rank}d_grad", g, data, pool_size=size, strides=size, layout=layout
    )]  # fmt: skip


def _resize(node: Call, g: Expr) -> list[Expr]:
    """The weights of each axis, which are what resizing makes of single elements, transposed."""
    data, a, row = node.args[0], node.attrs, get("image.resize")
    count = len(a.axes)
    for k, axis in enumerate(a.axes):
        one = Attrs({
            **a, "axes": (1,), "sizes": a.sizes[k : k + 1], "scales": a.scales[k : k + 1],
            "roi": a.roi and (a.roi[k], a.roi[count + k]), "extrapolation_value": 0.0,
        })  # fmt: skip
        at = axis % len(data.shape)
        g = along_axis(g, at, row.numpy([np.eye(data.shape[at])], one))
    return [g]


_OF_RANK: dict[str, Rule] = {
    "nn.avg_pool{}d": lambda node, g: [avg_pool_gradient(node, g)],
    "nn.max_pool{}d": _max_pool,
    "nn.max_pool{}d_grad": _max_pool_grad,
    "nn.lp_pool{}d": _lp_pool,
    "nn.global_avg_pool{}d": _global_avg_pool,
    "nn.global_max_pool{}d": _global_max_pool,
    "nn.adaptive_avg_pool{}d": _adaptive_avg_pool,
    "nn.adaptive_max_pool{}d": _adaptive_max_pool,
}
RULES: dict[str, Rule] = {
    **{name.format(rank): rule for rank in RANKS for name, rule in _OF_RANK.items()},
    "image.resize": _resize,
}
