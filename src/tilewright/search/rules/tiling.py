"""Multi-level tiles: the loops of a stage in alternating spatial and reduction levels.

In: a stage of a `RuleState` and a structure such as "SSRSRS".  Out: its loops split, ordered, and
the outer levels spread over the device.  Source: "Ansor", OSDI 2020, section 4.1.
Read next: `rules.py`.

    CPU  SSRSRS    S S: tasks of the cores     R S R S: inside a task
    GPU  SSSRRSRS  S S S: blocks, virtual threads, threads     R R S R S: inside a thread
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tilewright.schedule.schedule import Stage
from tilewright.schedule.space.decision import Size, where
from tilewright.schedule.space.policies import factors
from tilewright.search.rules.analysis import OUTER_ONLY_ATTR, attribute, compute_op
from tilewright.search.rules.state import Hardware, RuleState
from tilewright.te.tensor import ComputeOp, IterVar

Sizes = list[list[Any]]  # per axis, the sizes of its levels, outermost first


def spatial_sizes(state: RuleState, stage: Stage) -> Sizes:
    """Open a tiling per spatial axis."""
    op, hardware = compute_op(stage), state.hardware
    parts = state.tiling.levels(state.target).count("S")
    outer_only = attribute(op, OUTER_ONLY_ATTR)
    most = {}
    if state.target.has_threads:  # what no block could exceed; derive.py bounds the product
        most = {1: hardware.max_vthread_extent, 2: hardware.max_threads_per_block}
    uneven = _uneven_axis(op, hardware) if state.target.has_threads else None
    return [
        state.tiles(
            stage, ax, parts, {**most, parts - 1: 1} if ax.name in outer_only else most,
            exact=ax is not uneven,
        )
        for ax in op.axis
    ]  # fmt: skip


def _uneven_axis(op: ComputeOp, hardware: Hardware) -> IterVar | None:
    """The longest axis, where tiles that divide every axis leave no block of enough threads: of a
    long prime, for example."""
    sizes, most = {1}, hardware.max_threads_per_block
    for ax in op.axis:
        divisors = factors(ax.size)
        sizes = {n * f for n in sizes for f in divisors if n * f <= most}
    if max(sizes) >= hardware.least_threads(prod(op.shape)):
        return None
    return max(op.axis, key=lambda ax: ax.size)


def split_levels(stage: Stage, axis: IterVar, sizes: Sequence[Any]) -> list[IterVar]:
    """Loops of `sizes`, outermost first; the outermost takes what the others leave."""
    loops = []
    for level in range(1, len(sizes)):
        outer, axis = stage.split(axis, factor=prod(sizes[level:]))
        loops.append(outer)
    return [*loops, axis]


def tile(state: RuleState, stage: Stage, sizes: Sizes, done: int = 0) -> None:
    """Tile a stage of which `done` spatial levels are loops of the stage it is computed in.

    rewrite: for i: for k: C[i] += ..   ->   for i.0: for k.0: for i.1: for k.1: for i.2: C[i] += ..
    """
    op = compute_op(stage)
    pattern = state.tiling.levels(state.target)
    spatial = [split_levels(stage, ax, own[done:]) for ax, own in zip(op.axis, sizes, strict=True)]
    parts = pattern.count("R")
    reduce = [
        split_levels(stage, ax, state.tiles(stage, ax, parts))
        for ax in (op.reduce_axis if op.combiner is not None else ())
    ]
    levels: list[list[IterVar]] = []
    left = {"S": done, "R": 0}
    for kind in pattern.replace("S", "", done):
        if kind == "S":
            levels.append([loops[left["S"] - done] for loops in spatial])
        else:
            levels.append([loops[left["R"]] for loops in reduce])
        left[kind] += 1
    stage.reorder(*(ax for level in levels for ax in level))
    if done == 0:
        spread(state, stage, levels)
        state.threads[stage.name] = block_threads(sizes)
    if state.vectors:
        vectorize_by(state, stage, levels[-1][-1], sizes[-1][-1])
    if reduce:
        state.slices[stage.name] = reduce[-1][0]
    state.tiled.add(stage.name)


def follow(state: RuleState, stage: Stage, sizes: Sizes, level: int) -> IterVar:
    """Give `stage` the first `level` levels of a tiling and one loop per axis for the rest;
    returns the loop around what is left.

    rewrite: for i: D[i] = ..   ->   for i.0: .. for i.level-1: for i.rest: D[i] = ..
    """
    op = compute_op(stage)
    own = [[*s[:level], prod(s[level:])] for s in sizes]
    loops = [split_levels(stage, ax, s) for ax, s in zip(op.axis, own, strict=True)]
    levels = [[parts[k] for parts in loops] for k in range(level + 1)]
    stage.reorder(*(ax for group in levels for ax in group))
    inside = spread(state, stage, levels[:level])
    if state.vectors:
        vectorize_by(state, stage, levels[level][-1], own[-1][-1])
    state.threads[stage.name] = block_threads(sizes)
    state.tiled.add(stage.name)
    return inside


def block_threads(sizes: Sizes) -> Any:
    """Threads of a block; on CPUs nobody asks."""
    return prod(own[2] for own in sizes)


def spread(state: RuleState, stage: Stage, levels: list[list[IterVar]]) -> IterVar:
    """Put the outer levels on the device; returns the innermost loop of theirs.

    GPU: levels are blocks, virtual threads and threads.  CPU: the first one or two are tasks.
    """
    if state.target.has_threads:
        bound = [stage.fuse(*level) for level in levels[:3]]
        for axis, tag in zip(bound, ("blockIdx.x", "vthread", "threadIdx.x"), strict=False):
            stage.bind(axis, tag)
        return bound[-1]
    fine = len(levels) > 1 and state.choose(stage, "parallel", [1, 2]) == 2
    task = stage.fuse(*levels[0], *(levels[1] if fine else []))
    stage.parallel(task)
    if len(levels) == 1 or fine:
        return task
    return levels[1][-1]


def vectorize_by(state: RuleState, stage: Stage, axis: IterVar, extent: Size) -> None:
    """Run `axis` in vectors of the widest power of two that divides its extent."""
    most = state.target.limits.vector_bytes // compute_op(stage).dtype.bytes
    most = min(most, state.tiling.lanes or most)
    lanes = dividing(extent, most)
    _, lane = stage.split(axis, factor=lanes)
    stage.vectorize(lane)


def dividing(extent: Size, most: int) -> Size:
    """The largest power of two up to `most` that divides `extent`."""
    lanes: Size = 1
    n = 2
    while n <= most:
        lanes = where(extent % n == 0, n, lanes)
        n *= 2
    return lanes
