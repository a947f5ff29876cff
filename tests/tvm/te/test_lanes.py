"""Vectors in the statements of te.extern: their lanes are what numpy makes of the elements."""

import numpy as np
import pytest

import tilewright
from tilewright.base.errors import ExpressionError, LoweringError
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate
from tilewright_tvm import nd, te, tir


def compared(function, shape, given, want, target, dtype="float32"):
    """A module and the reference of `te.extern(shape, ..., function)` on one array."""
    a = te.placeholder(given.shape, str(given.dtype), name="a")
    c = te.extern(shape, [a], function, name="c", dtype=dtype)
    s = te.create_schedule(c.op)
    dev = tilewright.device(target)
    out = nd.array(np.zeros(shape, dtype), dev)
    tilewright.build(s, [a, c], target)(nd.array(given, dev), out)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-6)
    np.testing.assert_allclose(evaluate(ComputeDAG([a, c]), [given])[0], want, rtol=1e-6)
    return s, a, c


@pytest.mark.parametrize("target", ["llvm", "opencl"])
@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_loads_arithmetic_and_stores(target, lanes):
    kind = f"float32x{lanes}"

    def statements(ins, outs):
        ib = tir.ir_builder.create()
        with ib.for_range(0, 24 // lanes) as i:
            x = ins[0].vload(i * lanes, kind)
            number = tir.Broadcast(i.astype("float32"), lanes)
            y = ib.let("y", tir.max(x * tir.const(2, kind), number))
            ib.emit(outs[0].vstore(i * lanes, tir.if_then_else(y > 1, y, tir.exp(x)) + 1))
        return ib.get()

    x = np.random.default_rng(1).standard_normal(24).astype("float32")
    y = np.maximum(x * 2, np.repeat(np.arange(24 // lanes), lanes).astype("float32"))
    s, a, c = compared(statements, (24,), x, np.where(y > 1, y, np.exp(x)) + 1, target)
    if target == "llvm":
        assert f"<{lanes} x float>" in tilewright.build(s, [a, c], target).get_source("ll")


@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_strides_types_and_two_dimensions(target):
    def statements(ins, outs):
        ib = tir.ir_builder.create()
        p, q = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 3) as i:
            q[tir.Ramp(i * 8, 2, 4)] = p[i, tir.Ramp(7, -1, 4)]
            q[i, tir.Ramp(1, 2, 4)] = tir.const(7, "float32x4")
        return ib.get()

    x = np.arange(24, dtype="int32").reshape(3, 8)
    want = np.full((3, 8), 7, "float32")
    want[:, ::2] = x[:, 7:3:-1]
    compared(statements, (3, 8), x, want, target)


def test_what_is_outside():
    def over_the_end(ins, outs):
        ib = tir.ir_builder.create()
        with ib.for_range(0, 3) as i:
            ib.emit(outs[0].vstore(i * 4, ins[0].vload(i * 4, "float32x4") + 1))
        return ib.get()

    x = np.arange(10, dtype="float32")
    a = te.placeholder((10,), name="a")
    c = te.extern((10,), [a], over_the_end, name="c")
    with pytest.raises(LoweringError, match="it is at 11 of 10 elements"):
        tilewright.lower(te.create_schedule(c.op), [a, c])

    def by_data(ins, outs):
        ib = tir.ir_builder.create()
        with ib.for_range(0, 10) as i:
            ib.emit(outs[0].vstore(i, tir.const(0, "float32x2")))
        with ib.for_range(0, 3) as i:
            at = ins[0][i * 4].astype("int32")
            ib.emit(outs[0].vstore(at, ins[0].vload(at, "float32x4") + 1))
        return ib.get()

    with pytest.raises(LoweringError, match="it is at 10 of 10 elements"):
        tilewright.lower(te.create_schedule(te.extern((10,), [a], by_data).op))
    out = nd.array(np.zeros(10, "float32"))
    made = te.extern((10,), [a], lambda ins, outs: by_length(ins, outs, 9), name="c")
    tilewright.build(te.create_schedule(made.op), [a, made], "llvm")(nd.array(x), out)
    np.testing.assert_array_equal(out.numpy(), x + 1)


def by_length(ins, outs, most):
    ib = tir.ir_builder.create()
    with ib.for_range(0, 3) as i:
        at = te.minimum(ins[0][i * 4].astype("int32"), most)
        ib.emit(outs[0].vstore(at, ins[0].vload(at, "float32x4") + 1))
    return ib.get()


def test_refusals():
    a = te.placeholder((8,), name="a")

    def written(statement):
        def statements(ins, outs):
            ib = tir.ir_builder.create()
            statement(ib, ins[0], outs[0])
            return ib.get()

        return te.extern((8,), [a], statements)

    with pytest.raises(ExpressionError, match="4 lanes are stored to 2 places"):
        written(lambda ib, x, y: ib.emit(y.vstore(tir.Ramp(0, 1, 2), x.vload(0, "float32x4"))))
    with pytest.raises(ExpressionError, match="its elements are float32, not int32x4"):
        written(lambda ib, x, y: ib.emit(y.vstore(0, x.vload(0, "int32x4"))))
    with pytest.raises(ExpressionError, match="is no condition"):
        written(lambda ib, x, y: ib.if_scope(x.vload(0, "float32x4") > 0).__enter__())
    with pytest.raises(ExpressionError, match="is a vector, and elements are single numbers"):
        te.compute((8,), lambda i: a[i] + tir.const(1, "float32x4"))
    with pytest.raises(ExpressionError, match="dtype 'float32y4' is not supported"):
        tir.const(1, "float32y4")
