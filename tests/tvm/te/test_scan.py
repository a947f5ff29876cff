"""te.scan: any schedule of the loops inside the steps gives what numpy's loop does."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedule.test_schedules import interpret, lowered, run_on
from tests.tiers import examples
from tilewright.base.errors import ExpressionError, LoweringError, ScheduleError, SpaceError
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.default import default_schedule
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.task import task_of_dag
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate
from tilewright_tvm import te

SEEDS = st.integers(0, 10**9)


def sums(steps, width):
    """Of two steps before and of the row, along the first axis."""
    x = te.placeholder((steps, width), "int32", name="X")
    state = te.placeholder((steps, width), "int32", name="state")
    begin = te.compute((2, width), lambda t, i: x[t, i] + 1, name="begin")
    step = te.compute(
        (steps, width), lambda t, i: state[t - 2, i] - state[t - 1, i] + x[t, i], name="step"
    )
    return [x, te.scan(begin, step, state, inputs=x)]


def numpy_sums(x):
    out = x + 1
    for t in range(2, len(x)):
        out[t] = out[t - 2] - out[t - 1] + x[t]
    return [out]


def two_states(steps, width):
    """Two states, of which one follows from a stage between, and a stage behind the scan."""
    x = te.placeholder((steps, width), "int32", name="X")
    a, b = (te.placeholder((steps, width), "int32", name=n) for n in "ab")
    first = te.compute((1, width), lambda t, i: x[t, i], name="first")
    zero = te.compute((1, width), lambda t, i: te.const(0), name="zero")
    both = te.compute((steps, width), lambda t, i: a[t - 1, i] + x[t, i], name="both")
    new_a = te.compute((steps, width), lambda t, i: te.minimum(both[t, i], 9), name="new_a")
    new_b = te.compute((steps, width), lambda t, i: b[t - 1, i] + both[t, i] * 2, name="new_b")
    one, other = te.scan([first, zero], [new_a, new_b], [a, b])
    return [x, te.compute((steps, width), lambda t, i: one[t, i] - other[t, i], name="out")]


def numpy_two_states(x):
    a, b = x.copy(), np.zeros_like(x)
    for t in range(1, len(x)):
        both = a[t - 1] + x[t]
        a[t], b[t] = np.minimum(both, 9), b[t - 1] + both * 2
    return [a - b]


def products(steps, width):
    """A vector times a matrix, again and again; places of other threads are read."""
    x = te.placeholder((steps, width), "int32", name="X")
    w = te.placeholder((width, width), "int32", name="W")
    h = te.placeholder((steps, width), "int32", name="h")
    k = te.reduce_axis(width, "k")
    first = te.compute((1, width), lambda t, i: x[t, i], name="first")
    product = te.compute(
        (steps, width), lambda t, i: te.sum(h[t - 1, k] * w[k, i], axis=k), name="product"
    )
    step = te.compute((steps, width), lambda t, i: (product[t, i] + x[t, i]) % 5, name="step")
    return [x, w, te.scan(first, step, h)]


def numpy_products(x, w):
    out = x.copy()
    for t in range(1, len(x)):
        out[t] = (out[t - 1] @ w + x[t]) % 5
    return [out]


COMPUTATIONS = {
    "sums": (sums, numpy_sums),
    "two states": (two_states, numpy_two_states),
    "products": (products, numpy_products),
}


def _draw_loops(stage, axes, rng: random.Random, gpu: bool) -> None:
    leaves = list(axes)
    for ax in list(leaves):
        if rng.random() < 0.6:
            at = leaves.index(ax)
            leaves[at : at + 1] = stage.split(ax, factor=rng.randint(1, 4))
    time = [ax for ax in stage.leaf_iter_vars if ax not in leaves]
    order = sorted(leaves, key=lambda ax: (ax.kind == "reduce", rng.random()))
    stage.reorder(*[ax for ax in time if ax.kind == "spatial"], *order)
    spatial = [ax for ax in order if ax.kind == "spatial"]
    if gpu:
        for ax, tag in zip(spatial, ("blockIdx.x", "threadIdx.x"), strict=False):
            if rng.random() < 0.7:
                stage.bind(ax, tag)
    else:
        if rng.random() < 0.4:
            stage.parallel(spatial[0])
        if len(spatial) > 1 and rng.random() < 0.5:
            rng.choice([stage.vectorize, stage.unroll])(spatial[-1])


def drawn(seed: int, gpu: bool):
    """A computation with its schedule, inputs and what numpy makes of them."""
    rng = random.Random(seed)
    name = rng.choice(sorted(COMPUTATIONS))
    made, expected = COMPUTATIONS[name]
    steps, width = rng.randint(2, 6), rng.randint(1, 9)
    *inputs, out = made(steps, width)
    s = Schedule(ComputeDAG([*inputs, out]))
    scan = next(stage for stage in s.stages if getattr(stage.op, "states", ()))
    for stage in s.stages:
        if stage is scan:
            _draw_loops(stage, stage.op.axis[1:], rng, gpu and name != "products")
        elif stage in s.attached(scan):
            if not stage.op.reduce_axis and rng.random() < 0.3:
                stage.compute_inline()
        elif stage.op in s.dag.compute_ops:
            _draw_loops(stage, stage.op.axis[1:], rng, gpu)
    for stage in s.attached(scan):
        if rng.random() < 0.6:
            stage.compute_at(scan, rng.choice(scan.leaf_iter_vars))
        if gpu:
            stage.set_scope("local")
        if not gpu and rng.random() < 0.5:
            _draw_loops(stage, [*stage.op.axis[1:], *stage.op.reduce_axis], rng, gpu=False)
    rows = np.random.default_rng(seed)
    arrays = [rows.integers(-3, 4, t.shape).astype("int32") for t in inputs]
    return s, arrays, expected(*arrays)


def checked(s: Schedule, kind: str):
    """The program; None where threads would read what others stored, which is refused."""
    try:
        return lowered(s, kind)
    except ScheduleError as error:
        assert kind != "llvm" and "threads do not wait" in str(error)
        return None


@pytest.mark.slow
@examples(40)
@given(SEEDS, st.booleans())
def test_any_schedule_means_what_numpy_says(seed: int, gpu: bool) -> None:
    s, arrays, expected = drawn(seed, gpu)
    np.testing.assert_array_equal(evaluate(s.dag, arrays)[0], expected[0])
    program = checked(s, "cuda" if gpu else "llvm")
    if program is not None:
        np.testing.assert_array_equal(interpret(program, arrays)[0], expected[0])


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llvm", "opencl"])
@examples(15)
@given(SEEDS)
def test_kernels_give_what_numpy_says(kind: str, seed: int) -> None:
    s, arrays, expected = drawn(seed, kind != "llvm")
    program = checked(s, kind)
    if program is not None:
        np.testing.assert_array_equal(run_on(kind, program, arrays)[0], expected[0])


@examples(20)
@given(SEEDS, st.booleans())
def test_steps_replay_from_json(seed: int, gpu: bool) -> None:
    s, _, _ = drawn(seed, gpu)
    again = ComputeDAG.from_json(s.dag.to_json())
    assert again.hash == s.dag.hash
    kind = "cuda" if gpu else "llvm"
    assert str(checked(Schedule.replay(again, s.to_json()), kind)) == str(checked(s, kind))


@pytest.mark.parametrize("kind", ["llvm", "opencl"])
@pytest.mark.parametrize("name", COMPUTATIONS)
def test_default_schedules_are_right(name: str, kind: str) -> None:
    made, expected = COMPUTATIONS[name]
    *inputs, out = made(5, 7)
    dag = ComputeDAG([*inputs, out])
    arrays = [np.random.randint(-3, 4, t.shape).astype("int32") for t in inputs]
    program = lower_schedule(default_schedule(dag, Target(kind)), Target(kind))
    np.testing.assert_array_equal(run_on(kind, program, arrays)[0], expected(*arrays)[0])


def test_an_update_is_the_loop_nest_of_the_scan() -> None:
    steps, width = te.var("steps"), te.var("width")
    state = te.placeholder((steps, width), name="state")
    begin = te.compute((1, width), lambda t, i: te.const(1.0), name="begin")
    step = te.compute((steps, width), lambda t, i: state[t - 1, i] * 2.0, name="step")
    scan = te.scan(begin, step, state)
    s = te.create_schedule(scan.op)
    assert s[step] is s[scan] and scan.op.scan_axis == step.op.axis[0]
    outer, inner = s[step].split(step.op.axis[1], factor=4)
    s[step].bind(outer, te.thread_axis("blockIdx.x"))
    s[step].bind(inner, te.thread_axis("threadIdx.x"))
    program = lower_schedule(s, Target("opencl"))
    assert [len(kernel.threads) for kernel in program.kernels] == [0, 2]
    with pytest.raises(ExpressionError, match="it is no te.scan. Use op.axis"):
        _ = begin.op.scan_axis


X = te.placeholder((4, 5), name="X")
H = te.placeholder((4, 5), name="H")
BEGIN = te.compute((1, 5), lambda t, i: X[t, i], name="begin")


def step_of(f):
    return te.compute((4, 5), f, name="step")


DECLARED = {
    "no tensor": (lambda: te.scan(BEGIN, step_of(lambda t, i: H[t - 1, i]), 3), "3 is no tensor"),
    "counts": (
        lambda: te.scan([BEGIN], [step_of(lambda t, i: H[t - 1, i])], [H, X]),
        "1 beginnings, 1 updates, 2 states. Give one of each",
    ),
    "no placeholder": (
        lambda: te.scan(BEGIN, step_of(lambda t, i: X[t, i]), BEGIN),
        "a state is a te.placeholder",
    ),
    "shapes": (
        lambda: te.scan(BEGIN, te.compute((4, 3), lambda t, i: H[t - 1, i]), H),
        r"have the shapes \[1, 5\], \[4, 3\] and \[4, 5\], the types float32",
    ),
    "types": (
        lambda: te.scan(BEGIN, step_of(lambda t, i: H[t - 1, i].astype("int32")), H),
        "the types float32, int32",
    ),
    "no beginning": (
        lambda: te.scan(
            te.compute((te.var("n"), 5), lambda t, i: X[t, i]), step_of(lambda t, i: H[t - 1, i]), H
        ),
        "must be one number, at least 1",
    ),
    "a later step": (
        lambda: te.scan(BEGIN, step_of(lambda t, i: H[t + 1, i]), H),
        r"step reads H\[\(t \+ 1\), i\] at another time than 1 to 1 steps before",
    ),
    "an earlier step than given": (
        lambda: te.scan(BEGIN, step_of(lambda t, i: H[t - 2, i]), H),
        "at another time than 1 to 1 steps before",
    ),
    "a stage of another step": (
        lambda: te.scan(
            BEGIN,
            (lambda m: step_of(lambda t, i: m[t - 1, i]))(step_of(lambda t, i: H[t - 1, i])),
            H,
        ),
        "at another time than the step itself",
    ),
    "a beginning that reads the state": (
        lambda: te.scan(
            te.compute((1, 5), lambda t, i: H[t, i]), step_of(lambda t, i: H[t - 1, i]), H
        ),
        "its first steps read the state",
    ),
}


@pytest.mark.parametrize("name", DECLARED)
def test_a_scan_that_does_not_follow_is_refused(name: str) -> None:
    attempt, reason = DECLARED[name]
    with pytest.raises(ExpressionError, match=reason):
        attempt()


def test_schedules_that_lose_the_order_of_steps_are_refused() -> None:
    *inputs, out = products(4, 5)
    dag = ComputeDAG([*inputs, out])

    def refused(reason: str, change, kind: str = "llvm") -> None:
        s = Schedule(dag)
        product = next(stage for stage in s.stages if stage.name == "product")
        with pytest.raises((ScheduleError, LoweringError), match=reason):
            change(s[out], product)
            lower_schedule(s, Target(kind))

    refused("computed one after the other. Leave this", lambda a, p: a.parallel(a.op.axis[0]))
    refused("computed one after the other. Leave this", lambda a, p: a.split(a.op.axis[0], 2))
    refused("one after the other. Leave the loop t outer", lambda a, p: a.reorder(*a.op.axis[::-1]))
    refused("product: it depends on the state of scan", lambda a, p: p.compute_root())
    refused("the steps of a scan are kept", lambda a, p: a.schedule.cache_write(out, "local"))
    refused(
        "product reads what other threads stored the step before",
        lambda a, p: a.bind(a.op.axis[1], "threadIdx.x"),
        "opencl",
    )
    with pytest.raises(SpaceError, match="scan is a scan, which is not tuned. Schedule it"):
        task_of_dag(dag, "llvm")


def test_what_only_steps_read_is_not_computed_before_them() -> None:
    """A product of all inputs at once, whose first row would be read before the beginning."""
    x = te.placeholder((3, 4), "int32", name="X")
    w = te.placeholder((4, 5), "int32", name="W")
    h = te.placeholder((4, 5), "int32", name="h")
    k = te.reduce_axis(4, "k")
    zero = te.compute((1, 5), lambda t, i: te.const(0), name="zero")
    rows = te.compute((4, 5), lambda t, i: te.sum(x[t - 1, k] * w[k, i], axis=k), name="rows")
    step = te.compute((4, 5), lambda t, i: h[t - 1, i] + rows[t, i], name="step")
    out = te.scan(zero, step, h)
    a, b = (np.random.randint(-3, 4, t.shape).astype("int32") for t in (x, w))
    expected = np.concatenate([np.zeros((1, 5), "int32"), np.cumsum(a @ b, 0)])
    dag = ComputeDAG([x, w, out])
    np.testing.assert_array_equal(evaluate(dag, [a, b])[0], expected)
    at_time = Schedule(dag)
    at_time[rows].compute_at(at_time[out], out.op.scan_axis)
    for s in (Schedule(dag), default_schedule(dag, Target("llvm")), at_time):
        np.testing.assert_array_equal(interpret(lowered(s, "llvm"), [a, b])[0], expected)
