"""Reductions that threads share, and what else may be bound to their indices."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedule.computations import matmul, softmax
from schedule.drawing import check_readers
from schedule.test_schedules import assert_right, interpret, lowered
from tests import strategies as S
from tests.tiers import examples
from tilewright import te
from tilewright.base.errors import LoweringError, ScheduleError
from tilewright.ir.stmt import THREAD_TAGS
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule, Stage, create_schedule
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import random_inputs
from tilewright.te.tensor import ComputeOp


def row_sums(scope: str) -> tuple[ComputeDAG, Schedule, Stage, Stage]:
    """Sums of 6 rows in a stage of their own, for outputs that threads share by 4."""
    x = te.placeholder((6, 5), name="x")
    k = te.reduce_axis((0, 5), "k")
    total = te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="total")
    out = te.compute((6,), lambda i: total[i] * 2.0, name="out")
    dag = ComputeDAG([x, out])
    s = create_schedule(dag)
    block, lane = s[out].split(s[out].op.axis[0], factor=4)
    s[out].bind(block, "blockIdx.x")
    s[out].bind(lane, "threadIdx.x")
    s[total].set_scope(scope)
    s[total].compute_at(s[out], block)
    return dag, s, s[total], s[out]


@pytest.mark.parametrize("scope", ["local", "shared"])
def test_threads_that_share_a_reduction_each_get_all_they_read(scope: str) -> None:
    """threadIdx.x is no known value for `total`: its lanes add up one row after the other."""
    dag, s, total, _ = row_sums(scope)
    total.bind(total.op.reduce_axis[0], "threadIdx.x")
    tree = LoopTree(s)
    assert tree.bounds().region(tree.of_stage[total]) == [4]
    program = lower_schedule(s, Target("cuda"))
    inputs = random_inputs(dag, 1)
    assert_right(dag, program, interpret(program, inputs), inputs)


def test_a_thread_of_the_reduction_is_no_loop_around_it() -> None:
    _, s, total, out = row_sums("local")
    total.compute_at(out, out.leaf_iter_vars[1])
    total.bind(total.op.reduce_axis[0], "threadIdx.x")
    reason = r"bind\(total.k, threadIdx.x\): total is computed at or inside i.inner.*further out"
    with pytest.raises(ScheduleError, match=reason):
        LoopTree(s)


def test_lanes_fill_only_what_they_share() -> None:
    _, s, total, _ = row_sums("local")
    total.bind(total.op.axis[0], "threadIdx.y")
    with pytest.raises(ScheduleError, match="each thread would fill a part.*use scope shared"):
        LoopTree(s)
    _, s, total, _ = row_sums("shared")
    total.bind(total.op.axis[0], "blockIdx.y")
    with pytest.raises(ScheduleError, match="each block would fill a part.*Leave the loop unbound"):
        LoopTree(s)


def test_a_virtual_thread_around_a_reduction_over_threads() -> None:
    *_, c = matmul(4, 4, 8)
    s = create_schedule([c.op])
    s[c].bind(s[c].op.axis[1], "vthread")
    s[c].bind(s[c].op.reduce_axis[0], "threadIdx.x")
    with pytest.raises(LoweringError, match="inside the virtual thread j. Leave that loop unbound"):
        lower_schedule(s, Target("cuda"))


def drawn(rng: random.Random) -> tuple[ComputeDAG, Schedule]:
    """A computation with reductions, most of them attached and shared by threads."""
    size = rng.randint
    dag = rng.choice([
        lambda: ComputeDAG(softmax(size(1, 5), size(1, 13))),
        lambda: ComputeDAG(matmul(size(1, 6), size(1, 6), size(1, 9))),
        lambda: S.two_outputs(size(1, 6), size(1, 9)),
        lambda: S.reduction([size(1, 4) for _ in range(3)], [0, 2], "max"),
    ])()  # fmt: skip
    s = Schedule(dag)
    for stage in list(s.stages):
        if isinstance(stage.op, ComputeOp) and stage.is_output and stage.op.combiner is not None:
            s.cache_write(stage.tensor, "shared")
    for stage in reversed(s.stages):
        if isinstance(stage.op, ComputeOp):
            _draw_attachment(s, stage, rng)
            _draw_threads(stage, rng)
    return dag, s


def _draw_attachment(s: Schedule, stage: Stage, rng: random.Random) -> None:
    readers = s.readers(stage.tensor)
    host = rng.choice(readers) if readers else stage
    if not stage.is_output and not host.op.reduce_axis and rng.random() < 0.85:
        stage.compute_at(host, rng.choice(host.leaf_iter_vars))
        try:
            check_readers(s)
        except ScheduleError:
            stage.compute_root()
    root = stage.attach_kind == "root"
    stage.set_scope("global" if root else rng.choice(["shared", "shared", "local"]))


def _draw_threads(stage: Stage, rng: random.Random) -> None:
    """Blocks and threads for spatial loops, threads for reductions."""
    op = stage.op
    loops = {"spatial": list(op.axis), "reduce": list(op.reduce_axis)}
    for axes in loops.values():
        for ax in list(axes):
            if rng.random() < 0.6:
                size = {rng.choice(["factor", "nparts"]): rng.randint(1, 5)}
                at = axes.index(ax)
                axes[at : at + 1] = stage.split(ax, **size)
    spatial, reduce = loops.values()
    stage.reorder(*spatial, *reduce)
    tags = rng.sample(THREAD_TAGS, 3)
    for ax in rng.sample(reduce, min(len(reduce), rng.randint(0, 2))):
        stage.bind(ax, tags.pop())
    if stage.attach_kind == "root" and rng.random() < 0.7:
        stage.bind(spatial.pop(0), "blockIdx.x")
    while spatial and tags and stage.scope != "local" and rng.random() < 0.6:
        stage.bind(spatial.pop(rng.randrange(len(spatial))), tags.pop())


@pytest.mark.slow
@examples(40)
@given(st.integers(0, 10**9))
def test_shared_reductions_anywhere_equal_the_reference(seed: int) -> None:
    dag, schedule = drawn(random.Random(seed))
    try:
        program = lowered(schedule, "cuda")
    except ScheduleError:  # a reduction by threads that are around it too
        return
    if program is None:
        return
    inputs = random_inputs(dag, seed)
    assert_right(dag, program, interpret(program, inputs), inputs)


@pytest.mark.slow
def test_most_drawn_schedules_lower() -> None:
    count = 0
    for seed in range(60):
        try:
            count += lowered(drawn(random.Random(seed))[1], "cuda") is not None
        except ScheduleError:
            continue
    assert count > 30
