"""The rules that derive sketches from a computation, each with its condition and its effect.

A rule looks at one stage, last stages first.  It passes, or applies in one or more variants, and
says which stage is next.  In: a `RuleState` and a stage.  Out: the state changed.
Source: Zheng et al., "Ansor", OSDI 2020, table 1, and the behaviour of its implementation in TVM.
Read next: `derive.py` (who applies them), `annotate.py` (what they leave open).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, ClassVar

from tilewright.schedule.schedule import Stage
from tilewright.schedule.thread_loops import deal, fetch, over_blocks, ring_sizes, staged
from tilewright.search.rules.analysis import (
    attribute,
    common_outer_axes,
    compute_op,
    consumers,
    is_compute,
    is_reduction,
    lengths,
    matched_consumer,
    needs_tiling,
    producers,
    strictly_inlineable,
)
from tilewright.search.rules.state import Rows, RuleState
from tilewright.search.rules.tiling import follow, spatial_sizes, split_levels, tile
from tilewright.te.tensor import CONSTANTS_ATTR, IterVar

PARTIAL = (4, 16, 64)  # partial results of a split reduction; each is a structure of its own
WORK_PER_CORE = 16  # output points per core below which a tiled reduction may be split


class Condition(Enum):
    """What a rule thinks of a stage.  APPLY: later rules are tried as well; ONLY: they are not."""

    PASS = 0
    APPLY = 1
    ONLY = 2


class SketchRule(ABC):
    """name: as it appears in the origin of a sketch; "" where it leaves the stage as it is"""

    name: ClassVar[str] = ""

    @abstractmethod
    def meets(self, state: RuleState, stage: Stage) -> Condition:
        """Whether the rule applies to the stage; it must not change the state."""

    def variants(self, state: RuleState, stage: Stage) -> int:
        """In how many ways it applies."""
        return 1

    @abstractmethod
    def apply(self, state: RuleState, stage: Stage, variant: int) -> str | None:
        """Change the schedule; returns the next stage, None at the end."""


def _only(condition: bool) -> Condition:
    return Condition.ONLY if condition else Condition.PASS


class SkipStage(SketchRule):
    """condition: any stage.  effect: none; on to the stage before."""

    def meets(self, state: RuleState, stage: Stage) -> Condition:
        return Condition.ONLY

    def apply(self, state: RuleState, stage: Stage, variant: int) -> str | None:
        return state.before(stage)


class AlwaysInline(SketchRule):
    """condition: computed, no output, no reduction; on a CPU also nearly free to repeat.
    effect: the expression replaces every read of it."""

    name = "inline"

    def meets(self, state: RuleState, stage: Stage) -> Condition:
        return _only(inlined(state, stage))

    def apply(self, state: RuleState, stage: Stage, variant: int) -> str | None:
        before = state.before(stage)
        stage.compute_inline()
        return before


def inlined(state: RuleState, stage: Stage) -> bool:
    if not is_compute(stage) or stage.is_output or stage.scope in ("shared", "local"):
        return False
    op = compute_op(stage)
    if op.combiner is not None or attribute(op, CONSTANTS_ATTR) or stage.name in state.tiled:
        return False
    return state.target.has_threads or strictly_inlineable(op)


def free_consumer(state: RuleState, stage: Stage) -> Stage | None:
    """The consumer that can share the tiles of `stage`, unless it has loops of its own already:
    those of another stage that it consumes, or because its own values are reused."""
    consumer = matched_consumer(state.schedule, stage)
    return None if consumer is None or consumer.name in state.tiled else consumer


class MultiLevelTiling(SketchRule):
    """condition: values are reused.  effect: all levels of tiles, spread over the device."""

    name = "tile"

    def meets(self, state: RuleState, stage: Stage) -> Condition:
        return _only(is_compute(stage) and needs_tiling(compute_op(stage)))

    def apply(self, state: RuleState, stage: Stage, variant: int) -> str | None:
        before = state.before(stage)
        tile(state, stage, spatial_sizes(state, stage))
        return before


class MultiLevelTilingWithFusion(SketchRule):
    """condition: values are reused, and one consumer takes the result element for element and has
    no tiles yet.
    effect: the consumer gets the outer levels, the stage is computed inside them; a CPU has two
    variants, inside the first and inside the second spatial level."""

    name = "fuse"

    def meets(self, state: RuleState, stage: Stage) -> Condition:
        if not is_compute(stage) or not needs_tiling(compute_op(stage)):
            return Condition.PASS
        if free_consumer(state, stage) is None:
            return Condition.PASS
        alone = state.target.has_threads or stage.name in state.caches
        return Condition.ONLY if alone else Condition.APPLY

    def variants(self, state: RuleState, stage: Stage) -> int:
        return 1 if state.target.has_threads else 2

    def apply(self, state: RuleState, stage: Stage, variant: int) -> str | None:
        before = state.before(stage)
        consumer = free_consumer(state, stage)
        assert consumer is not None
        level = 3 if state.target.has_threads else variant + 1
        sizes = spatial_sizes(state, stage)
        at = follow(state, consumer, sizes, level)
        state.threads[stage.name] = state.threads[consumer.name]
        if stage.scope != "local":
            stage.set_scope("local")
        tile(state, stage, sizes, level)
        stage.compute_at(consumer, at)
        return before


class AddCacheWrite(SketchRule):
    """condition: values are reused, and no consumer could share the tiles.
    effect: the computation moves to a local stage, whose consumer is what is left."""

    name = "cache_write"

    def meets(self, state: RuleState, stage: Stage) -> Condition:
        if not is_compute(stage) or not needs_tiling(compute_op(stage)):
            return Condition.PASS
        if free_consumer(state, stage) is not None:
            return Condition.PASS
        return Condition.ONLY if state.target.has_threads else Condition.APPLY

    def apply(self, state: RuleState, stage: Stage, variant: int) -> str | None:
        cache = state.schedule[state.schedule.cache_write(stage.tensor, "local")]
        state.caches.add(cache.name)
        return cache.name


class AddCacheRead(SketchRule):
    """condition: GPU; the first consumer is tiled and reads the stage directly.
    effect: every consumer reads a slice from shared memory, copied once per step of its outermost
    reduction level; the stage itself is looked at again."""

    name = "cache_read"

    def meets(self, state: RuleState, stage: Stage) -> Condition:
        found = consumers(state.schedule, stage)
        if not found or found[0].name not in state.slices or found[0].name in state.crossed:
            return Condition.PASS
        return _only(stage in producers(state.schedule, found[0]))

    def apply(self, state: RuleState, stage: Stage, variant: int) -> str | None:
        s = state.schedule
        for consumer in consumers(s, stage):
            if consumer.name not in state.slices or stage not in producers(s, consumer):
                continue
            kind = staged(stage.tensor.dtype, state.tiling.wide)
            shared = s[s.cache_read(stage.tensor, "shared", [consumer.tensor], kind)]
            fetch_slice(state, shared, state.threads[consumer.name], ring_of(state, consumer))
            shared.compute_at(consumer, state.slices[consumer.name])
        return stage.name


def ring_of(state: RuleState, consumer: Stage) -> Any:
    """How many slices of what a tiled stage reads come ahead of their use: one number for all that
    it reads, since all of these wait together."""
    sizes = ring_sizes(consumer.op.input_tensors, state.target) if state.rings else ()
    return state.choose(consumer, "stages", list(sizes), absent=0) if len(sizes) > 1 else 0


def fetch_slice(state: RuleState, shared: Stage, threads: Any, slots: Any) -> None:
    """All threads of a block copy together, a few neighbouring elements at a time.

    Either the slice is one long row; or it is dealt out plane by plane (the last two dimensions),
    some planes at once: a thread then keeps its place in the plane and need not work it out anew.
    """
    axes = list(shared.op.axis)
    planes = state.choose(shared, "planes", [0, 1, 2, 4, 8]) if len(axes) > 1 else 0
    apart = max(len(axes) - 2, 1)
    if planes > 0:
        _, some = shared.split(shared.fuse(*axes[:apart]), factor=planes)
        axes = [some, *axes[apart:]]
    fetch(shared, threads, state.choose(shared, "vector", [1, 2, 4]), axes, slots=slots)


class AddRfactor(SketchRule):
    """condition: CPU; no cache; few points and a long reduction.
    effect: partial results along the fused reduction, of its outer part or (variant 1) of its inner
    part, which then is innermost and runs in vectors."""

    name = "rfactor"

    def meets(self, state: RuleState, stage: Stage) -> Condition:
        if not is_reduction(stage) or stage.name in state.caches:
            return Condition.PASS
        points, steps = lengths(stage)
        cores = state.hardware.num_cores
        if needs_tiling(compute_op(stage)):
            split = points <= steps and points <= cores * WORK_PER_CORE
        else:
            split = steps > cores
        return Condition.APPLY if split and partials(steps) else Condition.PASS

    def variants(self, state: RuleState, stage: Stage) -> int:
        return 2

    def apply(self, state: RuleState, stage: Stage, variant: int) -> str | None:
        before, s = state.before(stage), state.schedule
        op = compute_op(stage)
        factor = state.choose(stage, "partial", partials(lengths(stage)[1]))
        fused = stage.fuse(*op.reduce_axis)
        if variant == 0:
            outer, _ = stage.split(fused, nparts=factor)
            s.rfactor(stage.tensor, outer)
            return before
        _, inner = stage.split(fused, factor=factor)
        partial = s[s.rfactor(stage.tensor, inner, len(op.axis))]
        partial_op = compute_op(partial)
        *spatial, lane = partial_op.axis
        partial.reorder(*spatial, *partial_op.reduce_axis, lane)
        partial.vectorize(lane)
        return before


def partials(steps: int) -> list[int]:
    """Into how many partial results a reduction of so many steps may be split."""
    return [n for n in PARTIAL if steps % n == 0 and n < steps]


class CrossThreadReduction(SketchRule):
    """condition: GPU; no cache; few points and a long reduction (of a stage that needs no tiling:
    longer than a warp).
    effect: the threads of a block share the fused reduction; where the only consumer has the same
    outer axes, it becomes part of the same block."""

    name = "cross_thread"

    def meets(self, state: RuleState, stage: Stage) -> Condition:
        if not is_reduction(stage) or stage.name in state.caches:
            return Condition.PASS
        points, steps = lengths(stage)
        if needs_tiling(compute_op(stage)):
            share = points <= state.hardware.max_threads_per_block and points < steps
        else:
            share = steps > state.hardware.warp_size
        return Condition.APPLY if share else Condition.PASS

    def apply(self, state: RuleState, stage: Stage, variant: int) -> str | None:
        before, op = state.before(stage), compute_op(stage)
        reduce = stage.fuse(*op.reduce_axis)
        shared = rows_of_consumer(state, stage)
        if shared is not None:
            consumer, rows = shared
            deal(stage, reduce, rows.threads)
            stage.set_scope("shared")
            stage.compute_at(consumer, rows.block)
        else:
            threads = state.choose(stage, "threads", state.thread_counts)
            _, lane = stage.split(reduce, factor=threads)
            if op.axis:
                block = stage.fuse(*op.axis)
                stage.bind(block, "blockIdx.x")
                state.rows[stage.name] = Rows(block, len(op.axis), threads)
            stage.bind(lane, "threadIdx.x")
        state.crossed.add(stage.name)
        state.tiled.add(stage.name)
        return before


def rows_of_consumer(state: RuleState, stage: Stage) -> tuple[Stage, Rows] | None:
    """The consumer whose blocks can hold a reduction per row, and these blocks; opened if new."""
    found = consumers(state.schedule, stage)
    if len(found) != 1 or stage.is_output:
        return None
    consumer, op = found[0], compute_op(found[0])
    common = common_outer_axes(state.schedule, stage, consumer)
    known = state.rows.get(consumer.name)
    if known is not None:
        return (consumer, known) if known.common == common else None
    if consumer.name in state.tiled or consumer.scope == "shared":  # it has other blocks, or a copy
        return None
    if needs_tiling(op) or op.combiner is not None or common < len(stage.op.axis) or not common:
        return None
    threads = state.choose(consumer, "threads", state.thread_counts)
    block = consumer.fuse(*op.axis[:common])
    consumer.bind(block, "blockIdx.x")
    if op.axis[common:]:
        deal(consumer, consumer.fuse(*op.axis[common:]), threads)
    state.rows[consumer.name] = Rows(block, common, threads)
    state.tiled.add(consumer.name)
    return consumer, state.rows[consumer.name]


class SpecialComputeLocationGPU(SketchRule):
    """condition: GPU; it would be inlined, and its only consumer unrolls loops over constants.
    effect: computed just outside the first of the unrolled loops."""

    name = "inside_unrolled"

    def meets(self, state: RuleState, stage: Stage) -> Condition:
        if not inlined(state, stage) or not stage.op.input_tensors:
            return Condition.PASS
        found = consumers(state.schedule, stage)
        return _only(len(found) == 1 and bool(attribute(compute_op(found[0]), CONSTANTS_ATTR)))

    def apply(self, state: RuleState, stage: Stage, variant: int) -> str | None:
        before = state.before(stage)
        (consumer,) = consumers(state.schedule, stage)
        place = before_unrolled(consumer)
        assert place is not None
        stage.set_scope("local")
        stage.compute_at(consumer, place)
        state.tiled.add(stage.name)
        return before


class SimplifyComputeWithConstTensor(SketchRule):
    """condition: the operation names axes along which its operands are constants.
    effect: these loops are unrolled, innermost; the others get two levels of tiles."""

    name = "unroll_constants"

    def meets(self, state: RuleState, stage: Stage) -> Condition:
        return _only(is_compute(stage) and bool(attribute(compute_op(stage), CONSTANTS_ATTR)))

    def apply(self, state: RuleState, stage: Stage, variant: int) -> str | None:
        before, op = state.before(stage), compute_op(stage)
        names = attribute(op, CONSTANTS_ATTR)
        constant = [ax for ax in (*op.axis, *op.reduce_axis) if ax.name in names]
        others = [ax for ax in (*op.axis, *op.reduce_axis) if ax.name not in names]
        loops = [split_levels(stage, ax, state.tiles(stage, ax, 2)) for ax in others]
        stage.reorder(*(outer for outer, _ in loops), *(inner for _, inner in loops), *constant)
        spatial = [outer for outer, _ in loops if outer.kind == "spatial"]
        for ax in constant:
            stage.unroll(ax)
        spread_points(state, stage, spatial, [inner for _, inner in loops])
        state.tiled.add(stage.name)
        return before


class ConstantsInConsumer(SketchRule):
    """Not one of Ansor's.
    condition: it names axes along which its operands are constants, and so does its only consumer.
    effect: both run in one unrolled block, with what lies between them in registers."""

    name = "inside_unrolled"

    def meets(self, state: RuleState, stage: Stage) -> Condition:
        if not is_compute(stage) or stage.is_output:
            return Condition.PASS
        found = consumers(state.schedule, stage)
        named = [bool(attribute(compute_op(s), CONSTANTS_ATTR)) for s in (stage, *found)]
        return _only(len(found) == 1 and all(named))

    def apply(self, state: RuleState, stage: Stage, variant: int) -> str | None:
        before, op = state.before(stage), compute_op(stage)
        (consumer,) = consumers(state.schedule, stage)
        place = before_unrolled(consumer)
        if place is None:  # the consumer has nothing but the axes of constants
            return before
        names = attribute(op, CONSTANTS_ATTR)
        every = (*op.axis, *op.reduce_axis)
        constant = [ax for ax in every if ax.name in names]
        stage.reorder(*(ax for ax in every if ax.name not in names), *constant)
        for ax in constant:
            stage.unroll(ax)
        stage.set_scope("local")
        stage.compute_at(consumer, place)
        state.tiled.add(stage.name)
        return before


def before_unrolled(stage: Stage) -> IterVar | None:
    """The loop just outside the first of the unrolled ones."""
    leaves = stage.leaf_iter_vars
    first = next((k for k, ax in enumerate(leaves) if stage.annotations.get(ax) == "unroll"), 0)
    return leaves[first - 1] if first else None


def spread_points(
    state: RuleState, stage: Stage, outer: list[IterVar], inner: list[IterVar]
) -> None:
    """Independent points over the device: outer loops to tasks of a CPU; both to threads of a GPU,
    where `inner` follows `outer` in loop order."""
    if not state.target.has_threads:
        if outer:
            stage.parallel(stage.fuse(*outer))
        return
    points = [*outer, *(ax for ax in inner if ax.kind == "spatial")]
    if not points:
        return
    over_blocks(stage, points, state.choose(stage, "threads", state.thread_counts))


class ReduceInConsumer(SketchRule):
    """Not one of Ansor's.
    condition: GPU; a reduction that reuses nothing, whose only consumer takes it element for
    element.
    effect: a thread reduces in a register and goes on with the consumer's expression."""

    name = "reduce_in_consumer"

    def meets(self, state: RuleState, stage: Stage) -> Condition:
        if not is_reduction(stage):
            return Condition.PASS
        if not state.target.has_threads or needs_tiling(compute_op(stage)):
            return Condition.PASS
        consumer = free_consumer(state, stage)
        inside = consumer is not None and bool(consumer.op.axis)
        return Condition.APPLY if inside else Condition.PASS

    def apply(self, state: RuleState, stage: Stage, variant: int) -> str | None:
        before = state.before(stage)
        consumer = free_consumer(state, stage)
        assert consumer is not None
        spread_points(state, consumer, list(compute_op(consumer).axis), [])
        stage.set_scope("local")
        stage.compute_at(consumer, consumer.leaf_iter_vars[-1])
        state.tiled |= {consumer.name, stage.name}
        return before


CPU_RULES: tuple[SketchRule, ...] = (
    AlwaysInline(), SimplifyComputeWithConstTensor(), AddRfactor(), AddCacheWrite(),
    MultiLevelTilingWithFusion(), MultiLevelTiling(), SkipStage(),
)  # fmt: skip
GPU_RULES: tuple[SketchRule, ...] = (
    AddCacheRead(), SpecialComputeLocationGPU(), AlwaysInline(), SimplifyComputeWithConstTensor(),
    CrossThreadReduction(), AddCacheWrite(), MultiLevelTilingWithFusion(), MultiLevelTiling(),
    SkipStage(),
)  # fmt: skip
OWN_RULES: tuple[SketchRule, ...] = (ConstantsInConsumer(),)
OWN_GPU_RULES: tuple[SketchRule, ...] = (ReduceInConsumer(), *OWN_RULES)
MALI_RULES = CPU_RULES  # nothing is gained by copies in shared memory, nor by sharing a reduction
