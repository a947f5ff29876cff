"""Loops for long sums: splits that give lowering blocks to add up.

In: a schedule whose loops are otherwise done.  Out: the same; where a reduction would have longer
chains of additions than `te.chains` allows, its loops are split further.  All that Tilewright
schedules by itself ends here: defaults, templates, rules.  Read next: `tree/chains.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.space.decision import Size, ceil_div, where
from tilewright.schedule.space.policies import factors
from tilewright.schedule.state import SplitRelation
from tilewright.schedule.tree.chains import may_be_long
from tilewright.te.chains import BLOCK, LONGEST, PRODUCT_BLOCK, is_product, longest_whole, terms_of
from tilewright.te.tensor import ComputeOp, IterVar

_LEVELS = {True: 1, False: 2}  # of blocks that a loop of a product, and of another sum, gets
_NEAR = 4  # a divisor this much smaller than a block is none: a loop that need not divide is


def block_sums(s: Schedule) -> None:
    """Split the reduction loops of sums that would be too long.

    rewrite: for k in 4096: C[i] += ..   ->   for k.outer in 64: for k.inner in 64: C[i] += ..
    legal:   always.  Which loops are split does not depend on decisions: loops that nobody split,
             where the chain that they make is too long; others of a sum of more than LONGEST terms,
             which some number of threads may or may not share.  Marked loops stay as they are.
    """
    for stage in s.stages:
        op = stage.op
        if isinstance(op, ComputeOp) and not op.why_fixed and op.combiner and may_be_long(op):
            _block(stage, op)


def _block(stage: Stage, op: ComputeOp) -> None:
    if terms_of(op) <= LONGEST and any(
        isinstance(r, SplitRelation) and r.parent.kind == "reduce" for r in stage.relations
    ):
        return
    sizes, derived = _sizes(stage, op)
    most = PRODUCT_BLOCK if is_product(op) else BLOCK
    for ax in list(stage.leaf_iter_vars):
        if ax.kind != "reduce" or stage.mark(ax) is not None:
            continue
        size = sizes[ax]
        if ax not in derived:
            while size > most:
                factor = max(n for n in factors(size) if n <= most)
                factor = factor if factor * _NEAR >= most else most
                ax, _ = stage.split(ax, factor=factor)
                size = ceil_div(size, factor)
            continue
        for _ in range(_LEVELS[is_product(op)]):
            inner = _dividing(size, op, most)
            ax, _ = stage.split(ax, factor=inner)
            size = ceil_div(size, inner)


def _sizes(stage: Stage, op: ComputeOp) -> tuple[dict[IterVar, Any], set[IterVar]]:
    """Iterations of the reduction loops, and which of them are made by splits: their sizes may be
    decisions."""
    found: dict[IterVar, Any] = {ax: ax.size for ax in op.reduce_axis}
    derived: set[IterVar] = set()
    for r in stage.relations:
        if not isinstance(r, SplitRelation):
            if r.outer.kind == "reduce":
                found[r.fused] = found[r.outer] * found[r.inner]
                if derived.intersection((r.outer, r.inner)):
                    derived.add(r.fused)
        elif r.parent.kind == "reduce":
            whole = found[r.parent]
            if r.factor is not None:
                found[r.inner], found[r.outer] = r.factor, ceil_div(whole, r.factor)
            else:
                found[r.inner], found[r.outer] = ceil_div(whole, r.nparts), r.nparts
            derived |= {r.inner, r.outer}
    return found, derived


def _dividing(size: Size, op: ComputeOp, most: int) -> Size:
    """The largest divisor of the terms, up to `most`, that divides `size`; where that leaves too
    many blocks, `most`, which need not divide."""
    found: Size = 1
    for n in factors(terms_of(op)):
        if 1 < n <= most:
            found = where(size % n == 0, n, found)
    chosen: Size = where(ceil_div(size, found) > longest_whole(op), most, found)
    return chosen
