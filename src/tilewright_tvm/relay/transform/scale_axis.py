"""`relay.transform.FoldScaleAxis`: scales of channels move into weights, of which the graph says
how they are scaled, so that weights may be parameters.

In: a module as a user wrote it.  Out: an equal one, in which a multiplication behind or in front of
a convolution or a dense layer is one of its weights.  Constant weights are scaled at once.
A build folds by `graph/passes/scale.py`, which knows more ways and needs constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.graph.expr import Array, Call, Constant, Expr, IRModule, children, post_order
from tilewright.graph.op import call
from tilewright.graph.passes.canonicalize import is_normal
from tilewright.graph.passes.constants import computed_of_constants
from tilewright.graph.passes.scale import POSITIVE
from tilewright.graph.passes.weights import CONTRACTIONS
from tilewright.graph.traversal import (
    each_function,
    is_call,
    op_name,
    users,
    with_body,
    with_children,
)

SUMS = ("add", "subtract")
_SAME_VALUES = ("expand_dims", "reshape", "transpose", "squeeze")


@dataclass(frozen=True)
class Wish:
    """A scale of a value along `axes` would disappear.

    positive: if it has no other numbers
    divides: if it can be divided by
    """

    axes: tuple[int, ...]
    positive: bool = False
    divides: bool = False

    def takes(self, scale: Expr) -> bool:
        """Whether a scale has such numbers, as far as is known before anything runs."""
        numbers = _known(scale)
        if numbers is None:
            return not self.positive and not self.divides
        if self.positive and not np.all(numbers > 0):
            return False
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            return not self.divides or is_normal(np.asarray(1 / numbers, numbers.dtype))


def fold_backward(mod: IRModule) -> IRModule:
    """Scales behind move into weights.  The value that is scaled has no other reader.

    conv(x, W) * s          ->  conv(x, W * s)                dense alike
    (conv(x, W) + b) * s    ->  conv(x, W * s) + b * s        bias_add alike
    (conv1 + conv2) * s     ->  both scaled
    relu(conv(x, W)) * s    ->  relu(conv(x, W * s))          s a constant > 0
    """
    return each_function(mod, lambda f: with_body(f, _Backward(f.body).run()))


def fold_forward(mod: IRModule) -> IRModule:
    """Scales in front move into weights.  All readers must agree.

    conv(x * s, W)          ->  conv(x, W * s)                dense alike
    conv(x * s + b, W)      ->  conv(x + b / s, W * s)
    conv(relu(x * s), W)    ->  conv(relu(x), W * s)          s a constant > 0
    """
    return each_function(mod, lambda f: with_body(f, _Forward(f.body).run()))


class _Backward:
    """wishes: of each value, how its scale would disappear in what it is made of."""

    def __init__(self, body: Expr) -> None:
        self.body = body
        readers = users(body)
        self.wishes: dict[Expr, Wish] = {}
        for node in post_order(body):
            reads = readers[node]
            once = sum(r.args.count(node) if isinstance(r, Call) else 1 for r in reads) == 1
            if once and isinstance(node, Call) and (wish := self._wish(node)) is not None:
                self.wishes[node] = wish
        self.new: dict[Expr, Expr] = {}

    def _wish(self, node: Call) -> Wish | None:
        if op_name(node) in CONTRACTIONS:
            return _of_contraction(node)
        inner = self.wishes.get(node.args[0]) if node.args else None
        if op_name(node) in POSITIVE:
            return None if inner is None else replace(inner, positive=True)
        if is_call(node, "nn.bias_add"):
            axis = int(node.attrs.axis) % len(node.shape)
            return inner if inner is not None and inner.axes == (axis,) else None
        return self._of_sum(node) if op_name(node) in SUMS else None

    def _of_sum(self, node: Call) -> Wish | None:
        a, b = node.args
        left, right = self.wishes.get(a), self.wishes.get(b)
        if left is not None and _fits(a, b, left.axes):
            return left
        if right is not None and _fits(b, a, right.axes):
            return right
        if left is None or right is None or left.axes != right.axes or a.shape != b.shape:
            return None
        return _both(left, right)

    def run(self) -> Expr:
        for node in post_order(self.body):
            if is_call(node, "multiply") and isinstance(node, Call):
                self.new[node] = self._product(node)
            else:
                self.new[node] = _remade(node, self.new)
        return self.new[self.body]

    def _product(self, node: Call) -> Expr:
        for x, s in (node.args, node.args[::-1]):
            wish = self.wishes.get(x)
            if wish is not None and wish.takes(s) and _fits(x, s, wish.axes, alone=True):
                return self._scaled(x, wish, _squeezed(x, self.new[s], wish.axes))
        return _remade(node, self.new)

    def _scaled(self, node: Expr, wish: Wish, scale: Expr) -> Expr:
        """`node`, made again with `scale` in it."""
        assert isinstance(node, Call)
        if op_name(node) in CONTRACTIONS:
            data, weight = (self.new[a] for a in node.args)
            return node.with_parts((data, _scaled_weight(node, weight, scale, "O")))
        first, *rest = node.args
        if is_call(node, "nn.bias_add"):
            bias = _product(self.new[rest[0]], scale)
            return node.with_parts((self._scaled(first, wish, scale), bias))
        if op_name(node) in POSITIVE:
            return node.with_parts((self._scaled(first, wish, scale),))
        both = [self._scaled(a, wish, scale) if self._takes(a, wish) else None for a in node.args]
        if None in both:  # what it is added to is scaled by itself
            k = both.index(None)
            there = node.args[1 - k]
            both[k] = _product(self.new[node.args[k]], _spread(scale, there.shape, wish.axes))
        return node.with_parts([b for b in both if b is not None])

    def _takes(self, node: Expr, wish: Wish) -> bool:
        known = self.wishes.get(node)
        return known is not None and known.axes == wish.axes


class _Forward:
    """wishes: of each value, how its scale would disappear in all that reads it."""

    def __init__(self, body: Expr) -> None:
        self.body = body
        self.wishes: dict[Expr, Wish | None] = {body: None}
        for node in reversed(post_order(body)):
            asked = self._asks(node) if isinstance(node, Call) else {}
            for k, child in enumerate(children(node)):
                wish = asked.get(k)
                self.wishes[child] = (
                    _both(self.wishes[child], wish) if child in self.wishes else wish
                )
        self.new: dict[Expr, Expr] = {}
        self.scales: dict[Expr, Expr] = {}  # of values that lack them

    def _asks(self, node: Call) -> dict[int, Wish | None]:
        if op_name(node) in CONTRACTIONS:
            return {0: _of_contraction(node)}
        wish = self.wishes.get(node)
        if wish is None:
            return {}
        if op_name(node) in POSITIVE:
            return {0: replace(wish, positive=True)}
        if op_name(node) in SUMS:
            a, b = node.args
            asked = replace(wish, divides=True)
            if _fits(a, b, wish.axes):
                return {0: asked}
            return {1: asked} if _fits(b, a, wish.axes) else {}
        return {}

    def run(self) -> Expr:
        for node in post_order(self.body):
            self.new[node] = self._made(node)
        return self.new[self.body]

    def _made(self, node: Expr) -> Expr:
        if not isinstance(node, Call):
            return _remade(node, self.new)
        wish = self.wishes[node]
        if is_call(node, "multiply") and wish is not None:
            for x, s in (node.args, node.args[::-1]):
                if wish.takes(s) and _fits(x, s, wish.axes, alone=True) and x.shape == node.shape:
                    self.scales[node] = _squeezed(x, self.new[s], wish.axes)
                    return self.new[x]
        lacks = [self.scales.get(a) for a in node.args]
        if all(s is None for s in lacks):
            return _remade(node, self.new)
        args = [self.new[a] for a in node.args]
        if op_name(node) in CONTRACTIONS:
            assert lacks[0] is not None
            return node.with_parts((args[0], _scaled_weight(node, args[1], lacks[0], "I")))
        k = next(k for k, s in enumerate(lacks) if s is not None)
        scale = lacks[k]
        assert scale is not None and wish is not None
        self.scales[node] = scale
        if op_name(node) in SUMS:
            spread = _spread(scale, node.args[k].shape, wish.axes)
            args[1 - k] = _now(call("divide", args[1 - k], spread))
        return node.with_parts(args)


def _both(one: Wish | None, other: Wish | None) -> Wish | None:
    if one is None or other is None or one.axes != other.axes:
        return None
    return Wish(one.axes, one.positive or other.positive, one.divides or other.divides)


def _remade(node: Expr, new: dict[Expr, Expr]) -> Expr:
    return with_children(node, tuple(new[c] for c in children(node)))


def _of_contraction(node: Call) -> Wish | None:
    """Floats of one type; channels as one axis, or in blocks in data and weights alike; no groups
    but depthwise."""
    if not node.dtype.is_float or any(a.dtype != node.dtype for a in node.args):
        return None
    if is_call(node, "nn.dense"):
        return Wish((len(node.shape) - 1,))
    data, kernel = (_letters(str(node.attrs[n])) for n in ("data_layout", "kernel_layout"))
    blocked = [letter in layout for letter, layout in (("c", data), ("o", kernel), ("i", kernel))]
    plain = set(data) <= set("NCDHWc") and (all(blocked) or not any(blocked))
    if not plain or not (node.attrs.groups == 1 or _is_depthwise(node, kernel)):
        return None
    return Wish(tuple(data.index(letter) for letter in "Cc" if letter in data))


def _is_depthwise(node: Call, kernel: str) -> bool:
    extents = dict(zip(kernel, node.args[1].shape, strict=True))
    out, into = (extents[k] * extents.get(k.lower(), 1) for k in "OI")
    return bool(out == node.attrs.groups and into == 1)


def _letters(layout: str) -> str:
    return "".join(filter(str.isalpha, layout))


def _scaled_weight(node: Call, weight: Expr, scale: Expr, side: str) -> Expr:
    """side: "O" or "I", the channels that are scaled."""
    if is_call(node, "nn.dense"):
        return _product(weight, _spread(scale, weight.shape, (0,)) if side == "O" else scale)
    kernel = _letters(str(node.attrs.kernel_layout))
    if side == "I" and node.attrs.groups > 1:
        side = "O"  # depthwise: each channel has its own weights
    axes = tuple(kernel.index(k) for k in (side, side.lower()) if k in kernel)
    return _product(weight, _spread(scale, weight.shape, axes))


def _product(value: Expr, scale: Expr) -> Expr:
    return _now(call("multiply", value, scale))


def _now(node: Expr) -> Expr:
    """`node`, computed where what is scaled in it is a constant."""
    assert isinstance(node, Call)
    return computed_of_constants(node) if isinstance(node.args[0], Constant) else node


def _fits(x: Expr, s: Expr, axes: Sequence[int], alone: bool = False) -> bool:
    """Whether `s` varies along all of these axes of `x` and along no other.

    alone: a single number fits, too
    """
    missing = len(x.shape) - len(s.shape)
    if alone and not s.shape:
        return True
    return missing >= 0 and all(
        k >= missing and s.shape[k - missing] == n if k in axes else
        k < missing or s.shape[k - missing] == 1
        for k, n in enumerate(x.shape)
    )  # fmt: skip


def _squeezed(x: Expr, s: Expr, axes: Sequence[int]) -> Expr:
    """`s` with the extents of these axes of `x` and no others."""
    if not s.shape:
        return call("broadcast_to", s, shape=tuple(x.shape[k] for k in axes))
    missing = len(x.shape) - len(s.shape)
    single = tuple(k for k in range(len(s.shape)) if k + missing not in axes)
    return call("squeeze", s, axis=single) if single else s


def _spread(scale: Expr, shape: Sequence[int], axes: Sequence[int]) -> Expr:
    """`scale` for a value of that shape, along its `axes`."""
    if len(axes) > 1:
        extents = tuple(n if k in axes else 1 for k, n in enumerate(shape))
        return call("reshape", scale, newshape=extents)
    more = len(shape) - axes[0] - 1
    return call("expand_dims", scale, axis=1, num_newaxis=more) if more else scale


def _known(scale: Expr) -> Array | None:
    """The numbers of a constant, perhaps in other shapes than its own."""
    while isinstance(scale, Call) and op_name(scale) in _SAME_VALUES:
        scale = scale.args[0]
    return scale.data if isinstance(scale, Constant) else None
