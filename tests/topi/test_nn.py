"""Dense, pooling, softmax, normalisation and activations against numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tilewright_tvm.topi.nn.pooling import _length, _longest, _uniform

from tests.tiers import examples
from tilewright import te
from tilewright.base.errors import ExpressionError, TilewrightError
from tilewright.te import ComputeDAG
from tilewright_tvm import topi
from tilewright_tvm.topi import testing

small = examples(25)


def placeholders(*shapes, dtype="float32"):
    return [te.placeholder(s, dtype, name=f"p{n}") for n, s in enumerate(shapes)]


# -- matrix products -------------------------------------------------------------------------------


@pytest.mark.parametrize("with_bias", [False, True])
def test_dense(new_bench, with_bias):
    bench = new_bench()
    data, weight, bias = bench.input(3, 7), bench.input(5, 7), bench.input(5)
    result = topi.nn.dense(data, weight, bias if with_bias else None)
    bench.check(result, testing.dense(bench[data], bench[weight], bench[bias], with_bias))


def test_text_of_dense():
    data, weight = placeholders((1, 1024), (1000, 1024))
    out = topi.nn.dense(data, weight)
    assert str(ComputeDAG([data, weight, out])).splitlines()[2] == (
        "T_matmul_NT(i, j) += (p0[i, k]*p1[j, k])"
    )
    assert (out.op.tag, out.op.attrs["workload"][0]) == ("dense", "dense")


@pytest.mark.parametrize("flip_a", [False, True])
@pytest.mark.parametrize("flip_b", [False, True])
def test_matmul(new_bench, flip_a, flip_b):
    bench = new_bench()
    a = bench.input(*(4, 3) if flip_a else (3, 4))
    b = bench.input(*(5, 4) if flip_b else (4, 5))
    bench.check(
        topi.matmul(a, b, flip_a, flip_b), testing.matmul(bench[a], bench[b], flip_a, flip_b)
    )


@pytest.mark.parametrize("flip_a", [False, True])
@pytest.mark.parametrize("flip_b", [False, True])
@pytest.mark.parametrize("batches", [(2, 2), (1, 2), (2, 1), (1, 1)])
def test_batch_matmul(new_bench, flip_a, flip_b, batches):
    bench = new_bench()
    a = bench.input(batches[0], *(4, 3) if flip_a else (3, 4))
    b = bench.input(batches[1], *(5, 4) if flip_b else (4, 5))
    result = topi.nn.batch_matmul(a, b, transpose_a=flip_a, transpose_b=flip_b)
    expected = testing.batch_matmul(bench[a], bench[b], trans_x=flip_a, trans_y=flip_b)
    bench.check(result, expected)


def test_products_refuse():
    a, b, vector = placeholders((3, 4), (5, 6), (4,))
    with pytest.raises(ExpressionError, match="reduced extents differ: 4 and 6"):
        topi.nn.dense(a, b)
    with pytest.raises(ExpressionError, match="reduced extents differ: 4 and 5"):
        topi.matmul(a, b)
    with pytest.raises(ExpressionError, match=r"bias must have shape \[3\], got \[4\]"):
        topi.nn.dense(a, a, vector)
    with pytest.raises(ExpressionError, match="the second operand has 1 dimensions, not the 2"):
        topi.matmul(a, vector)
    with pytest.raises(ExpressionError, match="tensor_a has 2 dimensions, not the 3"):
        topi.nn.batch_matmul(a, b)
    a, b = placeholders((2, 3, 4), (3, 3, 4))
    with pytest.raises(ExpressionError, match="batches of 2 and 3"):
        topi.nn.batch_matmul(a, b)


# -- pooling ---------------------------------------------------------------------------------------


@st.composite
def pools(draw):
    one = st.integers(1, 3)
    kernel, stride, dilation = (draw(st.tuples(one, one)) for _ in range(3))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    return {
        "kernel": kernel,
        "stride": stride,
        "dilation": dilation,
        "padding": tuple(draw(st.integers(0, min(reach[n % 2] - 1, 2))) for n in range(4)),
        "pool_type": draw(st.sampled_from(["max", "avg"])),
        "ceil_mode": draw(st.booleans()),
        "beyond": draw(st.booleans()),
        "count_include_pad": draw(st.booleans()),
        "layout": draw(st.sampled_from(["NCHW", "NHWC", "NCHW2c"])),
    }, [r + draw(st.integers(0, 4)) for r in reach]


SHAPE = {
    "NCHW": lambda h, w: (2, 3, h, w),
    "NHWC": lambda h, w: (2, h, w, 3),
    "NCHW2c": lambda h, w: (1, 2, h, w, 2),
}


@examples(40)
@given(pools())
def test_pool2d(new_bench, case):
    options, image = case
    bench = new_bench()
    data = bench.input(*SHAPE[options["layout"]](*image))
    expected = testing.pool2d_python(bench[data], **options)
    bench.check(topi.nn.pool2d(data, **options), expected)


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("count_include_pad", [False, True])
@pytest.mark.parametrize("size", [6, 7, 8, 9])
def test_pooling_reference_agrees_with_torch(size, ceil_mode, count_include_pad):
    torch = pytest.importorskip("torch")
    a = np.random.default_rng(0).normal(size=(1, 2, size, 7))
    image = torch.from_numpy(a)
    average = torch.nn.functional.avg_pool2d(image, 3, 2, 1, ceil_mode, count_include_pad)
    ours = testing.pool2d_python(
        a, 3, 2, 1, 1, "avg", ceil_mode, "NCHW", count_include_pad, beyond=False
    )
    np.testing.assert_allclose(ours, average.numpy())
    largest = torch.nn.functional.max_pool2d(image, 3, 2, 1, 1, ceil_mode)
    ours = testing.pool2d_python(a, 3, 2, 1, 1, "max", ceil_mode, beyond=False)
    np.testing.assert_allclose(ours, largest.numpy())


def test_a_last_window_in_the_padding_alone(new_bench):
    """TVM counts it, ONNX and PyTorch do not."""
    bench = new_bench()
    data = bench.input(1, 1, 5, 5)
    how = 2, 3, 1, (0, 0, 3, 3), "max", True
    both = [topi.nn.pool2d(data, *how, beyond=beyond) for beyond in (True, False)]
    assert [t.shape for t in both] == [(1, 1, 3, 3), (1, 1, 2, 2)]
    assert both[0].op.attrs["workload"] != both[1].op.attrs["workload"]
    grads = te.placeholder((1, 1, 3, 3), name="grads")
    made = topi.nn.pool_grad(grads, data, 2, 3, (0, 0, 3, 3), "max", True)
    assert made.shape == data.shape
    numbers = testing.pool2d_python(bench[data], *how)
    assert (numbers[..., -1] == -np.inf).all() and np.isfinite(numbers[0, 0, 0, 0])


def test_pooling_of_integers(new_bench):
    bench = new_bench()
    data = bench.input(1, 2, 5, 5, dtype="int32")
    expected = testing.pool2d_python(bench[data].astype(float), 3, 2, 1, 1, "max")
    bench.check(topi.nn.pool2d(data, 3, 2, 1, 1, "max"), expected)


def test_divisor_is_a_number_where_all_windows_agree():
    (data,) = placeholders((1, 3, 8, 8))
    plain = topi.nn.pool2d(data, 2, 2, 1, 0, "avg")
    assert str(plain.op.body).endswith("/4f)")
    assert plain.op.input_tensors[0].op.input_tensors == (data,)  # nothing to pad, no pad stage
    front_only = topi.nn.pool2d(data, 3, 2, 1, 1, "avg", count_include_pad=False)
    assert "(3 - max((1 - (ax2*2)), 0))" in str(front_only.op.body)  # the last window fits


@small
@given(
    st.tuples(st.integers(1, 7), st.integers(1, 7)),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.sampled_from(["max", "avg"]),
    st.sampled_from(list(SHAPE)),
)
def test_adaptive_pool(new_bench, image, size, pool_type, layout):
    bench = new_bench()
    data = bench.input(*SHAPE[layout](*image))
    expected = testing.adaptive_pool(bench[data], size, pool_type, layout)
    bench.check(topi.nn.adaptive_pool(data, size, pool_type, layout), expected)


def test_text_of_global_pool():
    (data,) = placeholders((1, 7, 7, 1024))
    assert str(ComputeDAG(topi.nn.global_pool(data, "avg", "NHWC"))).splitlines() == [
        "p0 = PLACEHOLDER [1, 7, 7, 1024]",
        "adaptive_pool_sum(ax0, ax1, ax2, ax3) += p0[ax0, ((ax1*7) + rv0), ((ax2*7) + rv1), ax3]",
        "adaptive_pool_avg(ax0, ax1, ax2, ax3) = (adaptive_pool_sum[ax0, ax1, ax2, ax3]/49f)",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pool_type": "sum"}, "pool type 'sum' is unknown"),
        ({"layout": "NCHW4h"}, "does not keep H and W whole"),
        ({"layout": "NCHW4c"}, "data has 4 dimensions, layout NCHW4c 5"),
        ({"kernel": 9}, "window of 9 does not fit"),
        ({"stride": (1, 0)}, "stride="),
        ({"kernel": (3, 3, 3)}, "kernel="),
        ({"dilation": "x"}, "dilation='x'"),
    ],
)
def test_pool2d_refuses(change, message):
    (data,) = placeholders((1, 3, 8, 8))
    options = {"kernel": 3, "stride": 1, "dilation": 1, "padding": 0, "pool_type": "max"}
    with pytest.raises(ExpressionError, match=message):
        topi.nn.pool2d(data, **{**options, **change})


def test_the_mean_of_integers_is_refused():
    (data,) = placeholders((1, 3, 8, 8), dtype="int32")
    with pytest.raises(ExpressionError, match="mean of int32 is not whole"):
        topi.nn.global_pool(data, "avg")
    with pytest.raises(ExpressionError, match="output_size=0"):
        topi.nn.adaptive_pool(data, 0, "max")


def test_upsampling(new_bench):
    bench = new_bench()
    data = bench.input(2, 3, 4, 5)
    bench.check(topi.nn.upsampling(data, 2, 3), testing.upsampling_python(bench[data], (2, 3)))
    expected = testing.upsampling_python(bench[data], (3, 2), "NHWC")
    bench.check(topi.nn.upsampling(data, 3, 2, "NHWC"), expected)
    assert topi.nn.upsampling(data, 1.5, 2.0, method="bilinear").shape == (2, 3, 6, 10)
    with pytest.raises(TilewrightError, match="method 'area'"):
        topi.nn.upsampling(data, 2, 2, method="area")


# -- softmax, normalisation, activations -----------------------------------------------------------


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax(new_bench, axis):
    bench = new_bench()
    x = bench.input(3, 4, 5)
    bench.check(topi.nn.softmax(x, axis), testing.softmax_python(bench[x], axis))
    bench.check(topi.nn.log_softmax(x, axis), testing.log_softmax_python(bench[x], axis))


def test_text_of_softmax():
    (x,) = placeholders((1, 1000))
    assert str(ComputeDAG(topi.nn.softmax(x))).splitlines() == [
        "p0 = PLACEHOLDER [1, 1000]",
        "T_softmax_maxelem(i0) max= p0[i0, k]",
        "T_softmax_exp(i0, i1) = tir.exp((p0[i0, i1] - T_softmax_maxelem[i0]))",
        "T_softmax_expsum(i0) += T_softmax_exp[i0, k]",
        "T_softmax_norm(i0, i1) = (T_softmax_exp[i0, i1]/T_softmax_expsum[i0])",
    ]


def test_softmax_refuses():
    (x,) = placeholders((3, 4))
    with pytest.raises(ExpressionError, match="axis 2 is out of range"):
        topi.nn.softmax(x, 2)
    with pytest.raises(ExpressionError, match="log_softmax of int32"):
        topi.nn.log_softmax(te.placeholder((3, 4), "int32"))


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize(("center", "scale"), [(True, True), (False, True), (True, False)])
def test_batch_norm(new_bench, axis, center, scale):
    bench = new_bench()
    data = bench.input(2, 5, 3, 5)
    gamma, beta, mean = (bench.input(5) for _ in range(3))
    var = bench.input(5, low=0.25)
    out, *moving = topi.nn.batch_norm(
        data, gamma, beta, mean, var, axis, 1e-3, center=center, scale=scale
    )
    arrays = (bench[t] for t in (data, gamma, beta, mean, var))
    expected = testing.batch_norm(*arrays, axis, 1e-3, center, scale)[0]
    bench.check(out, expected)
    for copy, own in zip(moving, (mean, var), strict=True):
        assert copy is not own  # a kernel has it as an argument and as a result
        bench.check(copy, bench[own])


def test_batch_norm_needs_no_gamma_it_does_not_use(new_bench):
    bench = new_bench()
    data, mean, var = bench.input(2, 5), bench.input(5), bench.input(5, low=0.25)
    out = topi.nn.batch_norm(data, None, None, mean, var, center=False, scale=False)[0]
    bench.check(out, (bench[data] - bench[mean]) / np.sqrt(bench[var] + 1e-5))
    with pytest.raises(ExpressionError, match=r"gamma must have shape \[5\], got None"):
        topi.nn.batch_norm(data, None, mean, mean, var)
    integers = te.placeholder((2, 5), "int32")
    with pytest.raises(ExpressionError, match="batch_norm of int32"):
        topi.nn.batch_norm(integers, mean, mean, mean, var)
    with pytest.raises(ExpressionError, match="epsilon=-1 is negative"):
        topi.nn.batch_norm(data, mean, mean, mean, var, epsilon=-1)
    with pytest.raises(ExpressionError, match=r"moving_mean must have shape \[2\], got \[5\]"):
        topi.nn.batch_norm(data, mean, mean, mean, var, axis=0)


def test_scale_shift(new_bench):
    bench = new_bench()
    data, scale, shift = bench.input(2, 3, 4, 3), bench.input(3), bench.input(3)
    arrays = [bench[t] for t in (data, scale, shift)]
    bench.check(
        topi.nn.scale_shift_nchw(data, scale, shift), testing.scale_shift_nchw_python(*arrays)
    )
    bench.check(
        topi.nn.scale_shift_nhwc(data, scale, shift), testing.scale_shift_nhwc_python(*arrays)
    )
    with pytest.raises(ExpressionError, match=r"scale must have shape \[3\]"):
        topi.nn.scale_shift_nchw(data, data, shift)


def test_activations(new_bench):
    bench = new_bench()
    x = bench.input(3, 4)
    bench.check(topi.nn.relu(x), np.maximum(bench[x], 0))
    bench.check(topi.nn.leaky_relu(x, 0.25), np.where(bench[x] > 0, bench[x], bench[x] * 0.25))
    bench.check(topi.nn.dropout(x, 0.5), bench[x])
    assert (topi.nn.relu(x).op.name, topi.nn.relu(x).op.tag) == ("compute", "elemwise")
    with pytest.raises(ExpressionError, match="rate is not in"):
        topi.nn.dropout(x, 1.0)


@pytest.mark.parametrize("axis", [1, -1])
def test_bias_add(new_bench, axis):
    bench = new_bench()
    data, bias = bench.input(2, 3, 4, 3), bench.input(3)
    shape = [1, 3, 1, 1] if axis == 1 else [3]
    bench.check(topi.nn.bias_add(data, bias, axis), bench[data] + bench[bias].reshape(shape))
    with pytest.raises(ExpressionError, match=r"bias must have shape \[4\], got \[3\]"):
        topi.nn.bias_add(data, bias, 2)


def test_lengths_of_adaptive_windows_are_known_without_looking_at_each():
    for extent in range(1, 20):
        for size in range(1, 30):
            lengths = [_length(o, size, extent) for o in range(size)]
            assert _longest(size, extent) == max(lengths)
            assert _uniform(size, extent) == (len(set(lengths)) == 1)
    pooled = topi.nn.adaptive_pool(te.placeholder((1, 1, 4, 4)), 1 << 30, "max")
    assert pooled.shape == (1, 1, 1 << 30, 1 << 30)
