"""Arithmetic on quantised tensors, against the real numbers that they stand for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tilewright import relay
from tilewright.base.errors import ModelError

q = relay.qnn.op
RNG = np.random.default_rng(0)


def held(*shape: int, dtype: str = "int8") -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def number(value, dtype: str = "float32") -> relay.Constant:
    return relay.const(np.array(value, dtype))


def of(function, *arrays: np.ndarray) -> np.ndarray:
    inputs = [relay.var(f"x{k}", shape=a.shape, dtype=str(a.dtype)) for k, a in enumerate(arrays)]
    given = {v.name_hint: a for v, a in zip(inputs, arrays, strict=True)}
    return relay.evaluate(function(*inputs), given)


def real(a: np.ndarray, scale: float, zero: int) -> np.ndarray:
    return (a.astype("float64") - zero) * scale


def steps(value: np.ndarray, scale: float, zero: int, dtype: str = "int8") -> np.ndarray:
    info = np.iinfo(dtype)
    return np.clip(np.floor(value / scale + 0.5) + zero, info.min, info.max)


@pytest.mark.parametrize(
    ("name", "function"), [("add", np.add), ("subtract", np.subtract), ("mul", np.multiply)]
)
def test_elementwise(name, function):
    a, b = held(4, 5), held(4, 5)
    found = of(
        lambda x, y: getattr(q, name)(
            x, y, number(0.5), number(3, "int32"), number(0.25), number(-7, "int32"),
            number(0.75), number(2, "int32"),
        ), a, b,
    )  # fmt: skip
    want = steps(function(real(a, 0.5, 3), real(b, 0.25, -7)), 0.75, 2)
    np.testing.assert_array_equal(found, want)
    assert found.dtype == np.int8


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("abs", np.abs), ("exp", np.exp), ("tanh", np.tanh), ("sqrt", np.sqrt), ("log", np.log),
        ("rsqrt", lambda x: 1 / np.sqrt(x)), ("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
        ("erf", np.vectorize(math.erf)),
    ],
)  # fmt: skip
def test_unary(name, function):
    a = np.arange(-2, 128, dtype="int8")  # all above the zero point
    found = of(
        lambda x: getattr(q, name)(
            x, number(0.125), number(-3, "int32"), number(0.0625), number(-60, "int32")
        ), a,
    )  # fmt: skip
    np.testing.assert_array_equal(found, steps(function(real(a, 0.125, -3)), 0.0625, -60))
    assert found.dtype == np.int8


@pytest.mark.parametrize("name", ["CanonicalizeOps", "Legalize"])
def test_passes_leave_plain_operators(name):
    x = relay.var("x", shape=(4,), dtype="int8")
    scale, zero = number(0.5), number(3, "int32")
    mod = relay.IRModule.from_expr(q.tanh(x, scale, zero, scale, zero))
    after = getattr(relay.qnn.transform, name)()(mod)
    assert "qnn." not in after.astext()
    given = {"x": held(4)}
    np.testing.assert_array_equal(
        relay.evaluate(after["main"], given), relay.evaluate(mod["main"], given)
    )


def test_parts_of_several_scales():
    a, b = held(2, 3), held(2, 4)
    scales, zeros = [number(0.5), number(2.0)], [number(1, "int32"), number(-1, "int32")]
    found = of(lambda x, y: q.concatenate([x, y], scales, zeros, number(1.0), number(0, "int32"),
                                          axis=1), a, b)  # fmt: skip
    want = steps(np.concatenate([real(a, 0.5, 1), real(b, 2.0, -1)], 1), 1.0, 0)
    np.testing.assert_array_equal(found, want)
    with pytest.raises(ModelError, match="one scale and one zero point"):
        of(lambda x, y: q.concatenate([x, y], scales[:1], zeros, scales[0], zeros[0], 1), a, b)


@pytest.mark.parametrize(
    ("rounding", "want"),
    [("UPWARD", [2, -1, 1, 0]), ("None", [2, -1, 1, 0]), ("TONEAREST", [2, -2, 1, -1])],
)
def test_scales_change_and_halves_round(rounding, want):
    a = np.int32([3, -3, 1, -1])
    found = of(
        lambda x: q.requantize(
            x, number(0.5), number(0, "int32"), number(1.0), number(0, "int32"), rounding=rounding
        ), a,
    )  # fmt: skip
    np.testing.assert_array_equal(found, want)
    for options in ({"rounding": "DOWN"}, {"out_dtype": "float32"}):
        with pytest.raises(ModelError, match="Use"):
            of(lambda x, o=options: q.requantize(x, number(1.0), number(0), number(1.0), number(0),
                                                 **o), a)  # fmt: skip


def test_products_are_exact():
    zero, weight_zero = number(3, "int32"), number(-2, "int32")
    scale = number(0.5)
    a, w = held(3, 8, dtype="uint8"), held(5, 8)
    found = of(lambda x, y: q.dense(x, y, zero, weight_zero, scale, scale, 5), a, w)
    want = (a.astype("int64") - 3) @ (w.astype("int64") + 2).T
    np.testing.assert_array_equal(found, want)
    assert found.dtype == np.int32
    x, y = held(2, 3, 8), held(2, 5, 8)
    found = of(lambda p, r: q.batch_matmul(p, r, zero, weight_zero, scale, scale), x, y)
    want = (x.astype("int64") - 3) @ (y.astype("int64") + 2).transpose(0, 2, 1)
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("per_channel", [False, True])
def test_padding_is_with_the_zero_point(per_channel):
    image, kernel = held(1, 2, 5, 5, dtype="uint8"), held(3, 2, 3, 3)
    zeros = np.int32([4, -1, 0]) if per_channel else np.int32(4)
    scale = number(0.5)
    found = of(
        lambda x, w: q.conv2d(
            x, w, number(9, "int32"), relay.const(zeros), scale, scale, (3, 3), 3, padding=(1, 1)
        ), image, kernel,
    )  # fmt: skip
    left = np.pad(image.astype("int64") - 9, ((0, 0), (0, 0), (1, 1), (1, 1)))
    right = kernel.astype("int64") - np.broadcast_to(zeros, (3,)).reshape(3, 1, 1, 1)
    windows = np.lib.stride_tricks.sliding_window_view(left, (3, 3), axis=(2, 3))
    want = np.einsum("nchwij,ocij->nohw", windows, right)
    np.testing.assert_array_equal(found, want)


def test_other_operators_say_what_to_do():
    with pytest.raises(AttributeError, match="dequantize, the operator"):
        _ = q.softmax
    with pytest.raises(ModelError, match="no narrow integer type"):
        of(lambda x: q.add(x, x, *[number(1.0), number(0)] * 3), held(3, dtype="int32"))
