"""Functions over variables without a type, and where their types come from."""

import numpy as np
import pytest

import tilewright
import tilewright_tvm
from tilewright.base.errors import ModelError
from tilewright_tvm import relay

nn = relay.nn  # by TVM's names: what cannot be made yet waits


def block(x, w, b):
    return nn.relu(nn.bias_add(nn.conv2d(x, w, padding=1), b)) * 2.0


def names(*wanted):
    return [relay.var(name) for name in wanted]


def over(body, *wanted):
    params = names(*wanted)
    return relay.Function(params, body(*params))


def typed_inputs(seed=0):
    rng = np.random.default_rng(seed)
    shapes = {"x": (1, 3, 6, 6), "w": (4, 3, 3, 3), "b": (4,)}
    values = {k: rng.standard_normal(s).astype("float32") for k, s in shapes.items()}
    return [relay.var(k, shape=s) for k, s in shapes.items()], values


def test_it_prints_without_types_and_operators_keep_their_names_and_attributes():
    f = over(block, "x", "w", "b")
    text = f.astext()
    assert "fn (%x, %w, %b) {" in text and "nn.conv2d(%x, %w, padding=1" in text
    conv = nn.conv2d(*names("x", "w"), kernel_size=[3, 3])
    assert isinstance(conv, relay.Call) and conv.op.name == "nn.conv2d"
    assert conv.attrs.kernel_size == [3, 3] and conv.attrs.data_layout == "NCHW"
    assert [a.name_hint for a in conv.args] == ["x", "w"]
    assert "cast" in str(relay.cast(relay.var("x"), "float16"))


def test_equality_sees_operators_attributes_and_variables():
    x, y = names("x", "y")
    equal = relay.analysis.structural_equal
    assert equal(nn.dense(x, y), nn.dense(x, y)) and not equal(nn.dense(x, y), nn.dense(y, x))
    assert not equal(nn.softmax(x, axis=1), nn.softmax(x, axis=2))
    a, b = (over(lambda p, q: p + q, "p", "q") for _ in range(2))
    assert equal(a, b) and not equal(a, over(lambda p, q: q + p, "p", "q"))


def test_a_caller_gives_types():
    f = over(block, "x", "w", "b")
    inputs, values = typed_inputs()
    mod = relay.transform.InferType()(
        tilewright.IRModule.from_expr(relay.Function(inputs, f(*inputs)))
    )
    assert mod["main"].ret_type == relay.TensorType((1, 4, 6, 6))
    assert [p.checked_type for p in mod["main"].body.op.params] == [p.checked_type for p in inputs]
    assert not f.params[0].is_typed  # another caller may give others
    want = relay.evaluate(block(*inputs), values)
    assert np.array_equal(relay.evaluate(relay.Function(inputs, f(*inputs)), values), want)
    library = relay.build(relay.Function(inputs, f(*inputs)), "llvm")
    run = tilewright_tvm.contrib.graph_executor.GraphModule(library["default"](tilewright.cpu()))
    run.run(**values)
    np.testing.assert_allclose(run.get_output(0).numpy(), want, rtol=1e-4, atol=1e-5)


def test_one_function_serves_callers_of_other_types():
    x = relay.var("x")
    f = relay.Function([x], nn.softmax(x))
    a, b = relay.var("a", shape=(2, 3)), relay.var("b", shape=(4, 5, 6))
    both = relay.transform.InferType()(tilewright.IRModule.from_expr(relay.Tuple([f(a), f(b)])))[
        "main"
    ]
    assert [t.shape for t in both.ret_type.fields] == [(2, 3), (4, 5, 6)]


def test_operators_tell_the_types_of_weights_behind_values_that_had_none():
    x, w, b = names("x", "w", "b")
    conv = nn.conv2d(x, w, channels=4, kernel_size=3, padding=1)
    f = relay.Function([x, w, b], nn.bias_add(conv, b))
    data = relay.var("data", shape=(1, 3, 6, 6))
    bound = relay.bind(f, {x: data})
    found = relay.transform.InferType()(tilewright.IRModule.from_expr(bound))["main"]
    types = {p.name_hint: p.checked_type.shape for p in found.params}
    assert types == {"w": (4, 3, 3, 3), "b": (4,), "data": (1, 3, 6, 6)}


@pytest.mark.parametrize(
    "ask",
    [
        lambda f: relay.build(f, "llvm"),
        lambda f: relay.evaluate(f, {"x": np.ones(2), "y": np.ones(2)}),
        lambda f: relay.transform.InferType()(tilewright.IRModule.from_expr(f)),
        lambda f: relay.vm.compile(tilewright.IRModule.from_expr(f), "llvm"),
    ],
)
def test_variables_that_nobody_gives_a_type_are_named(ask):
    x, y = names("x", "y")
    with pytest.raises(
        ModelError, match=r"%x, %y: their shapes are not known.*Give the shapes of the inputs"
    ):
        ask(relay.Function([x, y], nn.dense(x, y) + 1.0))


def test_shapes_are_refused_by_name():
    x, y = names("x", "y")
    with pytest.raises(ModelError, match="shapes of x, y are not known"):
        (x + y).shape  # noqa: B018
    with pytest.raises(ModelError, match="%x: its shape is not known"):
        x.checked_type  # noqa: B018
