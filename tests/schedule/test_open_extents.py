"""One kernel for every extent: schedules of computations whose shapes are variables.

A random schedule of the computation with numbers is replayed on the same one with variables; the
program it lowers to, with other numbers put in, computes what the reference says of these.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schedule.drawing import draw_schedule
from strategies import assert_computes
from tests.specialise import specialised
from tests.tiers import examples
from tilewright import build, cuda, device, lower, te
from tilewright.base.errors import (
    DeviceError,
    ExpressionError,
    LoweringError,
    ScheduleError,
    TilewrightError,
)
from tilewright.driver.build import generate_source
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.default import default_schedule
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.steps import Annotate, Bind, Pack
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate
from tilewright_tvm import nd

Tensors = list[te.Tensor]


def product(n: Any, m: Any) -> Tensors:
    a, b = te.placeholder((n, 5), name="A"), te.placeholder((5, m), name="B")
    k = te.reduce_axis((0, 5), "k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return [a, b, te.compute((n, m), lambda i, j: c[i, j] + 1.0, name="D")]


def rows(n: Any, m: Any) -> Tensors:
    a = te.placeholder((n, m), name="A")
    k, r = te.reduce_axis((0, m), "k"), te.reduce_axis((0, m), "r")
    top = te.compute((n,), lambda i: te.max(a[i, k], axis=k), name="T")
    s = te.compute((n,), lambda i: te.sum(te.exp(a[i, r] - top[i]), axis=r), name="S")
    return [a, te.compute((n, m), lambda i, j: te.exp(a[i, j] - top[i]) / s[i], name="D")]


def stencil(n: Any, m: Any) -> Tensors:
    a = te.placeholder((n, m), name="A")
    r = te.compute((n, m), lambda i, j: a[n - 1 - i, m - 1 - j] * 2.0, name="R")

    def around(i: Any, j: Any) -> Any:
        return te.if_then_else(te.all(j >= 1, j < m - 1), r[i, j - 1] + r[i, j + 1], r[i, j])

    return [a, te.compute((n, m), around, name="P")]


def blocked(n: Any, m: Any) -> Tensors:
    a = te.placeholder((n * 2, m), name="A")
    b = te.compute((n, 2, m), lambda i, p, j: a[i * 2 + p, j], name="B")
    return [a, te.compute((m + 1, n), lambda j, i: te.if_then_else(j < m, b[i, 1, j], -1.0))]


COMPUTATIONS: list[Callable[..., Tensors]] = [product, rows, stencil, blocked]


def opened(dag: ComputeDAG, rng: random.Random, gpu: bool) -> Schedule:
    """A random schedule of `dag`, without what needs the number of iterations of a whole axis."""
    drawn = draw_schedule(dag.at(n=rng.randint(1, 12), m=rng.randint(1, 12)), rng, gpu=gpu)
    s = Schedule(dag)
    for step in drawn.steps:
        whole = not getattr(step, "axis", "").endswith(".inner")
        if isinstance(step, Pack) or (isinstance(step, (Annotate, Bind)) and whole):
            continue
        s.do(step)
    return s


def test_one_place_in_several_spellings_is_one_element() -> None:
    """Also where loops are fused, so that it is a quotient by an extent that a call gives."""
    n, m = te.var("n"), te.size_var("m")
    a = te.placeholder((n, m), name="A")
    p = te.compute((n * 3, m), lambda i, j: a[i // 3, j] * 2.0, name="P")
    b = te.compute((n, 3, m), lambda i, k, j: p[i * 3 + k, j] + 1.0, name="B")
    c = te.compute((n * 3, m), lambda i, j: b[i // 3, i % 3, j] * p[i, j], name="C")
    s = Schedule(dag := ComputeDAG([a, c]))
    loop = s[c].fuse(*s[c].op.axis)
    s[b].compute_at(s[c], loop)
    s[p].compute_at(s[c], loop)
    tree = LoopTree(s)
    for stage in (b, p):
        assert set(tree.bounds().region(tree.of_stage[s[stage]])) == {1}
    program = lower_schedule(s, Target("llvm"))
    for values in ({"n": 1, "m": 1}, {"n": 3, "m": 5}):
        assert_computes(specialised(program, values), dag.at(**values))


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("gpu", [False, True])
@examples(40)
@given(seed=st.integers(0, 10**9))
@example(seed=49)  # an extent that no kernel reads
@example(seed=220)  # a tile whose guard ends beyond 32 bits, if at all
def test_a_schedule_with_variables_computes_what_numbers_would(gpu: bool, seed: int) -> None:
    rng = random.Random(seed)
    make = rng.choice(COMPUTATIONS)
    n, m = te.var("n"), te.size_var("m")
    dag = ComputeDAG(make(n, m))
    try:
        schedule = opened(dag, rng, gpu)
        program = lower_schedule(schedule, Target("cuda" if gpu else "llvm"))
    except (ScheduleError, LoweringError):
        return  # threads or local buffers without a number: refused with a way out
    str(schedule), str(program)
    for _ in range(3):
        values = {"n": rng.randint(1, 20), "m": rng.randint(1, 20)}
        assert_computes(specialised(program, values), dag.at(**values))


@pytest.mark.slow
def test_most_schedules_are_not_refused() -> None:
    """Else the test above would show nothing."""
    refused = 0
    for seed in range(60):
        rng = random.Random(seed)
        dag = ComputeDAG(COMPUTATIONS[seed % 4](te.var("n"), te.var("m")))
        gpu = seed % 2 == 0
        try:
            lower_schedule(opened(dag, rng, gpu), Target("cuda" if gpu else "llvm"))
        except TilewrightError:
            refused += 1
    assert refused < 30


def test_a_tile_of_an_open_row_may_lie_inside_for_no_extent() -> None:
    """Of 2**31 - 1 columns, tiles of 3 would end beyond 32 bits: nothing counts so far."""
    n, m = te.var("n"), te.var("m")
    dag = ComputeDAG(product(n, m))
    s = Schedule(dag)
    c, d = (op.output_tensor for op in dag.compute_ops)
    rows, _ = s[d].split(d.op.axis[0], factor=3)
    s[c].compute_at(s[d], rows)
    s[c].split(c.op.axis[1], factor=3)
    program = lower_schedule(s, Target("llvm"))
    for values in ({"n": 5, "m": 7}, {"n": 3, "m": 6}):
        assert_computes(specialised(program, values), dag.at(**values))


KINDS = ["llvm", pytest.param("opencl", marks=pytest.mark.opencl)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", COMPUTATIONS)
def test_one_module_runs_for_every_extent(kind: str, make: Callable[..., Tensors]) -> None:
    dev = device(kind)
    if not dev.exist:
        pytest.skip(f"no {kind} device")
    tensors = make(te.var("n"), te.var("m"))
    dag = ComputeDAG(tensors)
    module = build(default_schedule(dag, Target(kind)), tensors, kind)
    rng = np.random.default_rng(0)
    for values in ({"n": 1, "m": 1}, {"n": 7, "m": 13}, {"n": 64, "m": 33}):
        here = dag.at(**values)
        given_in = [rng.standard_normal(t.shape).astype("float32") for t in here.args[:-1]]
        out = nd.array(np.full(here.outputs[0].shape, 9, "float32"), dev)
        module(*(nd.array(x, dev) for x in given_in), out)
        (wanted,) = evaluate(here, given_in)
        np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_the_text_for_cuda_reads_extents_and_guards_tails() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    block, thread = s[b].split(b.op.axis[0], factor=64)
    s[b].bind(block, "blockIdx.x")
    s[b].bind(thread, "threadIdx.x")
    source = generate_source(s, Target("cuda"), "f", [a, b])
    assert "n[0]" in source.text and "if (" in source.text
    assert source.open is not None and source.open.grids == (
        (("floordiv", ("add", "n", 63), 64), 1, 1),
    )
    assert cuda().kind == "cuda"


def vector() -> tuple[Any, te.Tensor, te.Tensor, Schedule]:
    n = te.var("n")
    a = te.placeholder((n, n), name="A")
    b = te.compute((n, n), lambda i, j: a[i, j] * 2.0, name="B")
    return n, a, b, te.create_schedule(b.op)


def test_shapes_must_agree() -> None:
    _, a, b, s = vector()
    f = build(s, [a, b], "llvm")
    square, other = nd.empty((4, 4)), nd.empty((4, 5))
    f(square, nd.empty((4, 4)))
    with pytest.raises(DeviceError, match=r"n: A of shape \[4, 5\] makes it 4, A of shape"):
        f(other, nd.empty((4, 5)))
    with pytest.raises(DeviceError, match=r"makes it 4, B of shape \[5, 5\] 5"):
        f(square, nd.empty((5, 5)))
    with pytest.raises(DeviceError, match="it is 0, and must be 1 to"):
        f(nd.empty((0, 0)), nd.empty((0, 0)))


def test_a_variable_may_be_an_argument() -> None:
    n, a, b, s = vector()
    f = build(s, [n, a, b], "llvm")
    out = nd.empty((3, 3))
    f(3, nd.array(np.ones((3, 3), "float32")), out)
    assert (out.numpy() == 2).all()
    with pytest.raises(DeviceError, match="the argument makes it 4"):
        f(4, nd.empty((3, 3)), out)
    with pytest.raises(DeviceError, match=r"'x' is no|not an integer|not an NDArray"):
        f("x", nd.empty((3, 3)), out)


def test_a_scalar_is_an_argument() -> None:
    scale, shift = te.var("scale", "float32"), te.var("shift")
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] * scale + shift, name="B")
    f = build(te.create_schedule(b.op), [a, scale, shift, b], "llvm")
    out = nd.empty((8,))
    f(nd.array(np.ones(8, "float32")), 2.5, -3, out)
    assert (out.numpy() == -0.5).all()
    with pytest.raises(LoweringError, match="no argument has shift itself as a dimension"):
        build(te.create_schedule(b.op), [a, scale, b], "llvm")
    with pytest.raises(DeviceError, match=r"2\.5 is no int32"):
        f(nd.empty((8,)), 1.0, 2.5, out)


def test_an_index_may_be_an_argument_and_stays_inside() -> None:
    at = te.var("at")
    a = te.placeholder((8,), name="A")
    b = te.compute((4,), lambda i: a[i + at], name="B")
    f = build(te.create_schedule(b.op), [at, a, b], "llvm")
    data, out = np.arange(8, dtype="float32"), nd.empty((4,))
    for start in (0, 3, -5, 100):
        f(start, nd.array(data), out)
        assert (out.numpy() == data[np.clip(np.arange(4) + start, 0, 7)]).all()


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda s, x: s.vectorize(x), r"vectorize\(B\.i\): the loop has n iterations"),
        (lambda s, x: s.unroll(x), r"unroll\(B\.i\): the loop has n iterations"),
        (lambda s, x: s.bind(x, "threadIdx.x"), "a block would have n threads"),
    ],
)
def test_what_needs_a_number_says_so(ask: Callable[..., None], words: str) -> None:
    _, a, b, s = vector()
    ask(s[b], s[b].op.axis[0])
    with pytest.raises(LoweringError, match=words):
        lower(s, [a, b])


@pytest.mark.parametrize("ask", ["hash", "flop_ct", "to_json", "workload_key"])
def test_what_counts_or_keeps_a_computation_needs_numbers(ask: str) -> None:
    _, a, b, _ = vector()
    dag = ComputeDAG([a, b])
    with pytest.raises(ExpressionError, match=r"n is a variable: .* needs numbers\. .*at\(n=64\)"):
        found = getattr(dag, ask)
        found()
    assert dag.at(n=4).hash == dag.at(n=4).hash != dag.at(n=5).hash


def test_extents_that_are_none() -> None:
    i = te.reduce_axis((0, 4), "i")
    with pytest.raises(ExpressionError, match="is no number and no expression of te.var"):
        te.placeholder((i.var,), name="A")
    with pytest.raises(ExpressionError, match="is no number and no expression of te.var"):
        te.placeholder((te.var("x", "float32"),), name="A")
    with pytest.raises(ExpressionError, match="m has no value"):
        ComputeDAG(product(te.var("n"), te.var("m"))).at(n=3)


def test_the_canonical_reduction_of_a_gpu() -> None:
    """Partial results of rfactor at the loop that threads share."""
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    b = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    _, inner = s[b].split(b.op.reduce_axis[0], factor=8)
    part = s.rfactor(b, inner)
    block, row = s[b].split(s[b].op.axis[0], factor=4)
    s[b].bind(block, te.thread_axis("blockIdx.x"))
    s[b].bind(row, te.thread_axis("threadIdx.y"))
    s[b].bind(s[b].op.reduce_axis[0], te.thread_axis("threadIdx.x"))
    s[part].compute_at(s[b], s[b].op.reduce_axis[0])
    program = lower(s, [a, b])
    for values in ({"n": 1, "m": 1}, {"n": 9, "m": 19}):
        assert_computes(specialised(program, values), ComputeDAG([a, b]).at(**values))


def test_arguments_may_be_intermediate_unused_or_left_out() -> None:
    a, unused = te.placeholder((6,), name="A"), te.placeholder((2,), name="U")
    b = te.compute((6,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((6,), lambda i: b[i] * 2.0, name="C")
    s = te.create_schedule(c.op)
    data = nd.array(np.arange(6, dtype="float32"))
    middle, last = nd.empty((6,)), nd.empty((6,))
    build(s, [a, unused, b, c], "llvm")(data, nd.empty((2,)), middle, last)
    assert (middle.numpy() == np.arange(6) + 1).all() and (last.numpy() == middle.numpy() * 2).all()
    build(s, [a, b], "llvm")(data, middle)


@pytest.mark.parametrize("place", ["inlined", "at a loop", "unknown extents"])
def test_what_is_stored_nowhere_is_computed_once_more_for_a_caller(place: str) -> None:
    n = te.var("n") if place == "unknown extents" else 6
    a, k = te.placeholder((n,), name="A"), te.reduce_axis((0, 3), "k")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((2,), lambda i: te.sum(b[i + k], axis=k), name="C")  # reads a part of B
    s = te.create_schedule(c.op)
    if place == "inlined":
        s[b].compute_inline()
    else:
        s[b].compute_at(s[c], c.op.axis[0])
    steps = list(s.steps)
    data = np.arange(6, dtype="float32")
    for made in (s, lower(s, [a, b, c])):
        middle, last = nd.empty((6,)), nd.empty((2,))
        build(made, [a, b, c], "llvm")(nd.array(data), middle, last)
        assert (middle.numpy() == data + 1).all() and last.numpy().tolist() == [6.0, 9.0]
    assert s.steps == steps
    assert "B.whole" in str(lower(s, [a, b, c])) and "B.whole" not in str(lower(s, [a, c]))


def test_what_cannot_be_computed_once_more_is_refused() -> None:
    a = te.placeholder((6,), name="A")
    d = te.compute((6,), lambda i: a[i] * 3.0, name="D")
    b = te.compute((6,), lambda i: d[i] + 1.0, name="B")
    c = te.compute((6,), lambda i: b[i] * 2.0, name="C")
    inside = te.create_schedule(c.op)
    inside[b].compute_at(inside[c], c.op.axis[0])
    inside[d].compute_at(inside[b], b.op.axis[0])
    with pytest.raises(LoweringError, match="B: it is computed inside another stage"):
        lower(inside, [a, b, c])


def test_what_is_computed_once_more_beside_threads_is_run_by_threads() -> None:
    a = te.placeholder((6, 40), name="A")
    b = te.compute((6, 40), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((6, 40), lambda i, j: b[i, j] * 2.0, name="C")
    s = te.create_schedule(c.op)
    s[c].bind(c.op.axis[0], te.thread_axis("blockIdx.x"))
    s[b].compute_inline()
    kernels = {k.grid: k.block for k in lower(s, [a, b, c]).kernels}
    assert kernels == {(6, 1, 1): (1, 1, 1), (4, 1, 1): (64, 1, 1)}


def test_a_reduction_begins_with_an_expression() -> None:
    n = te.var("n")
    a = te.placeholder((n, 5), name="A")
    k = te.reduce_axis((0, 5), "k")
    for reduce, wanted in ((te.sum, np.sum), (te.max, np.max)):
        b = te.compute((n,), lambda i, r=reduce: r(a[i, k], axis=k, init=a[i, 0] + 2.0), name="B")
        data = np.random.default_rng(0).standard_normal((3, 5)).astype("float32")
        (found,) = evaluate(ComputeDAG([a, b]).at(n=3), [data])
        begun = np.concatenate([data[:, :1] + 2.0, data], axis=1)
        np.testing.assert_allclose(found, wanted(begun, axis=1), rtol=1e-6)


def test_a_function_of_several_elements_makes_as_many_tensors() -> None:
    a = te.placeholder((4,), name="A")
    more, twice = te.compute((4,), lambda i: (a[i] + 1.0, a[i] * 2.0), name="T")
    assert (more.name, twice.name) == ("T.v0", "T.v1") and more.op.axis[0].name == "i"
    data = np.arange(4, dtype="float32")
    found = evaluate(ComputeDAG([a, more, twice]), [data])
    assert (found[0] == data + 1).all() and (found[1] == data * 2).all()


def test_what_lower_gave_is_built_for_any_target() -> None:
    _, a, b, s = vector()
    lowered = lower(s, [a, b], "llvm")
    out = nd.empty((2, 2))
    build(lowered, target="llvm", target_host="llvm", name="twice")(
        nd.array(np.ones((2, 2), "float32")), out
    )
    assert (out.numpy() == 2).all() and str(lowered) == str(lower_schedule(s, Target("llvm")))
    with pytest.raises(ScheduleError, match="nothing says what this program was made from"):
        build(lower_schedule(s, Target("llvm")), target="llvm")


def test_the_first_of_some_threads_stores_anyway() -> None:
    _, a, b, s = vector()
    thread = te.thread_axis("threadIdx.x")
    s[b].set_store_predicate(thread.var.equal(0))
    _, inner = s[b].split(b.op.axis[0], factor=8)
    s[b].bind(inner, thread)
    for condition in (thread.var.equal(0), thread.var.equal(1), a[0, 0] > 0.0, True):
        with pytest.raises(ScheduleError, match="it is not the first of threads that would store"):
            s[b].set_store_predicate(condition)


def test_functions_that_te_makes_of_others() -> None:
    a = te.placeholder((5,), name="A")
    data = np.array([-2.5, -0.5, 0.25, 1.5, 8.0], "float32")
    pairs = [
        (lambda x: te.fmod(x, 2.0), np.fmod(data, 2)), (te.trunc, np.trunc(data)),
        (te.exp2, np.exp2(data)), (te.exp10, 10.0**data),
        (lambda x: te.log2(x * x), np.log2(data**2)),
        (lambda x: te.log10(x * x), np.log10(data**2)), (te.isnan, np.isnan(data)),
        (lambda x: te.floormod(te.floordiv(x, 0.5), 3.0), np.floor(data / 0.5) % 3),
    ]  # fmt: skip
    for function, wanted in pairs:
        out = te.compute((5,), lambda i, f=function: f(a[i]).astype("float32"), name="B")
        (found,) = evaluate(ComputeDAG([a, out]), [data])
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert te.min_value("int8").value == -128 and te.max_value("int8").value == 127
    assert te.infinity("float32").value == float("inf")
    with pytest.raises(ExpressionError, match="it has none"):
        te.infinity("int32")
