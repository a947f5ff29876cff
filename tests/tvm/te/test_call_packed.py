"""tir.call_packed: Python functions as stages of a module, on arrays over its own memory."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.base.errors import DeviceError, ExpressionError, LoweringError, SpaceError
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.interpreter_memory import InterpreterError
from tilewright.runtime.function_table import get_global_func, register_func
from tilewright.runtime.load import load_module
from tilewright.schedule.task import task_of_dag
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate
from tilewright_tvm import nd, te, tir
from tilewright_tvm.contrib import cblas, random

CALLS = []


@register_func("test.reversed", override=True)
def backwards(source, target, *more):
    CALLS.append((source.shape, target.shape, *more))
    np.from_dlpack(target)[...] = np.from_dlpack(source)[..., ::-1]


def reversed_rows(x, *more, name="back"):
    return te.extern(
        x.shape, [x], lambda ins, outs: tir.call_packed("test.reversed", ins[0], outs[0], *more),
        name=name,
    )  # fmt: skip


def around(shape=(4, 10), factor=None):
    """A stage before the call, one behind it, a second call, and one more."""
    a = te.placeholder(shape, name="A")
    before = te.compute(shape, lambda i, j: a[i, j] + 1.0, name="before")
    back = reversed_rows(before, 3, 0.5, "text", name="back")
    mid = te.compute(shape, lambda i, j: back[i, j] * a[i, j], name="mid")
    again = reversed_rows(mid, name="again")
    last = te.compute(shape, lambda i, j: again[i, j] - back[i, j], name="last")
    s = te.create_schedule(last.op)
    if factor:
        for t in (before, mid, last):
            outer, inner = s[t].split(t.op.axis[1], factor=factor)
            s[t].parallel(s[t].fuse(t.op.axis[0], outer))
            s[t].vectorize(inner)
    return s, a, last


def expected(x):
    back = (x + 1)[:, ::-1]
    return (back * x)[:, ::-1] - back


@pytest.mark.parametrize("factor", [None, 4])
def test_calls_stand_between_kernels(factor, tmp_path):
    s, a, last = around(factor=factor)
    module, x = tilewright.build(s, [a, last]), np.random.rand(4, 10).astype("float32")
    assert str(tilewright.lower(s, [a, last])).count("call test.reversed(") == 2
    module.save(tmp_path / "module")
    for made in (module, load_module(tmp_path / "module")):
        CALLS.clear()
        for _ in range(2):
            out = nd.empty((4, 10))
            made(nd.array(x), out)
            np.testing.assert_allclose(out.numpy(), expected(x), rtol=1e-6)
        assert CALLS == [((4, 10), (4, 10), 3, 0.5, "text"), ((4, 10), (4, 10))] * 2
    timed = module.time_evaluator("main", tilewright.cpu(), number=2, repeat=2)
    assert timed(nd.array(x), out).mean > 0
    assert timed(nd.array(x), out).results[0] > 0


def test_nothing_is_copied():
    """The function gets the caller's own arrays, and the outputs of the call are what it stores."""
    seen = []

    @register_func("test.addresses", override=True)
    def addresses(source, target):
        seen.append([np.from_dlpack(v).ctypes.data for v in (source, target)])
        source.copyto(target)

    a = te.placeholder((8,), name="A")
    c = te.extern((8,), [a], lambda i, o: tir.call_packed("test.addresses", i[0], o[0]), name="C")
    module = tilewright.build(te.create_schedule(c.op), [a, c])
    x, out = nd.array(np.arange(8, dtype="float32")), nd.empty((8,))
    module(x, out)
    assert seen == [[np.from_dlpack(v).ctypes.data for v in (x, out)]]
    assert out.numpy().tolist() == list(range(8))


def test_extents_that_calls_give():
    n = te.size_var("n")
    a = te.placeholder((n, 3), name="A")
    twice = te.compute((n, 3), lambda i, j: a[i, j] * 2.0, name="twice")
    back = reversed_rows(twice, n, n * 2 + 1)
    for args in ([a, back], [te.placeholder((n, 3), name="B"), None]):
        if args[1] is None:
            args[1] = reversed_rows(args[0], n)
        module = tilewright.build(te.create_schedule(args[1].op), args)
        for size in (1, 5):
            CALLS.clear()
            x, out = np.random.rand(size, 3).astype("float32"), nd.empty((size, 3))
            module(nd.array(x), out)
            scale = 2 if args[1] is back else 1
            assert (out.numpy() == (x * scale)[:, ::-1]).all()
            shapes = ((size, 3), (size, 3), size)
            assert [(*shapes, 2 * size + 1) if args[1] is back else shapes] == CALLS
    fixed = ComputeDAG([a, back]).at(n=4)
    assert "call test.reversed(twice, back, 4, 9)" in str(fixed)


def test_several_outputs():
    @register_func("test.parts", override=True)
    def parts(source, order, least):
        values = source.numpy()
        order.copyfrom(np.argsort(values, axis=1).astype("int32"))
        least.copyfrom(values.min(axis=1))

    a = te.placeholder((3, 5), name="A")
    order, least = te.extern(
        [(3, 5), (3,)], [a], lambda i, o: tir.call_packed("test.parts", i[0], *o), name="parts",
        dtype=["int32", "float32"],
    )  # fmt: skip
    picked = te.compute((3,), lambda i: a[i, order[i, 0]] - least[i], name="picked")
    x, out = np.random.rand(3, 5).astype("float32"), nd.array(np.ones(3, "float32"))
    tilewright.build(te.create_schedule(picked.op), [a, picked])(nd.array(x), out)
    assert (out.numpy() == 0).all()


def test_errors_of_functions_reach_the_caller():
    failing = [True]

    @register_func("test.fails", override=True)
    def fails(source, target):
        if failing[0]:
            raise ZeroDivisionError("in the script")
        source.copyto(target)

    a = te.placeholder((4,), name="A")
    c = te.extern((4,), [a], lambda i, o: tir.call_packed("test.fails", i[0], o[0]), name="C")
    module = tilewright.build(te.create_schedule(c.op), [a, c])
    x, out = nd.array(np.ones(4, "float32")), nd.empty((4,))
    with pytest.raises(ZeroDivisionError, match="in the script"):
        module(x, out)
    failing[0] = False
    module(x, out)
    assert out.numpy().tolist() == [1] * 4


def test_products_of_numpys_library():
    rng = np.random.default_rng(0)
    for transa in (False, True):
        for transb in (False, True):
            a = te.placeholder((7, 5) if not transa else (5, 7), name="A")
            b = te.placeholder((5, 6) if not transb else (6, 5), name="B")
            c = cblas.matmul(a, b, transa, transb)
            d = te.compute(c.shape, lambda i, j, c=c: c[i, j] + 1.0, name="D")
            x, y = (rng.random(t.shape).astype("float32") for t in (a, b))
            out = nd.empty((7, 6))
            tilewright.build(te.create_schedule(d.op), [a, b, d])(nd.array(x), nd.array(y), out)
            wanted = (x.T if transa else x) @ (y.T if transb else y) + 1
            np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-6)
    a, b = te.placeholder((2, 3, 4), name="A"), te.placeholder((2, 4, 5), name="B")
    c = cblas.batch_matmul(a, b)
    x, y, out = rng.random((2, 3, 4)), rng.random((2, 4, 5)), nd.empty((2, 3, 5))
    x, y = x.astype("float32"), y.astype("float32")
    tilewright.build(te.create_schedule(c.op), [a, b, c])(nd.array(x), nd.array(y), out)
    np.testing.assert_allclose(out.numpy(), x @ y, rtol=1e-6)
    for wrong in ((a, te.placeholder((2, 3, 5))), (a, te.placeholder((4, 5)))):
        with pytest.raises(ExpressionError, match="have no product.*3 dimensions"):
            cblas.batch_matmul(*wrong)


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_places_in_order(axis, ascending):
    shape = (4, 5, 3)
    fewer = tuple(n for k, n in enumerate(shape) if k != axis % 3)
    a, valid = te.placeholder(shape, name="A"), te.placeholder(fewer, "int32", name="valid")
    name = "tvm.contrib.sort.argsort"
    some = te.extern(
        shape, [a, valid], dtype="int32", name="some",
        fcompute=lambda i, o: tir.call_packed(f"{name}_nms", *i, o[0], axis, ascending),
    )  # fmt: skip
    whole = te.extern(
        shape, [a], dtype="int32", name="whole",
        fcompute=lambda i, o: tir.call_packed(name, i[0], o[0], axis, ascending),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    x, count = rng.integers(0, 4, shape).astype("float32"), rng.integers(0, 6, fewer)
    count = np.minimum(count, shape[axis]).astype("int32")
    outs = [nd.empty(shape, "int32") for _ in range(2)]
    s = te.create_schedule([some.op, whole.op])
    tilewright.build(s, [a, valid, some, whole])(nd.array(x), nd.array(count), *outs)
    signed = np.moveaxis(x if ascending else -x, axis, -1)
    first, all_of_it = (np.moveaxis(o.numpy(), axis, -1) for o in outs)
    assert (all_of_it == np.argsort(signed, axis=-1, kind="stable")).all()
    for at in np.ndindex(fewer):
        n = count[at]
        order = [*np.argsort(signed[at][:n], kind="stable"), *range(n, shape[axis])]
        assert first[at].tolist() == order


# -- refusals --------------------------------------------------------------------------------------


def test_where_functions_are_not_called():
    s, a, last = around()
    for kind in ("cuda", "opencl"):
        with pytest.raises(LoweringError, match="test.reversed is a Python function.*llvm"):
            tilewright.lower(s, [a, last], kind)
    with pytest.raises(ExpressionError, match="test.reversed says what it is.*Build it for llvm"):
        evaluate(s.dag, [np.zeros((4, 10), "float32")])
    program = tilewright.lower(s, [a, last])
    with pytest.raises(InterpreterError, match="it calls the Python function test.reversed"):
        run_fast(program, [np.zeros((4, 10), "float32")] * 2)
    with pytest.raises(SpaceError, match="back is a te.extern, which is not tuned"):
        task_of_dag(s.dag, Target("llvm"))
    module = tilewright.build(s, [a, last])
    with pytest.raises(DeviceError, match="a Python function, is a part of it.*Call the module"):
        module.launches(nd.empty((4, 10)), nd.empty((4, 10)))


def test_a_function_that_nobody_registered():
    a = te.placeholder((4,), name="A")
    c = te.extern((4,), [a], lambda i, o: tir.call_packed("test.nobody", i[0], o[0]), name="C")
    module = tilewright.build(te.create_schedule(c.op), [a, c])
    with pytest.raises(DeviceError, match="'test.nobody'.*register_func"):
        module(nd.empty((4,)), nd.empty((4,)))
    assert get_global_func("test.nobody", allow_missing=True) is None


def test_names_are_taken_once():
    @register_func
    def named_by_itself():
        return 1

    assert get_global_func("named_by_itself") is named_by_itself
    register_func("named_by_itself", named_by_itself)  # again, the same
    with pytest.raises(DeviceError, match="the name is taken.*override=True"):
        register_func("named_by_itself", lambda: 2)
    register_func("named_by_itself", lambda: 2, override=True)
    assert tilewright.get_global_func("named_by_itself")() == 2
    assert tilewright.register_func is register_func
    with pytest.raises(DeviceError, match="it has no name"):
        register_func("", lambda: 1)


def test_wrong_arguments_are_one_error():
    a, other = te.placeholder((4,), name="A"), tir.decl_buffer((4,), name="other")

    def called(*args):
        return te.extern((4,), [a], lambda i, o: tir.call_packed("f", *args, *o), name="C")

    with pytest.raises(ExpressionError, match="A.0. is no buffer, number or text|no buffer"):
        called(a[0])
    with pytest.raises(ExpressionError, match="is no buffer, number or text.*ins and outs"):
        called([1])
    with pytest.raises(ExpressionError, match="f is given other.*List it among the inputs"):
        called(other)
    with pytest.raises(ExpressionError, match="f is not given the output C.*Pass all of outs"):
        te.extern((4,), [a], lambda i, o: tir.call_packed("f", i[0]), name="C")
    with pytest.raises(ExpressionError, match="which no kernel calls.*a te.extern of its own"):
        ib = tir.ir_builder.create()
        ib.emit(tir.call_packed("f", other))


def test_numbers_that_are_drawn_at_each_call():
    drawn = {
        "uniform": random.uniform(2, 3, (40, 50)), "normal": random.normal(3, 4, (40, 50)),
        "randint": random.randint(-2, 3, (40, 50), "int64"),
    }  # fmt: skip
    found = {}
    for name, tensor in drawn.items():
        kernel = tilewright.build(te.create_schedule(tensor.op), [tensor], "llvm")
        results = [nd.empty(tensor.shape, tensor.dtype) for _ in range(2)]
        for result in results:
            kernel(result)
        found[name], again = (r.numpy() for r in results)
        assert (found[name] != again).any()
    assert found["uniform"].min() >= 2 and found["uniform"].max() <= 3
    assert abs(found["normal"].mean() - 3) < 0.5 and abs(found["normal"].std() - 4) < 0.4
    assert set(found["randint"].reshape(-1).tolist()) == {-2, -1, 0, 1, 2}
    with pytest.raises(ExpressionError, match="there is no integer between them"):
        random.randint(3, 3, (2,))
