"""Import of ONNX: older spellings, shape arithmetic, one clear error for what cannot be read."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from graph.cases import function, tensor
from tilewright.base.errors import ModelError
from tilewright.graph.expr import post_order
from tilewright.graph.traversal import op_name
from tilewright_tvm import relay

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model(nodes, inputs, weights=None, opset=17, outputs=("y",), listed=False):
    """A model of `nodes`; inputs: name -> shape; listed: weights are inputs as well."""
    weights = {k: np.asarray(v) for k, v in (weights or {}).items()}
    infos = [helper.make_tensor_value_info(n, FLOAT, s) for n, s in inputs.items()]
    if listed:
        infos += [helper.make_tensor_value_info(n, FLOAT, w.shape) for n, w in weights.items()]
    graph = helper.make_graph(
        nodes, "test", infos, [helper.make_tensor_value_info(o, FLOAT, None) for o in outputs],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    made.ir_version = 8
    return made


def node(op, inputs, output="y", **attrs):
    return helper.make_node(op, inputs, [output], name=f"{op.lower()}_of_test", **attrs)


def check(proto, data: dict[str, np.ndarray]):
    """The imported network computes what onnxruntime does; returns it."""
    mod, params = relay.frontend.from_onnx(proto)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    wanted = session.run(None, data)
    found = relay.evaluate(mod, {**params, **data})
    found = found if isinstance(found, tuple) else (found,)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    return mod, params


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


X = random(2, 3, 6, 6)
AXES = np.array([1, 3], "int64")

# name -> (nodes, weights, opset); the input is x [2, 3, 6, 6]
MODELS = {
    "conv-bias": ([node("Conv", ["x", "w", "b"], pads=[1, 0, 2, 1], strides=[2, 1])],
                  {"w": random(4, 3, 3, 3), "b": random(4)}, 17),
    "conv-same-upper": ([node("Conv", ["x", "w"], auto_pad="SAME_UPPER", strides=[2, 2])],
                        {"w": random(4, 3, 3, 3)}, 17),
    "conv-same-lower": ([node("Conv", ["x", "w"], auto_pad="SAME_LOWER", strides=[2, 2])],
                        {"w": random(4, 3, 3, 3)}, 17),
    "conv-valid": ([node("Conv", ["x", "w"], auto_pad="VALID", dilations=[2, 2])],
                   {"w": random(4, 3, 2, 2)}, 17),
    "max-pool-ceil": ([node("MaxPool", ["x"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)],
                      {}, 17),
    "max-pool-ceil-pad": ([node("MaxPool", ["x"], kernel_shape=[2, 2], strides=[3, 3],
                                pads=[1, 1, 1, 1], ceil_mode=1)], {}, 17),
    "average-pool": ([node("AveragePool", ["x"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])], {}, 17),
    "average-pool-pad": ([node("AveragePool", ["x"], kernel_shape=[3, 3], pads=[1, 1, 1, 1],
                               count_include_pad=1)], {}, 17),
    "batch-norm": ([node("BatchNormalization", ["x", "g", "b", "m", "v"], epsilon=0.01)],
                   {"g": random(3), "b": random(3), "m": random(3), "v": random(3) ** 2}, 17),
    "gemm": ([node("Flatten", ["x"], "f"),
              node("Gemm", ["f", "w", "c"], alpha=0.5, beta=2.0, transB=1)],
             {"w": random(5, 108), "c": random(5)}, 17),
    "gemm-transposed": ([node("Reshape", ["x", "s"], "f"), node("Gemm", ["f", "w"], transA=1)],
                        {"w": random(108, 5), "s": np.array([108, -1], "int64")}, 17),
    "matmul": ([node("MatMul", ["x", "w"])], {"w": random(6, 5)}, 17),
    "matmul-batched": ([node("MatMul", ["x", "w"])], {"w": random(2, 3, 6, 5)}, 17),
    "matmul-shared": ([node("MatMul", ["w", "x"])], {"w": random(1, 4, 6)}, 17),
    "flatten-axis": ([node("Flatten", ["x"], axis=2)], {}, 17),
    "flatten-back": ([node("Flatten", ["x"], axis=-1)], {}, 17),
    "reshape-keep": ([node("Reshape", ["x", "s"])], {"s": np.array([0, -1, 6], "int64")}, 17),
    "softmax-old": ([node("Softmax", ["x"])], {}, 11),
    "softmax-new": ([node("Softmax", ["x"], axis=1)], {}, 17),
    "clip-inputs": ([node("Clip", ["x", "", "hi"])], {"hi": np.float32(0.5)}, 17),
    "clip-attributes": ([node("Clip", ["x"], min=-0.5, max=0.25)], {}, 9),
    "clip-open": ([node("Clip", ["x"])], {}, 17),
    "squeeze-old": ([node("ReduceSum", ["x"], "r", axes=[1, 3], keepdims=1),
                     node("Squeeze", ["r"], axes=[1, 3])], {}, 11),
    "squeeze-new": ([node("ReduceSum", ["x", "a"], "r"), node("Squeeze", ["r", "a"])],
                    {"a": AXES}, 17),
    "unsqueeze-old": ([node("Unsqueeze", ["x"], axes=[0, 5])], {}, 11),
    "unsqueeze-new": ([node("Unsqueeze", ["x", "a"])], {"a": np.array([-1, 1], "int64")}, 17),
    "reduce-mean-old": ([node("ReduceMean", ["x"], axes=[2, 3], keepdims=0)], {}, 17),
    "reduce-mean-new": ([node("ReduceMean", ["x", "a"], keepdims=0)], {"a": AXES}, 18),
    "reduce-all": ([node("ReduceMax", ["x"], keepdims=0)], {}, 17),
    "pad": ([node("Pad", ["x", "p", "v"])],
            {"p": np.array([0, 0, 1, 2, 0, 1, 0, 3], "int64"), "v": np.float32(2)}, 17),
    "pad-old": ([node("Pad", ["x"], pads=[0, 0, 1, 2, 0, 1, 0, 3], value=2.0)], {}, 9),
    "sum": ([node("Sum", ["x", "x", "w"])], {"w": random(6)}, 17),
    "mean": ([node("Mean", ["x", "w"])], {"w": random(3, 1, 1)}, 17),
    "dropout": ([node("Dropout", ["x"])], {}, 17),
    "dropout-old": ([node("Dropout", ["x"], ratio=0.3)], {}, 9),
    "concat": ([node("Concat", ["x", "x"], axis=-1)], {}, 17),
    "transpose-default": ([node("Transpose", ["x"])], {}, 17),
    "power": ([node("Pow", ["x", "two"])], {"two": np.array(2, "int64")}, 17),
    "reciprocal": ([node("Abs", ["x"], "a"), node("Add", ["a", "one"], "b"),
                    node("Reciprocal", ["b"])], {"one": np.float32(1)}, 17),
    "expand": ([node("Expand", ["x", "s"])], {"s": np.array([4, 1, 3, 1, 1], "int64")}, 17),
    "constant": ([node("Constant", [], "c", value=numpy_helper.from_array(random(6))),
                  node("Mul", ["x", "c"])], {}, 17),
    "constant-float": ([node("Constant", [], "c", value_float=2.5), node("Mul", ["x", "c"])],
                       {}, 17),
    "shape-arithmetic": ([node("Shape", ["x"], "s"),
                          node("Gather", ["s", "zero"], "n", axis=0),
                          node("Unsqueeze", ["n", "axis"], "n1"),
                          node("Concat", ["n1", "rest"], "t", axis=0),
                          node("Reshape", ["x", "t"])],
                         {"zero": np.array(0, "int64"), "axis": np.array([0], "int64"),
                          "rest": np.array([-1], "int64")}, 17),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_operators_mean_what_onnxruntime_says(kind):
    nodes, weights, opset = MODELS[kind]
    check(model(nodes, {"x": X.shape}, weights, opset), {"x": X})


def test_two_outputs():
    nodes = [node("Relu", ["x"], "a"), node("Exp", ["a"], "b")]
    mod, _ = check(model(nodes, {"x": X.shape}, outputs=("b", "a")), {"x": X})
    assert isinstance(mod["main"].body, relay.Tuple)


def test_weights_are_parameters_by_their_names_even_if_listed_as_inputs():
    nodes = [node("Conv", ["x", "conv.w"])]
    proto = model(nodes, {"x": X.shape}, {"conv.w": random(4, 3, 1, 1)}, listed=True)
    mod, params = check(proto, {"x": X})
    assert [p.name_hint for p in mod["main"].params] == ["x", "conv.w"]
    assert list(params) == ["conv.w"]


@pytest.mark.slow
def test_the_light_resnet_50_in_the_onnx_wheel():
    """Weights come out of ConstantOfShape nodes; random ones are put in for the comparison."""
    (path,) = Path(onnx.__file__).parent.rglob("light_resnet50.onnx")
    mod, params = relay.frontend.from_onnx(path)
    assert sum(op_name(n) == "nn.conv2d" for n in post_order(mod["main"].body)) == 53
    names = [p.name_hint for p in mod["main"].params]
    assert [n for n in names if n not in params] == ["gpu_0/data_0"]
    assert params["gpu_0/conv1_w_0"].shape == (64, 3, 7, 7)
    fused = relay.optimize(mod, params)
    assert "batch_norm" not in str(fused)


@pytest.mark.long
def test_small_resnet_50_from_a_file(tmp_path):
    mod, params = relay.testing.get_network("resnet-50-v1", image_shape=(3, 32, 32), num_classes=4)
    path = tmp_path / "net.onnx"
    path.write_bytes(relay.to_onnx(mod, params).SerializeToString())
    again, weights = relay.frontend.from_onnx(str(path))
    data = random(1, 3, 32, 32)
    a = relay.evaluate(mod, {**params, "data": data})
    np.testing.assert_allclose(relay.evaluate(again, {**weights, "data": data}), a, rtol=1e-4)


# --- refusals


def refused(make, *words):
    with pytest.raises(ModelError) as e:
        make()
    for word in words:
        assert word in str(e.value), str(e.value)


def test_all_that_blocks_is_listed_at_once():
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r"], ["a"], name="memory", hidden_size=1),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("RandomNormalLike", ["x"], ["c"]),
        helper.make_node("LSTM", ["b", "w", "r"], ["d"], name="again"),
        helper.make_node("Fancy", ["c"], ["y"], name="f", domain="my.ops"),
    ]
    proto = model(nodes, {"x": X.shape}, {"w": random(2), "r": random(2)}, outputs=("y",))
    refused(
        lambda: relay.frontend.from_onnx(proto), "2 of its 5 nodes",
        "RandomNormalLike (1 node: #2)", "my.ops.Fancy (1 node: f)",
    )  # fmt: skip


def test_missing_damaged_and_empty_files(tmp_path):
    from_onnx = relay.frontend.from_onnx
    refused(lambda: from_onnx(tmp_path / "none.onnx"), "none.onnx", "no such file")
    refused(lambda: from_onnx(tmp_path), "directory")
    mod, params = relay.testing.get_network("mobilenet", image_shape=(3, 32, 32), num_classes=2)
    data = relay.to_onnx(mod, params).SerializeToString()
    for name, content, word in (
        ("empty", b"", "empty"), ("short", data[: len(data) // 2], "truncated"),
        ("text", b"hello, this is text", "no ONNX model"),
        ("nothing", onnx.ModelProto(ir_version=8).SerializeToString(), "no graph"),
    ):  # fmt: skip
        path = tmp_path / name
        path.write_bytes(content)
        refused(lambda path=path: from_onnx(path), name, word)
    refused(lambda: from_onnx(data[:5000]), "truncated")


def test_external_weights_that_are_missing(tmp_path):
    proto = model([node("Mul", ["x", "w"])], {"x": X.shape}, {"w": random(6, 6)})
    path = tmp_path / "net.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="net.bin", size_threshold=0)
    _, params = relay.frontend.from_onnx(path)
    np.testing.assert_array_equal(params["w"], random(6, 6))
    (tmp_path / "net.bin").unlink()
    refused(lambda: relay.frontend.from_onnx(path), "external weight 'w'", "no file 'net.bin'")


REFUSALS = {
    "open-extent": (model([node("Relu", ["x"])], {"x": ["N", 3]}), ["'x'", "N is open", "(1, 3)"]),
    "no-shape": (model([node("Relu", ["x"])], {"x": None}), ["shape={'x'"]),
    "dimensions": (
        model([node("Conv", ["x", "w"])], {"x": [1, 3]}, {"w": random(4, 3)}),
        ["conv_of_test (Conv)", "(1, 3)", "one, two or three axes"],
    ),
    "type-error": (
        model([node("Add", ["x", "w"])], {"x": [2, 3]}, {"w": random(4)}),
        ["add_of_test (Add)", "3 and 4 meet"],
    ),
    "attribute": (
        model([node("Relu", ["x"], shiny=1)], {"x": [2, 3]}), ["relu_of_test", "shiny"],
    ),
    "half": (
        model([node("Mul", ["x", "w"])], {"x": [3]}, {"w": random(3).astype("uint64")}),
        ["mul_of_test", "uint64"],
    ),
    "dangling": (model([node("Add", ["x", "ghost"])], {"x": [3]}), ["'ghost'", "nothing computes"]),
    "pad mode": (
        model([node("Pad", ["x", "p"], mode="bounce")], {"x": [3]}, {"p": np.array([1, 1])}),
        ["mode=bounce"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSALS)
def test_models_that_cannot_be_read_say_why(kind):
    proto, words = REFUSALS[kind]
    refused(lambda: relay.frontend.from_onnx(proto), *words)


def test_shapes_are_given_by_name():
    proto = model([node("Relu", ["x"])], {"x": ["N", 3]})
    mod, _ = relay.frontend.from_onnx(proto, shape={"x": (4, 3)})
    assert mod["main"].params[0].shape == (4, 3)
    refused(lambda: relay.frontend.from_onnx(proto, shape={"z": (4, 3)}), "'z'", "inputs are x")


def test_weights_whose_data_does_not_fit():
    proto = model([node("Mul", ["x", "w"])], {"x": [3]}, {"w": random(3)})
    proto.graph.initializer[0].raw_data = b"\0" * 5
    refused(lambda: relay.frontend.from_onnx(proto), "weight 'w'")


def test_export_refuses_what_onnx_has_no_word_for():
    fused = relay.optimize(function(relay.nn.relu(tensor("x", 2))))
    refused(lambda: relay.to_onnx(fused), "fused already", "before")
    pool = relay.nn.adaptive_avg_pool2d(tensor("x", 1, 2, 7, 7), (3, 3))
    refused(lambda: relay.to_onnx(function(pool)), "adaptive_avg_pool2d", "[7, 7]")


@pytest.mark.slow
def test_nhwc_networks_are_exported_between_transpositions():
    mod, params = relay.testing.get_network(
        "mobilenet", image_shape=(32, 32, 3), num_classes=5, layout="NHWC"
    )
    data = random(1, 32, 32, 3)
    session = onnxruntime.InferenceSession(relay.to_onnx(mod, params).SerializeToString())
    (found,) = session.run(None, {"data": data})
    np.testing.assert_allclose(found, relay.evaluate(mod, {**params, "data": data}), atol=1e-5)
