"""What users call to move, choose and order elements, against numpy; how it fuses and is built."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from graph.case import function, random_inputs, tensor
from tilewright.base.errors import ModelError
from tilewright.graph import passes
from tilewright.graph.expr import Call, Function, post_order
from tilewright.graph.traversal import op_name
from tilewright.runtime.device import device
from tilewright_tvm import nd, relay
from tilewright_tvm.contrib import graph_executor
from tilewright_tvm.relay import nn

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def value(f, *arrays):
    inputs = [tensor(f"x{k}", *a.shape, dtype=a.dtype.name) for k, a in enumerate(arrays)]
    body = f(*inputs)
    body = relay.Tuple(list(body)) if isinstance(body, (list, tuple)) else body
    given = {v.name_hint: a for v, a in zip(inputs, arrays, strict=True)}
    return relay.evaluate(relay.Function(inputs, body), given)


def blocks(x, b, mode):
    n, c, h, w = x.shape
    if mode == "DCR":
        opened = x.reshape(n, b, b, c // b**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        opened = x.reshape(n, c // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return opened.reshape(n, c // b**2, h * b, w * b)


IMAGE = np.arange(96, dtype=np.float32).reshape(1, 8, 3, 4)
SAME = {
    "tile": (lambda x: relay.tile(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3)), X),
    "tile more axes": (
        lambda x: relay.tile(x, (2, 1, 1, 2)), lambda x: np.tile(x, (2, 1, 1, 2)), X
    ),
    "tile fewer axes": (lambda x: relay.tile(x, 2), lambda x: np.tile(x, 2), X),
    "repeat": (lambda x: relay.repeat(x, 3, -2), lambda x: np.repeat(x, 3, -2), X),
    "reverse": (lambda x: relay.reverse(x, 1), lambda x: np.flip(x, 1), X),
    "roll": (lambda x: relay.roll(x, (5, -1), (2, 0)), lambda x: np.roll(x, (5, -1), (2, 0)), X),
    "stack": (lambda x: relay.stack([x, x + x], -1), lambda x: np.stack([x, x + x], -1), X),
    "triu": (lambda x: relay.trilu(x, 1), lambda x: np.triu(x, 1), X),
    "tril": (lambda x: relay.trilu(x, -1, False), lambda x: np.tril(x, -1), X),
    "sort": (lambda x: relay.sort(x, 1, 0), lambda x: -np.sort(-x, 1), X),
    "argsort": (lambda x: relay.argsort(x, 0), lambda x: np.argsort(x, 0, kind="stable"), X),
    "argmax of all": (lambda x: relay.argmax(x), lambda x: np.argmax(x), X % 7),
    "argmin of two": (
        lambda x: relay.argmin(x, (0, 2), True),
        lambda x: np.argmin(x.transpose(1, 0, 2).reshape(3, -1), 1)[None, :, None], X % 7,
    ),
    "argmax, others": (
        lambda x: relay.argmax(x, 1, exclude=True),
        lambda x: np.argmax(x.transpose(1, 0, 2).reshape(3, -1), 1), X % 7,
    ),
    "topk values": (
        lambda x: relay.topk(x, 2, ret_type="values"), lambda x: -np.sort(-x)[..., :2], X % 5,
    ),
    "cumsum of all": (lambda x: relay.cumsum(x, dtype="int64"), lambda x: np.cumsum(x), X),
    "take, batched": (
        lambda x: relay.take(x, relay.const(np.array([[2, 0], [1, 1]])), 1, 1),
        lambda x: np.stack([x[0, [2, 0]], x[1, [1, 1]]]), X,
    ),
    "slice of a size": (
        lambda x: relay.strided_slice(x, (0, -2), (1, -1), slice_mode="size"),
        lambda x: x[:1, -2:], X,
    ),
    "slice backwards": (
        lambda x: relay.strided_slice(x, (3,), (-9,), (-2,), (2,)), lambda x: x[..., 3::-2], X
    ),
    "depth_to_space": (lambda x: nn.depth_to_space(x, 2), lambda x: blocks(x, 2, "DCR"), IMAGE),
    "depth_to_space CRD": (
        lambda x: nn.depth_to_space(x, 2, mode="CRD"), lambda x: blocks(x, 2, "CRD"), IMAGE
    ),
    "there and back": (
        lambda x: nn.space_to_depth(nn.depth_to_space(x, 2, "NHWC"), 2, "NHWC"), lambda x: x,
        IMAGE.transpose(0, 2, 3, 1),
    ),
    "like": (
        lambda x: relay.full_like(x, 3) + relay.zeros_like(x) * relay.ones_like(x),
        lambda x: np.full_like(x, 3), X,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_same_as_numpy(name):
    f, wanted, x = SAME[name]
    np.testing.assert_array_equal(value(f, x), wanted(x))


def test_pieces_of_a_split():
    for sections, cuts in ((2, [2]), ((1, 3), [1, 3])):
        found = value(lambda x, s=sections: relay.split(x, s, -1), X)
        for a, b in zip(found, np.split(X, cuts, -1), strict=True):
            np.testing.assert_array_equal(a, b)


def test_slice_like():
    found = value(lambda x, y: relay.slice_like(x, y, (0, 1)), X, np.zeros((1, 2), "float32"))
    np.testing.assert_array_equal(found, X[:1, :2])
    for axes in (None, ()):
        found = value(lambda x, y, a=axes: relay.slice_like(x, y, a), X, np.zeros(2, "float32"))
        np.testing.assert_array_equal(found, X[:2])


def test_one_hot_beyond_its_depth_is_off():
    i = np.array([0, 2, -1, 7], np.int32)
    found = value(lambda i: relay.one_hot(i, 5.0, -1.0, 3, 0), i)
    np.testing.assert_array_equal(found, np.where(i == np.arange(3)[:, None], 5.0, -1.0))


def test_meshgrid():
    a, b = np.arange(3.0), np.arange(2.0)
    for order in ("ij", "xy"):
        found = value(lambda a, b, o=order: relay.meshgrid([a, b], o), a, b)
        for x, y in zip(found, np.meshgrid(a, b, indexing=order), strict=True):
            np.testing.assert_array_equal(x, y)


def test_reversed_sequences():
    lengths = np.array([1, 3], np.int32)
    found = value(lambda x, n: relay.reverse_sequence(x, n, 1, 0), X, lengths)
    wanted = X.copy()
    wanted[1] = X[1, ::-1]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("arguments", "wanted"), [
    ((5,), np.arange(5)), ((2, 7, 2), np.arange(2, 7, 2)), ((1, 0, -0.25), np.arange(1, 0, -0.25)),
])  # fmt: skip
def test_arange(arguments, wanted):
    found = relay.arange(*arguments)
    np.testing.assert_array_equal(found.data, wanted.astype("float32"))


x, at = tensor("x", 3, 4), tensor("at", 5, dtype="int32")
REFUSALS = {
    "indices of floats": (lambda: relay.take(x, x), "no integers"),
    "mode": (lambda: relay.take(x, at, 0, mode="raise"), "the mode 'raise'"),
    "batch": (lambda: relay.take(x, at, 1, 1), "not common to both"),
    "gather": (lambda: relay.gather(x, 0, at), "do not fit"),
    "gather_nd": (lambda: relay.gather_nd(x, at), "5 indices"),
    "scatter": (lambda: relay.scatter_nd(x, at, x), "5 indices for 2 axes"),
    "updates": (
        lambda: relay.scatter_elements(x, tensor("i", 2, 2, dtype="int32"), x),
        "updates have shape",
    ),
    "reduction": (
        lambda: relay.scatter_elements(x, tensor("i", 3, 4, dtype="int32"), x, 0, "mean"),
        "reduction='mean'",
    ),
    "slice step": (lambda: relay.strided_slice(x, (2,), (0,), (0,)), "strides that are not 0"),
    "slice lengths": (lambda: relay.strided_slice(x, (2,), (0, 1), axes=(0,)), "together"),
    "slice_like": (lambda: relay.slice_like(x, tensor("y", 5, 1)), "longer than that of the data"),
    "slice_like axes": (lambda: relay.slice_like(x, tensor("y", 1), (1,)), "has no axis 1"),
    "set": (lambda: relay.strided_set(x, x, (0,), (2,)), "the slice has shape"),
    "split": (lambda: relay.split(x, 3, 1), "does not divide into 3"),
    "cuts": (lambda: relay.split(x, (3, 2), 1), "do not rise"),
    "tile": (lambda: relay.tile(x, -1), "-1 copies"),
    "axis": (lambda: relay.reverse(x, 2), "axis 2 is out of range"),
    "roll": (lambda: relay.roll(x, (1, 2), 0), "one shift for each axis"),
    "k": (lambda: relay.topk(x, 5), "k=5 of 4"),
    "ret_type": (lambda: relay.topk(x, 1, ret_type="all"), "no such ret_type"),
    "places": (lambda: relay.topk(x, 1, dtype="int8", ret_type="indices"), "holds no places"),
    "nothing left": (lambda: relay.argmax(x, (0, 1), exclude=True), "no axis is left"),
    "sequence": (lambda: relay.reverse_sequence(x, at), "not one length"),
    "triangle": (lambda: relay.trilu(at), "no matrix"),
    "blocks": (lambda: nn.depth_to_space(tensor("x", 1, 6, 2, 2), 2), "6 channels"),
    "pixels": (lambda: nn.space_to_depth(tensor("x", 1, 6, 3, 2), 2), "3 by 2 pixels"),
    "order": (lambda: nn.depth_to_space(tensor("x", 1, 4, 2, 2), 2, mode="X"), "no such order"),
    "image": (lambda: nn.space_to_depth(x, 2), "no batch of images"),
    "pad": (lambda: nn.pad(x, ((1, 1), (0, 0)), pad_mode="bounce"), "the mode 'bounce'"),
    "nothing there": (lambda: relay.take(tensor("x", 0, 3), at, 0), "nothing to choose from"),
    "points of nothing": (
        lambda: relay.gather_nd(tensor("x", 0, 3), relay.reshape(at, (1, -1))),
        "nothing to choose from",
    ),
    "put nowhere": (
        lambda: relay.scatter_nd(tensor("x", 0, 3), relay.reshape(at, (1, -1)), tensor("u", 5, 3)),
        "nothing to choose from",
    ),
    "best of nothing": (lambda: relay.argmax(tensor("x", 0, 3), 0), "nothing to choose from"),
    "endless": (lambda: relay.arange(1, 3, 0), "no end"),
    "grid": (lambda: relay.meshgrid([at], "yx"), "no such order"),
    "stack": (lambda: relay.stack([], 0), "nothing to join"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    make, words = REFUSALS[name]
    with pytest.raises(ModelError, match=words):
        make()


# -- fusion ----------------------------------------------------------------------------------------


def groups(body):
    fused = passes.fuse(relay.IRModule.from_expr(function(body)))["main"]
    calls = [n for n in post_order(fused.body) if isinstance(n, Call)]
    return [
        [op_name(n) for n in post_order(c.op.body) if isinstance(n, Call)]
        for c in calls if isinstance(c.op, Function)
    ]  # fmt: skip


def test_an_embedding_takes_what_follows():
    words = relay.take(tensor("table", 50, 8), tensor("at50", 6, dtype="int32"), 0)
    assert groups(relay.tanh(words + tensor("y", 6, 8))) == [["take", "add", "tanh"]]


def test_slices_join_what_they_read_and_what_reads_them():
    cut = relay.strided_slice(relay.exp(x), (1,), (3,))
    assert groups(relay.tanh(cut)) == [["exp", "strided_slice", "tanh"]]
    gate, rest = relay.split(relay.exp(x), 2, 1).fields  # exp is read twice
    found = groups(relay.tanh(gate) * rest)
    assert found == [["exp"], ["strided_slice", "tanh", "strided_slice", "multiply"]]


def test_what_is_larger_than_what_it_reads_is_no_part_of_its_kernel():
    many = relay.take(relay.exp(x), tensor("at3", 9, dtype="int32"), 0)
    assert groups(many) == [["exp"], ["take"]]


# -- compiled --------------------------------------------------------------------------------------


def network():
    """Token and position embedding, slices, a cache that is updated, and the best of all."""
    tokens = tensor("at30", 1, 6, dtype="int64")
    words = relay.take(tensor("table", 30, 8), tokens, 0, mode="wrap")
    hidden = relay.tanh(words + tensor("places", 1, 6, 8))
    first, second = relay.split(hidden, 2, -1).fields
    cache = relay.scatter_elements(
        tensor("cache", 1, 9, 4), tensor("at9", 1, 6, 4, dtype="int64"), first * second, 1, "add"
    )
    total = relay.cumsum(nn.pad(cache, ((0, 0), (2, 1), (0, 0)), pad_mode="reflect"), 1)
    both = relay.topk(relay.reshape(total, (1, -1)), 5, dtype="int64")
    return function(relay.Tuple([total, both[0], both[1], relay.argmax(total, -1)]))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_a_network_of_them_is_built_verified_and_right(target):
    dev = device(target)
    if not dev.exist:
        pytest.skip(f"no {target} device here")
    f = network()
    inputs = random_inputs(f)
    library = relay.build(relay.IRModule({"main": f}), target, verify=True)
    module = graph_executor.GraphModule(library["default"](dev))
    for name, a in inputs.items():
        module.set_input(name, nd.array(a, dev))
    module.run()
    for k, wanted in enumerate(relay.evaluate(f, inputs)):
        np.testing.assert_allclose(module.get_output(k).numpy(), wanted, rtol=1e-5, atol=1e-5)


# -- ONNX ------------------------------------------------------------------------------------------


def imported(op, inputs, constants, outputs=1, opset=18, **attrs):
    """The body of a model of one node."""
    names = [*inputs, *constants]
    made = [f"y{k}" for k in range(outputs)]
    kinds = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()}
    graph = helper.make_graph(
        [helper.make_node(op, names, made, **attrs)], "g", list(kinds.values()),
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in made],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    return relay.frontend.from_onnx(model)[0]["main"].body


def operators(body):
    return [op_name(n) for n in post_order(body) if isinstance(n, Call)]


@pytest.mark.parametrize(("indices", "wanted"), [
    (np.int64(-1), ["strided_slice", "reshape"]),
    (np.array([0, 2, 4]), ["strided_slice", "reshape"]),
    (np.array([4, 3]), ["strided_slice", "reshape"]),
    (np.array([0, 1, 3]), ["take"]),
    (np.array([1, 1]), ["take"]),
])  # fmt: skip
def test_indices_that_are_known_and_even_are_a_slice(indices, wanted):
    body = imported("Gather", {"x": (2, 5)}, {"i": indices}, axis=1)
    assert operators(body) == wanted
    a = np.arange(10, dtype=np.float32).reshape(2, 5)
    np.testing.assert_array_equal(relay.evaluate(body, {"x": a}), np.take(a, indices, 1))


def test_negative_pads_cut():
    body = imported("Pad", {"x": (4, 5)}, {"p": np.array([-1, 2, 1, -2])})
    a = np.arange(20, dtype=np.float32).reshape(4, 5)
    wanted = np.pad(a[1:, :3], ((0, 1), (2, 0)))
    np.testing.assert_array_equal(relay.evaluate(body, {"x": a}), wanted)


ONNX_REFUSALS = {
    "Gather": (("Gather", {"x": (3,)}, {"i": np.array([3])}), {}, "leave the axis of 3"),
    "Split": (("Split", {"x": (3,)}, {"s": np.array([1, 1])}, 2), {}, "do not make 3"),
    "TopK": (("TopK", {"x": (3,)}, {"k": np.array([-1])}, 2), {}, "k=-1"),
    "Tile": (("Tile", {"x": (3,)}, {"r": np.array([1, 2])}), {}, "do not fit"),
    "OneHot": (
        ("OneHot", {"x": (3,)}, {"d": np.int64(0), "v": np.zeros(2, "float32")}),
        {},
        "depth is 0",
    ),
    "Compress": (("Compress", {"x": (3,)}, {"c": np.ones(3, bool)}), {"axis": 1}, "out of range"),
    "DepthToSpace": (("DepthToSpace", {"x": (1, 3, 2, 2)}, {}), {"blocksize": 2}, "3 channels"),
    "Slice": (
        ("Slice", {"x": (3,)}, {"b": np.array([3]), "e": np.array([9, 1])}),
        {},
        "belong together",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ONNX_REFUSALS)
def test_models_that_cannot_be_read_say_why(name):
    arguments, attrs, words = ONNX_REFUSALS[name]
    with pytest.raises(ModelError, match=words):
        imported(*arguments, **attrs)


# -- slices come first -----------------------------------------------------------------------------


def first(body):
    """What the pass makes of `body`, checked to mean the same."""
    before = relay.IRModule.from_expr(function(body))
    after = passes.slices_first(before)
    inputs = random_inputs(before["main"])
    for a, b in zip(_all(before, inputs), _all(after, inputs), strict=True):
        np.testing.assert_array_equal(a, b)
    return after["main"].body


def _all(mod, inputs):
    found = relay.evaluate(mod, inputs)
    return found if isinstance(found, tuple) else (found,)


def test_queries_keys_and_values_are_moved_once():
    qkv = relay.transpose(relay.reshape(tensor("qkv", 2, 5, 24), (2, 5, 3, 2, 4)), (2, 0, 3, 1, 4))
    query, key, values = (relay.squeeze(p, 0) for p in relay.split(qkv, 3, 0).fields)
    body = first(relay.tanh(query) + key * values)
    wanted = ["strided_slice", "transpose", "squeeze"]
    assert operators(body).count("transpose") == 3
    assert operators(body)[1:4] == wanted
    assert sorted(groups(body))[0] == ["strided_slice", "transpose"]


def test_a_transposition_that_something_else_reads_stays():
    moved = relay.transpose(tensor("x", 4, 6), (1, 0))
    both = relay.Tuple([relay.strided_slice(moved, (0,), (2,)), relay.exp(moved)])
    assert operators(first(both)) == ["transpose", "strided_slice", "exp"]
    twice = relay.Tuple(
        [relay.strided_slice(moved, (0,), (5,)), relay.strided_slice(moved, (1,), (6,))]
    )
    assert operators(first(twice)).count("transpose") == 1


def test_slices_of_slices_and_of_joined_parts():
    a, b = tensor("a", 3, 8), tensor("b", 5, 8)
    cut = relay.strided_slice(relay.strided_slice(a, (0, 7), (3, 0), (1, -2)), (1, 1), (3, 3))
    assert operators(first(cut)) == ["strided_slice"]
    joined = relay.concatenate([a, b], 0)
    assert operators(first(relay.strided_slice(joined, (4, 2), (7, 6)))) == ["strided_slice"]
    assert operators(first(relay.strided_slice(joined, (3,), (8,)))) == []
    assert operators(first(relay.strided_slice(joined, (2,), (5,)))) == [
        "concatenate",
        "strided_slice",
    ]
