"""Operators of ONNX's other domains, and those that only some inputs let through."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.test_onnx import check, model, node
from tilewright.base.errors import ModelError
from tilewright_tvm import relay

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4)).astype("float32")
TRAINING = "ai.onnx.preview.training"
SHAPE = {"x": [2, 3, 4]}
from_onnx = relay.frontend.from_onnx


def of_domain(proto: onnx.ModelProto, domain: str, version: int = 1) -> onnx.ModelProto:
    """`proto` with its nodes in another domain."""
    for n in proto.graph.node:
        n.domain = domain
    proto.opset_import.append(helper.make_opsetid(domain, version))
    return proto


def counted(proto: onnx.ModelProto) -> onnx.ModelProto:
    """`proto` whose second input is an integer."""
    proto.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    return proto


def evaluated(proto: onnx.ModelProto, **values: np.ndarray) -> np.ndarray:
    mod, params = from_onnx(proto)
    return relay.evaluate(mod, {**values, **params})


def test_nothing_is_dropped_and_the_mask_says_so():
    drop = helper.make_node("Dropout", ["x"], ["y", "mask"], seed=3)
    proto = model([drop], SHAPE, outputs=("y", "mask"))
    proto.graph.output[1].type.tensor_type.elem_type = TensorProto.BOOL
    y, mask = evaluated(proto, x=X)
    np.testing.assert_array_equal(y, X)
    assert mask.dtype == bool and mask.all() and mask.shape == X.shape


def test_training_drops_nothing_only_by_a_ratio_of_zero():
    weights = {"zero": np.float32(0), "half": np.float32(0.5), "train": np.array(True)}
    proto = model([node("Dropout", ["x", "zero", "train"])], SHAPE, weights)
    np.testing.assert_array_equal(evaluated(proto, x=X), X)
    with pytest.raises(ModelError, match="drops elements at random"):
        from_onnx(model([node("Dropout", ["x", "half", "train"])], SHAPE, weights))


@pytest.mark.parametrize("target", ["int32", "uint32", "float32"])
def test_bits_of_integers_and_of_constants_are_read_as_others(target):
    number = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    data = np.array([0, -1, 1 << 30, -(1 << 31)], "int32")
    proto = model([node("BitCast", ["c"], "d", to=number), node("Identity", ["d"])], {},
                  {"c": data}, 26)  # fmt: skip
    np.testing.assert_array_equal(evaluated(proto), data.view(target))
    proto = model([node("BitCast", ["i"], to=number)], {"i": [4]}, opset=26)
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32
    if target != "float32":
        np.testing.assert_array_equal(evaluated(proto, i=data), data.view(target))
        return
    with pytest.raises(ModelError, match="reads the bits of int32 as float32"):
        from_onnx(proto)


def test_bits_of_another_number_are_refused():
    proto = model([node("BitCast", ["x"], to=TensorProto.INT64)], SHAPE, opset=26)
    with pytest.raises(ModelError, match="as many bits"):
        from_onnx(proto)


def _attention(domain: str, **graphs: onnx.GraphProto) -> onnx.ModelProto:
    shape = {n: [1, 2, 3, 4] for n in "qkv"}
    return of_domain(model([node("FlexAttention", list("qkv"), **graphs)], shape, opset=23), domain)


def _graph(op: str) -> onnx.GraphProto:
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 2, 3, 3]) for n in "ab"]
    return helper.make_graph([helper.make_node(op, ["a"], ["b"])], "g", infos[:1], infos[1:])


def test_graphs_change_scores_and_probabilities():
    q, k, v = (RNG.standard_normal((1, 2, 3, 4)).astype("float32") for _ in range(3))
    proto = _attention("ai.onnx.preview", score_mod=_graph("Abs"), prob_mod=_graph("Sqrt"))
    score = np.exp(np.abs(q @ k.swapaxes(2, 3) / 2))
    wanted = np.sqrt(score / score.sum(-1, keepdims=True)) @ v
    np.testing.assert_allclose(evaluated(proto, q=q, k=k, v=v), wanted, rtol=1e-5, atol=1e-6)


def test_a_graph_that_changes_the_shape_of_scores_is_refused():
    with pytest.raises(ModelError, match="score_mod does not keep"):
        from_onnx(_attention("ai.onnx.preview", score_mod=_graph("Shape")))


def test_momentum_goes_by_weights():
    """Inputs and results are ordered by kind, not by weight."""
    names = ["r", "t", "x0", "x1", "g0", "g1", "v0", "v1"]
    shapes = {"r": [], "t": [], **{n: [2 + int(n[1])] for n in names[2:]}}
    outputs = ("a0", "a1", "b0", "b1")
    made = helper.make_node("Momentum", names, list(outputs), norm_coefficient=0.5, alpha=0.9,
                            beta=0.1, mode="standard")  # fmt: skip
    proto = counted(of_domain(model([made], shapes, outputs=outputs), TRAINING))
    values = {n: RNG.standard_normal(s).astype("float32") for n, s in shapes.items()}
    values |= {"r": np.float32(0.1), "t": np.array(2)}
    found = evaluated(proto, **values)
    for k in range(2):
        x, g, v = (values[f"{n}{k}"] for n in "xgv")
        moment = 0.9 * v + 0.1 * (g + 0.5 * x)
        np.testing.assert_allclose(found[2 + k], moment, rtol=1e-5)
        np.testing.assert_allclose(found[k], x - 0.1 * moment, rtol=1e-5)


def test_an_optimiser_with_half_a_weight_is_refused():
    shapes = {"r": [], "t": [], "x": [2], "g": [2]}
    proto = counted(of_domain(model([node("Adagrad", list(shapes))], shapes), TRAINING))
    with pytest.raises(ModelError, match="3 tensors for each weight"):
        from_onnx(proto)


def _grams(**changes: object) -> onnx.ModelProto:
    attrs = {
        "mode": "TFIDF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 1,
        "ngram_counts": [0, 2], "ngram_indexes": [2, 0, 3], "pool_int64s": [5, 6, 5, 6],
        "weights": [2.0, 3.0, 0.5], **changes,
    }  # fmt: skip
    proto = model([node("TfIdfVectorizer", ["i"], **attrs)], {"i": [5]}, opset=9)
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    return proto


def test_grams_are_counted_with_what_lies_between():
    data = np.array([5, 6, 5, 5, 6])  # 5 three times, 6 twice, (5, 6) twice, once over another
    np.testing.assert_allclose(evaluated(_grams(), i=data), [6, 0, 6, 1.5])
    np.testing.assert_allclose(evaluated(_grams(mode="IDF"), i=data), [3, 0, 2, 0.5])
    check(_grams(mode="TF"), {"i": data})
    check(_grams(), {"i": data})


@pytest.mark.parametrize(("changes", "words"), [
    ({"mode": "NONE"}, "Use TF"), ({"ngram_counts": [0, 1]}, "do not divide"),
    ({"ngram_counts": [0, 6]}, "do not divide"),
    ({"weights": [1.0]}, "1 weights"), ({"ngram_indexes": [-1, 0, 3]}, "no places"),
])  # fmt: skip
def test_grams_that_are_damaged(changes, words):
    with pytest.raises(ModelError, match=words):
        from_onnx(_grams(**changes))


@pytest.mark.parametrize("kind", [
    "int4", "uint4", "int2", "uint2", "float4_e2m1fn", "float8_e4m3fn", "float8_e5m2",
])  # fmt: skip
def test_weights_of_a_few_bits_are_what_they_stand_for(kind):
    storage = np.dtype(getattr(ml_dtypes, kind))
    held = np.linspace(-1 if kind[0] != "u" else 0, 1, 24).reshape(4, 6).astype("float32")
    held = (held * 3 if "float" in kind or "4" in kind else held).astype(storage)
    scale = np.abs(RNG.standard_normal((2, 6))).astype("float32") + 0.1
    proto = model(
        [node("DequantizeLinear", ["w", "s"], "d", axis=0, block_size=2), node("Add", ["x", "d"])],
        {"x": [4, 6]},
        {"w": np.zeros(1), "s": scale},
        25,
    )
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(held, "w"))
    x = RNG.standard_normal((4, 6)).astype("float32")
    wanted = x + held.astype("float32") * scale.repeat(2, 0)
    np.testing.assert_allclose(evaluated(proto, x=x), wanted, rtol=1e-6)


def test_a_zero_point_of_four_bits_is_taken_off():
    held, zero = np.arange(6).astype(ml_dtypes.uint4), np.array(3).astype(ml_dtypes.uint4)
    weights = {"w": np.zeros(1), "z": np.zeros(1), "s": np.float32(0.5)}
    nodes = [node("DequantizeLinear", ["w", "s", "z"], "d"), node("Add", ["x", "d"])]
    proto = model(nodes, {"x": [6]}, weights, 21)
    for k, value in enumerate((held, zero)):
        name = proto.graph.initializer[k].name
        proto.graph.initializer[k].CopyFrom(numpy_helper.from_array(value, name))
    x = RNG.standard_normal(6).astype("float32")
    np.testing.assert_allclose(evaluated(proto, x=x), x + (np.arange(6) - 3) * 0.5, rtol=1e-6)
    check(proto, {"x": x})


def test_a_constant_of_four_bits_is_cast():
    proto = model([node("Cast", ["w"], "c", to=TensorProto.FLOAT), node("Add", ["x", "c"])],
                  {"x": [3]}, {"w": np.zeros(1)}, 21)  # fmt: skip
    held = np.array([-8, 0, 7]).astype(ml_dtypes.int4)
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(held, "w"))
    np.testing.assert_array_equal(evaluated(proto, x=np.zeros(3, "float32")), [-8, 0, 7])


@pytest.mark.parametrize(("op", "domain", "words"), [
    ("Conv", "com.microsoft.nchwc", "ORT_ENABLE_EXTENDED"),
    ("Gradient", "ai.onnx.preview.training", "for inference"),
])  # fmt: skip
def test_a_refusal_says_what_to_do_instead(op, domain, words):
    shapes = {"x": [1, 5, 4], "s": [1, 1, 5]}
    attrs = {"y": "x", "xs": ["x"]} if op == "Gradient" else {}
    proto = model([node(op, ["x", "s"], **attrs)], shapes)
    with pytest.raises(ModelError, match=words):
        from_onnx(of_domain(proto, domain) if domain else proto)


def test_text_is_numbered_outside():
    proto = model([node("StringConcat", ["x", "x"])], {"x": [3]}, opset=20)
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    with pytest.raises(ModelError, match="Number the words outside"):
        from_onnx(proto)
