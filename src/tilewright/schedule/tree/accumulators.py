"""Accumulators of another type than their stage: which loops index them, how many elements.

In: a node of a loop tree, its bounds.  Out: axes, and a count that is an int or an int64 vector.
A sum of float16 keeps its partial results in float32 while its stage is float16: lowering gives it
a local buffer of one element per iteration of the spatial loops inside the reduction, and writes
the stage after it.  The fragment of a matrix instruction is its own accumulator.
Read next: `lowering/reductions.py`.
"""

from __future__ import annotations

from tilewright.schedule.space.decision import Number, same, where
from tilewright.schedule.tree.bounds import Bounds
from tilewright.schedule.tree.structure import Node
from tilewright.te.tensor import IterVar


def first_reduction(node: Node) -> int:
    """The position of the outermost reduction loop among the leaves of a reduction."""
    return next(k for k, ax in enumerate(node.stage.leaf_iter_vars) if ax.kind == "reduce")


def reduces_across_threads(node: Node) -> bool:
    """Tell whether threads of a block share the reduction of `node`."""
    return any(ax.kind == "reduce" for ax in node.stage.binds)


def exchanges(node: Node) -> bool:
    """Tell whether the lanes of a warp share the reduction, and exchange what they have."""
    _, wanted = node.stage.pragmas.get("exchange", (None, 0))
    return reduces_across_threads(node) and not same(wanted, 0)


def has_accumulator(node: Node) -> bool:
    """Tell whether partial results are kept beside the stage's own buffer, as their type is another
    one.  A reduction over threads keeps one per thread in any case, and is not meant; what an atom
    computes is itself of the type of partial results."""
    if node.product is not None or reduces_across_threads(node):
        return False
    return node.op.accumulator is not node.op.dtype


def accumulator_axes(node: Node) -> list[IterVar]:
    """The leaves that index the accumulator, innermost last."""
    return held_axes(node, first_reduction(node)) if has_accumulator(node) else []


def held_axes(node: Node, first: int) -> list[IterVar]:
    """The leaves that index partial results of the reduction loops from `first` on, innermost last:
    spatial loops inside these that are not bound to blocks or threads, and vector lanes wherever
    they are."""
    stage = node.stage
    vectors = [ax for ax, how in stage.annotations.items() if how == "vectorize"]
    found = [
        ax
        for k, ax in enumerate(stage.leaf_iter_vars)
        if ax.kind == "spatial"
        and (ax in vectors or (k > first and stage.binds.get(ax, "vthread") == "vthread"))
    ]
    return sorted(found, key=lambda ax: ax in vectors)


def accumulator_elements(node: Node, bounds: Bounds) -> Number:
    """Elements of type `node.op.accumulator` that a thread keeps beside the stage's own buffer, for
    all virtual threads together; 0 where the stage itself accumulates."""
    return elements_inside(node, bounds, first_reduction(node)) if has_accumulator(node) else 0


def elements_inside(node: Node, bounds: Bounds, first: int) -> Number:
    """Partial results of the reduction loops from `first` on, for all virtual threads together."""
    axes = held_axes(node, first)
    axes += [ax for ax, tag in node.stage.binds.items() if tag == "vthread" and ax not in axes]
    count: Number = 1
    for ax in axes:
        count = count * bounds.extent[ax]
    for ax, flag in bounds.vthreads(node).items():
        count = count * where(flag, bounds.extent[ax], 1)
    return count
