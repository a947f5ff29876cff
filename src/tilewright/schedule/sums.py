"""Loops for long sums: splits that give lowering blocks to add up.

In: a schedule whose loops are otherwise done.  Out: the same; where a reduction would have longer
chains of additions than `te.chains` allows, its loops are split further.  All that Tilewright
schedules by itself ends here: defaults, templates, rules.  Read next: `tree/chains.py`.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.space.decision import Choice, Size, ceil_div, where
from tilewright.schedule.space.policies import factors
from tilewright.schedule.state import SplitRelation
from tilewright.schedule.tree.chains import may_be_long
from tilewright.te.chains import BLOCK, LONGEST, PRODUCT_BLOCK, is_product, longest_whole, terms_of
from tilewright.te.tensor import ComputeOp, IterVar

_NEAR = 4  # a divisor this much smaller than a block is none: a loop that need not divide is


def block_sums(s: Schedule) -> None:
    """Split the reduction loops of sums that would be too long.

    rewrite: for k in 4096: C[i] += ..   ->   for k.outer in 64: for k.inner in 64: C[i] += ..
    legal:   always.  Loops of a number of iterations are split where the chain that they make is
             too long; open ones where the sum has more than LONGEST terms, since the threads that
             share it may be any number.  Marked loops stay as they are.
    """
    for stage in s.stages:
        op = stage.op
        if isinstance(op, ComputeOp) and not op.states and op.combiner and may_be_long(op):
            _block(stage, op)


def _block(stage: Stage, op: ComputeOp) -> None:
    sizes = _sizes(stage, op)
    loops = [ax for ax in stage.leaf_iter_vars if ax.kind == "reduce" and ax not in stage.binds]
    chain = prod(sizes[ax] for ax in loops)
    if terms_of(op) <= LONGEST if isinstance(chain, Choice) else chain <= longest_whole(op):
        return
    most = PRODUCT_BLOCK if is_product(op) else BLOCK
    for ax in loops:
        size = sizes[ax]
        if stage.mark(ax) is not None:
            continue
        if isinstance(size, Choice):
            stage.split(ax, factor=_dividing(size, op, most))
            continue
        while size > most:
            factor = max(n for n in factors(size) if n <= most)
            factor = factor if factor * _NEAR >= most else most
            ax, _ = stage.split(ax, factor=factor)
            size = ceil_div(size, factor)


def _sizes(stage: Stage, op: ComputeOp) -> dict[IterVar, Any]:
    """Iterations of the reduction loops, as far as decisions are made."""
    found: dict[IterVar, Any] = {ax: ax.size for ax in op.reduce_axis}
    for r in stage.relations:
        if not isinstance(r, SplitRelation):
            if r.outer.kind == "reduce":
                found[r.fused] = found[r.outer] * found[r.inner]
        elif r.parent.kind == "reduce":
            whole = found[r.parent]
            if r.factor is not None:
                found[r.inner], found[r.outer] = r.factor, ceil_div(whole, r.factor)
            else:
                found[r.inner], found[r.outer] = ceil_div(whole, r.nparts), r.nparts
    return found


def _dividing(size: Choice, op: ComputeOp, most: int) -> Size:
    """The largest divisor of the terms, up to `most`, that divides `size`."""
    found: Size = 1
    for n in factors(terms_of(op)):
        if 1 < n <= most:
            found = where(size % n == 0, n, found)
    return found
