"""What a schedule is made of under TVM's names, loops that stand for no axis, pickled schedules."""

import pickle
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from schedule.drawing import draw_schedule
from schedule.test_schedules import assert_right, draw_computation, interpret, lowered
from tilewright import te
from tilewright.base.errors import LegalityError
from tilewright.driver.build import generate_source
from tilewright.ir.fast_interpreter import run_fast
from tilewright.lowering.pipeline import lower_schedule
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import random_inputs


def test_what_was_said_of_loops() -> None:
    a = te.placeholder((16, 16), name="A")
    b = te.compute((16, 16), lambda i, j: a[i, j] + 1, name="B")
    s = te.create_schedule(b.op)
    i, j = b.op.axis
    _, lane = s[b].split(j, factor=4)
    s[b].vectorize(lane)
    s[b].parallel(i)
    s[b].pragma(i, "auto_unroll_max_step", 8)
    said = s[b].iter_var_attrs
    assert said[lane].iter_type == te.schedule.IterVar.Vectorized
    assert said[i].iter_type == te.schedule.IterVar.Parallelized
    assert (said[i].pragma_keys, said[i].pragma_values) == (("auto_unroll_max_step",), (8,))
    assert set(said) == {lane, i}
    assert [type(r) for r in s[b].relations] == [te.schedule.Split]


@pytest.mark.parametrize("parts", [1, 3, 4])
@pytest.mark.parametrize("reduced", [False, True])
def test_a_loop_of_nothing_has_one_iteration(parts: int, reduced: bool) -> None:
    x = te.placeholder((5,), "int32", name="X")
    k = te.reduce_axis((0, 5), "k")
    if reduced:
        y = te.compute((), lambda: te.sum(x[k], axis=k), name="Y")
    else:
        y = te.compute((5,), lambda i: x[i] * 2, name="Y")
    s = te.create_schedule(y.op)
    s[y].split(s[y].fuse(), nparts=parts)
    out = np.zeros(y.shape, "int32")
    given = np.arange(5, dtype="int32")
    run_fast(lower_schedule(s, Target("llvm")), [given, out])
    np.testing.assert_array_equal(out, given.sum() if reduced else given * 2)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9), st.booleans())
def test_loops_of_nothing_change_no_value(seed: int, gpu: bool) -> None:
    rng = random.Random(seed)
    dag = ComputeDAG(draw_computation(rng)[1])
    program = lowered(draw_schedule(dag, rng, gpu=gpu, units=True), "cuda" if gpu else "llvm")
    if program is not None:
        inputs = random_inputs(dag, seed)
        assert_right(dag, program, interpret(program, inputs), inputs)


def test_a_pickled_schedule_is_the_same() -> None:
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] + 1, name="B")
    s = te.create_schedule(b.op)
    s[b].split(b.op.axis[0], factor=4)
    assert str(pickle.loads(pickle.dumps(s))) == str(s)


def wide(lanes: int) -> te.schedule.Schedule:
    a = te.placeholder((512,), "int64", name="A")
    b = te.compute((512,), lambda i: a[i] + 1, name="B")
    s = te.create_schedule(b.op)
    block, rest = s[b].split(b.op.axis[0], factor=lanes)
    s[b].bind(block, te.thread_axis("blockIdx.x"))
    s[b].vectorize(rest)
    return s


def test_a_vector_wider_than_an_access_is_written_out() -> None:
    program = lower_schedule(wide(4), Target("opencl"))
    out = np.zeros(512, "int64")
    run_fast(program, [np.arange(512), out])
    np.testing.assert_array_equal(out, np.arange(512) + 1)
    assert generate_source(wide(4), Target("opencl")).text
    with pytest.raises(LegalityError, match="vector"):
        generate_source(wide(64), Target("opencl"))


def test_grids_of_open_extents_are_a_matter_of_calls() -> None:
    shape = [te.var(f"n{d}") for d in range(4)]
    a = te.placeholder(shape, name="A")
    b = te.compute(shape, lambda *i: a[i] + 1, name="B")
    with Target("opencl"):
        s = tw.topi.generic.schedule_injective(b)
    assert generate_source(s, Target("opencl")).text
