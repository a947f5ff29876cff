"""Spellings and element types that TVM takes and few scripts use, against numpy."""

import numpy as np
import pytest

import tilewright_tvm
from tilewright import te
from tilewright.base.errors import ModelError
from tilewright_tvm import relay
from tilewright_tvm.topi import testing

RNG = np.random.default_rng(0)


def run(value, *arrays, kind: str = "graph"):
    params = relay.analysis.free_vars(value)
    return relay.create_executor(kind).evaluate(relay.Function(params, value))(*arrays).numpy()


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int32", "int16", "uint8"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_means_of_integers_are_cut_off(rank, dtype):
    shape = (1, 3, *(7,) * rank)
    low = 0 if dtype == "uint8" else -100
    array = RNG.integers(low, 100, shape).astype(dtype)
    array[0, 0] = 7  # a mean that is whole stays so
    x = relay.var("x", shape=shape, dtype=dtype)
    axes = tuple(range(2, 2 + rank))
    wanted = np.trunc(array.astype(float).mean(axes, keepdims=True)).astype(dtype)
    whole = getattr(relay.nn, f"avg_pool{rank}d")(x, (7,) * rank)
    assert whole.dtype == dtype
    np.testing.assert_array_equal(run(whole, array), wanted)
    np.testing.assert_array_equal(
        run(getattr(relay.nn, f"global_avg_pool{rank}d")(x), array), wanted
    )
    np.testing.assert_array_equal(
        run(getattr(relay.nn, f"adaptive_avg_pool{rank}d")(x, 1), array), wanted
    )


def test_negative_widths_cut_off():
    array = RNG.random((4, 6, 3, 5), "float32")
    x = relay.var("x", shape=array.shape)
    width = ((-1, -1), (2, -2), (0, -2), (4, 4))
    wanted = np.pad(array[1:3, :4, :1], ((0, 0), (2, 0), (0, 0), (4, 4)), constant_values=3)
    np.testing.assert_array_equal(run(relay.nn.pad(x, width, 3.0), array), wanted)
    mirrored = np.pad(array[1:3, :4, :1], ((0, 0), (2, 0), (0, 0), (4, 4)), "reflect")
    found = run(relay.nn.pad(x, width, pad_mode="reflect"), array)
    np.testing.assert_array_equal(found, mirrored)


def test_more_than_there_is_cannot_be_cut_off():
    with pytest.raises(ModelError):
        relay.nn.pad(relay.var("x", shape=(2, 3)), ((-2, -1), (0, 0)))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("kind", ["graph", "debug"])
def test_what_pads_may_be_an_input(kind, dtype):
    array = (10 * RNG.random((2, 3))).astype(dtype)
    array[0, 0] = 0
    x, value = relay.var("x", shape=(2, 3), dtype=dtype), relay.var("value", dtype)
    made = relay.nn.pad(x, ((1, 0), (0, 2)), value)
    wanted = np.pad(array, ((1, 0), (0, 2)), constant_values=5)
    np.testing.assert_array_equal(run(made, array, np.array(5, dtype), kind=kind), wanted)


@pytest.mark.slow
def test_images_of_integers_are_resized_in_float32():
    array = RNG.choice(np.array([-128, 3, 127], "int8"), (1, 2, 4, 5))
    x = relay.var("x", shape=array.shape, dtype="int8")
    floats = relay.var("x", shape=array.shape)
    for method in ("linear", "cubic"):
        wanted = run(relay.image.resize2d(floats, (8, 10), None, "NCHW", method), array.astype("f"))
        found = run(relay.image.resize2d(x, (8, 10), None, "NCHW", method), array)
        np.testing.assert_array_equal(found, np.trunc(wanted.clip(-128, 127)).astype("int8"))
    nearest = run(relay.image.resize2d(x, (8, 10), None, "NCHW", "nearest_neighbor"), array)
    assert nearest.dtype == np.int8 and set(nearest.ravel()) <= set(array.ravel())


def test_a_product_of_two_kinds_of_integers_is_of_what_is_asked_for():
    x, w = RNG.integers(0, 255, (3, 9)), RNG.integers(-128, 127, (4, 9))
    made = relay.nn.dense(
        relay.var("x", shape=(3, 9), dtype="uint8"), relay.var("w", shape=(4, 9), dtype="int8"),
        out_dtype="int32",
    )  # fmt: skip
    np.testing.assert_array_equal(run(made, x.astype("uint8"), w.astype("int8")), x @ w.T)


def test_transposed_convolutions_take_groups_before_channels():
    x, w = relay.var("x", shape=(1, 4, 5, 6)), relay.var("w", shape=(4, 3, 3, 3))
    by_place = relay.nn.conv2d_transpose(x, w, 1, 1, 1, 2, 6)
    assert by_place.attrs.groups == 2 and by_place.shape == (1, 6, 5, 6)
    named = relay.nn.conv2d_transpose(x, w, padding=1, groups=2, channels=6)
    assert relay.analysis.structural_equal(by_place, named)


def test_the_padding_of_one_axis_may_be_two_equal_numbers():
    x, w = relay.var("x", shape=(1, 4, 5)), relay.var("w", shape=(4, 3, 3))
    twice = relay.nn.conv1d_transpose(x, w, 2, output_padding=(1, 1))
    assert twice.shape == relay.nn.conv1d_transpose(x, w, 2, output_padding=1).shape
    with pytest.raises(ModelError, match="output_padding"):
        relay.nn.conv1d_transpose(x, w, 2, output_padding=(1, 0))


@pytest.mark.slow
def test_quantised_transposed_convolutions_have_their_own_order():
    x, w = RNG.integers(0, 9, (1, 4, 5, 5)), RNG.integers(0, 9, (4, 3, 3, 3))
    parts = [relay.const(v) for v in (2, 3)], [relay.const(v, "float32") for v in (0.5, 0.25)]
    made = relay.qnn.op.conv2d_transpose(
        relay.var("x", shape=x.shape, dtype="uint8"), relay.var("w", shape=w.shape, dtype="uint8"),
        *parts[0], *parts[1], (1, 1), (0, 0), (1, 1), 6, (3, 3), 2, out_dtype="int32",
    )  # fmt: skip
    wanted = testing.conv_transpose_python(x - 2, w - 3, 1, 0, groups=2)
    np.testing.assert_array_equal(run(made, x.astype("uint8"), w.astype("uint8")), wanted)


def test_extents_may_be_rounded_arithmetic_of_a_name():
    h = te.size_var("h")
    scaled = tilewright_tvm.tir.Cast(
        "int32", te.round(h * tilewright_tvm.tir.const(2.0, "float64"))
    )
    assert relay.TensorType((scaled,)) == relay.TensorType((h * 2,))


def test_operators_with_several_results_have_a_tuple():
    pair = relay.topk(relay.var("x", shape=(3, 4)), k=2)
    assert pair.tuple_value is pair
    later = relay.unique(relay.var("x", shape=(4,), dtype="int32"))
    assert later.tuple_value is later


def test_questions_about_what_is_called():
    assert tilewright_tvm.target.codegen.llvm_version_major() >= 14
    assert tilewright_tvm.contrib.cudnn.exists() is False
    with pytest.raises(AttributeError, match="is tuned instead"):
        tilewright_tvm.contrib.cudnn.softmax  # noqa: B018
    with pytest.raises(AttributeError, match="Bits are not packed"):
        relay.nn.bitserial_dense  # noqa: B018


def test_references_of_channels_last():
    x, w = RNG.random((1, 4, 5, 3)), RNG.random((3, 3, 2, 3))
    found = testing.conv2d_transpose_nhwc_python(x, w, "HWOI", 2, 1, (1, 1))
    wanted = testing.conv_transpose_python(
        x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1), 2, 1, (1, 1)
    )
    np.testing.assert_allclose(found, wanted.transpose(0, 2, 3, 1))
    rois = np.array([[0, 1.0, 1.0, 3.0, 2.5]])
    image = RNG.random((1, 5, 6, 2))
    bins = testing.roi_align_nhwc_python(image, rois, 2, 1.0, 2)
    first = testing.roi_align_nchw_python(image.transpose(0, 3, 1, 2), rois, 2, 1.0, 2)
    np.testing.assert_allclose(bins, first.transpose(0, 2, 3, 1))
