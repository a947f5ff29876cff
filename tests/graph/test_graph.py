"""Building graphs by hand: types, printing, and one refusal per way to get it wrong."""

import numpy as np
import pytest

from graph.cases import function, tensor
from tilewright.base.errors import ModelError
from tilewright_tvm import relay
from tilewright_tvm.relay import nn


def refused(make, *words: str) -> None:
    """`make` must raise a ModelError that says all of `words`."""
    with pytest.raises(ModelError) as e:
        make()
    for word in words:
        assert word in str(e.value), str(e.value)


def test_a_graph_as_in_the_tutorials():
    data = relay.var("data", shape=(1, 3, 8, 8))
    net = nn.conv2d(data, relay.var("w"), channels=4, kernel_size=(3, 3), padding=(1, 1))
    net = nn.bias_add(net, relay.var("b"))
    net = nn.batch_norm(net, *(relay.var(n) for n in ("gamma", "beta", "mean", "var")))[0]
    net = nn.dense(nn.batch_flatten(nn.relu(net)), relay.var("fc"), units=10)
    f = relay.Function(relay.analysis.free_vars(net), net)
    mod = relay.IRModule.from_expr(f)
    shapes = {p.name_hint: p.shape for p in mod["main"].params}
    assert shapes == {
        "data": (1, 3, 8, 8), "w": (4, 3, 3, 3), "b": (4,), "gamma": (4,), "beta": (4,),
        "mean": (4,), "var": (4,), "fc": (10, 256),
    }  # fmt: skip
    again = relay.Function(f.params, nn.softmax(f.body), None, f.type_params, f.attrs)
    assert again.ret_type == relay.TensorType((1, 10))


def test_arithmetic_on_values():
    x, y = tensor("x", 2, 3), tensor("y", 3)
    f = function(-(1 - x) * y / 2.0 + x)
    a, b = np.ones((2, 3)) * 3, np.arange(3.0)
    np.testing.assert_allclose(relay.evaluate(f, {"x": a, "y": b}), 2 * b / 2 + a)


def test_constants_keep_their_type():
    assert relay.const(1.5).dtype == "float32"
    assert relay.const(3).dtype == "int32"
    assert relay.const(True).dtype == "bool"
    assert relay.const(np.zeros((2, 1))).dtype == "float64"
    assert relay.const(1 << 40, "float32").data == 2.0**40
    with pytest.raises(ModelError, match="holds no numbers"):
        relay.const(relay.TensorType((2,)), "float32")
    assert relay.const(1 << 40, "int64").data == 1 << 40
    assert (tensor("x", 2, dtype="float64") * 2).dtype == "float64"
    assert relay.ones((2, 3)).shape == (2, 3)


def test_printing_a_function():
    x = tensor("x", 1, 3, 4, 4)
    f = function(nn.relu(nn.conv2d(x, tensor("w", 2, 3, 3, 3), padding=1)) + 0.5)
    assert str(relay.IRModule.from_expr(f)) == (
        "def @main(%x: Tensor[(1, 3, 4, 4), float32], %w: Tensor[(2, 3, 3, 3), float32]) -> "
        "Tensor[(1, 2, 4, 4), float32] {\n"
        "  %0 = nn.conv2d(%x, %w, padding=[1, 1, 1, 1], channels=2, kernel_size=[3, 3]) "
        "/* ty=Tensor[(1, 2, 4, 4), float32] */;\n"
        "  %1 = nn.relu(%0) /* ty=Tensor[(1, 2, 4, 4), float32] */;\n"
        "  add(%1, 0.5f /* ty=float32 */) /* ty=Tensor[(1, 2, 4, 4), float32] */\n"
        "}"
    )


def test_parameters_of_one_name_are_told_apart():
    x, y, z = tensor("x", 2), tensor("x", 2), tensor("x_1", 2)
    f = relay.Function([x, y, z], x - y * z)
    assert [p.name_hint for p in f.params] == ["x", "x_1", "x_1_1"]
    a, b, c = np.float32([[5, 6], [2, 3], [1, 2]])
    found = relay.evaluate(f, {"x": a, "x_1": b, "x_1_1": c})
    np.testing.assert_array_equal(found, a - b * c)


def test_attributes_that_follow_from_arguments_are_read_and_printed():
    x, w = tensor("x", 1, 4, 8, 8), tensor("w", 6, 2, 3, 5)
    conv = nn.conv2d(x, w, groups=2)
    assert (conv.attrs.channels, conv.attrs.kernel_size) == (6, (3, 5))
    assert "channels" not in conv.attrs and "kernel_size=[3, 5]" in conv.astext()
    other = relay.Call(conv.op, [x, tensor("v", 8, 2, 1, 1)], conv.attrs)
    assert (other.attrs.channels, other.attrs.kernel_size) == (8, (1, 1))
    up = nn.conv2d_transpose(x, tensor("u", 4, 3, 2, 2), groups=2)
    assert (up.attrs.channels, up.shape[1]) == (6, 6)
    blocks = nn.conv2d(
        tensor("b", 1, 1, 8, 8, 4), tensor("k", 2, 1, 3, 3, 4, 8),
        data_layout="NCHW4c", kernel_layout="OIHW4i8o",
    )  # fmt: skip
    assert (blocks.attrs.channels, blocks.attrs.kernel_size) == (16, (3, 3))
    assert nn.dense(tensor("d", 2, 3), tensor("e", 7, 3)).attrs.units == 7
    part = relay.strided_slice(x, [0, 1], [1, 4], strides=[1, 2])
    assert part.attrs.end[:2] == (1, 5) and "end=" in part.astext()
    with pytest.raises(AttributeError, match="units"):
        _ = conv.attrs.units


def test_printing_tuples_and_values():
    x = tensor("x", 2, 3)
    assert "([" not in str(relay.Tuple([x, nn.relu(x)]))
    assert str(relay.Tuple([x, nn.relu(x)])).endswith("(%x, %0)")
    assert str(relay.const(np.zeros((2, 3), "float32"))) == "meta[relay.Constant][0]"
    mod = relay.IRModule.from_expr(function(relay.TupleGetItem(relay.Tuple([x, relay.exp(x)]), 1)))
    assert "(%x, %0).1" in mod.astext()


@pytest.mark.slow
def test_deep_graphs_need_no_recursion():
    x = tensor("x", 2)
    y = x
    for _ in range(5000):
        y = nn.relu(y)
    f = function(y)
    assert relay.optimize(relay.IRModule.from_expr(f))["main"].body.checked_type == x.checked_type
    assert len(str(f).splitlines()) == 5002


def test_attributes_are_readable_and_frozen():
    call = nn.conv2d(tensor("x", 1, 3, 8, 8), tensor("w", 4, 3, 3, 3), strides=2)
    assert call.attrs.strides == (2, 2)
    assert call.attrs["groups"] == 1
    assert call.op is relay.op.get("nn.conv2d")
    with pytest.raises(AttributeError):
        call.attrs.strides = (1, 1)
    with pytest.raises(AttributeError):
        call.attrs.stride  # noqa: B018


X, W = (1, 3, 8, 8), (4, 3, 3, 3)


def x_and_w(**options):
    return lambda: nn.conv2d(tensor("x", *X), tensor("w", *W), **options)


REFUSALS = {
    "channels": (
        lambda: nn.conv2d(tensor("x", 1, 5, 8, 8), tensor("w", *W)),
        "nn.conv2d(data=(1, 5, 8, 8) float32, weight=(4, 3, 3, 3) float32)",
        "data has 5 channels, the weight takes 3 x 1 groups", "I must be 5",
    ),
    "window": (x_and_w(dilation=4), "window of 9", "padded extent 8", "more padding"),
    "strides": (x_and_w(strides=0), "strides=(0, 0)", "start at 1"),
    "pair": (x_and_w(strides=(1, 2, 3)), "strides=(1, 2, 3)", "strides=(1, 1)"),
    "padding": (x_and_w(padding="SAME"), "padding='SAME'", "(top, left, bottom, right)"),
    "negative": (x_and_w(padding=-1), "negative"),
    "groups": (x_and_w(groups=2), "takes 3 x 2 groups"),
    "layout": (x_and_w(data_layout="CHWN"), "CHWN", "NCHW or NHWC"),
    "kernel": (x_and_w(kernel_layout="OIHX"), "OIHX", "O, I, H, W"),
    "asked": (x_and_w(channels=8), "channels=8", "the weight has channels 4"),
    "size": (x_and_w(kernel_size=5), "kernel_size=(5, 5)", "(3, 3)"),
    "untyped": (
        lambda: nn.conv2d(tensor("x", *X), relay.var("w")), "weight=w",
        "channels= and kernel_size=",
    ),
    "unknown": (lambda: nn.relu(relay.var("v")).shape, "shapes of v", "Give the shapes"),
    "rank": (lambda: nn.dense(tensor("x", 2, 3), tensor("w", *X)), "4 dimensions", "2 of"),
    "features": (
        lambda: nn.dense(tensor("x", 1, 5), tensor("w", 4, 3)), "5 features", "takes 3",
        "transpose",
    ),
    "batches": (
        lambda: nn.batch_matmul(tensor("x", 2, 3, 4), tensor("y", 3, 5, 4)), "batches of 2 and 3",
    ),
    "inner": (
        lambda: nn.batch_matmul(tensor("x", 2, 3, 4), tensor("y", 2, 4, 5)), "4 and 5",
        "transpose_b",
    ),
    "units": (lambda: nn.dense(tensor("x", 1, 3), tensor("w", 4, 3), 7), "units=7", "has 4 units"),
    "broadcast": (
        lambda: tensor("x", 2, 3) + tensor("y", 4), "add(lhs=(2, 3) float32, rhs=(4,) float32)",
        "3 and 4 meet at axis -1", "expand_dims",
    ),
    "dtype": (
        lambda: tensor("x", 2) + tensor("y", 2, dtype="float64"), "element types differ", "Cast",
    ),
    "integer": (lambda: relay.exp(tensor("x", 2, dtype="int32")), "int32", "Cast it to float32"),
    "bool": (lambda: nn.relu(tensor("x", 2, dtype="bool")), "bool", "Cast it"),
    "vector": (
        lambda: nn.bias_add(tensor("x", *X), tensor("b", 8)), "bias has shape (8,)", "axis 1",
    ),
    "axis": (lambda: relay.sum(tensor("x", 2, 3), axis=2), "axis 2 is out of range", "-2 to 1"),
    "axes": (lambda: relay.max(tensor("x", 2, 3), axis=(0, -2)), "named twice"),
    "reshape": (lambda: relay.reshape(tensor("x", 2, 3), (4, 2)), "6 elements", "(4, 2)"),
    "rest": (lambda: relay.reshape(tensor("x", 2, 3), (4, -1)), "6 elements", "multiple of 4"),
    "rests": (lambda: relay.reshape(tensor("x", 2, 3), (-1, -1)), "more than one"),
    "keep": (lambda: relay.reshape(tensor("x", 2, 3), (2, 3, 0)), "no input extent"),
    "minus": (lambda: relay.reshape(tensor("x", 2, 3), (-5, 3)), "extent -5"),
    "permutation": (lambda: relay.transpose(tensor("x", 2, 3), (0, 0)), "permutation"),
    "squeeze": (lambda: relay.squeeze(tensor("x", 2, 3), 0), "extent 2, not 1"),
    "concat": (
        lambda: relay.concatenate([tensor("x", 2, 3), tensor("y", 3, 3)], 1), "part 1", "(3, 3)",
    ),
    "no-tuple": (
        lambda: relay.op.call("concatenate", tensor("x", 2)), "not a tuple", "Pass a list",
    ),
    "tuple": (lambda: nn.relu(relay.Tuple([tensor("x", 2)])), "is a tuple", "[0]"),
    "stretch": (lambda: relay.broadcast_to(tensor("x", 2, 3), (2, 1)), "extent 1"),
    "pad": (lambda: nn.pad(tensor("x", 2, 3), ((1, 1),)), "one pair of counts per axis"),
    "pad-mode": (lambda: nn.pad(tensor("x", 2), ((1, 1),), pad_mode="around"), "around", "edge"),
    "clip": (lambda: relay.clip(tensor("x", 2), 1, 0), "above the upper", "Swap"),
    "pool": (lambda: nn.max_pool2d(tensor("x", *X), 2, padding=2), "wholly outside"),
    "pool-p": (lambda: nn.lp_pool(tensor("x", *X), 2, p=0), "p=0 is not positive"),
    "pool-rank": (lambda: nn.max_pool3d(tensor("x", *X), 2), "4 dimensions, not the 5"),
    "out-layout": (
        lambda: nn.max_pool2d(tensor("x", *X), 2, out_layout="NCWD"), "NCWD", "order of N, C, H, W",
    ),
    "output-padding": (
        lambda: nn.conv2d_transpose(
            tensor("x", *X), tensor("w", X[1], 4, 3, 3), 2, output_padding=2
        ),
        "not below stride", "less of it",
    ),
    "transposed-channels": (
        lambda: nn.conv2d_transpose(tensor("x", *X), tensor("w", X[1] + 1, 4, 3, 3)),
        "channels", "kernel_layout",
    ),
    "transposed-nothing": (
        lambda: nn.conv1d_transpose(tensor("x", 1, 3, 1), tensor("w", 3, 4, 2), padding=1),
        "extent 0", "Use less padding",
    ),
    "cast": (lambda: relay.cast(tensor("x", 2), "int4"), "int4"),
    "number": (lambda: relay.op.call("nn.relu", 3), "int is not a graph value", "const(x)"),
    "count": (lambda: relay.op.call("add", tensor("x", 2)), "1 arguments", "lhs, rhs"),
    "attribute": (
        lambda: relay.op.call("nn.relu", tensor("x", 2), alpha=1), "unknown attribute alpha",
    ),
    "operator": (lambda: relay.op.get("nn.conv2"), "nn.conv2", "nn.conv2d"),
    "extent": (lambda: relay.var("x", shape=(1, -1)), "extent -1", "at least 0"),
    "var-dtype": (lambda: relay.var("x", shape=(1,), dtype="int4"), "int4", "float32"),
    "both": (
        lambda: relay.var("x", relay.TensorType((1,)), shape=(1,)),
        "both type_annotation and shape",
    ),
    "const-range": (lambda: relay.const(1 << 40), "1099511627776", 'dtype="int64"'),
    "const": (lambda: relay.const(np.zeros(2, "complex64")), "complex64", "float32"),
    "free": (
        lambda: relay.IRModule({"main": relay.Function([], nn.relu(tensor("x", 2)))}),
        "reads x, which is no parameter",
    ),
    "repeated": (
        lambda: relay.Function([tensor("x", 2)] * 2, relay.const(1.0)), "listed twice",
    ),
    "no-shape": (
        lambda: relay.evaluate(relay.Function([relay.var("x")], relay.const(1.0)), {"x": 1.0}),
        "%x: its shape is not known",
    ),
    "ret-type": (
        lambda: relay.Function([], relay.const(1.0), relay.TensorType((2,))),
        "Tensor[(2), float32]",
    ),
    "function": (lambda: relay.IRModule()["main"], "no such function", "none"),
    "pick": (lambda: tensor("x", 2)[0], "[0]", "not a tuple"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSALS)
def test_mistakes_name_the_operator_its_arguments_and_a_way_out(kind):
    make, *words = REFUSALS[kind]
    refused(make, *words)


def test_indexing_past_a_tuple():
    with pytest.raises(ModelError, match="the tuple has 1 values"):
        relay.Tuple([tensor("x", 2)])[1]
    assert len(list(relay.Tuple([tensor("x", 2), tensor("y", 2)]))) == 2
    with pytest.raises(ModelError, match="one tensor, not a tuple"):
        list(tensor("x", 2))


def test_missing_and_misshapen_inputs_are_refused():
    f = function(tensor("x", 2) + tensor("y", 2))
    refused(lambda: relay.evaluate(f, {"x": np.zeros(2)}), "no value is given for y")
    refused(lambda: relay.evaluate(f, {"x": np.zeros(2), "y": np.zeros(3)}), "(3,)", "(2,)")


def test_evaluation_in_float64():
    x = tensor("x", 2)
    tiny = relay.const(np.float32(1e-4))
    f = function((x + tiny) * (x - tiny))
    found = relay.evaluate(f, {"x": np.ones(2)}, dtype="float64")
    assert found.dtype == np.float64
    assert abs(found[0] - (1 - float(np.float32(1e-4)) ** 2)) < 1e-15
    assert relay.evaluate(f, {"x": np.ones(2)}).dtype == np.float32
