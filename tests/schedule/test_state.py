"""The state of a schedule keeps its invariants through any steps, refused ones included."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedule.computations import draw_computation
from schedule.drawing import draw_schedule
from schedule.step_cases import chain
from tests.tiers import examples
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.schedule.state import FuseRelation, StageState
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import PlaceholderOp


def check(s: Schedule) -> None:
    """What `state.py` promises of a schedule."""
    names = [stage.name for stage in s.stages]
    assert len(set(names)) == len(names)
    assert len({stage.tensor for stage in s.stages}) == len(names)
    seen = set()
    for stage in s.stages:
        assert all(t in seen for t in stage.op.input_tensors)
        seen.add(stage.tensor)
        assert s.find(stage.name) is s[stage.tensor] is stage
        check_stage(stage)
        assert stage.is_output == (stage.tensor in s.dag.outputs)


def check_stage(stage: StageState) -> None:
    roots = [*stage.op.axis, *stage.op.reduce_axis, *stage.units]
    made, consumed = list(roots), []
    for r in stage.relations:
        fused = isinstance(r, FuseRelation)
        made += [r.fused] if fused else [r.outer, r.inner]
        consumed += [r.outer, r.inner] if fused else [r.parent]
    assert made == stage.all_iter_vars and len(set(made)) == len(made)
    assert len({ax.name for ax in made}) == len(made)
    assert len(set(consumed)) == len(consumed)
    loops = set(stage.leaf_iter_vars)
    assert loops == set(made) - set(consumed) and len(loops) == len(stage.leaf_iter_vars)
    assert {*stage.binds, *stage.annotations} <= loops
    assert not stage.binds.keys() & stage.annotations.keys()
    assert all(axis in made for axis, _ in stage.pragmas.values())
    assert all(0 <= dim < len(stage.op.axis) for dim in stage.aligned)
    assert (stage.attach is not None) == (stage.attach_kind == "scope")
    if stage.attach is not None:
        host, axis = stage.attach
        assert axis in host.leaf_iter_vars
    if isinstance(stage.op, PlaceholderOp):
        assert stage.attach_kind == "root" and not stage.is_scheduled


@pytest.mark.slow
@examples(40)
@given(st.integers(0, 10**9), st.booleans())
def test_invariants_hold_after_every_step(seed: int, gpu: bool) -> None:
    rng = random.Random(seed)
    dag = ComputeDAG(draw_computation(rng)[1])
    drawn = draw_schedule(dag, rng, gpu=gpu)
    check(drawn)
    s = Schedule(dag)
    check(s)
    for step in drawn.steps:
        s.do(step)
        check(s)


def test_operations_of_the_user_stay_as_they_are() -> None:
    c = chain(6, 4)[-1]
    before = [(ax.name, ax.extent) for ax in c.op.axis]
    s = create_schedule([c.op])
    s[c].fuse(*s[c].op.axis)
    assert [(ax.name, ax.extent) for ax in c.op.axis] == before
    assert c.op.axis[0] not in s[c].leaf_iter_vars and s[c].tensor is c
    assert c.op.axis[0] in create_schedule([c.op])[c].leaf_iter_vars


@pytest.mark.parametrize("key", ["B", "C"])
def test_a_stage_is_found_by_name_tensor_operation_and_itself(key: str) -> None:
    s = create_schedule([chain(6, 4)[-1].op])
    stage = s.find(key)
    assert s[stage.tensor] is s[stage.tensor.op] is s[stage] is stage
