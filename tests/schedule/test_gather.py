"""An index that is data: any schedule reads the right elements, and none outside the buffer."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedule.computations import gathered
from schedule.drawing import draw_schedule
from schedule.test_schedules import SEEDS, assert_right, interpret, lowered, run_on
from tests.tiers import examples
from tilewright import te
from tilewright.base.errors import ExpressionError
from tilewright.runtime.device import device
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate, random_inputs
from tilewright.te.positions import Position, positions


def drawn(seed: int, gpu: bool) -> tuple[ComputeDAG, Schedule]:
    rng = random.Random(seed)
    sizes = (rng.randint(1, 6) for _ in range(3))
    dag = ComputeDAG(gathered(*sizes, rng.choice(["int32", "int64"]), rng.random() < 0.5))
    return dag, draw_schedule(dag, rng, gpu=gpu)


@pytest.mark.slow
@examples(40)
@given(SEEDS, st.booleans())
def test_interpreted_schedule_equals_the_reference(seed: int, gpu: bool) -> None:
    dag, schedule = drawn(seed, gpu)
    program = lowered(schedule, "cuda" if gpu else "llvm")
    if program is not None:
        inputs = random_inputs(dag, seed)
        assert_right(dag, program, interpret(program, inputs), inputs)


@pytest.mark.slow
@examples(40)
@given(SEEDS, st.booleans())
def test_whatever_the_data_holds_nothing_outside_is_read(seed: int, gpu: bool) -> None:
    """The interpreter raises where an index leaves its buffer."""
    dag, schedule = drawn(seed, gpu)
    program = lowered(schedule, "cuda" if gpu else "llvm")
    if program is None:
        return
    table, chosen = random_inputs(dag, seed)
    ends = np.array([np.iinfo(chosen.dtype).min, np.iinfo(chosen.dtype).max, -1, 0, 7])
    wild = np.random.default_rng(seed).choice(ends, chosen.shape).astype(chosen.dtype)
    interpret(program, [table, wild])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llvm", "opencl"])
@examples(8)
@given(seed=SEEDS)
def test_compiled_schedule_equals_the_reference(seed: int, kind: str) -> None:
    if not device(kind).exist:
        pytest.skip(f"no {kind} device here")
    dag, schedule = drawn(seed, gpu=kind == "opencl")
    program = lowered(schedule, kind)
    if program is not None:
        inputs = random_inputs(dag, seed)
        assert_right(dag, program, run_on(kind, program, inputs), inputs)


def test_a_dimension_that_data_chooses_from_is_stored_whole() -> None:
    dag = ComputeDAG(gathered(5, 6, 4))
    s = Schedule(dag)
    by_name = {op.name: op.output_tensor for op in dag.compute_ops}
    doubled, rows, out = (by_name[name] for name in ("doubled", "rows", "out"))
    s[rows].compute_inline()
    outer, _ = s[out].split(s[out].op.axis[0], factor=2)
    s[doubled].compute_at(s[out], outer)
    tree = LoopTree(s)
    bounds = tree.bounds()
    (node,) = (n for n in tree.nodes if n.name == "doubled")
    assert bounds.region(node) == [5, 2]


def test_inputs_that_are_indices_are_told_from_others() -> None:
    table, chosen, _ = plain = gathered(5, 6, 4)
    assert positions(ComputeDAG(plain)) == {chosen: Position(5, limited=False)}
    table, chosen, _ = safe = gathered(5, 6, 4, limited=True)
    assert positions(ComputeDAG(safe)) == {chosen: Position(5, limited=True)}
    hot = te.compute((4, 9), lambda i, j: te.select(chosen[i].equal(j), 1.0, 0.0))
    assert positions(ComputeDAG([chosen, hot])) == {chosen: Position(9, limited=True)}
    assert positions(ComputeDAG([table, te.compute((5,), lambda i: table[i, 0] * 2.0)])) == {}


def test_limited_indices_are_drawn_beyond_both_ends_and_others_are_not() -> None:
    _, chosen = random_inputs(ComputeDAG(gathered(7, 3, 400, limited=True)), 0)
    assert chosen.min() < -7 and chosen.max() >= 7
    assert {*range(-7, 7)} <= set(chosen.tolist())
    _, chosen = random_inputs(ComputeDAG(gathered(7, 3, 400)), 0)
    assert set(chosen.tolist()) == {*range(7)}


def test_the_reference_refuses_an_index_outside() -> None:
    dag = ComputeDAG(gathered(5, 6, 4))
    with pytest.raises(ExpressionError, match="leaves the dimension of 5 elements"):
        evaluate(dag, [np.zeros((5, 6)), np.full(4, 5)])
