"""Convolutions of one value become one convolution with all their kernels; dense likewise.

In: a module.  Out: an equal one in which what reads the same value in the same way is one operator,
its parts slices of the result; elementwise steps behind all branches are made once as well.
`combine.py` does that for products where the slices are known to be free.
Read next: `layouts.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from tilewright.relay.graph.expr import Call, Constant, Expr, IRModule, Tuple, Var, post_order
from tilewright.relay.graph.traversal import (
    each_function,
    is_call,
    op_name,
    rewrite,
    users,
    with_body,
)
from tilewright.relay.op import TABLE, Pattern, call
from tilewright.relay.passes.weights import channel_axis

Readers = dict[Expr, list[Expr]]
Level = list[Call]  # the same step of every branch
LEAVES = (Constant, Var)  # weights and operands: what is there before any branch


def combine_parallel_conv2d(mod: IRModule, least: int = 3) -> IRModule:
    """conv2d(x, V), conv2d(x, W), ...  ->  slices of conv2d(x, (V, W, ...))

    Where at least `least` of them differ in their weights and output channels only; grouped ones
    stay.  What follows all of them alike (bias, relu) is made before the slices.
    """
    return each_function(mod, lambda f: with_body(f, _combined(f.body, _conv_kind, _joined, least)))


def combine_parallel_dense(mod: IRModule, least: int = 3, to_batch: bool = True) -> IRModule:
    """dense(x, V), dense(x, W), ...  ->  slices of dense(x, (V, W, ...))

    to_batch: those with equal numbers of units become a batch_matmul of x, repeated, and the stack
    of the weights
    """
    made = _stacked if to_batch else _joined

    def kind(node: Call) -> Any:
        if not is_call(node, "nn.dense"):
            return None
        weight = node.args[1]
        return weight.shape if to_batch else weight.shape[1:], weight.dtype, node.dtype

    return each_function(mod, lambda f: with_body(f, _combined(f.body, kind, made, least)))


def _conv_kind(node: Call) -> Any:
    """Equal for convolutions that one can compute together; None where none can."""
    if not is_call(node, "nn.conv2d") or node.attrs.groups != 1:
        return None
    weight, layout = node.args[1], node.attrs.kernel_layout
    window = tuple(n for n, letter in zip(weight.shape, layout, strict=True) if letter != "O")
    return window, weight.dtype, tuple(sorted((k, str(v)) for k, v in node.attrs.items()))


def _combined(
    body: Expr,
    kind_of: Callable[[Call], Any],
    make: Callable[[Expr, Level, Readers], dict[Expr, Expr]],
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
            replaced.update(make(new[old.args[0]], several[old], readers))
        new[old] = replaced.get(old, node)
        return new[old]

    return rewrite(body, visit) if several else body


def _joined(data: Expr, level: Level, readers: Readers) -> dict[Expr, Expr]:
    """What becomes of the branches that begin with `level`: slices along the channels."""
    first = level[0]
    axis = channel_axis(first)
    output = first.attrs.kernel_layout.index("O") if is_call(first, "nn.conv2d") else 0
    weight = call("concatenate", Tuple([n.args[1] for n in level]), axis=output)
    whole: Expr = Call(first.op, (data, weight), first.attrs)
    found: dict[Expr, Expr] = {n: _slice(whole, level, k, axis) for k, n in enumerate(level)}
    while (behind := _behind(level, readers)) is not None:
        step = behind[0]
        operand = _operand(behind, level, axis)
        if operand is None and len(step.args) > 1:
            break
        level = behind
        if operand is None:
            whole = Call(step.op, (whole,), step.attrs)
        elif is_call(step, "nn.bias_add"):
            whole = call("add", whole, operand)
        else:
            whole = Call(step.op, (whole, operand), step.attrs)
        found |= {n: _slice(whole, level, k, axis) for k, n in enumerate(level)}
    return found


def _stacked(data: Expr, level: Level, readers: Readers) -> dict[Expr, Expr]:
    """What becomes of products of equal sizes: parts of one batch_matmul."""
    wide = call("reshape", data, newshape=(1, *data.shape))
    repeated = call("broadcast_to", wide, shape=(len(level), *data.shape))
    weights = [call("reshape", n.args[1], newshape=(1, *n.args[1].shape)) for n in level]
    joined = call("concatenate", Tuple(weights), axis=0)
    whole = call("nn.batch_matmul", repeated, joined, out_dtype=level[0].attrs.out_dtype)
    found: dict[Expr, Expr] = {}
    for k, node in enumerate(level):
        extents, ones = (1, *node.shape), (1, 1, 1)
        part = call("strided_slice", whole, begin=(k, 0, 0), extents=extents, strides=ones)
        found[node] = call("reshape", part, newshape=node.shape)
    return found


def _behind(level: Level, readers: Readers) -> Level | None:
    """The one step behind each of `level`, where all are the same elementwise operator."""
    found: Level = []
    for node in level:
        (reader,) = readers[node] if len(readers[node]) == 1 else (None,)
        if not isinstance(reader, Call) or not op_name(reader) or reader.args[0] is not node:
            return None
        if TABLE[op_name(reader)].pattern > Pattern.BROADCAST or reader.shape != node.shape:
            return None
        found.append(reader)
    same = all(n.op is found[0].op and n.attrs == found[0].attrs for n in found)
    return found if same and len(set(found)) == len(found) and len(found[0].args) <= 2 else None


def _operand(behind: Level, level: Level, axis: int) -> Expr | None:
    """The second operands of `behind` as one constant that varies along the channels at most."""
    if len(behind[0].args) < 2:
        return None
    parts: list[Expr] = []
    for step, node in zip(behind, level, strict=True):
        other, rank = step.args[1], len(node.shape)
        if not isinstance(other, LEAVES) or len(other.shape) > rank:
            return None
        ones = (1,) * (rank - len(other.shape))
        shape = (*ones, *other.shape)
        if is_call(step, "nn.bias_add"):
            shape = tuple(other.shape[0] if k == step.attrs.axis % rank else 1 for k in range(rank))
        if any(n != 1 for k, n in enumerate(shape) if k != axis):
            return None
        wide = call("reshape", other, newshape=shape)
        want = tuple(node.shape[axis] if k == axis else 1 for k in range(rank))
        parts.append(wide if shape == want else call("broadcast_to", wide, shape=want))
    return call("concatenate", Tuple(parts), axis=axis)


def _slice(whole: Expr, level: Sequence[Call], k: int, axis: int) -> Expr:
    begins = list(accumulate((n.shape[axis] for n in level), initial=0))
    begin = tuple(begins[k] if i == axis else 0 for i in range(len(whole.shape)))
    ones = (1,) * len(begin)
    return call("strided_slice", whole, begin=begin, extents=level[k].shape, strides=ones)
