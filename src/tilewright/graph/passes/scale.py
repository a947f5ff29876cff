"""Scales move into the weights of convolutions and dense layers, from behind and from in front.

In: a canonical module whose weights are constants.  Out: an equal one with fewer multiplications.
A scale moves only if it disappears: every step on its way must let it through.  Read next:
`dead_code.py`.

Padding: zeros stay zeros under a scale, so it may pass a padded convolution (a shift may not).
No scale passes a pooling, though it could: behind one it costs nothing, in the same kernel, and
kernels are those of TVM's partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tilewright.graph.expr import Array, Call, Constant, Expr, IRModule, post_order
from tilewright.graph.passes.dead_code import is_view
from tilewright.graph.passes.weights import (
    CONTRACTIONS,
    all_finite,
    channel_axes,
    constant_operand,
    scaled_weight,
    varies_only_at,
)
from tilewright.graph.traversal import (
    each_function,
    is_call,
    op_name,
    rewrite,
    users,
    with_body,
)

Rewrite = Callable[[Call], Expr]
Plan = dict[Expr, Rewrite]
Readers = Mapping[Expr, list[Expr]]

POSITIVE = ("nn.relu", "nn.leaky_relu")  # what lets a scale through if it is positive


def fold_scale_after(mod: IRModule) -> IRModule:
    """Scale output channels instead of results.  s: constant; no other reader between.

    conv(x, W) * s          ->  conv(x, W * s)                dense alike
    (conv(x, W) + b) * s    ->  conv(x, W * s) + b * s
    (conv1 + conv2) * s     ->  both scaled
    relu(conv(x, W)) * s    ->  relu(conv(x, W * s))          s > 0
    """
    return each_function(mod, lambda f: with_body(f, _until_settled(f.body, _plan_after)))


def fold_scale_before(mod: IRModule) -> IRModule:
    """Scale input channels instead of inputs.  s: constant; all readers must agree.

    conv(x * s, W)          ->  conv(x, W * s)                dense alike
    conv(x * s + b, W)      ->  conv(x + b / s, W * s)        no zero in s
    conv(relu(x * s), W)    ->  conv(relu(x), W * s)          s > 0
    """
    return each_function(mod, lambda f: with_body(f, _until_settled(f.body, _all_readers)))


def _until_settled(body: Expr, plan_of: Callable[[Call, Array, Readers], Plan | None]) -> Expr:
    while True:
        readers = users(body)
        plan: Plan = {}
        for node in post_order(body):
            scale = constant_operand(node) if is_call(node, "multiply") else None
            if scale is None or node in plan:
                continue
            assert isinstance(node, Call)
            full = scale.astype("float64").reshape(
                (1,) * (len(node.shape) - scale.ndim) + scale.shape
            )
            found = plan_of(node, full, readers)
            if found is not None and not found.keys() & plan.keys():
                plan |= {**found, node: lambda n: n.args[0]}
        if not plan:
            return body
        body = _apply(body, plan)


def _apply(body: Expr, plan: Plan) -> Expr:
    def visit(old: Expr, node: Expr) -> Expr:
        change = plan.get(old)
        return node if change is None or not isinstance(node, Call) else change(node)

    return rewrite(body, visit)


def _plan_after(node: Call, scale: Array, readers: Readers) -> Plan | None:
    return _into(node.args[0], scale, readers)


def _into(node: Expr, scale: Array, readers: Readers) -> Plan | None:
    """How to make `node` equal to itself times `scale`; None if it cannot be done."""
    if not isinstance(node, Call) or len(readers[node]) > 1:
        return None
    if is_call(node, *CONTRACTIONS):
        fits = isinstance(node.args[1], Constant) and varies_only_at(scale, *channel_axes(node))
        return _checked(node, _with_weight(scale, "O")) if fits else None
    if is_call(node, "add"):
        shift = constant_operand(node)
        if shift is not None:
            rest = _into(node.args[0], scale, readers)
            return None if rest is None else {**rest, node: _with_constant(shift * scale)}
        return _both(node, scale, readers)
    passed = _through(node, scale, forward=False)
    return None if passed is None else _into(node.args[0], passed, readers)


def _both(node: Call, scale: Array, readers: Readers) -> Plan | None:
    a, b = node.args
    if a is b or not a.shape == b.shape == node.shape:
        return None
    left = _into(a, scale, readers)
    right = None if left is None else _into(b, scale, readers)
    return None if left is None or right is None else {**left, **right}


def _all_readers(node: Expr, scale: Array, readers: Readers) -> Plan | None:
    """How to let every reader of `node` make up for a missing `scale`."""
    if not readers[node]:
        return None  # the result of the function itself
    plan: Plan = {}
    for reader in readers[node]:
        found = _reader(reader, node, scale, readers)
        if found is None:
            return None
        plan |= found
    return plan


def _reader(reader: Expr, node: Expr, scale: Array, readers: Readers) -> Plan | None:
    if not isinstance(reader, Call) or reader.args[0] is not node:
        return None
    if is_call(reader, *CONTRACTIONS):
        fits = isinstance(reader.args[1], Constant) and varies_only_at(scale, *channel_axes(reader))
        return _checked(reader, _with_weight(scale, "I")) if fits else None
    if is_call(reader, "add"):
        shift = constant_operand(reader)
        if shift is None or not np.all(scale):
            return None
        with np.errstate(over="ignore"):  # `_checked` refuses what overflows
            step = _checked(reader, _with_constant(shift / scale))
        rest = None if step is None else _all_readers(reader, scale, readers)
        return None if rest is None or step is None else {**rest, **step}
    passed = _through(reader, scale, forward=True)
    return None if passed is None else _all_readers(reader, passed, readers)


def _through(node: Call, scale: Array, forward: bool) -> Array | None:
    """`scale` on the other side of `node` (forward: of its result); None if it may not pass."""
    if is_view(node):
        before, after = node.args[0].shape, node.shape
        here, there = (before, after) if forward else (after, before)
        return _compact(np.broadcast_to(scale, here).reshape(there))
    return scale if op_name(node) in POSITIVE and np.all(scale > 0) else None


def _compact(scale: Array) -> Array:
    """`scale` with extent 1 wherever it does not vary."""
    for axis in range(scale.ndim):
        first = np.take(scale, [0], axis)
        scale = first if np.array_equal(np.broadcast_to(first, scale.shape), scale) else scale
    return scale


def _checked(node: Call, change: Rewrite) -> Plan | None:
    """The rewrite, unless its new constant overflows."""
    made = change(node)
    assert isinstance(made, Call)
    new = made.args[1]
    assert isinstance(new, Constant)
    return {node: change} if all_finite(new.data) else None


def _with_weight(scale: Array, side: str) -> Rewrite:
    """Scales a weight; the one that was checked is not scaled again."""
    made: dict[Expr, Constant] = {}

    def change(node: Call) -> Call:
        weight = node.args[1]
        found = made.get(weight) or made.setdefault(weight, scaled_weight(node, scale, side))
        return Call(node.op, (node.args[0], found), node.attrs)

    return change


def _with_constant(value: Array) -> Rewrite:
    def change(node: Call) -> Call:
        with np.errstate(over="ignore"):
            return Call(
                node.op, (node.args[0], Constant(np.asarray(value, node.dtype))), node.attrs
            )

    return change
