"""Stages of several tensors: computed together, reduced together, in any schedule.

Random schedules are interpreted, and run on the devices of this machine, and compared with numpy;
steps replay from JSON and from Python.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedule.drawing import draw_schedule
from schedule.test_schedules import interpret, lowered, run_on
from tests.tiers import examples
from tilewright import te
from tilewright.base.errors import ScheduleError
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.steps.names import identifier
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate
from tilewright.te.tensor import Tensor

SEEDS = st.integers(0, 10**9)


def _best(x, y):
    """Of (index, value) the greater value; of equal ones the lesser index."""
    first = te.any(x[1] > y[1], te.all(x[1].equal(y[1]), x[0] < y[0]))
    return te.select(first, x[0], y[0]), te.select(first, x[1], y[1])


argmax = te.comm_reducer(_best, lambda t, u: (te.const(1000, t), te.min_value(u)), name="argmax")


def argmax_of_sums(n: int, m: int) -> list[Tensor]:
    """Places and values of greatest sums, and what is made of both."""
    a = te.placeholder((n, m), "int32", name="A")
    both, less = te.compute((n, m), lambda i, j: (a[i, j] + i, a[i, j] - j), name="both")
    k = te.reduce_axis(m, "k")
    value = lambda i: both[i, k] * less[i, (k + 1) % m]  # noqa: E731
    where, top = te.compute((n,), lambda i: argmax((k.var, value(i)), axis=k), name="best")
    out = te.compute((n, m), lambda i, j: top[i] * (j - where[i]) + less[i, j], name="out")
    return [a, out, where]


def moments(n: int, m: int) -> list[Tensor]:
    """Reductions over one axis, in one stage, of which one result is nobody's argument."""
    a = te.placeholder((n, m), "int32", name="A")
    k = te.reduce_axis(n, "k")
    total, least, _ = te.compute(
        (m,),
        lambda j: (te.sum(a[k, j], axis=k), te.min(a[k, j] * 2, axis=k), te.max(k.var, axis=k)),
        name="moments",
    )
    return [a, total, least]


def expected_argmax(a: np.ndarray) -> list[np.ndarray]:
    n, m = a.shape
    less = a - np.arange(m)
    value = (a + np.arange(n)[:, None]) * np.roll(less, -1, axis=1)
    where, top = value.argmax(1), value.max(1)
    return [top[:, None] * (np.arange(m) - where[:, None]) + less, where]


COMPUTATIONS = {
    "argmax": (argmax_of_sums, expected_argmax),
    "moments": (moments, lambda a: [a.sum(0), 2 * a.min(0)]),
}


def drawn(seed: int, gpu: bool):
    """A computation with its schedule, an input and what numpy makes of it."""
    rng = random.Random(seed)
    made, expected = COMPUTATIONS[rng.choice(sorted(COMPUTATIONS))]
    n, m = rng.randint(1, 6), rng.randint(1, 9)
    a = np.random.default_rng(seed).integers(-4, 5, (n, m)).astype("int32")
    dag = ComputeDAG(made(n, m))
    return dag, draw_schedule(dag, rng, gpu=gpu), a, expected(a)


def assert_equal(outputs: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for out, reference in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(out.reshape(reference.shape), reference)


@pytest.mark.slow
@examples(40)
@given(SEEDS, st.booleans())
def test_any_schedule_means_what_numpy_says(seed: int, gpu: bool) -> None:
    dag, schedule, a, expected = drawn(seed, gpu)
    assert_equal(evaluate(dag, [a]), expected)
    program = lowered(schedule, "cuda" if gpu else "llvm")
    if program is not None:
        assert_equal(interpret(program, [a]), expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llvm", "opencl"])
@examples(6)
@given(SEEDS)
def test_kernels_give_what_numpy_says(kind: str, seed: int) -> None:
    _, schedule, a, expected = drawn(seed, kind != "llvm")
    program = lowered(schedule, kind)
    if program is not None:
        assert_equal(run_on(kind, program, [a]), expected)


@pytest.mark.slow
@examples(30)
@given(SEEDS, st.booleans())
def test_steps_replay_from_json_and_from_python(seed: int, gpu: bool) -> None:
    dag, schedule, _, _ = drawn(seed, gpu)
    again = ComputeDAG.from_json(dag.to_json())
    assert again.hash == dag.hash
    program = lowered(schedule, "cuda" if gpu else "llvm")
    replayed = lowered(Schedule.replay(again, schedule.to_json()), "cuda" if gpu else "llvm")
    assert str(replayed) == str(program)
    fresh = Schedule(dag)
    tensors = {
        identifier(name): op.outputs if len(op.outputs) > 1 else op.output_tensor
        for op, name in dag.unique_names().items()
    }
    exec(schedule.to_python(), {"te": te}, {"s": fresh, **tensors})
    assert fresh.to_json() == schedule.to_json()


def test_results_of_one_computation_are_one_stage() -> None:
    a = te.placeholder((3, 4), name="A")
    x, y = te.compute((3, 4), lambda i, j: (a[i, j] + 1.0, te.exp(a[i, j])), name="T")
    assert (x.name, y.name, y.value_index, x.op) == ("T.v0", "T.v1", 1, y.op)
    assert x.op.num_outputs == 2 and x.op.output(1) is y
    s = te.create_schedule(x.op)
    assert s[x] is s[y] is s[x.op] is s[(x, y)]
    assert s.outputs == [s[x]]
    cx, cy = s.cache_write([x, y], "local")
    assert s[cx] is s[cy] and s[cx] is not s[x]
    (only,) = s.cache_read(a, "local", [cx]).op.outputs
    assert only.shape == (3, 4)
    with pytest.raises(ScheduleError, match="no stage of this schedule computes it"):
        s[(x, a)]


def test_values_that_depend_on_each_other_are_stored_at_once() -> None:
    """Each of two results is the other one's before: no order of the stores would do."""
    swap = te.comm_reducer(
        lambda x, y: (x[1] + y[0], x[0] + y[1]), lambda t, u: (te.const(0, t), te.const(0, u))
    )
    a = te.placeholder((5,), "int32", name="A")
    k = te.reduce_axis(5, "k")
    x, _ = te.compute((1,), lambda i: swap((a[k], a[k] * 10), axis=k), name="T")
    program = lowered(te.create_schedule(x.op), "llvm")
    first, second = 0, 0
    for value in range(5):
        first, second = second + value, first + value * 10
    assert_equal(
        interpret(program, [np.arange(5, dtype="int32")]), [np.array([first]), np.array([second])]
    )


def test_texts_name_each_tensor() -> None:
    s = te.create_schedule(moments(3, 4)[1].op)
    assert "moments.v0[j], moments.v1[j], moments.v2[j] sum_min_max= A[k, j], A[k, j]*2, k" in str(
        s
    )
