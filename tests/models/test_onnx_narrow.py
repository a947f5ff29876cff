"""Element types of ONNX that networks do not have, and inputs that are optional."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.test_onnx import model, node
from tilewright.base.errors import ModelError
from tilewright.models.onnx.values import WIDER
from tilewright.runtime.device import cpu
from tilewright_tvm import nd, relay
from tilewright_tvm.contrib import graph_executor

FLOATS = {
    "float8_e4m3fn": 448.0, "float8_e4m3fnuz": 240.0, "float8_e5m2": 57344.0,
    "float8_e5m2fnuz": 57344.0,
}  # fmt: skip
from_onnx = relay.frontend.from_onnx


def number(kind: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(getattr(ml_dtypes, kind, kind))))


def typed(proto: onnx.ModelProto, *kinds: str, output: str = "float32") -> onnx.ModelProto:
    """`proto` with its inputs and its output of other element types."""
    for info, kind in zip(proto.graph.input, kinds, strict=True):
        info.type.tensor_type.elem_type = number(kind)
    proto.graph.output[0].type.tensor_type.elem_type = number(output)
    return proto


def both(proto: onnx.ModelProto, **values: np.ndarray) -> np.ndarray:
    """The result, evaluated and compiled, which are equal to the bit."""
    mod, params = from_onnx(proto)
    found = np.asarray(relay.evaluate(mod, {**values, **params}))
    library = relay.build(mod, "llvm", params=params, verify=False)
    module = graph_executor.GraphModule(library["default"](cpu()))
    for name, value in values.items():
        module.set_input(name, nd.array(value))
    module.run()
    built = module.get_output(0).numpy()
    np.testing.assert_array_equal(built, found)
    there = ~np.isnan(found)
    np.testing.assert_array_equal(np.signbit(built)[there], np.signbit(found)[there])
    return found


def numbers(kind: str) -> np.ndarray:
    """Every number of a type of 8 bits, what lies halfway between two, the float32 on both sides
    of these, and what is far outside."""
    held = np.arange(256).astype("uint8").view(getattr(ml_dtypes, kind)).astype("float32")
    held = np.unique(held[np.isfinite(held)])
    middle = (held[1:] + held[:-1]) / 2
    near = np.concatenate([held, middle, [FLOATS[kind] * f for f in (1.01, 1.07, 1.2, 4)]])
    near = near.astype("float32")
    sides = [np.nextafter(near, np.float32(s * np.inf)) for s in (1, -1)]
    rest = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30], "float32")
    return np.concatenate([near, -near, *sides, rest])


@pytest.mark.slow
@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("kind", FLOATS)
def test_floats_of_eight_bits_round_to_the_nearest(kind, saturate):
    x = numbers(kind)
    attrs = {} if saturate else {"saturate": 0}
    nodes = [node("Cast", ["x"], "c", to=number(kind), **attrs), node("Cast", ["c"], to=1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = np.clip(x, -FLOATS[kind], FLOATS[kind]) if saturate else x
        wanted = own.astype(getattr(ml_dtypes, kind)).astype("float32")
    found = both(model(nodes, {"x": [*x.shape]}, opset=21), x=x)
    np.testing.assert_array_equal(found, wanted)
    there = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found)[there], np.signbit(wanted)[there])


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "low", "high"), [
    ("int4", -8, 7), ("uint4", 0, 15), ("int2", -2, 1), ("uint2", 0, 3),
])  # fmt: skip
def test_integers_of_a_few_bits_wrap_when_cast_and_end_when_quantised(kind, low, high):
    x = np.linspace(-40, 40, 161).astype("float32")
    cast = [node("Cast", ["x"], "c", to=number(kind)), node("Cast", ["c"], to=1)]
    found = both(model(cast, {"x": [161]}, opset=25), x=x)
    np.testing.assert_array_equal(found, (np.trunc(x) - low) % (high - low + 1) + low)
    proto = model(
        [node("QuantizeLinear", ["x", "s"], "q", output_dtype=number(kind)),
         node("DequantizeLinear", ["q", "s"])],
        {"x": [161]}, {"s": np.float32(2)}, 25,
    )  # fmt: skip
    np.testing.assert_array_equal(both(proto, x=x), np.clip(np.round(x / 2), low, high) * 2)


def test_quantised_values_are_moved_between():
    kind = ml_dtypes.float8_e4m3fn
    x = np.random.default_rng(0).standard_normal((3, 4)).astype("float32") * 9
    scale = np.array([0.1, 2, 0.03], "float32")
    proto = model(
        [node("QuantizeLinear", ["x", "s", "z"], "q", axis=0),
         node("Transpose", ["q"], "t", perm=[1, 0]), node("Reshape", ["t", "n"], "r"),
         node("DequantizeLinear", ["r", "s", "z"], axis=2)],
        {"x": [3, 4]}, {"s": scale, "n": np.array([2, 2, 3])}, 21,
    )  # fmt: skip
    proto.graph.initializer.append(numpy_helper.from_array(np.zeros(3, kind), "z"))
    held = (x / scale[:, None]).astype(kind).astype("float32")
    wanted = (held.T * scale).reshape(2, 2, 3)
    np.testing.assert_allclose(both(proto, x=x), wanted, rtol=1e-6)


@pytest.mark.parametrize("kind", ["float8_e5m2", "int4", "uint2", "float4_e2m1fn"])
def test_inputs_and_results_come_in_the_wider_type(kind):
    held = np.arange(3).astype(getattr(ml_dtypes, kind))
    proto = typed(model([node("Reshape", ["x", "n"])], {"x": [3]}, {"n": np.array([3, 1])}, 25),
                  kind, output=kind)  # fmt: skip
    found = both(proto, x=held.astype(WIDER[kind]))
    assert found.dtype == WIDER[kind] and found[:, 0].tolist() == [0, 1, 2]


@pytest.mark.slow
def test_what_computes_with_such_numbers_is_refused():
    made = [node("Cast", ["x"], "c", to=TensorProto.FLOAT8E5M2), node("Relu", ["c"])]
    with pytest.raises(ModelError, match="float8_e5m2"):
        from_onnx(model(made, {"x": [3]}, opset=21))
    with pytest.raises(ModelError, match="converts to float8_e8m0fnu"):
        from_onnx(model([node("Cast", ["x"], to=TensorProto.FLOAT8E8M0)], {"x": [3]}, opset=25))
    zero = numpy_helper.from_array(np.ones(1, ml_dtypes.float8_e5m2), "z")
    proto = model([node("QuantizeLinear", ["x", "s", "z"])], {"x": [3]}, {"s": np.float32(1)}, 21)
    proto.graph.initializer.append(zero)
    with pytest.raises(ModelError, match="zero point is not 0"):
        from_onnx(proto)


def optional(has: str, empty: bool = False) -> onnx.ModelProto:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [3])
    x = helper.make_value_info("x", helper.make_optional_type_proto(tensor))
    kind = TensorProto.BOOL if has == "OptionalHasElement" else TensorProto.FLOAT
    y = helper.make_tensor_value_info("y", kind, [] if has == "OptionalHasElement" else [3])
    graph = helper.make_graph([helper.make_node(has, ["x"], ["y"])], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def test_an_optional_input_is_there_unless_the_import_is_told_otherwise():
    x = np.arange(3, dtype="float32")
    np.testing.assert_array_equal(both(optional("OptionalGetElement"), x=x), x)
    mod, _ = from_onnx(optional("OptionalHasElement"))
    assert relay.evaluate(mod, {"x": x} if mod["main"].params else {})
    mod, _ = from_onnx(optional("OptionalHasElement"), params={"x": None})
    assert not relay.evaluate(mod, {})


@pytest.mark.parametrize("lengths", [None, [3, 1]])
@pytest.mark.parametrize("back", [False, True])
def test_a_scan_of_batches_as_before_opset_9(lengths, back):
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "stuv"]
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "t"], ["u"]), helper.make_node("Neg", ["u"], ["v"])],
        "body", infos[:2], infos[2:],
    )  # fmt: skip
    first = "" if lengths is None else "n"
    scan = helper.make_node("Scan", [first, "s0", "x"], ["last", "y"], body=body,
                            num_scan_inputs=1, directions=[int(back)])  # fmt: skip
    weights = {} if lengths is None else {"n": np.array(lengths)}
    proto = model([scan], {"s0": [2, 2], "x": [2, 3, 2]}, weights, 8, outputs=("last", "y"))
    rng = np.random.default_rng(1)
    s0, x = (rng.standard_normal(s).astype("float32") for s in ((2, 2), (2, 3, 2)))
    mod, params = from_onnx(proto)
    last, y = relay.evaluate(mod, {"s0": s0, "x": x, **params})
    for b, n in enumerate(lengths or [3, 3]):
        steps = x[b, :n][::-1] if back else x[b, :n]
        sums = s0[b] + np.cumsum(steps, 0)
        np.testing.assert_allclose(last[b], sums[-1], rtol=1e-5)
        np.testing.assert_allclose(y[b], np.concatenate([-sums, np.zeros((3 - n, 2))]), rtol=1e-5)


def scan(opset, states, sources, lengths=None, outputs=2):
    """A model of one Scan that adds up `sources`; its body gives `outputs` values."""
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "stuv"]
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "t"], ["u"]), helper.make_node("Neg", ["u"], ["v"])],
        "body", values[:2], values[2 : 2 + outputs],
    )  # fmt: skip
    head = [] if opset > 8 else ["" if lengths is None else "n"]
    made = helper.make_node("Scan", [*head, "s", "x"], ["y", "z"], body=body, num_scan_inputs=1)
    weights = {} if lengths is None else {"n": np.array(lengths)}
    return model([made], {"s": states, "x": sources}, weights, opset, outputs=("y", "z"))


@pytest.mark.parametrize(
    ("proto", "reason"),
    [
        (scan(8, [2, 2], [2, 3, 2], [4, 1]), "lengths .4, 1. of its sequences"),
        (scan(8, [2, 2], [2, 3, 2], [3]), "lengths .3. of its sequences do not fit 2"),
        (scan(8, [2, 2], [2, 3, 2], [1.5, np.nan]), "lengths .1.5, nan. of its sequences"),
        (scan(8, [2, 2], [2]), "batches and lengths do not fit"),
        (scan(8, [2, 2], []), "batches and lengths do not fit"),
        (scan(8, [], [2, 3, 2]), "batches and lengths do not fit"),
        (scan(8, [3, 2], [2, 3, 2]), "batches and lengths do not fit"),
        (scan(8, [0, 2], [0, 3, 2]), "0 sequences of 3"),
        (scan(8, [2, 2], [2, 0, 2]), "2 sequences of 0"),
        (scan(8, [2, 2], [2, 3, 2], outputs=0), "body gives 0 of 1 states"),
        (scan(11, [2], [3, 2], outputs=0), "body gives 0 of 1 states"),
    ],
)
def test_a_scan_that_does_not_fit_is_refused(proto, reason):
    with pytest.raises(ModelError, match=reason):
        from_onnx(proto)
