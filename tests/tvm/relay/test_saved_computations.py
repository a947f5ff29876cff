"""ir.save_json of tensors, operations and schedules: what is loaded is the same computation."""

import json
import pickle

import numpy as np
import pytest

import tilewright
from tilewright.base.errors import ExpressionError, ModelError
from tilewright_tvm import ir, nd, te


def product(m, n, depth):
    a, b = te.placeholder((m, depth), name="A"), te.placeholder((n, depth), name="B")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="C")
    return a, b, te.compute((m, n * 2), lambda i, j: c[i, j // 2] + depth, name="D")


@pytest.mark.parametrize("open_extents", [False, True])
def test_tensors_and_schedules(open_extents):
    m, n, k = (te.size_var(x) for x in "mnk") if open_extents else (4, 5, 6)
    *_, d = product(m, n, k)
    loaded = ir.load_json(ir.save_json(d))
    assert str(loaded) == str(d) and str(te.ComputeDAG(loaded)) == str(te.ComputeDAG(d))
    assert ir.load_json(ir.save_json(d.op)).name == "D"
    s = te.create_schedule(d.op)
    _, y = s[d].split(d.op.axis[1], 4)
    s[d].vectorize(y)
    for same in (ir.load_json(ir.save_json(s)), pickle.loads(pickle.dumps(s))):
        assert isinstance(same, te.schedule.Schedule) and str(same) == str(s)
        a, b = (st.tensor for st in same.stages[:2])
        extents = [v for v in same.dag.symbols if str(v.attr) != "m"]
        module = tilewright.build(same, [a, b, same.outputs[0].output(0), *extents], "llvm")
        given = [np.random.rand(*shape).astype("float32") for shape in ((4, 6), (5, 6))]
        out = nd.array(np.zeros((4, 10), "float32"))
        values = {"n": 5, "k": 6}
        module(*map(nd.array, given), out, *(values[str(v.attr)] for v in extents))
        want = np.repeat(given[0] @ given[1].T, 2, axis=1) + 6
        np.testing.assert_allclose(out.numpy(), want, rtol=1e-5)


def test_several_tensors_and_scans():
    a = te.placeholder((3, 4), name="a")
    two = te.compute((3, 4), lambda i, j: (a[i, j] + 1, a[i, j] * 2), name="two")
    assert ir.load_json(ir.save_json(two[1])).value_index == 1
    state = te.placeholder((3, 4), name="state")
    first = te.compute((1, 4), lambda _, i: a[0, i])
    scan = te.scan(first, te.compute((3, 4), lambda t, i: state[t - 1, i] + a[t, i]), state)
    assert isinstance(ir.load_json(ir.save_json(scan.op)), te.ScanOp)


def test_what_is_refused():
    *_, d = product(te.var("m"), 5, 6)
    with pytest.raises(ExpressionError, match="m is a variable"):
        te.ComputeDAG(d).to_json()
    with pytest.raises(ExpressionError, match="m is a variable"):
        _ = te.ComputeDAG(d).hash
    data = te.ComputeDAG(d).to_json(open_extents=True)
    data["ops"][0][2][0] = ["cast", "float32", ["symbol", 0]]
    with pytest.raises(ExpressionError, match="is no extent"):
        te.ComputeDAG.from_json(data)
    with pytest.raises(ModelError, match="it is no te.Tensor"):
        ir.load_json(json.dumps({"tilewright": "te.Tensor"}))
    with pytest.raises(ModelError, match="it is no network, tensor or schedule"):
        ir.save_json(3)
