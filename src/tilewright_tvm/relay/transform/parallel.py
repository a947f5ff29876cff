"""Convolutions of one value become one convolution with all their kernels; products likewise.

In: a module.  Out: an equal one in which what reads the same value in the same way is one operator,
its parts slices of the result; elementwise steps behind all branches are made once as well.
Builds run these passes where they are asked for.  `graph/passes/combine.py` does the same for
products where the slices are known to be free.
Read next: `transform.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from tilewright.graph.expr import Call, Constant, Expr, IRModule, Tuple, Var, post_order
from tilewright.graph.op import TABLE, Pattern, call
from tilewright.graph.op.window import is_blocked
from tilewright.graph.passes import offer
from tilewright.graph.passes.weights import channel_axis
from tilewright.graph.traversal import (
    each_function,
    is_call,
    op_name,
    rewrite,
    users,
    with_body,
)

Readers = dict[Expr, list[Expr]]
Level = list[Call]  # the same step of every branch
LEAVES = (Constant, Var)  # weights and operands: what is there before any branch


def combine_parallel_conv2d(mod: IRModule, least: int = 3) -> IRModule:
    """conv2d(x, V), conv2d(x, W), ...  ->  slices of conv2d(x, (V, W, ...))

    Where at least `least` of them differ in their weights and output channels only; grouped ones
    stay.  What follows all of them alike (bias, relu) is made before the slices.
    """
    return each_function(mod, lambda f: with_body(f, _combined(f.body, _conv_kind, _Wide, least)))


def combine_parallel_dense(mod: IRModule, least: int = 3, to_batch: bool = True) -> IRModule:
    """dense(x, V), dense(x, W), ...  ->  slices of dense(x, (V, W, ...))

    to_batch: those with equal numbers of units become a batch_matmul of x, repeated, and the stack
    of the weights
    """

    def kind(node: Call) -> Any:
        if not is_call(node, "nn.dense"):
            return None
        weight = node.args[1]
        return weight.shape if to_batch else weight.shape[1:], weight.dtype, node.dtype

    way = _Stack if to_batch else _Wide
    return each_function(mod, lambda f: with_body(f, _combined(f.body, kind, way, least)))


def combine_parallel_batch_matmul(mod: IRModule, least: int = 3) -> IRModule:
    """batch_matmul(x, V), batch_matmul(x, W), ...  ->  slices of batch_matmul(x, (V, W, ...))"""

    def kind(node: Call) -> Any:
        if not is_call(node, "nn.batch_matmul") or not node.attrs.transpose_b:
            return None
        batch, _, inner = node.args[1].shape
        return batch, inner, node.args[1].dtype, node.dtype, node.attrs.transpose_a

    return each_function(mod, lambda f: with_body(f, _combined(f.body, kind, _Wide, least)))


def _conv_kind(node: Call) -> Any:
    """Equal for convolutions that one can compute together; None where none can."""
    if not is_call(node, "nn.conv2d") or node.attrs.groups != 1:
        return None
    weight, layout = node.args[1], node.attrs.kernel_layout
    if is_blocked(layout):
        return None
    window = tuple(n for n, letter in zip(weight.shape, layout, strict=True) if letter != "O")
    return window, weight.dtype, tuple(sorted((k, str(v)) for k, v in node.attrs.items()))


def _combined(
    body: Expr,
    kind_of: Callable[[Call], Any],
    way: type[_Wide] | type[_Stack],
    least: int,
) -> Expr:
    readers = users(body)
    found: dict[Any, Level] = {}
    for node in post_order(body):
        kind = kind_of(node) if isinstance(node, Call) and op_name(node) else None
        if kind is not None and isinstance(node, Call) and isinstance(node.args[1], LEAVES):
            found.setdefault((node.args[0], kind), []).append(node)
    several = {n: level for level in found.values() if len(level) >= max(least, 2) for n in level}
    replaced: dict[Expr, Expr] = {}
    new: dict[Expr, Expr] = {}

    def visit(old: Expr, node: Expr) -> Expr:
        if old in several and old not in replaced and isinstance(old, Call):
            replaced.update(_together(way(several[old]), new[old.args[0]], several[old], readers))
        new[old] = replaced.get(old, node)
        return new[old]

    return rewrite(body, visit) if several else body


def _together(way: _Wide | _Stack, data: Expr, level: Level, readers: Readers) -> dict[Expr, Expr]:
    """What becomes of the branches that begin with `level`: parts of one result."""
    whole = way.product(data, level)
    found: dict[Expr, Expr] = {n: way.part(whole, level, k) for k, n in enumerate(level)}
    while (behind := _behind(level, readers)) is not None:
        made = way.step(whole, level, behind)
        if made is None:
            break
        whole, level = made, behind
        found |= {n: way.part(whole, level, k) for k, n in enumerate(level)}
    return found


def _behind(level: Level, readers: Readers) -> Level | None:
    """The one step behind each of `level`, where all are the same operator on one or two values."""
    found: Level = []
    for node in level:
        (reader,) = readers[node] if len(readers[node]) == 1 else (None,)
        if not isinstance(reader, Call) or not op_name(reader) or reader.args[0] is not node:
            return None
        found.append(reader)
    same = all(n.op is found[0].op and n.attrs == found[0].attrs for n in found)
    operands = all(isinstance(v, LEAVES) for n in found for v in n.args[1:])
    whole = same and operands and len(set(found)) == len(found) and len(found[0].args) <= 2
    return found if whole else None


def _is_elementwise(step: Call) -> bool:
    return TABLE[op_name(step)].pattern <= Pattern.BROADCAST


class _Wide:
    """Branches side by side along their channels.  axis: that of results, counted from the back"""

    def __init__(self, level: Level) -> None:
        self.axis = -1
        if is_call(level[0], "nn.conv2d"):
            self.axis = channel_axis(level[0]) - len(level[0].shape)
        self.stretches = is_call(level[0], "nn.dense")  # operands of one element alike

    def product(self, data: Expr, level: Level) -> Call:
        first, output = level[0], 0
        if is_call(first, "nn.conv2d"):
            output = first.attrs.kernel_layout.index("O")
        elif is_call(first, "nn.batch_matmul"):
            output = 1
        weight = call("concatenate", Tuple([n.args[1] for n in level]), axis=output)
        return Call(first.op, (data, weight), first.attrs)

    def step(self, whole: Expr, level: Level, behind: Level) -> Call | None:
        """`behind` on all branches at once; None where that cannot be."""
        first, before = behind[0], level[0].shape
        if is_call(first, "expand_dims"):
            rank, new = len(before), first.attrs.num_newaxis
            at = first.attrs.axis % (rank + 1)
            self.axis -= new if at > rank + self.axis else 0
            return Call(first.op, (whole,), first.attrs)
        if not _is_elementwise(first) or first.shape[-len(before) :] != before:
            return None
        if len(first.args) == 1:
            return Call(first.op, (whole,), first.attrs)
        operand = self._operand(level, behind)
        if operand is None:
            return None
        if is_call(first, "nn.bias_add"):
            return call("add", whole, operand)
        return Call(first.op, (whole, operand), first.attrs)

    def _operand(self, level: Level, behind: Level) -> Expr | None:
        """The second operands as one that varies along the channels."""
        parts: list[Expr] = []
        for step, node in zip(behind, level, strict=True):
            other, channels = step.args[1], node.shape[self.axis]
            if is_call(step, "nn.bias_add"):
                if step.attrs.axis % len(node.shape) != len(node.shape) + self.axis:
                    return None
                if self.axis < -1:
                    other = call("expand_dims", other, axis=1, num_newaxis=-1 - self.axis)
            if not other.shape and self.stretches:
                other = call("expand_dims", other, axis=-1, num_newaxis=1)
            if len(other.shape) < -self.axis:
                return None
            if other.shape[self.axis] == 1 and channels > 1 and self.stretches:
                other = _repeated(other, channels, self.axis)
            if other.shape[self.axis] != channels:
                return None
            parts.append(other)
        at = len(parts[0].shape) + self.axis
        rest = {(*p.shape[:at], *p.shape[at + 1 :]) for p in parts}
        same = len(rest) == 1 and len({len(p.shape) for p in parts}) == 1
        return call("concatenate", Tuple(parts), axis=at) if same else None

    def part(self, whole: Expr, level: Level, k: int) -> Expr:
        begins = list(accumulate((n.shape[self.axis] for n in level), initial=0))
        begin, ones = [0] * len(whole.shape), (1,) * len(whole.shape)
        begin[self.axis] = begins[k]
        shape = level[k].shape
        return call("strided_slice", whole, begin=tuple(begin), extents=shape, strides=ones)


def _repeated(value: Expr, times: int, axis: int) -> Expr:
    """`relay.repeat`, of one element along `axis`."""
    shape = list(value.shape)
    at = len(shape) + axis
    wide = call("expand_dims", value, axis=at + 1, num_newaxis=1)
    wide = call("broadcast_to", wide, shape=(*shape[: at + 1], times, *shape[at + 1 :]))
    shape[at] *= times
    return call("reshape", wide, newshape=tuple(shape))


class _Stack:
    """Branches of equal sizes as the elements of a batch."""

    def __init__(self, level: Level) -> None:
        self.count = len(level)

    def product(self, data: Expr, level: Level) -> Call:
        first = level[0]
        weights = _stacked([n.args[1] for n in level])
        repeated = _stacked([data] * self.count)
        return call("nn.batch_matmul", repeated, weights, out_dtype=first.attrs.out_dtype)

    def step(self, whole: Expr, level: Level, behind: Level) -> Call | None:
        """`behind` on all branches at once; None where that cannot be."""
        first, others = behind[0], [n.args[1] for n in behind if len(n.args) > 1]
        if not _is_elementwise(first) or first.shape != level[0].shape:
            return None
        if not others:
            return Call(first.op, (whole,), first.attrs)
        if len({o.shape for o in others}) > 1 or len(others[0].shape) not in (1, 2):
            return None
        if is_call(first, "nn.bias_add") and first.attrs.axis % 2 != 1:
            return None
        rows = [call("expand_dims", o, axis=0) if len(o.shape) == 1 else o for o in others]
        if is_call(first, "nn.bias_add"):
            return call("add", whole, _stacked(rows))
        return Call(first.op, (whole, _stacked(rows)), first.attrs)

    def part(self, whole: Expr, level: Level, k: int) -> Expr:
        extents, ones = (1, *whole.shape[1:]), (1, 1, 1)
        one = call("strided_slice", whole, begin=(k, 0, 0), extents=extents, strides=ones)
        return call("squeeze", one, axis=(0,))


def _stacked(parts: Sequence[Expr]) -> Expr:
    """`relay.stack` along a new first axis."""
    return call("concatenate", Tuple([call("expand_dims", p, axis=0) for p in parts]), axis=0)


offer(combine_parallel_batch_matmul, combine_parallel_conv2d, combine_parallel_dense)
