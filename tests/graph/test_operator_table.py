"""Every row of the operator table: typed, documented, and the same thing to numpy, te and ONNX."""

import numpy as np
import onnxruntime
import pytest

from graph.cases import CASES, Case, function, random_inputs
from tilewright.base.errors import ModelError
from tilewright.graph import passes
from tilewright.graph.expr import post_order
from tilewright.graph.op import TABLE
from tilewright.models.onnx.export import EXPORTERS
from tilewright.models.onnx.ops import CONVERTERS
from tilewright.network.computation import compute_dag
from tilewright.te.evaluate import evaluate
from tilewright_tvm import relay

every_case = pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
in_onnx = pytest.mark.parametrize("case", [c for c in CASES if c.in_onnx], ids=lambda c: c.id)


def test_every_row_has_a_case_a_story_and_a_way_to_onnx():
    assert {c.op for c in CASES} == set(TABLE)
    for row in TABLE.values():
        assert row.doc.endswith("."), row.name
        assert row.name in EXPORTERS, row.name
        for name in row.onnx:
            assert name in CONVERTERS, name


@pytest.mark.slow
@every_case
def test_numpy_gives_the_inferred_type(case: Case):
    f = function(case.build())
    value = relay.evaluate(f, random_inputs(f))
    assert value.shape == f.body.shape
    assert value.dtype.name == f.body.dtype


@pytest.mark.sampled(168)
@pytest.mark.slow
@every_case
def test_topi_computes_what_numpy_does(case: Case):
    f = function(case.build())
    inputs = random_inputs(f)
    fused = passes.fuse(relay.IRModule.from_expr(f))["main"]
    groups = [n for n in post_order(fused.body) if isinstance(n, relay.Call)]
    whole, values = f, [inputs[p.name_hint] for p in f.params]
    if groups == [fused.body] and isinstance(fused.body.op, relay.Function):
        whole = fused.body.op
        values = [inputs[a.name_hint] for a in fused.body.args]
    # else views, and batch_norm's tuple: no kernel of their own, but a te form
    found = te_value(whole, values)
    np.testing.assert_allclose(found, relay.evaluate(f, inputs), rtol=2e-5, atol=1e-5)


def te_value(f, values):
    (found,) = evaluate(compute_dag(f), values)
    return found


@pytest.mark.sampled(54)
@pytest.mark.slow
@in_onnx
def test_onnxruntime_computes_what_numpy_does(case: Case):
    f = function(case.build())
    inputs = random_inputs(f)
    model = relay.to_onnx(f)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (found,) = session.run(None, inputs)
    np.testing.assert_allclose(found, relay.evaluate(f, inputs), rtol=2e-5, atol=1e-5)


@pytest.mark.sampled(152)
@pytest.mark.slow
@in_onnx
def test_onnx_round_trip_keeps_the_meaning(case: Case):
    f = function(case.build())
    inputs = random_inputs(f)
    again, params = relay.frontend.from_onnx(relay.to_onnx(f))
    found = relay.evaluate(again, {**inputs, **params})
    np.testing.assert_allclose(found, relay.evaluate(f, inputs), rtol=2e-5, atol=1e-5)


def test_what_onnx_has_no_operator_for():
    for case in CASES:
        if not case.in_onnx:
            with pytest.raises(ModelError, match=f"{case.op}.*no operator for it"):
                relay.to_onnx(function(case.build()))


def test_te_is_really_asked():
    """A wrong computation of a row would be seen: te's value differs when the input does."""
    f = function(CASES[0].build())
    values = [random_inputs(f)["x"]]
    assert not np.allclose(te_value(f, values), te_value(f, [values[0] + 1]))
