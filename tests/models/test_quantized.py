"""Quantised networks: what onnxruntime's quantiser writes gives onnxruntime's results."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

import tilewright
from tilewright.base.dtype import DType
from tilewright.base.errors import ModelError
from tilewright_tvm import nd, relay
from tilewright_tvm.contrib import graph_executor

RNG = np.random.default_rng(0)


def convnet() -> onnx.ModelProto:
    """Two convolutions, a pooling and a matrix product."""
    weights = {
        "w1": RNG.normal(size=(8, 3, 3, 3)) * 0.3, "b1": RNG.normal(size=8) * 0.1,
        "w2": RNG.normal(size=(8, 8, 3, 3)) * 0.2, "w3": RNG.normal(size=(8, 5)) * 0.4,
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c2", "c2"], ["a2"]),
        helper.make_node("GlobalAveragePool", ["a2"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "w3"], ["y"]),
    ]
    kind = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", kind, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", kind, [1, 5])],
        [numpy_helper.from_array(w.astype("float32"), n) for n, w in weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


class Samples(CalibrationDataReader):
    def __init__(self) -> None:
        self.left = [{"x": image()} for _ in range(4)]

    def get_next(self):
        return self.left.pop() if self.left else None


def image() -> np.ndarray:
    return RNG.normal(size=(1, 3, 8, 8)).astype("float32")


def on_cpu(lib):
    return graph_executor.GraphModule(lib["default"](tilewright.cpu()))


def built(path, target="llvm"):
    mod, params = relay.frontend.from_onnx(str(path))
    module = on_cpu(relay.build(mod, target, params=params))

    def run(x):
        module.set_input("x", nd.array(x))
        module.run()
        return module.get_output(0).numpy()

    return run, mod, params


def peer(path):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options)
    return lambda x: session.run(None, {"x": x})[0]


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "per_channel", "activations"),
    [
        (QuantFormat.QDQ, False, QuantType.QUInt8),
        (QuantFormat.QDQ, True, QuantType.QInt8),
        (QuantFormat.QOperator, False, QuantType.QUInt8),
    ],
)
def test_a_network_quantised_by_onnxruntime(tmp_path, form, per_channel, activations):
    source, path = tmp_path / "net.onnx", tmp_path / "quantised.onnx"
    onnx.save(convnet(), source)
    quantize_static(
        source, path, Samples(), quant_format=form, per_channel=per_channel,
        op_types_to_quantize=["Conv", "MatMul"] if form is QuantFormat.QOperator else None,
        activation_type=activations, weight_type=QuantType.QInt8,
    )  # fmt: skip
    kinds = {n.op_type for n in onnx.load(path).graph.node}
    assert "QLinearConv" in kinds if form is QuantFormat.QOperator else "QuantizeLinear" in kinds
    run, mod, params = built(path)
    reference = peer(path)
    for _ in range(3):
        x = image()
        want = reference(x)
        # a value between two integers may go either way: a step of the result's scale
        step = np.abs(want).max() / 100
        np.testing.assert_allclose(run(x), want, atol=2 * step)
        np.testing.assert_allclose(relay.evaluate(mod, {**params, "x": x}), want, atol=2 * step)


@pytest.mark.slow
def test_a_network_quantised_as_it_runs(tmp_path):
    source, path = tmp_path / "net.onnx", tmp_path / "quantised.onnx"
    onnx.save(convnet(), source)
    quantize_dynamic(source, path, weight_type=QuantType.QUInt8, op_types_to_quantize=["MatMul"])
    kinds = {n.op_type for n in onnx.load(path).graph.node}
    assert {"DynamicQuantizeLinear", "MatMulInteger"} <= kinds
    run, _, _ = built(path)
    x = image()
    np.testing.assert_allclose(run(x), peer(path)(x), rtol=0.02, atol=0.02)


def test_the_step_of_zeros_alone_divides() -> None:
    """It is one, as onnxruntime's; 0 would make NaN of all that is divided by it."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "step", "zero"]),
        helper.make_node("Div", ["x", "step"], ["y"]),
    ]
    kinds = {"q": TensorProto.UINT8, "zero": TensorProto.UINT8}
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), None)
         for n in ("q", "step", "zero", "y")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    run = tilewright.compile(tilewright.load(model), "llvm")
    peers = onnxruntime.InferenceSession(model.SerializeToString())
    for x in (np.zeros(3, "float32"), np.array([0, -1, 2.5], "float32")):
        for found, want in zip(run(x), peers.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint16"])
def test_rounding_is_to_even_and_the_ends_are_kept(dtype):
    kind = DType(dtype)
    x = np.array([0.25, 0.75, 1.25, -0.25, -0.75, 1e9, -1e9, np.inf, -np.inf, 0.0], "float32")
    zero = 3
    made = relay.qnn.op.quantize(
        relay.var("x", shape=x.shape), relay.const(np.float32(0.5)),
        relay.const(np.array(zero, dtype)), out_dtype=dtype,
    )  # fmt: skip
    want = np.clip(np.rint(x / np.float32(0.5)) + zero, kind.least, kind.greatest)
    assert (relay.evaluate(made, {"x": x}) == want).all()
    lib = relay.build(relay.IRModule.from_expr(relay.Function(relay.free_vars(made), made)), "llvm")
    module = on_cpu(lib)
    module.set_input("x", nd.array(x))
    module.run()
    assert (module.get_output(0).numpy() == want).all()


@pytest.mark.parametrize("shape", [(), (3,), (4, 3), (4, 2), (4, 1)])
def test_there_and_back_is_within_half_a_step(shape):
    """One number, one for each of axis 1, and blocks of 1, 2 and 3 along it."""
    x = RNG.normal(size=(4, 3)).astype("float32")
    scale = (RNG.random(shape) * 0.02 + 0.03).astype("float32")
    data, held = relay.var("x", shape=x.shape), relay.const(scale)
    zero = relay.const(np.zeros(shape, "int8"))
    q = relay.qnn.op.quantize(data, held, zero, axis=1)
    back = relay.evaluate(relay.qnn.op.dequantize(q, held, zero, axis=1), {"x": x})
    assert q.dtype == "int8" and q.shape == x.shape
    size = {1: 3, 2: 2}.get(shape[-1], 1) if len(shape) == 2 else 1
    spread = np.repeat(scale, size, axis=1)[:, :3] if len(shape) == 2 else scale
    inside = np.abs(x / spread) <= 127
    assert inside.any()
    assert (np.abs(back - x)[inside] <= (0.5001 * spread * np.ones_like(x))[inside]).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"out_dtype": "int32"}, "8 or 16 bits"),
        ({"output_scale": relay.const(np.ones(2, "float32"))}, "is none"),
        ({"output_scale": relay.const(np.ones(3, "float32")), "axis": 5}, "is none"),
    ],
)
def test_refusals(change, words):
    given = {
        "data": relay.var("x", shape=(4, 3)), "output_scale": relay.const(np.float32(1)),
        "output_zero_point": relay.const(np.int8(0)), **change,
    }  # fmt: skip
    with pytest.raises(ModelError, match=words):
        relay.qnn.op.quantize(**given)


@pytest.mark.slow
def test_random_operators_say_what_to_do():
    node = helper.make_node("RandomNormalLike", ["x"], ["y"])
    kind = TensorProto.FLOAT
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", kind, [2])],
        [helper.make_tensor_value_info("y", kind, [2])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    with pytest.raises(ModelError, match="draws random numbers"):
        relay.frontend.from_onnx(model)
