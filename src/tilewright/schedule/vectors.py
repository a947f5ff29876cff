"""What makes a loop a vector: how many lanes, and how far apart they read.

In: operations and scheduled stages.  Out: numbers, expressions after inlining; partial results of a
reduction side by side.  Read next: `row_reductions.py`, `default.py`.
"""

from __future__ import annotations

from math import inf

from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.tuples import parts
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.targets.target import Target
from tilewright.te.tensor import ComputeOp

MIN_PARALLEL_WORK = 1 << 14  # elements or reduction steps below which threads of a CPU cost more
MAX_STRIDE = 4  # elements between lanes up to which a vector is read by wide loads and shuffles


def inlined_body(s: Schedule, stage: Stage) -> Expr:
    """The expression of a stage after its inlined producers took their places."""

    def rule(node: Expr) -> Expr | None:
        if node.op != "read":
            return None
        source = s[node.attr]
        if source.attach_kind != "inline" or not isinstance(source.op, ComputeOp):
            return None
        axes = {ax.var: i for ax, i in zip(source.op.axis, node.args, strict=True)}
        values = parts(inlined_body(s, source))
        return E.substitute(values[source.tensors.index(node.attr)], axes)

    assert isinstance(stage.op, ComputeOp)
    return E.transform(stage.op.body, rule)


def lane_axis(op: ComputeOp) -> int:
    """Return the axis that vectors run along: the last with several elements.  Axes of one behind
    it, such as a block of one channel, leave its neighbours side by side in memory."""
    return max((d for d, n in enumerate(op.shape) if n > 1), default=len(op.shape) - 1)


def lanes_inside(partial: Stage) -> None:
    """The last axis of a stage of partial results becomes a vector inside its reduction."""
    op = partial.op
    assert isinstance(op, ComputeOp)
    *spatial, lane = op.axis
    partial.reorder(*spatial, *op.reduce_axis, lane)
    partial.vectorize(lane)


def lanes_of(op: ComputeOp, extent: int, target: Target) -> int:
    """Lanes of a vector over `extent` elements: those of the target, fewer for a short extent."""
    lanes = target.limits.vector_bytes // op.dtype.bytes
    while lanes > 1 and lanes >= 2 * extent:
        lanes //= 2
    return lanes if extent > 1 else 1


def stride_along(body: Expr, variable: Expr) -> float:
    """The largest distance between what neighbours along `variable` read; infinite if unknown."""
    worst: float = 0
    for n in E.walk(body):
        if n.op != "read":
            continue
        step = 1
        for index, extent in zip(reversed(n.args), reversed(n.attr.shape), strict=True):
            if variable in E.free_variables(index):
                form = Simplifier({}).linear(index)
                rest = [
                    a for a in form.terms if a is not variable and variable in E.free_variables(a)
                ]
                worst = max(worst, inf if rest else abs(form.terms.get(variable, 0)) * step)
            step *= extent
    return worst
