"""Convolutions against strided windows in numpy, and the texts that users know."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import examples
from tilewright import te, topi
from tilewright.base.errors import ExpressionError
from tilewright.te import ComputeDAG
from tilewright_tvm.topi import testing

small = examples(25)


def paddings():
    one = st.integers(0, 2)
    return st.one_of(
        one, st.tuples(one, one), st.tuples(one, one, one, one), st.sampled_from(["SAME", "VALID"])
    )


def pairs(most):
    return st.one_of(st.integers(1, most), st.tuples(st.integers(1, most), st.integers(1, most)))


@st.composite
def convolutions(draw):
    """Sizes that always leave at least one output position."""
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    dilation = draw(pairs(2))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, np.broadcast_to(dilation, 2), strict=True)]
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    return {
        "batch": draw(st.integers(1, 2)),
        "ci": groups * draw(st.integers(1, 3)),
        "co": groups * draw(st.integers(1, 3)),
        "image": [r + draw(st.integers(0, 4)) for r in reach],
        "kernel": kernel,
        "groups": groups,
        "stride": draw(pairs(3)),
        "padding": draw(paddings()),
        "dilation": dilation,
    }


@pytest.mark.parametrize(
    ("layout", "kernel_layout", "reference"),
    [
        ("NCHW", "OIHW", testing.conv2d_nchw_python),
        ("NHWC", "HWIO", testing.conv2d_nhwc_python),
    ],
)
@small
@given(case=convolutions())
def test_conv2d(new_bench, layout, kernel_layout, reference, case):
    bench = new_bench()
    size = {"N": case["batch"], "C": case["ci"], **dict(zip("HW", case["image"], strict=True))}
    weight = dict(zip("HW", case["kernel"], strict=True))
    weight |= {"O": case["co"], "I": case["ci"] // case["groups"]}
    data = bench.input(*(size[a] for a in layout))
    kernel = bench.input(*(weight[a] for a in kernel_layout))
    stride, padding, dilation = case["stride"], case["padding"], case["dilation"]
    result = topi.nn.conv2d(
        data, kernel, stride, padding, dilation, data_layout=layout, groups=case["groups"]
    )
    expected = reference(bench[data], bench[kernel], stride, padding, case["groups"], dilation)
    bench.check(result, expected)


@small
@given(convolutions(), st.sampled_from([1, 2, 3]), st.sampled_from([1, 2]))
def test_conv2d_blocked_equals_plain(new_bench, case, c, k):
    bench = new_bench()
    chunks, out_chunks = case["ci"], case["co"]
    data = bench.input(case["batch"], chunks, *case["image"], c)
    kernel = bench.input(out_chunks, chunks, *case["kernel"], c, k)
    options = (case["stride"], case["padding"], case["dilation"])
    result = topi.nn.conv2d(data, kernel, *options, data_layout=f"NCHW{c}c")
    plain = testing.conv2d_nchw_python(
        testing.layout_transform_python(bench[data], f"NCHW{c}c", "NCHW"),
        testing.layout_transform_python(bench[kernel], f"OIHW{c}i{k}o", "OIHW"),
        case["stride"],
        case["padding"],
        dilation=case["dilation"],
    )
    bench.check(result, testing.layout_transform_python(plain, "NCHW", f"NCHW{k}c"))


@small
@given(convolutions(), st.integers(1, 2))
def test_depthwise(new_bench, case, multiplier):
    bench = new_bench()
    options = (case["stride"], case["padding"], case["dilation"])
    data = bench.input(case["batch"], case["ci"], *case["image"])
    kernel = bench.input(case["ci"], multiplier, *case["kernel"])
    bench.check(
        topi.nn.depthwise_conv2d_nchw(data, kernel, *options),
        testing.depthwise_conv2d_python_nchw(bench[data], bench[kernel], *options),
    )
    data = bench.input(case["batch"], *case["image"], case["ci"])
    kernel = bench.input(*case["kernel"], case["ci"], multiplier)
    bench.check(
        topi.nn.depthwise_conv2d_nhwc(data, kernel, *options),
        testing.depthwise_conv2d_python_nhwc(bench[data], bench[kernel], *options),
    )


@pytest.mark.parametrize("padding", [0, 1])
def test_depthwise_blocked_equals_plain(new_bench, padding):
    bench = new_bench()
    data, kernel = bench.input(2, 3, 6, 5, 4), bench.input(3, 1, 3, 2, 1, 4)
    weights = bench[kernel].transpose(0, 5, 1, 4, 2, 3).reshape(12, 1, 3, 2)
    plain = testing.depthwise_conv2d_python_nchw(
        testing.layout_transform_python(bench[data], "NCHW4c", "NCHW"), weights, 2, padding
    )
    bench.check(
        topi.nn.depthwise_conv2d_NCHWc(data, kernel, 2, padding),
        testing.layout_transform_python(plain, "NCHW", "NCHW4c"),
    )


def test_kernel_layout(new_bench):
    bench = new_bench()
    data, kernel = bench.input(1, 5, 6, 3), bench.input(4, 3, 2, 3)
    result = topi.nn.conv2d(data, kernel, 1, 0, 1, "NHWC", "OHWI")
    weights = bench[kernel].transpose(1, 2, 3, 0)
    bench.check(result, testing.conv2d_nhwc_python(bench[data], weights, 1, 0))


def test_reference_agrees_with_torch():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    a, w = rng.normal(size=(2, 6, 7, 8)), rng.normal(size=(4, 3, 3, 2))
    expected = torch.nn.functional.conv2d(
        torch.from_numpy(a), torch.from_numpy(w), stride=(2, 1), padding=(1, 2), dilation=(2, 1),
        groups=2,
    )  # fmt: skip
    ours = testing.conv2d_nchw_python(a, w, (2, 1), (1, 2), groups=2, dilation=(2, 1))
    np.testing.assert_allclose(ours, expected.numpy(), rtol=1e-10, atol=1e-12)


def test_reference_keeps_the_dtype_and_dilation_is_a_dilated_kernel():
    rng = np.random.default_rng(0)
    a, w = (rng.normal(size=s).astype("float32") for s in ((1, 2, 8, 8), (3, 2, 3, 3)))
    one = testing.conv2d_nchw_python(a, w, 1, 1, dilation=2)
    two = testing.conv2d_nchw_python(a, testing.dilate_python(w, (1, 1, 2, 2)), 1, 1)
    assert one.dtype == np.float32
    np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-6)


def placeholders(*shapes):
    return [te.placeholder(s, name=f"p{n}") for n, s in enumerate(shapes)]


SEED_003 = ((1, 512, 7, 7), (512, 512, 3, 3))


def test_flops_of_the_tutorial():
    data, kernel = placeholders(*SEED_003)
    conv = topi.nn.conv2d_nchw(data, kernel, (1, 1), (1, 1), dilation=1, out_dtype="float32")
    assert ComputeDAG([data, kernel, conv]).flop_ct == 231501312
    assert conv.op.tag == "conv2d_nchw"
    assert conv.op.attrs["workload"] == [
        "conv2d_nchw", ["TENSOR", [1, 512, 7, 7], "float32"],
        ["TENSOR", [512, 512, 3, 3], "float32"],
        [1, 1], [1, 1, 1, 1], [1, 1], "float32",
    ]  # fmt: skip
    assert [ax.name for ax in conv.op.axis] == ["nn", "ff", "yy", "xx"]
    assert [ax.name for ax in conv.op.reduce_axis] == ["rc", "ry", "rx"]
    assert conv.op.input_tensors[0].op.name == "pad_temp"


def test_text_of_conv_bias_relu():
    data = te.placeholder((1, 512, 7, 7), name="data")
    kernel = te.placeholder((512, 512, 3, 3), name="kernel")
    bias = te.placeholder((1, 512, 1, 1), name="bias")
    conv = topi.nn.conv2d_nchw(data, kernel, 1, 1, dilation=1, out_dtype="float32")
    assert str(ComputeDAG([data, kernel, bias, topi.nn.relu(conv + bias)])).splitlines() == [
        "data = PLACEHOLDER [1, 512, 7, 7]",
        "pad_temp(i0, i1, i2, i3) = tir.if_then_else(((((i2 >= 1) && (i2 < 8)) && (i3 >= 1)) && "
        "(i3 < 8)), data[i0, i1, (i2 - 1), (i3 - 1)], 0f)",
        "kernel = PLACEHOLDER [512, 512, 3, 3]",
        "compute(nn, ff, yy, xx) += "
        "(pad_temp[nn, rc, (yy + ry), (xx + rx)]*kernel[ff, rc, ry, rx])",
        "bias = PLACEHOLDER [1, 512, 1, 1]",
        "T_add(ax0, ax1, ax2, ax3) = (compute[ax0, ax1, ax2, ax3] + bias[ax0, ax1, 0, 0])",
        "compute(i0, i1, i2, i3) = max(T_add[i0, i1, i2, i3], 0f)",
    ]


def test_text_of_nhwc_pointwise_keeps_the_padding_stage():
    data, kernel, bias = placeholders((1, 56, 56, 128), (1, 1, 128, 128), (1, 1, 1, 128))
    out = topi.nn.relu(topi.add(topi.nn.conv2d_nhwc(data, kernel, 1, 0), bias))
    assert str(ComputeDAG([data, kernel, bias, out])).splitlines() == [
        "p0 = PLACEHOLDER [1, 56, 56, 128]",
        "pad_temp(i0, i1, i2, i3) = p0[i0, i1, i2, i3]",
        "p1 = PLACEHOLDER [1, 1, 128, 128]",
        "conv2d_nhwc(nn, yy, xx, ff) += "
        "(pad_temp[nn, (yy + ry), (xx + rx), rc]*p1[ry, rx, rc, ff])",
        "p2 = PLACEHOLDER [1, 1, 1, 128]",
        "T_add(ax0, ax1, ax2, ax3) = (conv2d_nhwc[ax0, ax1, ax2, ax3] + p2[ax0, 0, 0, ax3])",
        "compute(i0, i1, i2, i3) = max(T_add[i0, i1, i2, i3], 0f)",
    ]


def test_text_of_depthwise():
    data, kernel = placeholders((1, 14, 14, 512), (3, 3, 512, 1))
    conv = topi.nn.depthwise_conv2d_nhwc(data, kernel, 2, 1)
    lines = str(ComputeDAG([data, kernel, conv])).splitlines()
    assert lines[1].startswith("PaddedInput(i0, i1, i2, i3) = tir.if_then_else(((((i1 >= 1) && ")
    assert lines[3] == (
        "DepthwiseConv2d(b, i, j, c) += "
        "(PaddedInput[b, ((i*2) + di), ((j*2) + dj), c]*p1[di, dj, c, 0])"
    )


def test_only_padded_sides_are_compared():
    (data,) = placeholders((4, 5))
    padded = topi.nn.pad(data, (0, 2), (1, 0))
    assert padded.shape == (5, 7)
    assert "if_then_else(((i0 < 4) && (i1 >= 2)), p0[i0, (i1 - 2)], 0f)" in str(ComputeDAG(padded))


@pytest.mark.parametrize(
    ("padding", "sides"),
    [
        (1, (1, 1, 1, 1)),
        ((1, 2), (1, 2, 1, 2)),
        ((0, 1, 2, 3), (0, 1, 2, 3)),
        ("SAME", (1, 2, 1, 1)),
        ("VALID", (0, 0, 0, 0)),
    ],
)
def test_pad_tuple(padding, sides):
    assert topi.nn.get_pad_tuple(padding, (3, 4)) == sides


REFUSED = {
    "channels": (((1, 3, 5, 5), (4, 2, 3, 3)), {}, "kernel reads 2 channels per group"),
    "rank of data": (((3, 5, 5), (4, 3, 3, 3)), {}, "data has 3 dimensions"),
    "rank of kernel": (((1, 3, 5, 5), (4, 3, 3)), {}, "kernel has 3 dimensions"),
    "window": (((1, 3, 2, 5), (4, 3, 3, 3)), {}, "window of 3 does not fit the padded extent 2"),
    "dilated window": (((1, 3, 5, 5), (4, 3, 3, 3)), {"dilation": 3}, "window of 7"),
    "stride": (((1, 3, 5, 5), (4, 3, 3, 3)), {"strides": 0}, "strides=0|stride=0"),
    "stride triple": (((1, 3, 5, 5), (4, 3, 3, 3)), {"strides": (1, 1, 1)}, "pair of ints"),
    "padding word": (((1, 3, 5, 5), (4, 3, 3, 3)), {"padding": "FULL"}, "unknown padding 'FULL'"),
    "padding triple": (((1, 3, 5, 5), (4, 3, 3, 3)), {"padding": (1, 1, 1)}, "not understood"),
    "padding sign": (((1, 3, 5, 5), (4, 3, 3, 3)), {"padding": -1}, "not understood"),
    "groups": (((1, 3, 5, 5), (4, 3, 3, 3)), {"groups": 2}, "do not divide into 2 groups"),
    "no groups": (((1, 3, 5, 5), (4, 3, 3, 3)), {"groups": 0}, "groups=0"),
    "layout": (((1, 3, 5, 5), (4, 3, 3, 3)), {"data_layout": "NWHC"}, "has no convolution"),
    "kernel layout": (((1, 3, 5, 5), (4, 3, 3, 3)), {"kernel_layout": "OIHX"}, "is unknown"),
    "block size": (((1, 3, 5, 5, 4), (4, 3, 3, 3, 4, 4)), {"data_layout": "NCHW8c"}, "not 8"),
    "block": (((1, 3, 5, 5, 4), (4, 3, 3, 3, 8, 4)), {"data_layout": "NCHW4c"}, "3 blocks of 4"),
    "block groups": (
        ((1, 3, 5, 5, 4), (4, 3, 3, 3, 4, 4)), {"data_layout": "NCHW4c", "groups": 3}, "no groups",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    shapes, options, message = REFUSED[name]
    data, kernel = placeholders(*shapes)
    with pytest.raises(ExpressionError, match=message) as caught:
        topi.nn.conv2d(data, kernel, **{"strides": 1, "padding": 0, **options})
    assert caught.value.place.startswith(("conv2d", "group_conv2d"))


def test_refused_types():
    data, kernel = placeholders((1, 3, 5, 5), (4, 3, 3, 3))
    double = te.placeholder((4, 3, 3, 3), "float64", name="w")
    with pytest.raises(ExpressionError, match="data is float32, kernel is float64"):
        topi.nn.conv2d_nchw(data, double, 1, 0)
    assert topi.nn.conv2d_nchw(data, double, 1, 0, out_dtype="float64").dtype == "float64"
    with pytest.raises(ExpressionError, match="kernel is a ndarray, not a tensor"):
        topi.nn.conv2d_nchw(data, np.zeros(kernel.shape), 1, 0)


def test_refused_depthwise():
    data, kernel = placeholders((1, 3, 5, 5), (4, 1, 3, 3))
    with pytest.raises(ExpressionError, match="data has 3 channels, the kernel 4"):
        topi.nn.depthwise_conv2d_nchw(data, kernel, 1, 0)
    data, kernel = placeholders((1, 3, 5, 5, 4), (3, 2, 3, 3, 1, 4))
    with pytest.raises(ExpressionError, match="multiplier is not supported"):
        topi.nn.depthwise_conv2d_NCHWc(data, kernel, 1, 0)
    data, kernel = placeholders((1, 3, 5, 5, 4), (3, 1, 3, 3, 1, 2))
    with pytest.raises(ExpressionError, match="3 blocks of 4 channels, the kernel 3 of 2"):
        topi.nn.depthwise_conv2d_NCHWc(data, kernel, 1, 0)


def test_refused_pad():
    (data,) = placeholders((4, 5))
    with pytest.raises(ExpressionError, match="2 axes need 2 numbers"):
        topi.nn.pad(data, (1,))
    with pytest.raises(ExpressionError, match="padding is not an int"):
        topi.nn.pad(data, (1, -1))


def test_blocks_of_channels_in_groups(new_bench):
    bench = new_bench()
    x, w = bench.input(1, 4, 5, 5, 2), bench.input(6, 2, 3, 3, 2, 2)
    made = topi.nn.conv2d_NCHWc(x, w, 1, 1, 1, "NCHW2c", "NCHW2c", "float32")
    plain = bench[x].transpose(0, 1, 4, 2, 3).reshape(1, 8, 5, 5)
    kernel = bench[w].transpose(0, 5, 1, 4, 2, 3).reshape(12, 4, 3, 3)
    expected = testing.conv2d_nchw_python(plain, kernel, 1, 1, 2)
    bench.check(made, expected.reshape(1, 6, 2, 5, 5).transpose(0, 1, 3, 4, 2))
    with pytest.raises(ExpressionError, match="layout is 'NCHW4c', and the blocks are NCHW2c"):
        topi.nn.conv2d_NCHWc(x, w, 1, 1, 1, "NCHW4c")
    odd = te.placeholder((5, 2, 3, 3, 2, 2), name="odd")
    with pytest.raises(ExpressionError, match="2 groups do not divide 5 blocks"):
        topi.nn.conv2d_NCHWc(x, odd, 1, 1)


def test_a_depthwise_reference_in_blocks(new_bench):
    bench = new_bench()
    x, w = bench.input(1, 3, 5, 5, 2), bench.input(3, 1, 3, 3, 1, 2)
    expected = testing.depthwise_conv2d_python_nchwc(bench[x], bench[w], 2, 1)
    bench.check(topi.nn.depthwise_conv2d_NCHWc(x, w, 2, 1, 1, "NCHW2c", "NCHW2c"), expected)
