"""What is left after the rules: where to compute, what to spread, unroll and run in vectors.

In: a `RuleState` that rules have gone through.  Out: the same, ready to lower; what is still open
became knobs.  Source: "Ansor", OSDI 2020, section 4.2.  Read next: `derive.py`.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.schedule.schedule import Stage
from tilewright.schedule.state import SplitRelation
from tilewright.schedule.thread_loops import over_vectors
from tilewright.schedule.vectors import gpu_vector
from tilewright.search.rules.analysis import (
    UNROLL_INNER_ATTR,
    attribute,
    compute_op,
    consumers,
    is_compute,
)
from tilewright.search.rules.rules import spread_points
from tilewright.search.rules.state import RuleState
from tilewright.search.rules.tiling import vectorize_by
from tilewright.te.tensor import IterVar

CPU_UNROLL, GPU_UNROLL = [0, 16, 64, 512], [0, 16, 64, 512, 1024]


def annotate(state: RuleState) -> None:
    """Consumers first, so that the loops a stage may be computed in are final."""
    for stage in reversed(list(state.schedule.stages)):
        if not is_compute(stage) or stage.attach_kind == "inline":
            continue
        if stage.name not in state.tiled and stage.scope != "shared":
            if state.target.has_threads:
                _untiled_gpu(state, stage)
            else:
                _untiled_cpu(state, stage)
        _unroll(state, stage)


def _untiled_gpu(state: RuleState, stage: Stage) -> None:
    """Elements to threads: one to each, or where the stage is elementwise, and nobody has touched
    its loops, a vector to each."""
    plain = not (stage.relations or stage.annotations) and stage.attach_kind == "root"
    wide = gpu_vector(state.schedule, stage, state.target) if plain else None
    if wide is not None and not any(state.schedule.attached(stage, ax) for ax in stage.op.axis):
        lanes = state.choose(stage, "vector", [1, wide.lanes], absent=1)
        threads = state.choose(stage, "threads", state.thread_counts)
        over_vectors(stage, replace(wide, lanes=lanes), threads)
        return
    loops = _until_attached(state, stage, _outer_loops(stage))
    if loops and stage.attach_kind != "scope":
        spread_points(state, stage, loops, [])


def _untiled_cpu(state: RuleState, stage: Stage) -> None:
    """Somewhere in its consumer, or spread over the cores; copies and arithmetic run in vectors."""
    op = compute_op(stage)
    attached = stage.attach_kind == "scope" or _locate(state, stage)
    loops = _until_attached(state, stage, _outer_loops(stage))
    if op.combiner is None and op.axis and not (stage.annotations or stage.relations):
        *rows, last = op.axis
        vectorize_by(state, stage, last, last.size)
        alone = all(ax.extent == 1 for ax in rows)
        loops = _outer_loops(stage) if alone else rows
    if loops and not attached:
        stage.parallel(stage.fuse(*loops))


def _until_attached(state: RuleState, stage: Stage, loops: list[IterVar]) -> list[IterVar]:
    """The loops, as far as the first in which a rule had another stage computed."""
    for k, loop in enumerate(loops):
        if state.schedule.attached(stage, loop):
            return loops[: k + 1]
    return loops


def _outer_loops(stage: Stage) -> list[IterVar]:
    """The spatial loops outside of everything else."""
    leaves = stage.leaf_iter_vars
    free = [ax.kind == "spatial" and ax not in stage.annotations for ax in leaves]
    return leaves[: free.index(False)] if False in free else list(leaves)


def _locate(state: RuleState, stage: Stage) -> bool:
    """Choose between its own loop nest and the loops of its only consumer; whether the latter."""
    found = consumers(state.schedule, stage)
    if len(found) != 1 or stage.is_output:
        return False
    (consumer,) = found
    spots = _spots(consumer)
    if not spots:
        return False
    if consumer.name in state.tiled:
        place = int(state.choose(stage, "at", [0, 1, 2]))
    else:  # one answer for the chain: each place is a structure of its own, and they multiply
        place = int(state.choose(None, "chain_at", [0, 1]))
    if place == 0:
        return False
    stage.compute_at(consumer, spots[min(place, len(spots)) - 1])
    return True


def _spots(consumer: Stage) -> list[IterVar]:
    """Loops another stage may be computed in: the spatial ones before any reduction, vector or
    unrolled loop, at the ends of their levels."""
    spots: list[IterVar] = []
    for ax in consumer.leaf_iter_vars:
        if ax.kind == "reduce" or consumer.annotations.get(ax, "parallel") != "parallel":
            break
        spots.append(ax)
    width = len(compute_op(consumer).axis) or 1
    return spots[:1] + [ax for k, ax in enumerate(spots) if k and k % width == 0]


def _unroll_inner(stage: Stage) -> None:
    """In the innermost tile, the loops over the axes that an attribute of the operation names."""
    names = attribute(compute_op(stage), UNROLL_INNER_ATTR)
    seen: set[str] = set()
    for loop in reversed(stage.leaf_iter_vars if names else []):
        if stage.mark(loop) == "vectorize":  # lanes are part of the loop around them
            continue
        axes = _declared(stage, loop)
        if axes <= seen:  # a second loop over the same axis is outside of the innermost tile
            break
        seen |= axes
        (name, *others) = sorted(axes)
        if not others and name in names and stage.mark(loop) is None:
            stage.unroll(loop)


def _declared(stage: Stage, loop: IterVar) -> set[str]:
    """Names of the operation's axes of which a loop is part."""
    found = {loop}
    for relation in reversed(stage.relations):
        if isinstance(relation, SplitRelation):
            if found & {relation.outer, relation.inner}:
                found = found - {relation.outer, relation.inner} | {relation.parent}
        elif relation.fused in found:
            found = found - {relation.fused} | {relation.outer, relation.inner}
    return {ax.name for ax in found}


def _unroll(state: RuleState, stage: Stage) -> None:
    """Reductions: a limit on the steps written out, for everything computed inside them too."""
    _unroll_inner(stage)
    if compute_op(stage).combiner is None or not stage.leaf_iter_vars:
        return
    limits = GPU_UNROLL if state.target.has_threads else CPU_UNROLL
    limit = state.choose(stage, "unroll", limits)
    stage.pragma(stage.leaf_iter_vars[0], "auto_unroll_max_step", limit)
