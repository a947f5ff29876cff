"""Regions between dequantize and quantize on integers: equal to what they were, to one step."""

import numpy as np
import pytest

from tilewright.base.errors import ModelError
from tilewright_tvm import relay
from tilewright_tvm.relay import nn
from tilewright_tvm.relay.qnn.op import dequantize, quantize
from tilewright_tvm.relay.transform import FakeQuantizationToInteger

RNG = np.random.default_rng(5)
FLOATS = ("float32", "float64")


def real(name: str, shape, scale=0.5, zero=0, dtype="int8", axis=-1) -> relay.Expr:
    number = relay.const(np.asarray(scale, "float32"))
    point = relay.const(np.asarray(zero, "int32"))
    return dequantize(relay.var(name, shape=shape, dtype=dtype), number, point, axis)


def back(value: relay.Expr, scale=0.5, zero=0, dtype="int8") -> relay.Expr:
    return quantize(value, relay.const(scale), relay.const(zero), out_dtype=dtype)


def converted(body: relay.Expr) -> tuple[relay.IRModule, relay.IRModule]:
    mod = relay.IRModule.from_expr(body)
    return mod, FakeQuantizationToInteger(hard_fail=True)(mod)


def difference(mod: relay.IRModule, changed: relay.IRModule) -> int:
    inputs = {}
    for p in mod["main"].params:
        limits = np.iinfo(str(p.dtype)) if p.dtype.bits == 8 else np.iinfo("int16")
        inputs[p.name_hint] = RNG.integers(limits.min, limits.max, p.shape, endpoint=True).astype(
            str(p.dtype)
        )
    one, other = (relay.evaluate(m, inputs) for m in (mod, changed))
    return int(np.abs(one.astype("int64") - other.astype("int64")).max())


def float_anchors(mod: relay.IRModule) -> list[str]:
    """Products, poolings and joins that still read floats."""
    calls = [n for n in relay.analysis.post_order(mod["main"].body) if isinstance(n, relay.Call)]
    wanted = ("nn.conv", "nn.dense", "nn.batch_matmul", "nn.max_pool", "concatenate", "transpose")
    return [
        c.op.name for c in calls if c.op.name.startswith(wanted) and c.checked_type.dtype in FLOATS
    ]


IMAGE = real("x", (1, 4, 7, 7), 0.25, 3, "uint8")
WEIGHT = real("w", (6, 4, 3, 3), 0.01)
CHANNELS = real("w", (6, 4, 3, 3), RNG.uniform(0.005, 0.02, 6), [0] * 6, axis=0)
PLANE, ROWS = real("x", (5, 16), 0.1, -7), real("w", (8, 16), 0.02, 2)
BIAS = real("b", (6,), 0.0025, 0, "int32")
A, B = real("a", (2, 9), 0.1, 4), real("b", (2, 9), 0.3, -5, "int8")
SAME = {
    "relu": nn.relu(A), "transpose": relay.transpose(A), "reshape": relay.reshape(A, (9, 2)),
    "slice": relay.strided_slice(A, [0, 1], [2, 8]), "pool": nn.max_pool2d(IMAGE, (2, 2)),
    "padded-pool": nn.max_pool2d(IMAGE, (3, 3), padding=1),
    "pad": nn.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (1, 0)), 0.5),
    "minimum": relay.minimum(A, B), "maximum": relay.maximum(A, relay.const(1.05)),
    "clip": relay.clip(A, -0.5, 0.5), "clip-between": relay.clip(A, -0.123, 0.777),
    "relu6": nn.relu(relay.clip(A, -1.0, 0.6)),
}  # fmt: skip
NEAR = {
    "conv": nn.conv2d(IMAGE, WEIGHT, padding=1),
    "per-channel": nn.conv2d(IMAGE, CHANNELS, strides=2),
    "bias": nn.bias_add(nn.conv2d(IMAGE, CHANNELS), BIAS),
    "depthwise": nn.conv2d(IMAGE, real("w", (4, 1, 3, 3), 0.02), groups=4),
    "nhwc": nn.conv2d(
        real("x", (1, 7, 7, 4), 0.1, 2),
        real("w", (3, 3, 4, 6), RNG.uniform(0.005, 0.02, 6), [0] * 6, axis=3),
        data_layout="NHWC", kernel_layout="HWIO",
    ),
    "dense": nn.dense(PLANE, ROWS),
    "batch": nn.batch_matmul(real("x", (2, 3, 8), 0.1, 1), real("y", (2, 5, 8), 0.05, -1)),
    "two-products": nn.relu(nn.dense(nn.relu(PLANE), ROWS)),
    "sum": A + B, "difference": A - B, "product": A * B, "shifted": A + relay.const(0.333),
    "scaled": relay.const(1.7) * A, "joined": relay.concatenate([A, B], 0),
    "mean": nn.avg_pool2d(IMAGE, (2, 2)), "global": nn.global_avg_pool2d(IMAGE),
    "residual": nn.relu(nn.conv2d(IMAGE, real("v", (4, 4, 3, 3), 0.02), padding=1) + IMAGE),
}  # fmt: skip
STAYS = {
    "no-rule": relay.erf(A),
    "negative": A * relay.const(-1.0),
    "variable-input": A + relay.var("c", shape=(2, 9)),
    "wide": nn.dense(real("x", (2, 4), dtype="int16"), real("w", (3, 4), dtype="int16")),
    "long": nn.dense(real("x", (1, 40000)), real("w", (2, 40000))),
    "mean-of-a-product": nn.dense(relay.mean(real("x", (2, 3, 16)), 1), ROWS),
}


@pytest.mark.parametrize("case", SAME)
def test_exactly_the_same_in_the_same_steps(case):
    scale, zero, dtype = (
        (0.25, 3, "uint8") if "p" in case[:2] and "pool" in case else (0.1, 4, "int8")
    )
    if case == "pad":
        scale, zero, dtype = 0.25, 3, "uint8"
    mod, changed = converted(back(SAME[case], scale, zero, dtype))
    assert difference(mod, changed) == 0 and not float_anchors(changed)
    assert not relay.analysis.structural_equal(mod, changed)


@pytest.mark.slow
@pytest.mark.parametrize("case", {**SAME, **NEAR})
@pytest.mark.parametrize("scale", [0.037, 1.3])
def test_at_most_one_step_apart(case, scale):
    mod, changed = converted(back({**SAME, **NEAR}[case], scale, -3))
    assert difference(mod, changed) <= 1 and not float_anchors(changed)
    assert not relay.analysis.structural_equal(mod, changed)


@pytest.mark.parametrize("case", STAYS)
def test_what_has_no_rule_stays(case):
    mod = relay.IRModule.from_expr(back(STAYS[case]))
    assert relay.analysis.structural_equal(FakeQuantizationToInteger()(mod), mod)


def test_a_failure_is_asked_for():
    with pytest.raises(ModelError, match="no rule for erf"):
        FakeQuantizationToInteger(hard_fail=True)(relay.IRModule.from_expr(back(relay.erf(A))))


def test_regions_in_a_row():
    first = back(nn.relu(nn.conv2d(IMAGE, CHANNELS, padding=1)), 0.2, 0, "uint8")
    again = dequantize(first, relay.const(0.2), relay.const(0))
    mod, changed = converted(back(nn.max_pool2d(again, (2, 2)), 0.2, 0, "uint8"))
    assert difference(mod, changed) <= 1 and not float_anchors(changed)


@pytest.mark.slow
def test_it_builds_and_runs():
    mod, changed = converted(back(nn.conv2d(IMAGE, CHANNELS, padding=1), 0.3, 1))
    x = RNG.integers(0, 255, (1, 4, 7, 7)).astype("uint8")
    w = RNG.integers(-128, 127, (6, 4, 3, 3)).astype("int8")
    one, other = (
        relay.create_executor("graph", m, target="llvm").evaluate()(x, w).numpy().astype(int)
        for m in (mod, changed)
    )
    assert np.abs(one - other).max() <= 1
