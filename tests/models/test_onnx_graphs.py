"""ONNX graphs that are more than a list of operators: order, control flow, functions, sequences,
shape arithmetic, what is left out, and the one error for all that stands in the way."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.test_onnx import FLOAT, INT64, X, check, model, node, random, refused
from tilewright.base.errors import ModelError
from tilewright_tvm import relay

from_onnx = relay.frontend.from_onnx
SHAPE = {"x": X.shape}
info = helper.make_tensor_value_info


def number(value):
    return np.array(value, "int64")


def graph(nodes, outputs, inputs=(), weights=None):
    made = [numpy_helper.from_array(np.asarray(w), k) for k, w in (weights or {}).items()]
    results = [info(o, FLOAT, None) for o in outputs]
    return helper.make_graph(nodes, "inner", list(inputs), results, made)


def branches(condition):
    """y = relu(x) where `condition`, else x + w."""
    return helper.make_node(
        "If", [condition], ["y"],
        then_branch=graph([node("Relu", ["x"], "t")], ["t"]),
        else_branch=graph([node("Add", ["x", "w"], "e")], ["e"]),
    )  # fmt: skip


# --- order and what is read


def test_nodes_in_any_order():
    nodes = [node("Exp", ["a"]), node("Relu", ["x"], "a")]
    mod, _ = from_onnx(model(nodes, SHAPE))
    np.testing.assert_allclose(relay.evaluate(mod, {"x": X}), np.exp(np.maximum(X, 0)), rtol=1e-6)


def test_a_circle_of_nodes():
    nodes = [node("Add", ["x", "b"], "a"), node("Relu", ["a"], "b"), node("Exp", ["b"])]
    refused(lambda: from_onnx(model(nodes, SHAPE)), "in a circle", "add_of_test")


def test_nodes_that_nothing_reads_do_not_matter():
    nodes = [node("Relu", ["x"]), helper.make_node("Fancy", ["x"], ["unread"], domain="my.ops")]
    check(model(nodes[:1], SHAPE), {"x": X})
    from_onnx(model(nodes, SHAPE))


@pytest.mark.parametrize(
    "made", [
        helper.make_node("Dropout", ["x"], ["y", "mask"]),
        helper.make_node("MaxPool", ["x"], ["y", "places"], kernel_shape=[2, 2]),
    ], ids=lambda n: n.op_type,
)  # fmt: skip
def test_results_that_nothing_reads_do_not_matter(made):
    check(model([made], SHAPE), {"x": X})


def test_statistics_of_a_batch_norm_that_nothing_reads():
    names = ["y", "mean", "var", "saved_mean", "saved_var"]
    made = helper.make_node("BatchNormalization", ["x", *"gbmv"], names)
    weights = {k: random(3) ** 2 for k in "gbmv"}
    mod, params = from_onnx(model([made], SHAPE, weights, opset=9))
    wanted = (X - weights["m"].reshape(3, 1, 1)) / np.sqrt(weights["v"].reshape(3, 1, 1) + 1e-5)
    wanted = wanted * weights["g"].reshape(3, 1, 1) + weights["b"].reshape(3, 1, 1)
    np.testing.assert_allclose(
        relay.evaluate(mod, {**params, "x": X}), wanted, rtol=1e-4, atol=1e-5
    )


def test_attributes_that_ask_for_nothing():
    made = node("ReduceSum", ["x", "a"], noop_with_empty_axes=0)
    check(model([made], SHAPE, {"a": number([1])}), {"x": X})


# --- control flow, functions, sequences


@pytest.mark.parametrize("taken", [True, False])
def test_a_constant_if_is_the_branch_that_is_taken(taken):
    mod, params = check(model([branches("c")], SHAPE, {"c": np.array(taken), "w": random(6)}),
                        {"x": X})  # fmt: skip
    assert ("add" in str(mod)) != taken and ("where" not in str(mod))
    assert list(params) == ([] if taken else ["w"])


@pytest.mark.parametrize("taken", [True, False])
def test_an_open_if_chooses_between_results(taken):
    proto = model([branches("c")], SHAPE, {"w": random(6)})
    proto.graph.input.append(info("c", TensorProto.BOOL, []))
    check(proto, {"x": X, "c": np.array(taken)})


def loop(trips, body, condition=""):
    return helper.make_node("Loop", [trips, condition, "x"], ["y", "all"], body=body)


def doubling():
    """One trip: s -> s + s, which is collected, too; goes on while the trip's number is below 2."""
    nodes = [node("Add", ["s", "s"], "twice"), node("Less", ["k", "two"], "more"),
             helper.make_node("Identity", ["twice"], ["kept"])]  # fmt: skip
    inputs = [info("k", INT64, []), info("go", TensorProto.BOOL, []), info("s", FLOAT, None)]
    body = graph(nodes, ["more", "twice", "kept"], inputs, {"two": number(2)})
    body.output[0].type.tensor_type.elem_type = TensorProto.BOOL
    return body


@pytest.mark.parametrize("trips", [1, 2, 7])
def test_a_loop_is_as_many_copies_as_it_has_trips(trips):
    weights = {"n": number(trips), "on": np.array(True)}
    made = loop("n", doubling(), "on")
    mod, _ = check(model([made], SHAPE, weights, outputs=("y", "all")), {"x": X})
    assert str(mod).count("add(") == min(trips, 3)


def test_loops_that_do_not_end_are_refused():
    proto = model([loop("n", doubling())], SHAPE, {"n": number(2**62)})
    refused(lambda: from_onnx(proto, limits=relay.frontend.Limits(nodes=100)), "the limit is 100")


def test_a_loop_whose_end_is_not_in_sight_is_refused_soon():
    body = doubling()
    body.initializer[0].CopyFrom(numpy_helper.from_array(number(2**40), "two"))
    proto = model([loop("", body, "on")], SHAPE, {"on": np.array(True)}, outputs=("y", "all"))
    limits = relay.frontend.Limits(unrolled=100)
    refused(lambda: from_onnx(proto, limits=limits), "has not ended", "Limits(unrolled=")


def function(name, nodes, inputs=("a",), outputs=("b",), attributes=()):
    return helper.make_function(
        "mine", name, list(inputs), list(outputs), nodes,
        [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)], list(attributes),
    )  # fmt: skip


def with_functions(nodes, functions):
    proto = model(nodes, SHAPE)
    proto.functions.extend(functions)
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    return proto


def test_functions_of_the_model_are_inlined():
    leaky = helper.make_node("LeakyRelu", ["a"], ["b"])
    leaky.attribute.append(onnx.AttributeProto(
        name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))  # fmt: skip
    inner = function("Inner", [leaky], attributes=["slope"])
    outer = function("Outer", [
        helper.make_node("Inner", ["a"], ["c"], domain="mine", slope=0.25),
        helper.make_node("Inner", ["c"], ["b"], domain="mine", slope=0.5),
    ])  # fmt: skip
    made = helper.make_node("Outer", ["x"], ["y"], domain="mine")
    check(with_functions([made], [inner, outer]), {"x": X})


def test_functions_that_call_themselves_are_refused():
    again = function("Again", [helper.make_node("Again", ["a"], ["b"], domain="mine")])
    made = helper.make_node("Again", ["x"], ["y"], domain="mine")
    refused(lambda: from_onnx(with_functions([made], [again])), "call each other")


def test_functions_that_double_at_every_level_are_refused():
    def level(k):
        calls = [helper.make_node(f"F{k + 1}", ["a"], ["c"], domain="mine"),
                 helper.make_node(f"F{k + 1}", ["c"], ["b"], domain="mine")]  # fmt: skip
        return function(f"F{k}", calls)

    last = function("F30", [node("Relu", ["a"], "b")])
    proto = with_functions(
        [helper.make_node("F0", ["x"], ["y"], domain="mine")], [*map(level, range(30)), last]
    )
    refused(lambda: from_onnx(proto, limits=relay.frontend.Limits(nodes=1000)), "limit is 1000")


def test_an_operator_without_a_converter_is_what_onnx_defines_it_to_be(monkeypatch):
    from tilewright.models.onnx import importer

    held = importer.DOMAINS[""]
    others = {k: v for k, v in held.items() if k not in ("Softmax", "LeakyRelu")}
    monkeypatch.setitem(importer.DOMAINS, "", others)
    mod, _ = check(model([node("Softmax", ["x"], "s"), node("LeakyRelu", ["s"])], SHAPE), {"x": X})
    assert "softmax" not in str(mod) and "leaky" not in str(mod)


def test_sequences_disappear():
    nodes = [
        helper.make_node("SequenceEmpty", [], ["none"]),
        helper.make_node("SequenceInsert", ["none", "x"], ["one"]),
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("SequenceInsert", ["one", "r", "zero"], ["two"]),
        helper.make_node("SequenceConstruct", ["x", "r", "x"], ["three"]),
        helper.make_node("SequenceErase", ["three", "zero"], ["rest"]),
        helper.make_node("SequenceAt", ["rest", "last"], ["at"]),
        helper.make_node("ConcatFromSequence", ["two"], ["joined"], axis=-1),
        helper.make_node("SequenceLength", ["two"], ["n"]),
        helper.make_node("Cast", ["n"], ["count"], to=FLOAT),
        helper.make_node("Mul", ["joined", "count"], ["a"]),
        helper.make_node("Add", ["at", "count"], ["b"]),
    ]
    weights = {"zero": number(0), "last": number(-1)}
    check(model(nodes, SHAPE, weights, outputs=("a", "b")), {"x": X})


# --- what is known


def test_weights_that_are_cast_are_constants_where_one_is_needed():
    nodes = [
        helper.make_node("Cast", ["h"], ["low"], to=FLOAT),
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Cast", ["s"], ["f"], to=FLOAT),
        helper.make_node("Mul", ["f", "half"], ["g"]),
        helper.make_node("Floor", ["g"], ["whole"]),
        helper.make_node("Cast", ["whole"], ["i"], to=INT64),
        helper.make_node("ConstantOfShape", ["i"], ["zeros"]),
        helper.make_node("Clip", ["x", "low"], ["c"]),
        helper.make_node("ReduceSum", ["zeros"], ["nothing"], keepdims=0),
        helper.make_node("Add", ["c", "nothing"], ["y"]),
    ]
    weights = {"h": np.float16(-0.25), "half": np.float32(0.5)}
    check(model(nodes, SHAPE, weights), {"x": X})


def test_extents_by_their_names():
    proto = model([node("Relu", ["x"])], {"x": ["N", 3, "M", "N"]})
    mod, _ = from_onnx(proto, shape={"N": 2, "M": 5})
    assert mod["main"].params[0].shape == (2, 3, 5, 2)
    refused(lambda: from_onnx(proto, shape={"N": 2}), "extent M is open", "(2, 3, 1, 2)")
    refused(lambda: from_onnx(proto, shape={"K": 2}), "no such input", "open extents M, N")
    refused(lambda: from_onnx(proto, shape={"N": "two", "M": 1}), "'two' is no int")


def test_a_shape_of_another_rank():
    refused(lambda: from_onnx(model([node("Relu", ["x"])], SHAPE), shape={"x": (2, 3)}),
            "the shape (2, 3) has 2 extents, the input has 4", "(2, 3, 6, 6)")  # fmt: skip


def test_values_and_types_of_inputs():
    proto = model([node("Reshape", ["x", "s"])], {"x": [2, 6]})
    proto.graph.input.append(info("s", INT64, [2]))
    refused(lambda: relay.build(from_onnx(proto)[0], "llvm"), "shape is computed by the network")
    mod, params = from_onnx(proto, params={"s": [3, 4]}, dtype={"x": "float64"})
    assert [p.name_hint for p in mod["main"].params] == ["x"] and params == {}
    assert str(mod["main"].ret_type) == "Tensor[(3, 4), float64]"
    refused(lambda: from_onnx(proto, params={"t": [1]}), "'t'", "no such input")
    refused(lambda: from_onnx(proto, dtype={"t": "int8"}), "'t'", "no such input")


def test_weights_may_be_frozen():
    proto = model([node("Mul", ["x", "w"])], SHAPE, {"w": random(6)})
    mod, params = from_onnx(proto, freeze_params=True)
    assert params == {} and [p.name_hint for p in mod["main"].params] == ["x"]
    np.testing.assert_allclose(relay.evaluate(mod, {"x": X}), X * random(6))


def test_versions():
    proto = model([node("Relu", ["x"])], SHAPE)
    proto.ir_version = onnx.IR_VERSION + 1
    refused(lambda: from_onnx(proto), f"IR version is {onnx.IR_VERSION + 1}")
    proto.ir_version = 8
    refused(lambda: from_onnx(proto, opset=999), "opset is 999")
    softmax = model([node("Softmax", ["x"], axis=1)], SHAPE, opset=11)
    a, b = (relay.evaluate(from_onnx(softmax, opset=v)[0], {"x": X}) for v in (None, 13))
    assert not np.allclose(a, b)  # until 12 over all axes from `axis` on


# --- what stands in the way


@pytest.mark.slow
def test_all_that_blocks_is_listed_also_what_is_behind_and_what_an_attribute_asks_for():
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["d"], name="first"),
        helper.make_node("Softmax", ["d"], ["s"], name="wrong", axis=7),
        helper.make_node("Fancy", ["s"], ["f"], name="unknown", domain="my.ops"),
        helper.make_node("Relu", ["f"], ["y"], name="behind"),
        helper.make_node("RandomNormalLike", ["x"], ["unread"], name="second"),
        helper.make_node("Shape", ["d"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
    ]
    refused(
        lambda: from_onnx(model(nodes, SHAPE, outputs=("y", "zeros"))),
        "3 of its 7 nodes cannot be imported", "RandomNormalLike (1 node: first): it draws",
        "Softmax (1 node: wrong): axis 7", "my.ops.Fancy (1 node: unknown)",
        "1 node behind those",
    )  # fmt: skip


def test_what_is_needed_only_for_its_shape_does_not_block():
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["d"]),
        helper.make_node("Shape", ["d"], ["s"]),
        helper.make_node("ConstantOfShape", ["s"], ["zeros"]),
        helper.make_node("ReduceSum", ["zeros"], ["n"], keepdims=0),
        helper.make_node("Add", ["x", "n"], ["y"]),
    ]
    check(model(nodes, SHAPE), {"x": X})


def test_the_list_of_what_blocks_is_short_however_much_there_is():
    nodes = [
        helper.make_node(f"Op{k % 300}", ["x"], [f"o{k}"], domain="my.ops", name="n" * 500)
        for k in range(2000)
    ] + [helper.make_node("Concat", [f"o{k}" for k in range(2000)], ["y"], axis=0)]
    with pytest.raises(ModelError) as e:
        from_onnx(model(nodes, SHAPE))
    text = str(e.value)
    assert len(text.splitlines()) <= 30 and len(text) < 6000
    assert "2000 of its 2001 nodes" in text and "291 more operators" in text
