"""te.extern: statements compute what the reference says, on every kind of device, beside stages of
te.compute; what leaves memory, waits wrongly or is no statement is one clear error."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright
from tests import interpreter
from tests.tiers import examples
from tilewright.base.errors import ExpressionError, LoweringError, ScheduleError, SpaceError
from tilewright.codegen import generate
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.interpreter_memory import InterpreterError
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.default import default_schedule
from tilewright.schedule.task import task_of_dag
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate, evaluate_with_tolerance
from tilewright_tvm import nd, te, tir


def bubble(ins, outs):
    """Sorts a vector: every statement depends on the ones before it."""
    ib = tir.ir_builder.create()
    a, c = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
    (n,) = a.shape
    with ib.for_range(0, n, name="i") as i:
        c[i] = a[i]
    with ib.for_range(0, n, name="k"), ib.for_range(0, n - 1, name="j") as j:
        with ib.if_scope(c[j] > c[j + 1]):
            first = ib.let("first", c[j])
            c[j] = c[j + 1]
            c[j + 1] = first
    return ib.get()


def collatz(ins, outs):
    """Steps until one is reached, which only the numbers know."""
    ib = tir.ir_builder.create()
    a, c = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
    with ib.for_range(0, a.shape[0], name="i", kind="parallel") as i:
        x, steps = ib.allocate("int32", 1, "x"), ib.allocate("int32", 1, "steps")
        x[0] = a[i]
        steps[0] = 0
        with ib.while_loop(x[0] > 1):
            with ib.if_scope(x[0] % 2 == 0):
                x[0] = x[0] // 2
            with ib.else_scope():
                x[0] = 3 * x[0] + 1
            steps[0] += 1
        c[i] = steps[0]
    return ib.get()


def sparse_rows(ins, outs):
    """Rows of a sparse matrix by a vector: data say how often the inner loop runs."""
    ib = tir.ir_builder.create()
    begin, index, value, x = map(ib.buffer_ptr, ins)
    y = ib.buffer_ptr(outs[0])
    with ib.for_range(0, y.shape[0], name="r") as r:
        y[r] = 0
        with ib.for_range(begin[r], begin[r + 1], name="e") as e:
            y[r] += value[e] * x[index[e]]
    return ib.get()


def tree_sum(threads, rows=None):
    """Sums of rows by the threads of a block, who share their partial sums."""

    def statements(ins, outs):
        ib = tir.ir_builder.create()
        a, c = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        block, thread = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")
        ib.scope_attr(block, "thread_extent", c.shape[0])
        ib.scope_attr(thread, "thread_extent", threads)
        shared = ib.allocate(a.dtype, threads, "partial", "shared")
        shared[thread] = a[block, thread]
        step = threads // 2
        while step:
            with ib.if_scope(thread < step):
                shared[thread] = shared[thread] + shared[thread + step]
            step //= 2
        with ib.if_scope(thread.equal(0)):
            c[block] = shared[0]
        return ib.get()

    return statements


def built(args, target="llvm", schedule=None):
    """What a module makes of random inputs, with what the reference makes of them."""
    dag = ComputeDAG(args)
    s = schedule if schedule is not None else te.create_schedule([t.op for t in dag.outputs])
    ins = [t for t in args if t not in dag.outputs]
    rng = np.random.default_rng(0)
    argumentsin = [
        rng.integers(0, 9, t.shape).astype(str(t.dtype))
        if not t.dtype.is_float
        else rng.random(t.shape).astype(str(t.dtype))
        for t in ins
    ]
    return compared(s, args, argumentsin, target)


def compared(s, args, arrays, target="llvm"):
    wanted = evaluate(s.dag, arrays)
    module, dev = tilewright.build(s, args, target), tilewright.device(target)
    outs = [nd.array(np.zeros(t.shape, str(t.dtype)), dev) for t in args[len(arrays) :]]
    module(*(nd.array(a, dev) for a in arrays), *outs)
    for got, reference in zip(outs, wanted, strict=True):
        np.testing.assert_allclose(got.numpy(), reference, rtol=1e-5, atol=1e-6)
    return [o.numpy() for o in outs]


@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_statements_run_in_their_order(target):
    a = te.placeholder((37,), name="A")
    s = te.create_schedule(te.extern((37,), [a], bubble, name="sorted").op)
    x = np.random.default_rng(1).random(37).astype("float32")
    (out,) = compared(s, [a, *s.dag.outputs], [x], target)
    assert (out == np.sort(x)).all()


def test_loops_run_as_often_as_data_say():
    a = te.placeholder((27,), "int32", name="A")
    c = te.extern((27,), [a], collatz, name="C")
    (out,) = compared(te.create_schedule(c.op), [a, c], [np.arange(1, 28, dtype="int32")])
    assert out[26] == 111 and out[0] == 0

    begin, index = te.placeholder((5,), "int32"), te.placeholder((6,), "int32", name="I")
    value, x = te.placeholder((6,), "int32", name="V"), te.placeholder((3,), "int32", name="X")
    y = te.extern((4,), [begin, index, value, x], sparse_rows, name="Y", dtype="int32")
    arrays = [
        np.array(v, "int32")
        for v in ([0, 2, 2, 3, 6], [0, 2, 1, 0, 1, 2], [1, 2, 3, 4, 5, 6], [7, 8, 9])
    ]
    for target in ("llvm", "opencl"):
        (out,) = compared(te.create_schedule(y.op), [begin, index, value, x, y], arrays, target)
        assert out.tolist() == [25, 0, 24, 122]


@pytest.mark.parametrize("target", ["llvm", "opencl"])
@pytest.mark.parametrize("seed", range(3))
def test_beside_scheduled_stages(target, seed):
    """An ordinary stage before, one behind, each scheduled; the statements stay as they are."""
    rng = random.Random(seed)
    a = te.placeholder((24,), name="A")
    before = te.compute((24,), lambda i: a[23 - i] * 2.0, name="before")
    mid = te.extern((24,), [before], bubble, name="mid")
    after = te.compute((24,), lambda i: mid[i] - before[i], name="after")
    s = te.create_schedule(after.op)
    for t in (before, after):
        outer, inner = s[t].split(t.op.axis[0], factor=rng.choice([3, 5, 8]))
        if target == "opencl":
            s[t].bind(outer, te.thread_axis("blockIdx.x"))
            s[t].bind(inner, te.thread_axis("threadIdx.x"))
        else:
            s[t].parallel(outer)
            s[t].vectorize(inner)
    built([a, after], target, s)


@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_what_runs_unscheduled(target):
    """The default schedule inlines nothing into statements, and leaves them alone."""
    a = te.placeholder((24,), name="A")
    before = te.compute((24,), lambda i: a[23 - i] * 2.0, name="before")
    mid = te.extern((24,), [before], bubble, name="mid")
    after = te.compute((24,), lambda i: mid[i] + 1.0, name="after")
    s = default_schedule(ComputeDAG([a, after]), Target(target))
    assert s[before].attach_kind == "root" and "statements" in str(s)
    built([a, after], target, s)


@pytest.mark.slow
@given(st.integers(0, 10**9))
@examples(25)
def test_both_interpreters_and_the_cpu_agree(seed):
    """Random statements on two vectors: loops, conditions, memory, stores to what is read."""
    rng = random.Random(seed)
    n = rng.randint(1, 6)

    def statements(ins, outs):
        ib = tir.ir_builder.create()
        a, c = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        space = ib.allocate("int32", n, "space")
        with ib.for_range(0, n) as i:
            c[i] = a[i]
            space[i] = i - a[i]

        def some(i):
            k = rng.choice([i, n - 1 - i, (i + 1) % n, a[i], c[i] % n])
            return rng.choice([a, c, space])[k]

        def write(depth, i):
            kind = rng.choice(["store", "store", "if", "for", "while"] if depth else ["store"])
            if kind == "store":
                rng.choice([c, space])[rng.choice([i, n - 1 - i, c[i] % n])] = (
                    some(i) + rng.choice([1, some(i)])
                ) % 7
            elif kind == "if":
                with ib.if_scope(some(i) > some(i)):
                    write(depth - 1, i)
                    write(depth - 1, i)
                if rng.random() < 0.5:
                    with ib.else_scope():
                        write(depth - 1, i)
            elif kind == "for":
                with ib.for_range(0, n, name="k", kind=rng.choice(["serial", "unroll"])) as k:
                    write(depth - 1, k)
            else:
                left = ib.allocate("int32", 1, "left")
                left[0] = rng.randint(0, 3)
                with ib.while_loop(left[0] > 0):
                    write(depth - 1, i)
                    left[0] = left[0] - 1

        for _ in range(4):
            with ib.for_range(0, n) as i:
                write(2, i)
        return ib.get()

    a = te.placeholder((n,), "int32", name="A")
    c = te.extern((n,), [a], statements, name="C")
    s, x = te.create_schedule(c.op), np.array([rng.randint(0, n - 1) for _ in range(n)], "int32")
    program = lower_schedule(s, Target("llvm"))
    slow, fast = (np.zeros(n, "int32") for _ in range(2))
    interpreter.run(program, [x, slow])
    run_fast(program, [x, fast])
    (wanted,), (bound,) = evaluate_with_tolerance(s.dag, [x])
    assert (slow == wanted).all() and (fast == wanted).all() and not bound.any()
    compared(s, [a, c], [x])


def test_threads_share_memory():
    a = te.placeholder((3, 16), name="A")
    c = te.extern((3,), [a], tree_sum(16), name="C")
    s = te.create_schedule(c.op)
    program = lower_schedule(s, Target("cuda"))
    assert str(program).count("barrier") == 5
    x, out = np.random.default_rng(0).random((3, 16)).astype("float32"), np.zeros(3, "float32")
    interpreter.run(program, [x, out])
    np.testing.assert_allclose(out, x.sum(1), rtol=1e-6)
    compared(s, [a, c], [x], "opencl")
    text = generate(program, Target("cuda")).text
    assert "__syncthreads" in text and "__shared__" in text and "__launch_bounds__(16)" in text
    with pytest.raises(LoweringError, match="which a CPU does not have.*kind parallel"):
        tilewright.build(s, [a, c], "llvm")


def test_several_kernels_see_global_memory():
    """A scope of its own is a launch of its own; what is allocated outside is seen by both."""

    def statements(ins, outs):
        ib = tir.ir_builder.create()
        a, c = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        twice = ib.allocate("float32", 12, "twice", scope="global")
        for source, target, count in ((a, twice, 4), (twice, c, 3)):
            with ib.new_scope():
                block, thread = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")
                ib.scope_attr(block, "thread_extent", 12 // count)
                ib.scope_attr(thread, "thread_extent", count)
                at = block.var * count + thread.var
                target[at] = source[11 - at] * 2.0
        return ib.get()

    a = te.placeholder((12,), name="A")
    c = te.extern((12,), [a], statements, name="C")
    program = lower_schedule(te.create_schedule(c.op), Target("cuda"))
    assert [k.grid[0] for k in program.kernels] == [3, 4]
    assert [b.name for b in program.workspaces] == ["twice"]
    x = np.arange(12, dtype="float32")
    (out,) = compared(te.create_schedule(c.op), [a, c], [x], "opencl")
    assert (out == x * 4).all()


def test_outputs_of_different_shapes_and_types():
    def statements(ins, outs):
        ib = tir.ir_builder.create()
        a, rows, most = map(ib.buffer_ptr, (*ins, *outs))
        with ib.for_range(0, 3, name="i") as i:
            rows[i] = 0
            with ib.for_range(0, 4, name="j") as j:
                rows[i] = rows[i] + a[i, j]
                most[j, i] = tir.if_then_else(i > 0, a[i, j] > a[i - 1, j], True)
        return ib.get()

    a = te.placeholder((3, 4), "int32", name="A")
    rows, most = te.extern([(3,), (4, 3)], [a], statements, name="C", dtype=["int32", "bool"])
    assert rows.shape == (3,) and most.shape == (4, 3) and most.dtype == "bool"
    assert rows.name == "C.v0" and most.op is rows.op and most.ndim == 2
    last = te.compute((4, 3), lambda j, i: te.if_then_else(most[j, i], rows[i], 0), name="last")
    built([a, rows, most])
    built([a, last])


def test_extents_that_calls_give():
    n = te.size_var("n")
    a = te.placeholder((n,), name="A")

    def gpu(ins, outs):
        ib = tir.ir_builder.create()
        block, thread = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")
        ib.scope_attr(block, "thread_extent", tir.indexdiv(n + 31, 32))
        ib.scope_attr(thread, "thread_extent", 32)
        at = block.var * 32 + thread.var
        with ib.if_scope(ib.likely(at < n)):
            ib.emit(outs[0].vstore(at, ins[0].vload(at, "float32") + 1.0))
        return ib.get()

    def cpu(ins, outs):
        ib = tir.ir_builder.create()
        a, c = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        last = ib.allocate("float32", n, "last", scope="global")
        with ib.for_range(0, n, name="i", kind="parallel") as i:
            last[i] = a[i] + 1.0
        with ib.for_range(0, n, name="i") as i:
            c[i] = last[i]
        return ib.get()

    for target, statements in (("opencl", gpu), ("llvm", cpu)):
        c = te.extern((n,), [a], statements, name="C")
        s = te.create_schedule(c.op)
        program = tilewright.lower(s, [a, c], target)
        assert "max(" not in str(program)  # the condition shows what is inside
        module, dev = tilewright.build(s, [a, c], target), tilewright.device(target)
        for size in (1, 31, 77):
            x, out = np.random.rand(size).astype("float32"), nd.empty((size,), device=dev)
            module(nd.array(x, dev), out)
            assert (out.numpy() == x + 1).all()
        fixed = ComputeDAG([a, c]).at(n=40)
        assert evaluate(fixed, [np.ones(40, "float32")])[0].tolist() == [2.0] * 40


def test_vectors_and_unrolled_loops():
    def statements(ins, outs):
        ib = tir.ir_builder.create()
        a, c = ib.buffer_ptr(ins[0], shape=(8, 8)), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 8, name="i", kind="unroll") as i:
            with ib.for_range(0, 8, name="j", kind="vectorize") as j:
                c[i * 8 + j] = a[i, j] * 2.0
        return ib.get()

    a = te.placeholder((64,), name="A")
    c = te.extern((64,), [a], statements, name="C")
    assert "C[i*8 +: 8]" in str(tilewright.lower(te.create_schedule(c.op), [a, c], "llvm"))
    built([a, c])


# -- what leaves memory ----------------------------------------------------------------------------


def moved(index, extent=8, condition=None):
    def statements(ins, outs):
        ib = tir.ir_builder.create()
        a, c = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 8, name="i") as i:
            c[i] = 0
        with ib.for_range(0, extent, name="i") as i:
            if condition is None:
                c[index(i, a)] = a[i % 8] + 1
            else:
                with ib.if_scope(condition(i, a)):
                    c[index(i, a)] = a[i % 8] + 1
        return ib.get()

    a = te.placeholder((8,), "int32", name="A")
    return [a, te.extern((8,), [a], statements, name="C")]


def test_what_is_surely_outside_is_refused():
    with pytest.raises(ExpressionError, match=r"C\[8\].*outside a dimension of 8.*Use 0 to 7"):
        moved(lambda i, a: 8)
    for index in (lambda i, a: i + 1, lambda i, a: i - 1):
        args = moved(index)
        with pytest.raises(LoweringError, match="extern C: C.*of 8 elements"):
            tilewright.build(te.create_schedule(args[-1].op), args, "llvm")
    built(moved(lambda i, a: i + 1, condition=lambda i, a: i < 7))


def test_what_data_may_put_outside_does_nothing():
    """The reference refuses it, a kernel neither reads nor writes there."""
    args = moved(lambda i, a: a[i] * 3)
    s = te.create_schedule(args[-1].op)
    x = np.array([0, 1, -1, 2, 2**29, -(2**29), 3, 1], "int32")
    with pytest.raises(InterpreterError, match="outside the 8 elements"):
        evaluate(s.dag, [x])
    out = nd.array(np.zeros(8, "int32"))
    tilewright.build(s, args, "llvm")(nd.array(x), out)
    assert out.numpy().tolist() == [1, 0, 0, 2, 0, 0, 3, 0]
    built(moved(lambda i, a: a[i], condition=lambda i, a: tir.all(a[i] >= 0, a[i] < 8)))


def test_what_lies_behind_a_tensor_is_no_part_of_it():
    """A workspace that another stage reads behind its end has room there."""
    a, at = te.placeholder((10,), name="A"), te.placeholder((10,), "int32", name="at")
    more = te.compute((10,), lambda i: a[i] + 1.0, name="more")

    def pick(ins, outs):
        ib = tir.ir_builder.create()
        source, index, out = (ib.buffer_ptr(b) for b in (*ins, *outs))
        with ib.for_range(0, 10) as k:
            out[k] = source[index[k]]
        return ib.get()

    picked = te.extern((10,), [more, at], pick, name="picked", dtype="float32")
    twice = te.compute((10,), lambda i: more[i] * 2.0, name="twice")
    out = te.compute((10,), lambda i: twice[i] + 1.0, name="out")
    s = te.create_schedule([picked.op, out.op])
    outer, _ = s[out].split(out.op.axis[0], factor=4)
    s[twice].compute_at(s[out], outer)
    s[twice].vectorize(s[twice].split(twice.op.axis[0], factor=4)[1])
    places = np.array([0, 1, 2, 3, 9, 10, 11, 12, 50, -3], "int32")
    results = [nd.array(np.zeros(10, "float32")) for _ in range(2)]
    program = tilewright.lower(s, [a, at, picked, out], "llvm")
    assert any(b.size > 10 for b in program.workspaces)
    tilewright.build(program, target="llvm")(
        nd.array(np.arange(10, dtype="float32")), nd.array(places), *results
    )
    assert results[0].numpy().tolist() == (np.clip(places, 0, 9) + 1).tolist()


def test_a_condition_is_believed_only_until_it_changes():
    """Under `if left < i` the same condition is no news, unless the body has changed it."""

    def statements(ins, outs):
        ib = tir.ir_builder.create()
        c = ib.buffer_ptr(outs[0])
        left = ib.allocate("int32", 1, "left", "local")
        with ib.for_range(0, 4, name="i") as i:
            c[i] = 0
            left[0] = ins[0][i]
            with ib.if_scope(left[0] < i):
                left[0] = left[0] + 2
                with ib.if_scope(left[0] < i):
                    c[i] = left[0]
        return ib.get()

    a = te.placeholder((4,), "int32", name="A")
    c = te.extern((4,), [a], statements, name="C")
    arrays = [np.array([-9, 0, 1, 0], "int32")]
    (out,) = compared(te.create_schedule(c.op), [a, c], arrays)
    assert out.tolist() == [-7, 0, 0, 2]


def test_where_a_condition_fails_the_other_holds():
    def statements(ins, outs):
        ib = tir.ir_builder.create()
        a, c = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 8, name="i") as i:
            c[i] = 0
        with ib.for_range(0, 8, name="i") as i:
            with ib.if_scope(i < 3):
                c[i + 5] = a[i]
            with ib.else_scope():
                c[i + 2] = a[i - 3]
        return ib.get()

    a = te.placeholder((8,), "int32", name="A")
    c = te.extern((8,), [a], statements, name="C")
    program, x = lower_schedule(te.create_schedule(c.op), Target("llvm")), np.arange(8)
    assert str(program).count("if") == 2  # a guard of its own, behind else
    out = np.zeros(8, "int32")
    run_fast(program, [x.astype("int32"), out])
    assert out.tolist() == [0, 0, 0, 0, 0, 0, 1, 2]


# -- refusals --------------------------------------------------------------------------------------


def test_schedules_leave_statements_alone():
    a = te.placeholder((24,), name="A")
    before = te.compute((24,), lambda i: a[i] * 2.0, name="before")
    mid = te.extern((24,), [before], bubble, name="mid")
    after = te.compute((24,), lambda i: mid[i] + before[i], name="after")
    s = te.create_schedule(after.op)
    axis = s[after].op.axis[0]
    own = "computed on its own, by the loops that its statements have.*ib.for_range"
    reads = "statements of te.extern mid read the whole tensor.*schedule its loops"
    for refused, why in (
        (lambda: s[mid].compute_inline(), own),
        (lambda: s[mid].compute_at(s[after], axis), own),
        (lambda: s.cache_write(mid, "global"), own),
        (lambda: s.cache_read(before, "global", [mid]), own),
        (lambda: s[before].compute_inline(), reads),
        (lambda: s[before].compute_at(s[after], axis), reads),
        (lambda: s[before].storage_align(before.op.axis[0], 8, 1), reads),
    ):
        with pytest.raises(ScheduleError, match=why):
            refused()
    assert not s.steps and s[mid].op.axis == ()
    s.cache_read(mid, "global", [after])
    built([a, after], schedule=s)


def test_tasks_and_records_refuse_statements():
    a = te.placeholder((8,), name="A")
    dag = ComputeDAG([a, te.extern((8,), [a], bubble, name="C")])
    with pytest.raises(SpaceError, match="C is a te.extern, which is not tuned.*create_schedule"):
        task_of_dag(dag, Target("llvm"))
    with pytest.raises(ExpressionError, match="no hash and no JSON.*te.create_schedule"):
        _ = dag.hash
    assert "C = EXTERN(A)" in str(dag) and dag.flop_ct == 0


def test_bounds_are_promised_for_integers_only():
    for kind, infinite in (("int32", False), ("float32", True)):
        a = te.placeholder((8,), kind, name="A")
        dag = ComputeDAG([a, te.extern((8,), [a], bubble, name="C")])
        _, (bound,) = evaluate_with_tolerance(dag, [np.arange(8).astype(kind)])
        assert np.isinf(bound).all() == infinite


def test_argumentsbuffers_stand_for_the_tensors():
    a = te.placeholder((8,), name="A")
    one, two = tir.decl_buffer((8,), "float32", "one"), tir.decl_buffer((8,), name="two")

    def statements(ins, outs):
        assert ins[0].name == "one" and outs[0].name == "two" and outs[0].dtype == "float32"
        ib = tir.ir_builder.create()
        with ib.for_range(0, 8) as i:
            ib.emit(outs[0].vstore(i, ins[0][i]))
        return ib.get()

    built([a, te.extern((8,), [a], statements, in_buffers=[one], out_buffers=[two])])


def test_what_a_body_is_argumentshas_tvms_name():
    seen = []

    def body(ins, outs):
        seen.extend([*ins, *outs])
        return tir.call_packed("named", ins[0], outs[0])

    te.extern((3,), [te.placeholder((3,), name="A")], body)
    assert len(seen) == 2 and all(isinstance(b, te.schedule.Buffer) for b in seen)
