"""What the importer refuses of products, normalisation, attention and recurrent networks."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from tilewright.base.errors import ModelError
from tilewright_tvm import relay

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def model(op: str, inputs: dict, outputs: int = 1, opset: int = 21, kind: int = FLOAT, **attrs):
    """One node whose inputs have these shapes; "" leaves one out."""
    names = list(inputs)
    made = [f"y{k}" for k in range(outputs)]
    given = [n if inputs[n] is not None else "" for n in names]
    infos = [
        helper.make_tensor_value_info(n, kind, inputs[n]) for n in names if inputs[n] is not None
    ]
    results = [helper.make_tensor_value_info(n, kind, None) for n in made]
    node = helper.make_node(op, given, made, **attrs)
    graph = helper.make_graph([node], "g", infos, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


IMAGE, VECTOR = [1, 3, 4, 4], [3]
NORM = {"x": IMAGE, "s": VECTOR, "b": VECTOR}
STATISTICS = {**NORM, "m": VECTOR, "v": VECTOR}
THREE = {n: [1, 3, 8] for n in "qkv"}
FOUR = {n: [1, 2, 3, 4] for n in "qkv"}
TURNED = {"x": [1, 2, 3, 4], "c": [1, 3, 2], "s": [1, 3, 2]}

REFUSALS = {
    "training before opset 14": (model("BatchNormalization", STATISTICS, 3, 9), "training mode"),
    "spatial": (model("BatchNormalization", STATISTICS, opset=7, spatial=0), "spatial=0"),
    "groups": (model("GroupNormalization", NORM, num_groups=2), "2 groups"),
    "instance of vectors": (model("InstanceNormalization", {**NORM, "x": [2, 3]}), "axes behind"),
    "stash": (model("LayerNormalization", {"x": [2, 3], "s": VECTOR}, stash_type=11), "stash"),
    "axis of a definition": (
        model("RMSNormalization", {"x": [2, 3], "s": VECTOR}, opset=23, axis=2), "axis 2 is out",
    ),
    "p": (model("LpNormalization", {"x": [2, 3]}, p=3), "p=3"),
    "half an integer": (model("Gemm", {"a": [2, 2], "b": [2, 2]}, kind=INT, alpha=0.5), "whole"),
    "equation": (model("Einsum", {"a": [2, 2]}, equation="ijk->i"), "einsum"),
    "heads": (model("Attention", THREE, opset=24, q_num_heads=3, kv_num_heads=3), "3 heads"),
    "no heads": (model("Attention", THREE, opset=24), "None heads"),
    "past keys": (
        model("Attention", {**FOUR, "m": None, "p": [1, 2, 5, 4]}, opset=24), "without past values",
    ),
    "window": (model("Attention", FOUR, opset=25, left_window_size=-2), "window of -2"),
    "odd turn": (model("RotaryEmbedding", TURNED, opset=23, rotary_embedding_dim=3), "dim=3"),
    "a number": (model("MatMul", {"a": [], "b": [2, 2]}), "no matrix"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSALS)
def test_models_that_cannot_be_read_say_why(kind):
    proto, reason = REFUSALS[kind]
    with pytest.raises(ModelError, match=reason):
        relay.frontend.from_onnx(proto)


def test_training_gives_the_running_statistics():
    proto = model("BatchNormalization", STATISTICS, 3, training_mode=1, momentum=0.75)
    mod, _ = relay.frontend.from_onnx(proto)
    rng = np.random.default_rng(0)
    given = {n: rng.random(s).astype("float32") for n, s in STATISTICS.items()}
    _, mean, variance = relay.evaluate(mod, given)
    x = given["x"]
    np.testing.assert_allclose(mean, given["m"] * 0.75 + x.mean((0, 2, 3)) * 0.25, rtol=1e-5)
    np.testing.assert_allclose(variance, given["v"] * 0.75 + x.var((0, 2, 3)) * 0.25, rtol=1e-5)


@pytest.mark.parametrize("axis", [0, -1])
def test_a_nan_is_the_first_of_the_greatest(axis):
    x = np.array([[1, np.nan, np.nan], [-np.inf, 2, 3], [np.nan, 5, 5]], "float32")
    mod, _ = relay.frontend.from_onnx(model("Hardmax", {"x": x.shape}, axis=axis))
    wanted = np.zeros_like(x)
    np.put_along_axis(wanted, np.expand_dims(x.argmax(axis), axis), 1, axis)
    np.testing.assert_array_equal(relay.evaluate(mod, {"x": x}), wanted)
