"""Networks in half precision: what is cast, what stays float32, how far results may be off."""

import numpy as np
import pytest

from graph.case import function, tensor
from graph.small import image, residual
from tilewright.base.errors import ModelError
from tilewright.graph.evaluate import evaluate, largest_deviation, rounding_tolerance
from tilewright.graph.expr import post_order
from tilewright.graph.traversal import op_name
from tilewright.network.conversion import in_type
from tilewright.runtime.device import device
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright_tvm import relay, transform


def types(mod):
    """Operator name -> the element types of its results."""
    found = {}
    for node in post_order(mod["main"].body):
        if op_name(node):
            found.setdefault(op_name(node), set()).add(str(node.tensor_type.dtype))
    return found


def classifier():
    data = relay.var("data", shape=(1, 4, 8, 8))
    weight = relay.var("weight", shape=(8, 4, 3, 3))
    head = relay.var("head", shape=(10, 8))
    x = relay.nn.relu(relay.nn.conv2d(data, weight, padding=1))
    x = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(x))
    return relay.IRModule.from_expr(
        relay.Function([data, weight, head], relay.nn.softmax(relay.nn.dense(x, head)))
    )


def test_contractions_are_narrow_what_follows_too_and_softmax_is_not():
    found = types(relay.transform.ToMixedPrecision("float16")(classifier()))
    assert found.pop("cast") == {"float16", "float32"}
    assert found.pop("nn.softmax") == {"float32"}
    assert set.union(*found.values()) == {"float16"}


def test_inputs_and_parameters_keep_their_types():
    mod = relay.transform.ToMixedPrecision("bfloat16")(classifier())
    assert {str(p.dtype) for p in mod["main"].params} == {"float32"}


def test_the_type_of_the_result_can_be_kept():
    data, weight = relay.var("data", shape=(2, 4)), relay.var("weight", shape=(3, 4))
    mod = relay.IRModule.from_expr(relay.Function([data, weight], relay.nn.dense(data, weight)))
    convert = relay.transform.ToMixedPrecision("float16")
    assert convert(mod)["main"].body.dtype == "float16"
    option = {"relay.ToMixedPrecision.keep_orig_output_dtype": True}
    with transform.PassContext(config=option):
        assert convert(mod)["main"].body.dtype == "float32"


@pytest.mark.parametrize("size", [1e6, 1e-7])
def test_weights_that_a_half_cannot_hold_stay_float32(size):
    rng = np.random.default_rng(0)
    first, second = (rng.standard_normal((8, 8)).astype("float32") for _ in range(2))
    data = relay.var("data", shape=(2, 8))
    x = relay.nn.dense(relay.nn.dense(data, relay.const(first)), relay.const(second * size))
    mod = relay.IRModule.from_expr(relay.Function([data], x))
    made = in_type(mod, {}, "float16")
    assert types(made)["nn.dense"] == {"float16", "float32"}
    given = rng.standard_normal((2, 8)).astype("float32")
    exact = given.astype("float64") @ first.T @ (second * size).T
    found = evaluate(made, {"data": given})
    np.testing.assert_allclose(found, exact, rtol=1e-2, atol=5e-3 * np.abs(exact).max())
    assert types(in_type(mod, {}, "bfloat16"))["nn.dense"] == {"bfloat16"}


def test_numbers_that_a_half_cannot_hold_are_added_in_float32():
    data, weight = relay.var("data", shape=(2, 4)), relay.var("weight", shape=(3, 4))
    for number, dtype in ((1e5, "float32"), (-3e38, "float16")):  # which fills in a mask
        mask = np.array([[0, 0, 0], [0, -np.inf, number]], "float32")
        x = relay.add(relay.nn.dense(data, weight), relay.const(mask))
        made = in_type(relay.IRModule.from_expr(relay.Function([data, weight], x)), {}, "float16")
        assert (types(made)["nn.dense"], types(made)["add"]) == ({"float16"}, {dtype})
        ones = np.ones((2, 4), "float32"), np.ones((3, 4), "float32")
        found = evaluate(made, dict(zip(("data", "weight"), ones, strict=True)))
        assert np.isfinite(np.asarray(found, "float32")).tolist() == np.isfinite(mask).tolist()


def test_a_value_is_cast_once_however_often_it_is_read():
    data = relay.var("data", shape=(2, 4))
    weights = [relay.var(f"w{k}", shape=(4, 4)) for k in range(2)]
    both = relay.add(*(relay.nn.dense(data, w) for w in weights))
    mod = relay.IRModule.from_expr(relay.Function([data, *weights], both))
    made = relay.transform.ToMixedPrecision()(mod)["main"].body
    casts = [n for n in post_order(made) if op_name(n) == "cast"]
    assert len(casts) == 3


def test_casts_that_users_wrote_stay():
    data, weight = relay.var("data", shape=(2, 4)), relay.var("weight", shape=(3, 4))
    body = relay.nn.relu(relay.cast(relay.nn.dense(data, weight), "float64"))
    mod = relay.IRModule.from_expr(relay.Function([data, weight], body))
    assert relay.transform.ToMixedPrecision()(mod)["main"].body.dtype == "float64"


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "half"])
def test_only_narrow_floats(dtype):
    with pytest.raises(ModelError, match="float16"):
        relay.transform.ToMixedPrecision(dtype)(classifier())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_network_agrees_with_float64_within_what_rounding_explains(dtype):
    mod, params = residual()
    rng = np.random.default_rng(0)
    free = [p for p in mod["main"].params if p.name_hint not in params]
    inputs = {p.name_hint: rng.standard_normal(p.shape).astype(p.dtype) for p in free}
    want = relay.evaluate(mod, {**params, **inputs}, "float64")
    out = relay.evaluate(in_type(mod, params, dtype), inputs)
    tolerance = rounding_tolerance(mod, {**params, **inputs}, dtype)
    error = largest_deviation(out, want)
    assert error <= tolerance < 1000 * np.float64(relay.TensorType((1,), dtype).dtype.eps)
    assert error > tolerance / 200  # the bound is about this network, not about nothing


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["llvm", "cuda", "opencl"])
def test_a_network_runs_in_half_precision_and_from_a_file(kind, dtype, tmp_path):
    dev = device(kind)
    if not dev.exist:
        pytest.skip(f"no {kind} device")
    mod, params = residual()
    (name,) = [p.name_hint for p in mod["main"].params if p.name_hint not in params]
    x = image()
    want = relay.evaluate(mod, {**params, name: x}, "float64")
    tolerance = rounding_tolerance(mod, {**params, name: x}, dtype)
    library = relay.build(in_type(mod, params, dtype), kind)
    assert all(k.verified for k in library.report.kernels)
    library.save(tmp_path / "net")
    for made in (library, relay.load(tmp_path / "net")):  # weights are halves in the file, too
        module = GraphModule(made["default"](dev))
        module.run(**{name: x})
        assert largest_deviation(module.get_output(0).numpy(), want) <= tolerance
    assert {str(c.dtype) for c in library.constants} >= {dtype}


@pytest.mark.slow
def test_parameters_bound_at_build_time_are_converted_there():
    """TVM's spelling: the pass sees no weights, build gets them as float32."""
    mod, params = residual()
    (name,) = [p.name_hint for p in mod["main"].params if p.name_hint not in params]
    half = relay.transform.ToMixedPrecision("float16")(mod)
    library = relay.build(half, "llvm", params)
    module = GraphModule(library["default"](device("cpu")))
    module.run(**{name: image()})
    want = relay.evaluate(mod, {**params, name: image()}, "float64")
    error = largest_deviation(module.get_output(0).numpy(), want)
    assert error <= rounding_tolerance(mod, {**params, name: image()}, "float16")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_goes_through_onnx_and_back(dtype, tmp_path):
    mod, params = residual()
    half = in_type(mod, params, dtype)
    (tmp_path / "net.onnx").write_bytes(relay.to_onnx(half).SerializeToString())
    again, weights = relay.frontend.from_onnx(tmp_path / "net.onnx")
    assert {str(w.dtype) for w in weights.values()} == {dtype}
    (name,) = [p.name_hint for p in again["main"].params if p.name_hint not in weights]
    out = relay.evaluate(again, {**weights, name: image()})
    assert np.array_equal(out, relay.evaluate(half, {half["main"].params[0].name_hint: image()}))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_query_without_keys_is_zero_in_half_precision_too(dtype):
    shapes = {n: (1, 1, 2, 4) for n in "qkv"}
    body = relay.nn.attention(
        *(tensor(n, *s) for n, s in shapes.items()), tensor("m", 2, dtype="bool")
    )
    mod = relay.transform.ToMixedPrecision(dtype)(relay.IRModule.from_expr(function(body)))
    inputs = {n: np.ones(s, "float32") for n, s in shapes.items()}
    found = relay.evaluate(mod, {**inputs, "m": np.zeros(2, bool)})
    assert not np.any(found.astype("float32"))


def test_products_of_narrow_integers_accumulate_in_int32():
    data, weight = (relay.var(n, shape=(2, 8), dtype="int8") for n in ("data", "weight"))
    product = relay.nn.dense(data, weight)
    assert product.dtype == "int32"
    x = np.full((2, 8), 127, np.int8)
    assert (relay.evaluate(product, {"data": x, "weight": x}) == 8 * 127 * 127).all()
    with pytest.raises(ModelError, match="int16"):
        relay.op.call("nn.dense", data, weight, out_dtype="int16")
