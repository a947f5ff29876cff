"""Chains of reshapes and transpositions as one: what they do to the order of elements.

In: a call that moves elements, behind others.  Out: as few calls as give the same.
Read next: `graph/passes/data_layout.py`, which spells layouts the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from tilewright.graph.expr import Call, Expr
from tilewright.graph.op import call
from tilewright.graph.passes.dead_code import is_view
from tilewright.graph.traversal import is_call

# Runs of elements in the order in which they lie: (steps from one to the next in the source, how
# many); none has one element only.
Runs = list[tuple[int, int]]


def joined_moves(node: Call) -> Expr:
    """reshape(transpose(reshape(x)))  ->  at most one reshape, one transposition, one reshape;
    `node` where that is what it is."""
    chain: list[Call] = []
    value: Expr = node
    while isinstance(value, Call) and (is_view(value) or is_call(value, "transpose")):
        chain.append(value)
        value = value.args[0]
    size = math.prod(node.shape)
    runs: Runs | None = [(1, size)] if size > 1 else []
    for step in reversed(chain):
        if runs is not None and is_call(step, "transpose"):
            runs = _transposed(runs, step.args[0].shape, step.attrs.axes)
    if runs is None or len(chain) < 2 or not size:
        return _as_one(node)
    made = _spelled(value, runs, node.shape)
    return made if made is not None and _length(made, value) < len(chain) else _as_one(node)


def _as_one(node: Call) -> Expr:
    """A transposition of a transposition as one."""
    inner = node.args[0]
    if not is_call(node, "transpose") or not is_call(inner, "transpose"):
        return node
    assert isinstance(inner, Call)
    axes = tuple(inner.attrs.axes[k] for k in node.attrs.axes)
    return call("transpose", inner.args[0], axes=axes)


def _length(node: Expr, source: Expr) -> int:
    count = 0
    while node is not source and isinstance(node, Call):
        node, count = node.args[0], count + 1
    return count


def _transposed(runs: Runs, shape: Sequence[int], axes: Sequence[int]) -> Runs | None:
    """The order after a transposition of a value of `shape`; None where it cuts a run unevenly."""
    groups = _grouped(runs, shape)
    if groups is None:
        return None
    moved = [run for k in axes for run in groups[k]]
    merged: Runs = []
    for stride, count in moved:
        if merged and merged[-1][0] == stride * count:
            merged[-1] = (stride, merged[-1][1] * count)
        else:
            merged.append((stride, count))
    return merged


def _grouped(runs: Runs, shape: Sequence[int]) -> list[Runs] | None:
    """The runs of each axis of `shape`, cut where axes begin; None where none fit."""
    waiting, groups = list(reversed(runs)), []
    for extent in shape:
        group: Runs = []
        while extent > 1:
            stride, count = waiting.pop()
            if extent % count == 0:
                taken = count
            elif count % extent == 0:
                taken = extent
                waiting.append((stride, count // extent))
                stride *= count // extent
            else:
                return None
            group.append((stride, taken))
            extent //= taken
        groups.append(group)
    return groups


def _spelled(source: Expr, runs: Runs, shape: Sequence[int]) -> Expr | None:
    """`source` with its elements in the order of `runs`, as a value of `shape`."""
    if runs == [(1, math.prod(shape))] or not runs:
        return _viewed(source, shape)
    before = _grouped([(1, math.prod(shape))], source.shape)
    after = _grouped(runs, shape)
    if before is None or after is None:
        return None
    axes = [before.index(group) if group in before else -1 for group in after if group]
    if -1 not in axes:  # each axis of the result is one of the source
        rest = [k for k, n in enumerate(source.shape) if n == 1]
        if len(rest) == sum(n == 1 for n in shape):
            long, short = iter(axes), iter(rest)
            whole = tuple(next(short if n == 1 else long) for n in shape)
            return call("transpose", source, axes=whole)
    strides = sorted({s for g in (*before, *after) for s, _ in g}, reverse=True)
    size = math.prod(shape)
    bounds = [size, *strides]
    if any(a % b for a, b in pairwise(bounds)):
        return None
    pieces = {s: a // s for a, s in pairwise(bounds)}
    order = [s for g in after for s, n in g for s in _cut(s, n, strides)]
    where = {s: k for k, s in enumerate(strides)}
    apart = _viewed(source, tuple(pieces[s] for s in strides))
    moved = call("transpose", apart, axes=tuple(where[s] for s in order))
    return _viewed(moved, shape)


def _cut(stride: int, count: int, strides: Sequence[int]) -> list[int]:
    """The strides of the pieces that a run consists of, outermost first."""
    return [s for s in strides if stride <= s < stride * count]


def _viewed(value: Expr, shape: Sequence[int]) -> Expr:
    return value if value.shape == tuple(shape) else call("reshape", value, newshape=tuple(shape))
