"""Blocks of long sums: where a reduction begins a fresh accumulator, and how long its chains are.

In: a node of a loop tree, its bounds.  Out: `Block`s and the longest chain of additions in one
accumulator, each an int or bool, or a vector of one per candidate.

A reduction whose chain would be longer than `te.chains` allows is added up in blocks where its
loops make any: the loops from some reduction loop inwards add to a partial result of their own,
which is then added to what lies outside.  Blocks are made from the inside, as long as they may be.

rewrite:  for k.outer in 512: for k.inner in 64: C[i] += e(i, k)
    ->    for k.outer in 512: {C.block = 0; for k.inner in 64: C.block += e(i, k); C[i] += C.block}
Read next: `lowering/reductions.py`, `legality.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.ir.expr import Expr
from tilewright.schedule.space.decision import Number, logical_and, maximum, where
from tilewright.schedule.tree.accumulators import elements_inside
from tilewright.schedule.tree.bounds import Bounds
from tilewright.schedule.tree.structure import Node
from tilewright.te.chains import BLOCK, LONGEST, WHOLE, adds_up, is_product, longest_whole, terms_of
from tilewright.te.tensor import ComputeOp


@dataclass(frozen=True)
class Block:
    """at: the position of its outermost loop among the leaves; made: whether it is a block"""

    at: int
    made: Any


@dataclass(frozen=True)
class Chains:
    """blocks:  from the outside
    longest: terms that one accumulator of a thread takes in turn
    """

    blocks: tuple[Block, ...] = ()
    longest: Number = 1


def may_be_long(op: ComputeOp) -> bool:
    """Tell whether some schedule of the stage has chains that are added up in blocks."""
    known = all(isinstance(ax.extent, int) for ax in op.reduce_axis)
    return known and terms_of(op) > WHOLE and adds_up(op) and terms_of(op) > longest_whole(op)


def chains(node: Node, bounds: Bounds) -> Chains:
    """Return the chains of sums with few digits that may be long; nothing of all others."""
    op = node.op
    if op.combiner is None or not may_be_long(op):
        return Chains()
    if node.product is not None:  # each atom adds once
        return Chains((), _atoms_in_turn(node, bounds))
    if node.fold is not None:  # a lane has a part of a row
        held = node.fold.source.fragment.elements // node.held.fragment.elements  # type: ignore[union-attr]
        return Chains((), _atoms_in_turn(node, bounds) * held)
    stage, extents = node.stage, bounds.extent
    leaves = stage.leaf_iter_vars
    own = [k for k, ax in enumerate(leaves) if ax.kind == "reduce" and ax not in stage.binds]
    if any(isinstance(extents[leaves[k]], Expr) for k in own):
        return Chains()
    together = [k for k, ax in enumerate(leaves) if stage.annotations.get(ax) == "parallel"]
    least = max(together, default=-1)  # a partial result belongs to one thread
    most = LONGEST if is_product(op) else BLOCK
    terms: Number = 1
    for k in own:
        terms = terms * extents[leaves[k]]
    long = terms > longest_whole(op)
    blocks: list[Block] = []
    chain: Number = 1
    longest: Number = 1
    inside: int | None = None
    for k in reversed(own):
        extent = extents[leaves[k]]
        joined = chain * extent
        made: Any = False
        if inside is not None and inside > least:
            made = logical_and(long, logical_and(joined > most, chain > 1))
            made = logical_and(made, extent > 1)
            blocks.append(Block(inside, made))
        longest = maximum(longest, chain)
        chain = where(made, extent, joined)
        inside = k
    found = tuple(b for b in reversed(blocks) if b.made is not False)
    return Chains(found, maximum(longest, chain))


def _atoms_in_turn(node: Node, bounds: Bounds) -> Number:
    count: Number = 1
    for ax in node.stage.leaf_iter_vars:
        if ax.kind == "reduce":
            count = count * bounds.trips(node, ax)
    return count


def block_elements(node: Node, bounds: Bounds, block: Block) -> Number:
    """Partial results that a thread keeps of it, for all virtual threads together."""
    count: Number = where(block.made, elements_inside(node, bounds, block.at), 0)
    return count


def unit_terms(node: Node, bounds: Bounds) -> Number:
    """Return the terms that one accumulator of a matrix unit takes in turn, where an atom computes
    the stage."""
    total: Number = 1
    for ax in node.stage.leaf_iter_vars:
        if ax.kind == "reduce" and ax not in node.stage.binds:
            total = total * bounds.extent[ax]
    return total
