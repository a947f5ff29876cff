"""What a schedule is made of under TVM's names, loops that stand for no axis, pickled schedules."""

import pickle
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright_tvm as tw
from schedule.drawing import draw_schedule
from schedule.test_schedules import assert_right, draw_computation, interpret, lowered
from tests.tiers import examples
from tilewright.base.errors import ExpressionError, LegalityError
from tilewright.driver.build import generate_source
from tilewright.ir.fast_interpreter import run_fast
from tilewright.lowering.pipeline import lower_schedule
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import random_inputs
from tilewright_tvm import te


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


@pytest.mark.slow
@examples(40)
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


def test_ranges_of_loops() -> None:
    n = te.var("n")
    a = te.placeholder((n + 2, 6), name="A")
    b = te.compute((n + 2, 6), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((n, 6), lambda i, j: b[i, j] + b[i + 2, j], name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[0], factor=4)
    s[b].compute_at(s[c], outer)
    bounds = te.schedule.InferBound(s)
    assert isinstance(bounds, tw.container.Map)
    assert bounds[inner].extent.value == 4 and bounds[b.op.axis[0]].extent.value == 6
    tw.testing.assert_prim_expr_equal(bounds[b.op.axis[0]].min, outer * 4)
    tw.testing.assert_prim_expr_equal(bounds[outer].extent, (n + 3) // 4)
    with pytest.raises(AssertionError, match="are not equal"):
        tw.testing.assert_prim_expr_equal(bounds[outer].extent, n)
    assert bounds[b.op.axis[1]].min.value == 0
    assert str(te.schedule.ScheduleOps(s, bounds)) == str(tw.lower(s))
    module = tw.driver.build_module.schedule_to_module(s, [a, c], "add")
    assert module["add"] is module and isinstance(module, tw.tir.PrimFunc)
    with pytest.raises(KeyError):
        module["main"]
    with pytest.raises(tw.TVMError, match="functions are made of schedules only"):
        tw.tir.PrimFunc([], None)


def inlined_by(function: str) -> list[str]:
    """Which stages of one schedule a function of te.schedule inlines."""
    a, v = te.placeholder((4, 6), name="a"), te.placeholder((6,), name="v")
    same = te.compute((4, 6), lambda i, j: a[i, j] * 2, name="same")
    row = te.compute((4, 6), lambda i, j: same[i, j] + v[j] + v[0], name="row")
    turned = te.compute((6, 4), lambda i, j: row[j, i] + same[j, i], name="turned")
    k = te.reduce_axis((0, 4), "k")
    total = te.compute((6,), lambda i: te.sum(turned[i, k], axis=k), name="total")
    last = te.compute((6,), lambda i: total[i] + 1, name="last")
    s = te.create_schedule(last.op)
    getattr(te.schedule, function)(s)
    assert [s[last].attach_type, s[total].attach_type] == [1, 1]
    return [t.name for t in (same, row, turned) if s[t].attach_type == 2]


def test_inlining_by_the_form_of_computations() -> None:
    assert inlined_by("AutoInlineElemWise") == ["same"]
    assert inlined_by("AutoInlineBroadcast") == ["same", "row"]
    assert inlined_by("AutoInlineInjective") == ["same", "row", "turned"]


def test_pragmas_that_are_primitives_or_hints() -> None:
    a = te.placeholder((16, 8), name="a")
    b = te.compute((16, 8), lambda i, j: a[i, j] + 1, name="b")
    s = te.create_schedule(b.op)
    i, j = b.op.axis
    s[b].pragma(i, "parallel_launch_point")
    s[b].double_buffer()
    assert not s.steps
    s[b].pragma(i, "parallel")
    s[b].pragma(j, "vectorize")
    same = te.create_schedule(b.op)
    same[b].parallel(i)
    same[b].vectorize(j)
    assert s.steps == same.steps


def test_outputs_as_operations() -> None:
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1, name="b", tag="mine")
    s = te.create_schedule(b.op)
    out = s.outputs[0]
    assert out.output(0) is b and out.tag == "mine" and out.body is b.op.body
    assert out.input_tensors == (a,) and out.axis == b.op.axis
    with pytest.raises(AttributeError, match=r"s\[C\].fuse"):
        _ = te.schedule.Singleton


def test_the_tag_of_a_scope() -> None:
    x = te.placeholder((4,), name="X")

    @te.tag_scope("mine")
    def twice() -> te.Tensor:
        return te.compute((4,), lambda i: x[i] * 2)

    assert twice().op.tag == "mine" and te.compute((4,), lambda i: x[i]).op.tag == ""
    with te.tag_scope("outer"):
        assert te.compute((4,), lambda i: x[i], tag="own").op.tag == "own"
        with pytest.raises(ExpressionError, match="inside tag_scope"):
            twice()
    assert twice().op.tag == "mine"
