"""ONNX files from anybody: each refused in words before anything is made of it."""

from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from models.test_onnx import INT64, X, check, model, node, random, refused
from tilewright.graph.op.work import work
from tilewright_tvm import relay
from tilewright_tvm.contrib import graph_executor

from_onnx = relay.frontend.from_onnx
SHAPE = {"x": X.shape}
HUGE = 2**62


def number(value):
    return np.array(value, "int64")


def with_attribute(change, nodes=None):
    """A model whose first node's first attribute was changed by hand."""
    proto = model(nodes or [node("Softmax", ["x"], axis=1)], SHAPE)
    change(proto.graph.node[0])
    return proto


def twice(n):
    n.attribute.append(n.attribute[0])


def not_text(n):
    n.attribute.append(helper.make_attribute("auto_pad", b"\xff"))


def of_a_function(n):
    n.attribute[0].ref_attr_name = "axis"


POOL = {"kernel_shape": [2, 2]}
CONV = {"w": random(4, 3, 3, 3)}

# name -> (model, words of the error)
REFUSALS = {
    "attribute-twice": (with_attribute(twice), ["axis is given twice"]),
    "attribute-type": (
        model([node("Softmax", ["x"], axis=[1])], SHAPE), ["axis is INTS, not INT"],
    ),
    "attribute-missing": (model([node("Concat", ["x"])], SHAPE), ["axis is missing"]),
    "attribute-text": (
        with_attribute(not_text, [node("MaxPool", ["x"], **POOL)]), ["auto_pad", "not text"],
    ),
    "attribute-reference": (with_attribute(of_a_function), ["one of a function"]),
    "attribute-far-out": (  # onnx's own inference would take the process along
        model(
            [node("GatherND", ["x", "at"], batch_dims=-100)], SHAPE, {"at": number([[0], [1]])},
        ),
        ["GatherND", "-100 common axes"],
    ),
    "pieces-without-number": (
        model([node("Split", ["x"], num_outputs=2**40)], SHAPE, opset=18), ["pieces of"],
    ),
    "inputs": (model([node("Relu", ["x", "x"])], SHAPE), ["2 inputs, not 1"]),
    "input-empty": (model([node("Add", ["x", ""])], SHAPE), ["input 1 is missing"]),
    "element-type": (
        model([node("Mean", ["n", "n"])], SHAPE, {"n": number([1, 2])}),
        ["elements of int64", "float32"],
    ),
    "opset-unknown": (model([node("Relu", ["x"])], SHAPE, opset=1000), ["opset is 1000"]),
    "operator-too-new": (
        model([node("Expand", ["x", "s"])], SHAPE, {"s": number([1])}, opset=7),
        ["opset 7 has no operator Expand"],
    ),
    "name-twice": (
        model([node("Relu", ["x"], "y"), node("Relu", ["x"], "y")], SHAPE), ["is there already"],
    ),
    "name-control": (
        model([node("Relu", ["\x1b[2J"])], {"\x1b[2J": [2]}), ["control characters", "'\\x1b[2J'"],
    ),
    "extent": (model([node("Relu", ["x"])], {"x": [HUGE]}), ["too large", str(HUGE)]),
    "bytes": (
        model([node("Relu", ["x"])], {"x": [2**31 - 1, 2**31 - 1]}), ["too large", "bytes"],
    ),
    "rank": (
        model([node("Unsqueeze", ["x", "a"])], SHAPE, {"a": number(range(40))}), ["dimensions"],
    ),
    "step": (
        model([node("Pad", ["x", "p"])], SHAPE, {"p": number([0] * 7 + [10**7])}),
        ["bytes that one operator reads and writes", "Limits(step="],
    ),
    "loop": (
        model([node("Loop", ["n", ""], body=helper.make_graph([], "body", [], []))], SHAPE,
              {"n": number(HUGE)}),
        ["with all copies of bodies", "nodes, the limit is", "Limits(nodes="],
    ),
    "range": (
        model([node("Range", ["a", "n", "b"], "r"), node("Reshape", ["x", "r"])], SHAPE,
              {"a": number(0), "n": number(HUGE), "b": number(1)}),
        ["bytes of computed constants", "Limits(constants="],
    ),
    "constant-of-shape": (
        model([node("ConstantOfShape", ["s"], "c"), node("Add", ["x", "c"])], SHAPE,
              {"s": number([HUGE])}),
        ["bytes of computed constants"],
    ),
    "expand-arithmetic": (
        model([node("Expand", ["a", "s"], "c"), node("Reshape", ["x", "c"])], SHAPE,
              {"a": number([1]), "s": number([HUGE])}),
        ["too large"],
    ),
    "expand": (
        model([node("Expand", ["x", "s"])], SHAPE, {"s": number([5])}), ["5 and 6 meet"],
    ),
    "arithmetic": (
        model([node("Gather", ["a", "k"], "c"), node("Reshape", ["x", "c"])], SHAPE,
              {"a": number([1]), "k": number(7)}),
        ["indices leave the axis of 1 elements"],
    ),
    "window": (
        model([node("MaxPool", ["x"], kernel_shape=[2**31, 3], auto_pad="SAME_UPPER")], SHAPE),
        ["much more than the extent 6"],
    ),
    "window-lengths": (
        model([node("MaxPool", ["x"], pads=[1, 1], **POOL)], SHAPE),
        ["pads [1, 1] are not those of 2 axes"],
    ),
    "strides-huge": (
        model([node("MaxPool", ["x"], strides=[2**63 - 1, 1], **POOL)], SHAPE), ["beyond"],
    ),
    "strides-same": (
        model([node("MaxPool", ["x"], strides=[0, 1], auto_pad="SAME_LOWER", **POOL)], SHAPE),
        ["strides [0, 1]"],
    ),
    "strides-ceil": (
        model([node("MaxPool", ["x"], strides=[0, 1], ceil_mode=1, **POOL)], SHAPE),
        ["strides, dilation and kernel sizes start at 1"],
    ),
    "kernel-shape": (
        model([node("Conv", ["x", "w"], kernel_shape=[2, 2])], SHAPE, CONV), ["(3, 3)", "[2, 2]"],
    ),
    "axis-flatten": (model([node("Flatten", ["x"], axis=5)], SHAPE), ["axis 5", "-4 to 3"]),
    "axis-pad": (
        model([node("Pad", ["x", "p", "", "a"])], SHAPE, {"p": number([1, 1]), "a": number([4])},
              opset=18),
        ["axis 4 is out of range"],
    ),
    "axis-twice": (
        model([node("Unsqueeze", ["x", "a"])], SHAPE, {"a": number([0, 0])}), ["named twice"],
    ),
    "flag": (
        model([node("ReduceMax", ["x"], keepdims=-1)], SHAPE), ["keepdims=-1 is neither"],
    ),
    "gemm": (
        model([node("Gemm", ["x", "w", "c"])], {"x": [1, 3]},
              {"w": random(3, 4), "c": random(5, 4)}),
        ["C has shape (5, 4)"],
    ),
    "clip": (
        model([node("Clip", ["x", "w"])], SHAPE, {"w": random(2)}), ["min has 2 elements"],
    ),
    "cast": (
        model([node("Cast", ["x"], to=TensorProto.STRING)], SHAPE), ["'string' is not supported"],
    ),
}  # fmt: skip


@pytest.mark.sampled(19)
@pytest.mark.slow
@pytest.mark.parametrize("kind", REFUSALS)
def test_what_does_not_hold_is_refused_at_the_door(kind):
    proto, words = REFUSALS[kind]
    refused(lambda: from_onnx(proto), *words)


def test_names_that_are_not_text():
    data = model([node("Relu", ["xxxx"])], {"xxxx": [2]}).SerializeToString()
    refused(lambda: from_onnx(data.replace(b"xxxx", b"\xff\xfe\xfd\xfc")), "is not text")


def test_limits_are_those_of_the_caller():
    proto = model([node("MatMul", ["x", "w"])], {"x": [64, 64]}, {"w": random(64, 64)})
    for what, least in (("nodes", 1), ("step", 3 * 4 * 64**2), ("operations", 2 * 64**3)):
        refused(
            lambda what=what, least=least: from_onnx(
                proto, limits=relay.frontend.Limits(**{what: least - 1})
            ),
            f"the limit is {least - 1}",
        )
    total = 5 * 4 * 64**2  # a transposition and a cast are values, too
    refused(lambda: from_onnx(proto, limits=relay.frontend.Limits(total=total - 1)), "total")
    enough = relay.frontend.Limits(
        nodes=1, step=3 * 4 * 64**2, total=total, operations=10**6, constants=0
    )
    from_onnx(proto, limits=enough)


@pytest.fixture
def saved(tmp_path):
    """A function from a change of the weight's message to the path of a model that has it."""

    def save(change):
        folder = tmp_path / "model"
        folder.mkdir()
        proto = model([node("Mul", ["x", "w"])], {"x": [2]}, {"w": random(2)})
        path = folder / "net.onnx"
        onnx.save(proto, path, save_as_external_data=True, location="net.bin", size_threshold=0)
        kept = onnx.load(path, load_external_data=False)
        change({e.key: e for e in kept.graph.initializer[0].external_data})
        path.write_bytes(kept.SerializeToString())
        return path

    return save


def test_external_weights_stay_in_the_folder(saved, tmp_path):
    (tmp_path / "secret").write_bytes(bytes(8))

    def elsewhere(entries):
        entries["location"].value = "../secret"

    path = saved(elsewhere)
    refused(lambda: from_onnx(path), "outside the folder")
    refused(lambda: from_onnx(onnx.load(path, load_external_data=False)), "in another file")


def test_a_link_does_not_lead_out_of_the_folder(saved, tmp_path):
    path = saved(lambda entries: None)
    from_onnx(path)
    (path.parent / "net.bin").unlink()
    (tmp_path / "secret").write_bytes(bytes(8))
    (path.parent / "net.bin").symlink_to(tmp_path / "secret")
    refused(lambda: from_onnx(path), "outside the folder")


def test_external_weights_that_end_too_soon(saved):
    def longer(entries):
        entries["length"].value = "8000"

    path = saved(longer)
    refused(lambda: from_onnx(path), "ends after")


def chain(op, count, **attrs):
    names = ["x", *(f"c{k}" for k in range(count))]
    nodes = [node(op, [a], b, **attrs) for a, b in pairwise(names)]
    return model(nodes, SHAPE, outputs=(names[-1],))


def built(proto):
    """The results of the built network for X, and the kernels it has."""
    mod, params = from_onnx(proto)
    library = relay.build(mod, "llvm", params=params)
    module = graph_executor.GraphModule(library["default"](tilewright.cpu()))
    module.set_input("x", X)
    module.run()
    wanted = relay.evaluate(mod, {**params, "x": X})
    np.testing.assert_allclose(module.get_output(0).numpy(), wanted, rtol=1e-4, atol=1e-5)
    return library.report.kernels


@pytest.mark.slow
def test_a_chain_of_any_length():
    """Of 1,500 operators: more than Python's stack has room for."""
    assert len(built(chain("Sigmoid", 1500))) == 2  # one of the most that fit, and the rest


def test_a_value_that_doubles_with_every_operator():
    names = ["x", *(f"c{k}" for k in range(60))]
    nodes = [node("Add", [a, a], b) for a, b in pairwise(names)]
    built(model(nodes, SHAPE, outputs=(names[-1],)))


def test_a_choice_that_doubles_with_every_operator():
    built(chain("LeakyRelu", 60, alpha=0.5))


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("op", ["Concat", "Sum", "Max"])
def test_an_operator_of_any_number_of_inputs(op):
    built(model([node(op, ["x"] * 700, **({"axis": 0} if op == "Concat" else {}))], SHAPE))


def test_expansion_of_a_weight_is_left_to_the_run():
    """Folding would make 400 MB of four bytes."""
    nodes = [node("Expand", ["w", "s"], "e"), node("ReduceMax", ["e"], "m", keepdims=0),
             node("Add", ["x", "m"])]  # fmt: skip
    proto = model(nodes, SHAPE, {"w": random(1), "s": number([10**8])}, opset=13)
    mod, params = from_onnx(proto)
    main = relay.optimize(mod, params)["main"]
    constants = [n for n in relay.analysis.post_order(main.body) if isinstance(n, relay.Constant)]
    assert sum(c.data.nbytes for c in constants) < 1000


def test_models_that_used_to_import_still_do():
    check(model([node("Flatten", ["x"], axis=-3)], SHAPE), {"x": X})
    check(model([node("Flatten", ["x"], axis=4)], SHAPE), {"x": X})
    check(model([node("MaxPool", ["x"], auto_pad="VALID", **POOL)], SHAPE), {"x": X})
    cast = [node("Cast", ["x"], "i", to=INT64), node("Cast", ["i"], to=TensorProto.FLOAT)]
    cast[1].name = "back"
    check(model(cast, SHAPE), {"x": X})


def test_a_far_dilated_transposed_convolution_is_beyond_the_limits():
    """Its kernel is spread with zeros: work that the weight's size does not show."""
    x, w = relay.var("x", shape=(2, 4, 9)), relay.var("w", shape=(4, 6, 3))
    near, far = (
        work(relay.nn.conv1d_transpose(x, w, strides=2, padding=1, dilation=d)) for d in (1, 10**6)
    )
    assert near < 10**4 < 10**12 < far
