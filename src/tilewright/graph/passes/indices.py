"""Where something is written is worked out where it is written: an index costs less than a kernel.

In: a canonical module.  Out: an equal one, in which each choice has its own condition, where that
follows from single whole numbers.  `fuse` has both in one kernel then.  Read next: `points.py`,
`fuse.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import dropwhile
from typing import Any

from tilewright.graph.expr import Call, Constant, Expr, IRModule, TensorType
from tilewright.graph.op import TABLE, Pattern, call
from tilewright.graph.passes.dead_code import is_view
from tilewright.graph.traversal import each_function, is_call, op_name, rewrite, with_body

LONGEST = 12  # operators of an index
TEXTS = 64  # of a batch, at most, each with a position of its own
JOINS = (Pattern.ELEMENTWISE, Pattern.BROADCAST)


def work_out_indices(mod: IRModule) -> IRModule:
    """where(f(reshape(i)), u, x)  ->  where(f'(i), u, x), for each of several that share f(i)

    i: one whole number, or one for each of a batch; f: elementwise steps, among them constants
    such as 0..n-1; f': with as many
    axes as the choice has, so that no view stands in between, which may drop or add axes of one
    element in front
    """
    return each_function(mod, lambda f: with_body(f, rewrite(f.body, _visit)))


def _visit(old: Expr, node: Expr) -> Expr:
    if not is_call(node, "where") or not isinstance(node, Call) or node.tensor_type.size == 1:
        return node
    condition = node.args[0]
    steps = index_steps(condition)
    if not steps or len(steps) > LONGEST:
        return node
    own = _again(condition, len(node.shape), steps, {})
    return Call(node.op, (own, *node.args[1:]), node.attrs)


def index_steps(node: Expr) -> dict[Expr, None]:
    """Give the operators of an index; none where it is something else."""
    found: dict[Expr, None] = {}
    waiting = [node]
    while waiting:
        step = waiting.pop()
        if isinstance(step, Constant) or step in found:
            continue
        if _is_moved_view(step) and isinstance(step, Call):
            waiting.append(step.args[0])
        elif is_whole(step) and len(found) <= LONGEST:
            assert isinstance(step, Call)
            found[step] = None
            waiting += step.args
        elif not is_few(step):
            return {}
    return found


def is_few(node: Expr) -> bool:
    """Whether it is one whole number, or one for each of a small batch."""
    kind = node.tensor_type
    return not kind.dtype.is_float and kind.size <= TEXTS and all(n == 1 for n in kind.shape[1:])


def is_whole(node: Expr) -> bool:
    """Whether it is an elementwise step of one result, which is no float."""
    kind = node.checked_type
    if not isinstance(kind, TensorType) or kind.dtype.is_float or not op_name(node):
        return False
    return TABLE[op_name(node)].pattern in JOINS


def _again(node: Expr, rank: int, steps: Collection[Expr], made: dict[Expr, Expr]) -> Expr:
    """The index with `rank` axes, made anew; made: parts of it."""
    if node not in made:
        outer = len(node.shape) - rank  # of more axes, the first have one element
        shape = (*(1,) * -outer, *node.shape[max(outer, 0) :])
        if isinstance(node, Constant):
            made[node] = Constant(node.data.reshape(shape))
        elif node in steps and isinstance(node, Call):
            args = tuple(_again(a, rank, steps, made) for a in node.args)
            stretched = {"shape": shape} if "shape" in node.attrs else {}
            made[node] = Call(node.op, args, {**node.attrs, **stretched})
        elif _is_moved_view(node) and isinstance(node, Call) and _behind(node) in steps:
            made[node] = _again(node.args[0], rank, steps, made)
        else:
            made[node] = node if node.shape == shape else call("reshape", node, newshape=shape)
    return made[node]


def _is_moved_view(node: Expr) -> bool:
    """Whether it is a view of one element, or one that has other axes of one element in front."""
    if not is_view(node) or not isinstance(node, Call):
        return False
    return node.tensor_type.size == 1 or _inner(node.shape) == _inner(node.args[0].shape)


def _inner(shape: Sequence[Any]) -> list[Any]:
    return list(dropwhile(lambda n: n == 1, shape))


def _behind(node: Expr) -> Expr:
    while is_view(node) and isinstance(node, Call):
        node = node.args[0]
    return node
