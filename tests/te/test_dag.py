"""`ComputeDAG`: order, text, flops, hash, JSON, pickling."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as S
from tests.tiers import examples
from tilewright import te
from tilewright.base.errors import ExpressionError, TilewrightError
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate, random_inputs

LAYER = """\
data = PLACEHOLDER [1, 512, 7, 7]
pad_temp(i0, i1, i2, i3) = tir.if_then_else(((((i2 >= 1) && (i2 < 8)) && (i3 >= 1)) && (i3 < 8)), \
data[i0, i1, (i2 - 1), (i3 - 1)], 0f)
kernel = PLACEHOLDER [512, 512, 3, 3]
compute(nn, ff, yy, xx) += (pad_temp[nn, rc, (yy + ry), (xx + rx)]*kernel[ff, rc, ry, rx])
bias = PLACEHOLDER [1, 512, 1, 1]
T_add(ax0, ax1, ax2, ax3) = (compute[ax0, ax1, ax2, ax3] + bias[ax0, ax1, 0, 0])
compute(i0, i1, i2, i3) = max(T_add[i0, i1, i2, i3], 0f)
"""


def layer(epilogue=True):
    """The last 3x3 convolution of ResNet-50, as the auto-scheduler tutorial declares it."""
    data = te.placeholder((1, 512, 7, 7), name="data")
    kernel = te.placeholder((512, 512, 3, 3), name="kernel")
    bias = te.placeholder((1, 512, 1, 1), name="bias")
    rc, ry, rx = (te.reduce_axis((0, e), n) for e, n in ((512, "rc"), (3, "ry"), (3, "rx")))
    pad = te.compute(
        (1, 512, 9, 9),
        lambda *i: te.if_then_else(
            te.all(i[2] >= 1, i[2] < 8, i[3] >= 1, i[3] < 8),
            data[i[0], i[1], i[2] - 1, i[3] - 1],
            te.const(0.0, "float32"),
        ),
        name="pad_temp",
    )
    conv = te.compute(
        (1, 512, 7, 7),
        lambda nn, ff, yy, xx: te.sum(
            pad[nn, rc, yy + ry, xx + rx] * kernel[ff, rc, ry, rx], axis=[rc, ry, rx]
        ),
        name="compute",
    )
    if not epilogue:
        return ComputeDAG([data, kernel, conv])
    add = te.compute(
        conv.shape, lambda ax0, ax1, ax2, ax3: conv[ax0, ax1, ax2, ax3] + bias[ax0, ax1, 0, 0],
        name="T_add",
    )  # fmt: skip
    relu = te.compute(conv.shape, lambda *i: te.maximum(add(*i), te.const(0.0, "float32")))
    return ComputeDAG([data, kernel, bias, relu])


def test_text_of_the_tutorial_layer():
    assert str(layer()) == LAYER


def test_flops_of_the_tutorial_layers():
    assert layer(epilogue=False).flop_ct == 231501312
    assert layer().flop_ct == 231501312 + 2 * 512 * 49


def test_text_of_reductions_and_choices():
    text = str(S.softmax(2, 3)).splitlines()
    assert text[1] == "T_softmax_maxelem(i) max= x[i, k]"
    assert text[2] == "T_softmax_exp(i, j) = tir.exp((x[i, j] - T_softmax_maxelem[i]))"
    assert str(S.reduction((2, 3), (1,), "norm")).splitlines()[1] == "out(i0) norm= x[i0, r1]"
    chosen = te.compute((2,), lambda i: te.select(i < 1, 1.0, 2.0), name="c")
    assert str(ComputeDAG(chosen)) == "c(i) = select((i < 1), 1f, 2f)\n"


def test_arguments_keep_their_order_and_unlisted_inputs_come_first():
    a, b = te.placeholder((2,), name="a"), te.placeholder((2,), name="b")
    c = te.compute((2,), lambda i: a[i] + b[i], name="c")
    assert ComputeDAG([b, c, a]).args == (b, c, a)
    assert ComputeDAG(c).args == (a, b, c)
    assert ComputeDAG([b, c]).args == (a, b, c)


def test_consumers_outputs_and_names():
    dag = layer()
    names = dag.unique_names()
    assert [names[op] for op in dag.ops] == [
        "data", "pad_temp", "kernel", "compute", "bias", "T_add", "compute_1",
    ]  # fmt: skip
    data, pad = dag.ops[0], dag.ops[1]
    assert dag.consumers(data) == (pad,)
    assert [t.name for t in S.two_outputs(2, 3).outputs] == ["total", "normalised"]


@pytest.mark.slow
@examples(40)
@given(S.dags())
def test_json_round_trip(drawn):
    dag, _ = drawn
    data = json.loads(json.dumps(dag.to_json()))
    copy = ComputeDAG.from_json(data)
    assert str(copy) == str(dag)
    assert copy.to_json() == dag.to_json()
    assert copy.hash == dag.hash
    assert copy.flop_ct == dag.flop_ct
    inputs = random_inputs(dag, 0)
    for a, b in zip(evaluate(copy, inputs), evaluate(dag, inputs), strict=True):
        assert np.array_equal(a, b, equal_nan=True)


@examples(30)
@given(S.dags())
def test_pickle_round_trip(drawn):
    dag, _ = drawn
    copy = pickle.loads(pickle.dumps(dag))
    assert str(copy) == str(dag) and copy.hash == dag.hash


def named(x, y, out, axis, reduced, reducer):
    a, b = te.placeholder((3, 4), name=x), te.placeholder((4,), name=y)
    k = te.reduce_axis((0, 4), reduced)
    combine = te.comm_reducer(lambda p, q: p + q - p * q, lambda t: te.const(0, t), name=reducer)
    first = te.compute((3, 4), lambda *i: a(*i) * b(i[1]), name=out)
    namespace = {"te": te, "first": first, "k": k, "combine": combine}
    element = eval(f"lambda {axis}: combine(first[{axis}, k], axis=k)", namespace)
    return ComputeDAG([a, b, te.compute((3,), element, name=out)])


def test_hash_ignores_names():
    one = named("a", "b", "c", "i", "k", "either")
    two = named("weight", "bias", "compute", "row", "rv", "union")
    assert str(one) != str(two)
    assert one.hash == two.hash


def test_hash_sees_shapes_types_structure_and_argument_order():
    base = S.matmul(2, 3, 4)
    a, b, c = base.args
    others = [
        S.matmul(2, 3, 5), S.matmul(2, 3, 4, transposed="nt"), S.matmul(2, 3, 4, dtype="float64"),
        S.matmul(2, 3, 4, epilogue="relu"), ComputeDAG([b, a, c]),
    ]  # fmt: skip
    assert len({d.hash for d in (base, *others)}) == 1 + len(others)
    assert base.hash == S.matmul(2, 3, 4).hash


def test_a_reducer_named_like_a_builtin_one_stays_itself():
    x = te.placeholder((5,), name="x")
    k = te.reduce_axis((0, 5), "k")
    fake = te.comm_reducer(lambda a, b: a + b - a * b, lambda t: te.const(0, t), name="sum")
    real = te.comm_reducer(lambda a, b: a + b, lambda t: te.const(0, t), name="sum")
    dags = [
        ComputeDAG(te.compute((1,), lambda i, f=f: f(x[k], axis=k), name="y"))
        for f in (fake, real, te.sum)
    ]
    inputs = [np.full(5, 0.5)]
    copies = [ComputeDAG.from_json(d.to_json()) for d in dags]
    assert [evaluate(d, inputs)[0][0] for d in copies] == [1 - 2**-5, 2.5, 2.5]
    assert dags[0].hash != dags[1].hash == dags[2].hash


def test_constants_keep_infinities_and_types():
    x = te.placeholder((3,), name="x")
    out = te.compute(
        (3,), lambda i: te.if_then_else(i > 0, te.maximum(x[i], float("-inf")), 0.1), name="y"
    )
    dag = ComputeDAG(out)
    copy = ComputeDAG.from_json(json.loads(json.dumps(dag.to_json())))
    assert str(copy) == str(dag) and copy.hash == dag.hash


@examples(40)
@given(S.dags(), st.data())
def test_what_is_no_computation_is_one_error(drawn, data):
    """Anything in the JSON becomes something else: an error of ours, or another computation."""
    dag, _ = drawn
    changed = json.loads(json.dumps(dag.to_json()))
    places = list(_places(changed))
    owner, key = data.draw(st.sampled_from(places))
    owner[key] = data.draw(st.sampled_from([None, -1, 0, 10**20, 1.5, "max", "", [], {}, [[]]]))
    try:
        found = ComputeDAG.from_json(changed)
    except TilewrightError:
        return
    assert len(found.hash) == 32


def _places(part):
    for key in part if isinstance(part, dict) else range(len(part)):
        yield part, key
        if isinstance(part[key], (dict, list)):
            yield from _places(part[key])


@pytest.mark.parametrize("at", [1, 2, 3, 5, 6, 7])
@pytest.mark.parametrize("value", [None, 3, "x", [], {}, 1.5, [[None]]])
def test_each_part_of_an_operation_is_checked(at, value):
    x = te.placeholder((4,), name="x")
    data = ComputeDAG(te.compute((4,), lambda i: x[i] * 2.0, name="y")).to_json()
    data["ops"][1][at] = value
    try:
        ComputeDAG.from_json(data).named_as(data)
    except ExpressionError:
        return
    assert type(value) is type({1: "y", 3: 1, 6: "", 7: {}}[at])


def test_names_of_an_equal_computation():
    def square(name, axis):
        x = te.placeholder((4,), name="x")
        return ComputeDAG(te.compute((4,), lambda i: x[i] * x[i], name=name).op.output_tensor)

    a, b = square("a", "i"), square("b", "i")
    assert a.named_as(a.to_json()) is a
    assert str(a.named_as(b.to_json())) == str(b)
    for broken in ({}, {"ops": []}, {"ops": [["placeholder", 3, []], ["compute", "b", []]]}):
        with pytest.raises(ExpressionError, match="not an equal one"):
            a.named_as(broken)


def test_inputs_that_nobody_named_are_told_apart() -> None:
    a, b = te.placeholder((3,)), te.placeholder((3,))
    dag = te.ComputeDAG([a, b, te.compute((3,), lambda i: a[i] - b[i])])
    assert [op.name for op in dag.placeholders] == ["placeholder", "placeholder_1"]
    assert te.ComputeDAG.from_json(dag.to_json()).hash == dag.hash


def test_a_reducer_combines_two_values() -> None:
    total = te.comm_reducer(lambda x, y: x + y, lambda t: te.const(0, t))
    x, y = te.var("x"), te.var("y")
    assert total(x, y) is x + y
