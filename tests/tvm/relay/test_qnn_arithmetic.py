"""Arithmetic on quantised tensors, against the real numbers that they stand for."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from tilewright.base.errors import ModelError
from tilewright_tvm import relay
from tilewright_tvm.relay.testing.temp_op_attr import TempOpAttr
from tilewright_tvm.topi.nn.qnn import SQNN_DTYPE_TO_CODE

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
    """A product rounds once; of a sum each operand rounds to the result's scale."""
    a, b = held(4, 5), held(4, 5)
    found = of(
        lambda x, y: getattr(q, name)(
            x, y, number(0.5), number(3, "int32"), number(0.25), number(-7, "int32"),
            number(0.75), number(2, "int32"),
        ), a, b,
    )  # fmt: skip
    left, right = real(a, 0.5, 3), real(b, 0.25, -7)
    if name != "mul":
        left, right = (np.floor(x / 0.75 + 0.5) * 0.75 for x in (left, right))
    want = steps(function(left, right), 0.75, 2)
    np.testing.assert_array_equal(found, want)
    assert found.dtype == np.int8


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("abs", np.abs), ("exp", np.exp), ("tanh", np.tanh), ("sqrt", np.sqrt), ("log", np.log),
        ("rsqrt", lambda x: 1 / np.sqrt(x)), ("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
        ("erf", np.vectorize(math.erf)), ("hardswish", lambda x: x * np.clip(x + 3, 0, 6) / 6),
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


def exact(value: np.ndarray, ratio: float, rounding: str) -> np.ndarray:
    """value * ratio as fractions, halves up or away from zero."""
    found = []
    for step in value.reshape(-1).tolist():
        product = Fraction(step) * Fraction(ratio)
        up = math.floor(abs(product) + Fraction(1, 2)) * (1 if product >= 0 else -1)
        found.append(up if rounding == "TONEAREST" else math.floor(product + Fraction(1, 2)))
    return np.array(found).reshape(value.shape)


@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST"])
@pytest.mark.parametrize("compute_dtype", ["float64", "int64"])
@pytest.mark.parametrize("ratio", [0.5, 0.375, 2.0, 1.5, 2.0**-20, 3 * 2.0**-9])
def test_requantize_is_exact_for_ratios_of_few_bits(rounding, compute_dtype, ratio):
    a = np.concatenate([np.arange(-40, 40), RNG.integers(-(2**31), 2**31, 64)]).astype("int32")
    found = of(
        lambda x: q.requantize(
            x, number(ratio), number(5, "int32"), number(1.0), number(-3, "int32"),
            rounding=rounding, compute_dtype=compute_dtype, out_dtype="int16",
        ), np.maximum(a, -(2**31) + 5),
    )  # fmt: skip
    a = np.maximum(a, -(2**31) + 5).astype("int64")
    want = np.clip(exact(a - 5, ratio, rounding) - 3, -(2**15), 2**15 - 1)
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("compute_dtype", ["float32", "float64", "int64"])
def test_requantize_scales_channels(compute_dtype):
    a, ratios = RNG.integers(-999, 999, (2, 3, 5)).astype("int32"), np.float32([0.5, 0.25, 2])
    found = of(
        lambda x: q.requantize(
            x, relay.const(ratios), number(0, "int32"), number(1.0), number(0, "int32"), axis=1,
            compute_dtype=compute_dtype, out_dtype="int16",
        ), a,
    )  # fmt: skip
    want = [exact(a[:, k].astype("int64"), float(r), "UPWARD") for k, r in enumerate(ratios)]
    np.testing.assert_array_equal(found, np.stack(want, 1))


def test_requantize_is_configured_for_a_while():
    def ends(**options):
        return of(
            lambda x: q.requantize(
                x, number(0.5), number(0, "int32"), number(1.0), number(0, "int32"), **options
            ), np.int32([-3]),
        ).item()  # fmt: skip

    assert ends() == -1
    with q.requantize_config(rounding="TONEAREST"):
        assert ends() == -2
        assert ends(rounding="UPWARD") == -1
        with q.requantize_config(compute_dtype="int64"):
            assert ends() == -2
    assert ends() == -1
    with pytest.raises(ModelError, match="Use UPWARD"):
        q.requantize_config(rounding="DOWN")
    with pytest.raises(ModelError, match="Use one of float32, float64, int64"):
        q.requantize_config(compute_dtype="int8")


def test_fixed_point_needs_scales_that_are_known():
    scale = relay.var("s", shape=())
    x, zero = relay.var("x", shape=(3,), dtype="int32"), number(0, "int32")
    with pytest.raises(ModelError, match="not known when it is built"):
        q.requantize(x, scale, zero, number(1.0), zero, compute_dtype="int64")
    for wrong in (0.0, -1.0, 2.0**31, np.nan):
        with pytest.raises(ModelError, match="not between 0 and"):
            q.requantize(x, number(wrong), zero, number(1.0), zero, compute_dtype="int64")


def test_the_same_scale_keeps_every_bit():
    a = np.int32([2**31 - 1, -(2**31), 2**24 + 1])
    scale, zero = number(0.3), number(7, "int32")
    found = of(lambda x: q.concatenate([x, x], [scale] * 2, [zero] * 2, scale, zero, 0), a)
    np.testing.assert_array_equal(found, np.concatenate([a, a]))
    found = of(lambda x: q.requantize(x, scale, zero, scale, zero, out_dtype="uint8"), a)
    np.testing.assert_array_equal(found, [255, 0, 255])
    found = of(lambda x: q.requantize(x, number(1.0), zero, scale, zero, out_dtype="int32"), a)
    np.testing.assert_array_equal(np.sign(found), np.sign(a))  # limited, and nothing wraps around


def test_functions_of_real_numbers():
    a = held(1, 2, 6, 6)
    scale, zero, out = number(0.125), number(-3, "int32"), (number(0.25), number(4, "int32"))
    x = real(a, 0.125, -3)
    found = of(lambda v: q.leaky_relu(v, 0.5, scale, zero, *out), a)
    np.testing.assert_array_equal(found, steps(np.where(x > 0, x, x * 0.5), 0.25, 4))
    found = of(lambda v: q.avg_pool2d(v, scale, zero, *out, (2, 2), (2, 2)), a)
    mean = x.reshape(1, 2, 3, 2, 3, 2).mean((3, 5))
    np.testing.assert_array_equal(found, steps(mean, 0.25, 4))
    found = of(lambda v: q.softmax(v, scale, zero, number(1 / 256), number(-128, "int32"), 1), a)
    weight = np.exp(x - x.max(1, keepdims=True))
    want = steps(weight / weight.sum(1, keepdims=True), 1 / 256, -128)
    np.testing.assert_allclose(found, want, atol=1)


def test_transposed_convolution_is_that_of_differences():
    image, kernel = held(1, 2, 4, 4, dtype="uint8"), held(2, 3, 2, 2)
    scale = number(0.5)
    found = of(
        lambda x, w: q.conv2d_transpose(
            x, w, number(9, "int32"), number(-4, "int32"), scale, scale, strides=(2, 2)
        ), image, kernel,
    )  # fmt: skip
    left, right = image.astype("int64") - 9, kernel.astype("int64") + 4
    want = np.einsum("nchw,coij->nohiwj", left, right).reshape(1, 3, 8, 8)
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "disable"])
@pytest.mark.parametrize("at_run_time", [False, True])
def test_simulated_integers(dtype, at_run_time):
    code = np.int32(SQNN_DTYPE_TO_CODE[dtype])
    scale, zero = number([0.5, 0.25, 2.0]), number([3, -2, 0], "int32")

    def found(function, data):
        if not at_run_time:
            return of(lambda x: function(x, scale, zero, 0, dtype), data)
        return of(lambda x, c: function(x, scale, zero, 0, c), data, code)

    x = (RNG.integers(-600, 600, (3, 4)) / 4).astype("float32")
    s, z = scale.data.reshape(3, 1), zero.data.reshape(3, 1)
    want, back = x, x
    if dtype != "disable":
        info = np.iinfo(dtype)
        want, back = np.clip(np.round(x / s) + z, info.min, info.max), (x - z) * s
    np.testing.assert_array_equal(found(q.simulated_quantize, x), want)
    np.testing.assert_array_equal(found(q.simulated_dequantize, x), back)
    with pytest.raises(ModelError, match="Use one of disable"):
        of(lambda v: q.simulated_quantize(v, scale, zero, 0, "int4"), x)
    with pytest.raises(ModelError, match="a code"):
        of(lambda v: q.simulated_quantize(v, scale, zero, 0, v), x)
    with pytest.raises(ModelError, match="takes float32"):
        of(lambda v: q.simulated_dequantize(v, scale, zero, 0), x.astype("float64"))


def test_a_users_function_takes_the_place_of_an_operator():
    x, scale, zero = relay.var("x", shape=(4,), dtype="int8"), number(0.5), number(0, "int32")
    seen = []

    def legal(attrs, inputs, types):
        seen.append((attrs, len(inputs), types[-1].dtype))
        return relay.abs(inputs[0])

    with TempOpAttr("qnn.abs", "FTVMQnnLegalize", legal):
        made = q.abs(x, scale, zero, scale, zero)
    assert seen == [({"axis": -1}, 5, "int8")]
    assert made.op.name == "abs"
    assert q.abs(x, scale, zero, scale, zero).op.name != "abs"
    with TempOpAttr("qnn.abs", "FTVMQnnLegalize", lambda *_: None):
        assert q.abs(x, scale, zero, scale, zero).op.name != "abs"
    for wrong in (7, relay.const(1.0)):
        with (
            TempOpAttr("qnn.abs", "FTVMQnnLegalize", lambda *_, w=wrong: w),
            pytest.raises(ModelError, match="or None"),
        ):
            q.abs(x, scale, zero, scale, zero)
    with pytest.raises(ModelError, match="no such operator"):
        q.register_qnn_legalize("qnn.nothing", legal)
    with pytest.raises(ModelError, match="no such operator"):
        TempOpAttr("qnn.abs", "FTVMOther", legal)


def test_sums_are_of_narrow_integers():
    with pytest.raises(ModelError, match="no narrow integer type"):
        of(lambda x: q.add(x, x, *[number(1.0), number(0)] * 3), held(3, dtype="int32"))
