"""Scales move into weights that are parameters; what must not move stays."""

import numpy as np
import pytest

from graph.test_passes import compare, inputs_of, names
from tilewright_tvm import relay
from tilewright_tvm.relay import nn
from tilewright_tvm.relay.transform import (
    BackwardFoldScaleAxis,
    FoldScaleAxis,
    ForwardFoldScaleAxis,
)

RNG = np.random.default_rng(3)


def var(name: str, *shape: int, dtype: str = "float64") -> relay.Var:
    return relay.var(name, shape=shape, dtype=dtype)


def scale(*shape: int, low: float = 0.5) -> relay.Constant:
    return relay.const(RNG.uniform(low, 1.5, shape))


X, W = var("x", 2, 4, 5, 5), var("w", 3, 4, 3, 3)
LAST, HWIO = var("x", 2, 5, 5, 4), var("w", 3, 3, 4, 3)
BLOCKS, OIHWIO = var("x", 2, 2, 5, 5, 2), var("w", 2, 2, 3, 3, 2, 3)
PLANE, ROWS = var("x", 2, 4), var("w", 3, 4)
EACH = var("w", 4, 1, 3, 3)
NHWC = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
NCHW2C = {"data_layout": "NCHW2c", "kernel_layout": "OIHW2i3o"}
B, S = var("b", 3), var("s", 3, 1, 1)
conv = nn.conv2d(X, W)

BEHIND = {
    "conv": conv * scale(3, 1, 1, low=-1),
    "variable": conv * S,
    "one-number": conv * relay.const(2.5, "float64"),
    "first": scale(3, 1, 1) * conv,
    "nhwc": nn.conv2d(LAST, HWIO, **NHWC) * scale(3, low=-1),
    "blocks": nn.conv2d(BLOCKS, OIHWIO, **NCHW2C) * scale(2, 1, 1, 3, low=-1),
    "depthwise": nn.conv2d(X, EACH, groups=4) * scale(4, 1, 1, low=-1),
    "relu": nn.relu(conv + relay.expand_dims(B, 1, 2)) * scale(3, 1, 1),
    "reshaped": nn.leaky_relu(conv) * relay.reshape(scale(3), (3, 1, 1)),
    "bias_add": nn.bias_add(conv, B) * scale(3, 1, 1, low=-1),
    "minus": (relay.expand_dims(B, 1, 2) - conv) * scale(3, 1, 1, low=-1),
    "both": (nn.relu(conv) + nn.conv2d(X, W)) * scale(3, 1, 1),
    "dense": (nn.dense(PLANE, ROWS) + B) * scale(3, low=-1),
}
BEFORE = {
    "conv": nn.conv2d(X * scale(4, 1, 1, low=-1), W),
    "variable": nn.conv2d(X * var("s", 4, 1, 1), W),
    "one-number": nn.conv2d(X * relay.const(2.5, "float64"), W, padding=1),
    "nhwc": nn.conv2d(LAST * scale(4, low=-1), HWIO, **NHWC),
    "blocks": nn.conv2d(scale(2, 1, 1, 2, low=-1) * BLOCKS, OIHWIO, **NCHW2C),
    "depthwise": nn.conv2d(X * scale(4, 1, 1, low=-1), EACH, groups=4),
    "sum": nn.conv2d(nn.relu(X * scale(4, 1, 1)) + var("b", 4, 1, 1), W),
    "minus": nn.conv2d(var("b", 4, 1, 1) - X * scale(4, 1, 1), W),
    "two-readers": relay.Tuple([nn.conv2d(Y := X * scale(4, 1, 1), W), nn.conv2d(Y, W)]),
    "dense": nn.dense(nn.relu(PLANE * scale(4)), ROWS),
}
STAYS = {
    "sign": nn.relu(conv) * relay.const(np.array([1.0, -1, 2])[:, None, None]),
    "sign-unknown": nn.relu(conv) * S,
    "per-pixel": conv * scale(3, 3),
    "read-twice": conv * scale(3, 1, 1) + conv,
    "squared": conv * conv,
    "groups": nn.conv2d(X, var("w", 6, 2, 3, 3), groups=2) * scale(6, 1, 1),
    "zero-shift": nn.conv2d(X * relay.const(np.array([0.0, 1, 2, 3])[:, None, None])
                            + var("b", 4, 1, 1), W),
    "unknown-shift": nn.conv2d(X * var("s", 4, 1, 1) + var("b", 4, 1, 1), W),
    "result": relay.Tuple([nn.conv2d(Z := X * scale(4, 1, 1), W), Z]),
    "stretched": nn.conv2d(var("x", 2, 4, 1, 1) * var("y", 2, 4, 5, 5), W),
    "integers": nn.conv2d(var("x", 1, 2, 4, 4, dtype="int8"), var("w", 2, 2, 3, 3, dtype="int8"),
                          out_dtype="int32") * relay.const(np.full((2, 1, 1), 3, "int32")),
    "narrow": nn.conv2d(var("x", 1, 2, 4, 4, dtype="float16"),
                        var("w", 2, 2, 3, 3, dtype="float16"), out_dtype="float32")
              * relay.const(np.full((2, 1, 1), 3, "float32")),
}  # fmt: skip


def checked(body: relay.Expr, change) -> relay.Expr:
    mod = relay.IRModule.from_expr(body)
    changed = change(mod)
    inputs = inputs_of(mod["main"])
    compare(relay.evaluate(mod, inputs), relay.evaluate(changed, inputs))
    assert [p.name_hint for p in changed["main"].params] == [
        p.name_hint for p in mod["main"].params
    ]
    return changed["main"].body


def scales(body: relay.Expr, value: relay.Expr) -> bool:
    """Whether `body` multiplies `value`."""
    calls = [n for n in relay.analysis.post_order(body) if isinstance(n, relay.Call)]
    return any(n.op.name == "multiply" and value in n.args for n in calls)


@pytest.mark.parametrize("case", BEHIND)
def test_scales_behind(case):
    assert BEHIND[case].op.name == "multiply"
    for change in (BackwardFoldScaleAxis(), FoldScaleAxis()):
        assert checked(BEHIND[case], change).op.name != "multiply"


@pytest.mark.parametrize("case", BEFORE)
def test_scales_in_front(case):
    data = {v.name_hint: v for v in relay.analysis.free_vars(BEFORE[case])}["x"]
    assert scales(BEFORE[case], data)
    assert not scales(checked(BEFORE[case], ForwardFoldScaleAxis()), data)


@pytest.mark.parametrize("case", STAYS)
def test_what_cannot_move_stays(case):
    for change in (BackwardFoldScaleAxis(), ForwardFoldScaleAxis()):
        assert relay.analysis.structural_equal(checked(STAYS[case], change), STAYS[case])


def test_the_graph_is_spelled_as_tvm_spells_it():
    s = scale(3, 1, 1)
    made = BackwardFoldScaleAxis()(relay.IRModule.from_expr(nn.bias_add(conv, B) * s))["main"].body
    flat = relay.squeeze(s, [1, 2])
    weight = W * relay.expand_dims(flat, 1, 3)
    assert relay.analysis.structural_equal(made, nn.bias_add(nn.conv2d(X, weight), B * flat))


def test_constant_weights_are_scaled_at_once():
    body = nn.conv2d(X, relay.const(RNG.normal(size=(3, 4, 3, 3)))) * scale(3, 1, 1)
    assert names(checked(body, BackwardFoldScaleAxis())) == ["nn.conv2d"]


def test_a_workload_of_an_expression_and_an_initializer():
    data, weight = relay.var("data", shape=(1, 3, 8, 8)), relay.var("weight")
    body = nn.conv2d(data, weight, channels=4, kernel_size=3)

    def ones(name: str, array: np.ndarray) -> None:
        assert name == "weight"
        array[:] = 1

    mod, params = relay.testing.create_workload(body, ones)
    assert mod["main"].params[1].type_annotation.shape == (4, 3, 3, 3)
    assert params.keys() == {"weight"} and np.all(params["weight"] == 1)
    _, drawn = relay.testing.create_workload(body, seed=1)
    assert drawn["weight"].std() > 0 and np.array_equal(
        drawn["weight"], relay.testing.create_workload(body, 1)[1]["weight"]
    )


def test_weights_in_blocks_get_their_shape():
    body = nn.conv2d(
        relay.var("x", shape=(1, 2, 8, 8, 4)), relay.var("w"), channels=16, kernel_size=3,
        data_layout="NCHW4c", kernel_layout="OIHW4i8o",
    )  # fmt: skip
    assert relay.analysis.free_vars(body)[1].checked_type.shape == (2, 2, 3, 3, 4, 8)
