"""What renames or reorders axes goes behind what is elementwise, which then follows its producer.

In: a canonical module whose weights are constants.  Out: an equal one: `reshape(dense(x, W)) + b`
is `reshape(dense(x, W) + b)`, so the sum shares the kernel of the product.  Read next: `fuse.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tilewright.graph.expr import Call, Constant, Expr, IRModule, TensorType
from tilewright.graph.op import TABLE, Pattern, call
from tilewright.graph.passes.dead_code import is_view, merged_view
from tilewright.graph.traversal import (
    each_function,
    is_call,
    op_name,
    rewrite,
    users,
    with_body,
)
from tilewright.topi.transform import reshape_groups

Move = Callable[[Expr], Expr | None]  # an operand as the step before the move has it
_Followed = dict[Expr, int]  # elementwise steps that were moved -> what they gained


def moves_last(mod: IRModule) -> IRModule:
    """Rewrite elementwise steps of what was only moved.

    f(reshape(x), y)    ->  reshape(f(x, reshape(y)))   also where y is stretched along whole axes
    f(transpose(x), c)  ->  transpose(f(x, c))          c: constant
    batch_matmul(a, transpose(b))  ->  batch_matmul(a, b, transpose_b=True), or the other way round,
                                       where neighbours in `b` are then neighbours again
    softmax(reshape(x))            ->  reshape(softmax(x)), of rows that `x` counts otherwise

    Where f takes several values, it follows one that a contraction computes, if there is one.  All
    moves between the two go behind f, which then reads what was computed; or else the views behind
    a transposition, which then shares the kernel of f.
    """
    return each_function(mod, lambda f: with_body(f, _until_settled(f.body)))


def _until_settled(body: Expr) -> Expr:
    """Rewritten again and again, which comes to an end, for each rewrite makes one of these fall
    and none before it rise:

    - transpositions of the innermost axis on the ways to the second operands of products,
    - what elementwise steps may still gain, summed up: the most less what each has (`_gain`),
    - moves on the ways to the result, which views of views have more of.
    """
    followed: _Followed = {}
    while (found := _rewritten(body, followed)) is not body:
        body = found
    return body


class _Readers:
    """Who reads what while a graph is rewritten from its inputs on, so that a move passes a whole
    chain at once: what stands in the place of a node is read by what read that."""

    def __init__(self, body: Expr) -> None:
        self._found: dict[Expr, Sequence[Expr]] = dict(users(body))

    def __getitem__(self, node: Expr) -> Sequence[Expr]:
        return self._found.get(node, ())

    def replaced(self, old: Expr, new: Expr) -> None:
        self._found.setdefault(new, self._found[old])

    def made(self, node: Expr, reader: Expr) -> None:
        self._found[node] = (reader,)

    def passed(self, view: Expr, source: Expr) -> None:
        """One reader of `view` now reads its `source`; who else does is seen in the next round."""
        if len(self[view]) != 1:
            self._found[source] = ()


def _rewritten(body: Expr, followed: _Followed) -> Expr:
    readers = _Readers(body)
    gains: dict[Expr, int] = {}

    def visit(old: Expr, node: Expr) -> Expr:
        if old in followed:
            followed[node] = followed[old]
        found = changed(node)
        readers.replaced(old, found)
        return found

    def changed(node: Expr) -> Expr:
        if not isinstance(node, Call):
            return node
        if is_call(node, "nn.batch_matmul"):
            return _product(node)
        if is_view(node):
            merged, source = merged_view(node), node.args[0]
            if merged is not node and is_view(source) and isinstance(source, Call):
                readers.passed(source, source.args[0])
            return merged
        if is_call(node, "nn.softmax"):
            view = _rows_view(node, readers)
            if view is not None:
                rows = view.args[0]
                return behind([view], call("nn.softmax", rows, axis=len(rows.shape) - 1))
        if not _is_elementwise(node):
            return node
        ways = [(at, way) for at, a in enumerate(node.args) for way in _ways(node, a, readers)]
        if not ways:
            return node
        worth = [_worth(a, readers, gains) for a in node.args]
        now = [
            _gain(a, worth[k])
            for k, a in enumerate(node.args)
            if a.shape == node.shape and not isinstance(a, Constant) and not is_view(a)
            if not _is_move(a) or len(readers[a]) == 1  # or it has a kernel of its own anyway
        ]
        least = max((followed.get(node, -1), *now))
        gains_of = [_gain(way[-1].args[0], worth[at]) for at, way in ways]
        for gained, (at, way) in sorted(zip(gains_of, ways, strict=True), key=lambda one: -one[0]):
            made = _before(node, at, way) if gained > least else None
            if made is not None:
                followed[made] = gained
                return behind(way, made)
        return node

    def behind(moves: Sequence[Call], found: Call) -> Call:
        for move in reversed(moves):
            before, found = found, _as(move, found)
            readers.made(before, found)
        return found

    return rewrite(body, visit)


def _rows_view(node: Call, readers: _Readers) -> Call | None:
    """The view in front of a softmax along rows, which are rows of another count before it, so that
    a product that has these could not be in one kernel with it."""
    view = node.args[0]
    if not is_view(view) or not isinstance(view, Call) or len(readers[view]) != 1:
        return None
    seen, rows = view.shape, view.args[0].shape
    if node.attrs.axis not in (-1, len(seen) - 1) or min(len(seen), len(rows)) < 3:
        return None
    return view if seen[-1] == rows[-1] and seen[-2] != rows[-2] else None


def _ways(node: Call, arg: Expr, readers: _Readers) -> Iterator[list[Call]]:
    """The moves of an argument that may go behind `node`, the last one first: all up to what
    computes it, or the views in front of a transposition.

    None where something else reads what they move, or needs the argument as it is.
    """
    if not isinstance(arg, Call) or not _is_move(arg) or arg.shape != node.shape:
        return
    shared = len(readers[arg]) > 1  # then each reader gets moves of its own: views, which are free
    if shared and not all(
        isinstance(r, Call) and _is_elementwise(r) and r.shape == arg.shape for r in readers[arg]
    ):
        return
    found: list[Call] = []
    source: Expr = arg
    while isinstance(source, Call) and _is_move(source) and (is_view(source) or not shared):
        behind = source.args[0]
        if not isinstance(behind, Call) or len(readers[behind]) != 1:
            break
        found.append(source)
        source = behind
    if found and not _is_move(source):
        yield found
    views = list(itertools.takewhile(is_view, found))
    if views and is_call(views[-1].args[0], "transpose"):
        yield views


def _gain(value: Expr, worth: int) -> int:
    """What it is worth to read `value`: more where it is computed than where it is only moved,
    which can at least be done in the same kernel."""
    return 2 * worth + (not _is_move(value))


def _worth(node: Expr, readers: _Readers, known: dict[Expr, int]) -> int:
    """How much is gained by following what computes `node`: 2 for a contraction, 1 for a reduction
    at the head of elementwise steps, 0 for others and for what several read.

    known: what this gave; every step on the way there gives the same
    """
    way: list[Expr] = []
    while node not in known:
        way.append(node)
        if isinstance(node, Call) and _is_move(node):
            node = node.args[0]
        elif isinstance(node, Call) and len(readers[node]) != 1:
            known[node] = 0
        elif isinstance(node, Call) and _is_elementwise(node):
            same = [a for a in node.args if isinstance(a, Call) and a.shape == node.shape]
            if same:
                node = same[0]
            else:
                known[node] = 0
        else:
            name = op_name(node)
            pattern = TABLE[name].pattern if name else Pattern.OPAQUE
            known[node] = {Pattern.ANCHOR: 2, Pattern.REDUCTION: 1}.get(pattern, 0)
    known.update(dict.fromkeys(way, known[node]))
    return known[node]


def _product(node: Call) -> Call:
    """The second operand with its innermost axis where it was before a transposition."""
    a, b = node.args
    moved = b.args[0] if is_view(b) and isinstance(b, Call) else b
    if not is_call(moved, "transpose") or not isinstance(moved, Call):
        return node
    axes = list(moved.attrs.axes)
    if axes[-2] != len(axes) - 1 or b.shape[-2:] != moved.shape[-2:]:
        return node
    axes[-1], axes[-2] = axes[-2], axes[-1]
    source = moved.args[0]
    if axes != sorted(axes):
        source = call("transpose", source, axes=tuple(axes))
    *batch, i, j = b.shape
    if source.shape != (*batch, j, i):
        source = call("reshape", source, newshape=(*batch, j, i))
    attrs = {**dict(node.attrs), "transpose_b": not node.attrs.transpose_b}
    return Call(node.op, (a, source), attrs)


def _is_elementwise(node: Call) -> bool:
    """Whether `node` is the same for any shape of its arguments."""
    name = op_name(node)
    if not name or not isinstance(node.checked_type, TensorType):
        return False
    row = TABLE[name]
    return row.pattern == Pattern.ELEMENTWISE or (
        row.pattern == Pattern.BROADCAST and not row.attrs
    )


def _is_move(node: Expr) -> bool:
    return is_view(node) or is_call(node, "transpose")


def _as(move: Call, value: Expr) -> Call:
    """`value` moved alike."""
    if is_view(move):
        return call("reshape", value, newshape=move.shape)
    return call("transpose", value, axes=move.attrs.axes)


def _before(node: Call, at: int, moves: Sequence[Call]) -> Call | None:
    """`node` as it is in front of the moves of argument `at`; None where there is no such thing."""
    args: list[Expr] = list(node.args)
    for move in moves:
        source = move.args[0]
        back = _unview(move, source) if is_view(move) else _untranspose(move)
        moved = [source if k == at else back(a) for k, a in enumerate(args)]
        if any(a is None for a in moved):
            return None
        args = [a for a in moved if a is not None]
    return Call(node.op, tuple(args), node.attrs)


def _unview(move: Call, source: Expr) -> Move:
    def back(operand: Expr) -> Expr | None:
        shape = unstretched(operand.shape, move.shape, source.shape)
        if shape is None:
            return None
        if isinstance(operand, Constant):
            return Constant(operand.data.reshape(shape))
        if is_view(operand) and isinstance(operand, Call):
            operand = operand.args[0]
        return operand if operand.shape == shape else call("reshape", operand, newshape=shape)

    return back


def _untranspose(move: Call) -> Move:
    rank, axes = len(move.shape), move.attrs.axes
    order = [axes.index(k) for k in range(rank)]

    def back(operand: Expr) -> Expr | None:
        if not isinstance(operand, Constant):
            return None
        if operand.data.size == 1:
            return operand
        data = operand.data.reshape((1,) * (rank - operand.data.ndim) + operand.data.shape)
        return Constant(np.ascontiguousarray(data.transpose(order)))

    return back


def unstretched(
    shape: Sequence[int], whole: Sequence[int], wanted: Sequence[int]
) -> tuple[int, ...] | None:
    """Give the shape that stretches to `wanted` as `shape` does to `whole`, which has as many
    elements.

    None where `wanted` joins axes of which some are stretched, some not.
    """
    if math.prod(shape) == 1:
        return (1,) * min(len(shape), len(wanted))
    full = (1,) * (len(whole) - len(shape)) + tuple(shape)
    made = [1] * len(wanted)
    source, target = ([k for k, n in enumerate(s) if n != 1] for s in (whole, wanted))
    for run, there in reshape_groups([whole[k] for k in source], [wanted[k] for k in target]):
        kept = [full[source[k]] for k in run]
        if kept == [whole[source[k]] for k in run]:
            for k in there:
                made[target[k]] = wanted[target[k]]
        elif any(n != 1 for n in kept):
            return None
    return tuple(made)
