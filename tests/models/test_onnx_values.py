"""ONNX models in which values decide shapes: they run under the executor "vm"."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from models.test_onnx import FLOAT, INT64, model, node, refused
from models.test_onnx_graphs import doubling, graph, info, loop, number
from tilewright.models.onnx import ops
from tilewright_tvm import relay

from_onnx = relay.frontend.from_onnx
RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 6)).astype("float32")
BOOL, INT32 = TensorProto.BOOL, TensorProto.INT32


def opened(nodes, inputs, outputs=("y",), weights=None, opset=17):
    """A model whose results have any type; inputs: (element type, shape) by name."""
    for k, made in enumerate(nodes):
        made.name = f"{made.name}_{k}"
    proto = model(nodes, {}, weights, opset, outputs)
    proto.graph.input.extend(info(name, kind, shape) for name, (kind, shape) in inputs.items())
    return proto


def check(proto, *calls, kinds=("vm", "debug"), shape=None):
    """Whether each executor gives, for each call in turn, what onnxruntime gives."""
    for output in proto.graph.output:
        output.type.Clear()
    session = onnxruntime.InferenceSession(typed(proto).SerializeToString())
    mod, params = from_onnx(proto, shape=shape)
    for kind in kinds:
        run = relay.create_executor(kind, mod, params=params).evaluate()
        for data in [*calls, calls[0]]:
            wanted = [
                w for w in session.run(None, data) for w in (w if isinstance(w, list) else [w])
            ]
            found = run(**{n: d for n, d in data.items() if n not in params})
            found = found if isinstance(found, list) else [found]
            for a, b in zip(flat(found), wanted, strict=True):
                assert a.shape == b.shape and a.dtype == b.dtype
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return mod, params


def flat(values):
    return [a for v in values for a in (flat(v) if isinstance(v, list) else [v.numpy()])]


def typed(proto):
    """The model with the types of its results, which onnxruntime asks for."""
    import onnx

    return onnx.shape_inference.infer_shapes(proto)


SLICE = {name: (INT64, [2]) for name in ("begin", "end")}
CASES = {
    "Reshape": (
        opened([node("Exp", ["x"], "e"), node("Reshape", ["e", "s"])],
               {"x": (FLOAT, [2, 6]), "s": (INT64, [2])}),
        [{"x": X, "s": number([3, 4])}, {"x": X, "s": number([-1, 2])}],
    ),
    "Tile": (
        opened([node("Tile", ["x", "s"], "t"), node("Relu", ["t"])],
               {"x": (FLOAT, [2, 6]), "s": (INT64, [2])}),
        [{"x": X, "s": number([3, 1])}, {"x": X, "s": number([1, 2])}],
    ),
    "Range": (
        opened([node("Range", ["a", "b", "c"])], {n: (INT64, []) for n in "abc"}),
        [{"a": number(1), "b": number(9), "c": number(2)},
         {"a": number(3), "b": number(-3), "c": number(-1)}],
    ),
    "Slice": (
        opened([node("Slice", ["x", "begin", "end"])], {"x": (FLOAT, [2, 6]), **SLICE}),
        [{"x": X, "begin": number([0, 1]), "end": number([2, 5])},
         {"x": X, "begin": number([1, -3]), "end": number([2, 99])}],
    ),
    "Expand by what is computed": (
        opened([node("Shape", ["x"], "a"), node("Mul", ["a", "n"], "s"),
                node("Reshape", ["x", "flat"], "f"), node("Expand", ["one", "s"], "e"),
                node("ReduceMax", ["f"], "m", keepdims=0), node("Mul", ["e", "m"])],
               {"x": (FLOAT, [2, 6]), "n": (INT64, [2])},
               weights={"flat": number([-1]), "one": np.ones((1, 1), "float32")}),
        [{"x": X, "n": number([2, 1])}, {"x": X, "n": number([1, 3])}],
    ),
    "TopK": (
        opened([helper.make_node("TopK", ["x", "k"], ["y", "i"])],
               {"x": (FLOAT, [2, 6]), "k": (INT64, [1])}, ("y", "i")),
        [{"x": X, "k": number([2])}, {"x": X, "k": number([5])}],
    ),
    "NonZero": (
        opened([node("Relu", ["x"], "r"), node("NonZero", ["r"], "p"),
                node("Transpose", ["p"], "t"), node("GatherND", ["r", "t"])],
               {"x": (FLOAT, [2, 6])}),
        [{"x": X}, {"x": X + 1}, {"x": -np.abs(X)}],
    ),
    "Compress": (
        opened([node("Compress", ["x", "c"], axis=1)], {"x": (FLOAT, [2, 6]), "c": (BOOL, [6])}),
        [{"x": X, "c": X[0] > 0}, {"x": X, "c": X[0] < 9}],
    ),
    "Unique": (
        opened([node("Relu", ["x"], "r"),
                helper.make_node("Unique", ["r"], ["y", "first", "which", "often"], sorted=0)],
               {"x": (FLOAT, [2, 6])}, ("y", "first", "which", "often")),
        [{"x": np.round(X)}, {"x": X}],
    ),
    "Unique along an axis": (
        opened([node("Unique", ["x"], axis=0)], {"x": (FLOAT, [2, 6])}),
        [{"x": X}, {"x": X[[0, 0]]}],
    ),
    "a loop as long as an input says": (
        opened([loop("n", doubling())], {"x": (FLOAT, [2, 6]), "n": (INT64, [])}, ("y", "all")),
        [{"x": X, "n": number(n)} for n in (1, 2)],
    ),
}  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_values_of_a_call_decide_shapes(name):
    check(CASES[name][0], *CASES[name][1])


def until(limit):
    """One trip: s -> s + s, until an element is above `limit`, which the graph around has."""
    nodes = [node("Add", ["s", "s"], "twice"), node("ReduceMax", ["twice"], "m", keepdims=0),
             node("Less", ["m", limit], "more"), node("Identity", ["twice"], "kept")]  # fmt: skip
    inputs = [info("k", INT64, []), info("go", BOOL, []), info("s", FLOAT, None)]
    body = graph(nodes, ["more", "twice", "kept"], inputs)
    body.output[0].type.tensor_type.elem_type = BOOL
    return body


def test_a_loop_whose_condition_its_trips_compute():
    nodes = [node("Add", ["x", "w"], "limit_of"), node("ReduceMax", ["limit_of"], "l", keepdims=0),
             loop("", until("l"), "on")]  # fmt: skip
    weights = {"on": np.array(True), "w": np.float32([50])}
    proto = opened(nodes, {"x": (FLOAT, [2, 6])}, ("y", "all"), weights)
    check(proto, {"x": np.abs(X) + 1}, {"x": np.abs(X) + 30})


def test_a_branch_whose_shape_differs_from_the_other():
    made = helper.make_node(
        "If", ["c"], ["y"],
        then_branch=graph([node("ReduceSum", ["x"], "t", keepdims=0)], ["t"]),
        else_branch=graph([node("Exp", ["x"], "e")], ["e"]),
    )  # fmt: skip
    nodes = [node("ReduceSum", ["x"], "total", keepdims=0), node("Less", ["total", "z"], "c"), made]
    proto = opened(nodes, {"x": (FLOAT, [2, 6])}, weights={"z": np.float32(0)})
    check(proto, {"x": np.abs(X)}, {"x": -np.abs(X)})


@pytest.mark.slow
def test_a_sequence_as_long_as_data_say():
    nodes = [node("NonZero", ["x"], "p"),
             node("SplitToSequence", ["p"], "parts", axis=1, keepdims=1),
             node("SequenceLength", ["parts"], "y"),
             helper.make_node("ConcatFromSequence", ["parts"], ["again"], axis=1)]  # fmt: skip
    proto = opened(nodes, {"x": (FLOAT, [2, 6])}, ("y", "again"))
    check(proto, {"x": np.maximum(X, 0)}, {"x": X})


BOXES = {"boxes": (FLOAT, [2, 9, 4]), "scores": (FLOAT, [2, 3, 9])}


@pytest.mark.parametrize("by_center", [0, 1])
def test_boxes_are_chosen_as_onnxruntime_chooses(by_center):
    made = node("NonMaxSuppression", ["boxes", "scores", "n", "o", "l"], center_point_box=by_center)
    limits = {"n": (INT64, [1]), "o": (FLOAT, [1]), "l": (FLOAT, [1])}
    proto = opened([made], {**BOXES, **limits})
    calls = []
    for seed, most, overlap, least in [(0, 2, 0.3, 0.2), (1, 9, 0.1, 0.0), (2, 0, 0.5, 0.9)]:
        rng = np.random.default_rng(seed)
        calls.append({
            "boxes": rng.random((2, 9, 4)).astype("float32"),
            "scores": rng.random((2, 3, 9)).astype("float32"), "n": number([most]),
            "o": np.float32([overlap]), "l": np.float32([least]),
        })  # fmt: skip
    check(proto, *calls)


def test_boxes_behind_a_network_and_in_front_of_one():
    """What is behind the boxes is built for each number of them."""
    nodes = [node("Sigmoid", ["scores"], "s"), node("NonMaxSuppression", ["boxes", "s", "n"], "k"),
             node("Gather", ["k", "two"], "which", axis=1), node("Squeeze", ["boxes", "zero"], "b"),
             node("Gather", ["b", "which"], "left"), node("Mul", ["left", "left"])]  # fmt: skip
    weights = {"n": number([3]), "two": number(2), "zero": number([0])}
    inputs = {"boxes": (FLOAT, [1, 9, 4]), "scores": (FLOAT, [1, 2, 9])}
    calls = [
        {"boxes": RNG.random((1, 9, 4)).astype("float32") * k,
         "scores": RNG.random((1, 2, 9)).astype("float32")} for k in (1, 5)
    ]  # fmt: skip
    check(opened(nodes, inputs, weights=weights), *calls)


def test_open_extents_beside_values():
    nodes = [node("Shape", ["x"], "s"), node("NonZero", ["x"], "p"), node("Size", ["p"], "y")]
    proto = opened(nodes, {"x": (FLOAT, ["n", 6])}, ("y", "s"))
    check(proto, {"x": X}, {"x": X[:1]}, shape={"x": (relay.Any(), 6)})


def test_a_build_says_which_executor_runs_it():
    for nodes, words in (
        ([node("NonZero", ["x"])], "how many results"),
        ([node("Cast", ["x"], "s", to=INT64), node("Reshape", ["x", "s"])], "computed by the net"),
    ):
        mod, _ = from_onnx(opened(nodes, {"x": (FLOAT, [2])}))
        refused(lambda mod=mod: relay.build(mod, "llvm"), words, 'create_executor("vm"')
    assert "NonMaxSuppression" not in ops.refused.CONVERTERS


def test_what_cannot_be_made_is_told_when_it_is_run():
    proto = opened([node("Reshape", ["x", "s"])], {"x": (FLOAT, [2, 6]), "s": (INT64, [2])})
    run = relay.create_executor("vm", from_onnx(proto)[0]).evaluate()
    refused(lambda: run(X, number([5, 5])), "Reshape", "12 elements")
    assert run(X, number([4, 3])).shape == (4, 3)


def test_limits_count_anew_for_each_call():
    proto = opened([loop("n", doubling())], {"x": (FLOAT, [2, 6]), "n": (INT64, [])}, ("y", "all"))
    mod, _ = from_onnx(proto, limits=relay.frontend.Limits(nodes=20))
    run = relay.create_executor("debug", mod).evaluate()
    for _ in range(20):
        run(X, number(3))
    refused(lambda: run(X, number(2**40)), "the limit is 20")
