"""The float64 reference against per-element evaluation and against formulas written in numpy."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as S
from tests.te.brute import brute
from tests.tiers import examples
from tilewright import te
from tilewright.base.errors import ExpressionError
from tilewright.te import evaluate as module
from tilewright.te.contraction import contraction
from tilewright.te.evaluate import apply, evaluate, random_inputs


def same(actual, expected):
    """Equal up to the order of float64 sums, infinities and NaNs included."""
    size = np.abs(np.where(np.isfinite(expected), expected, 0)).max(initial=1.0)
    return np.allclose(actual, expected, rtol=1e-9, atol=1e-10 * size, equal_nan=True)


@pytest.mark.slow
@examples(40)
@given(S.dags(3000), st.integers(0, 3))
def test_equals_evaluation_by_element(drawn, seed):
    dag, _ = drawn
    inputs = random_inputs(dag, seed)
    for actual, expected in zip(evaluate(dag, inputs), brute(dag, inputs), strict=True):
        assert actual.dtype == expected.dtype and actual.shape == expected.shape
        assert same(actual, expected)


@examples(40)
@given(S.dags(1500))
def test_blocks_do_not_change_the_result(drawn):
    dag, _ = drawn
    inputs = random_inputs(dag, 0)
    whole = evaluate(dag, inputs)
    old = module.BLOCK
    module.BLOCK = 7
    try:
        pieces = evaluate(dag, inputs)
    finally:
        module.BLOCK = old
    for a, b in zip(whole, pieces, strict=True):
        assert same(a, b)


@examples(40)
@given(st.one_of(S.matmuls(), S.conv2ds(), S.depthwises()))
def test_tiles_of_a_contraction_do_not_change_the_result(drawn):
    from tilewright.te import contraction as tiles

    dag, _ = drawn
    inputs = random_inputs(dag, 0)
    whole = evaluate(dag, inputs)
    old = tiles.BLOCK
    tiles.BLOCK = 10
    try:
        pieces = evaluate(dag, inputs)
    finally:
        tiles.BLOCK = old
    assert same(whole[0], pieces[0])


@examples(30)
@given(S.gathers())
def test_gathers_rows(drawn):
    dag, _ = drawn
    table, rows = random_inputs(dag, 1)
    (out,) = evaluate(dag, [table, rows])
    assert np.array_equal(out, 2 * table.astype(np.float64)[rows])


def test_conv2d_formula():
    n, ci, h, w, co, k, s, p = 2, 6, 9, 8, 4, 3, 2, 1
    dag = S.conv2d(n, ci // 2, (h, w), co // 2, (k, k), s, p, groups=2)
    data, weight = random_inputs(dag, 0)
    padded = np.pad(data.astype(np.float64), ((0, 0), (0, 0), (p, p), (p, p)))
    expected = np.zeros((n, co, (h + 2 * p - k) // s + 1, (w + 2 * p - k) // s + 1))
    for f in range(co):
        channels = slice(f // (co // 2) * (ci // 2), (f // (co // 2) + 1) * (ci // 2))
        for y in range(expected.shape[2]):
            for x in range(expected.shape[3]):
                window = padded[:, channels, y * s : y * s + k, x * s : x * s + k]
                expected[:, f, y, x] = (window * weight[f]).sum(axis=(1, 2, 3))
    assert contraction(dag.compute_ops[-1]) is not None
    assert np.allclose(evaluate(dag, [data, weight])[0], expected, rtol=1e-12)


def test_dilated_nhwc_conv2d_formula():
    dag = S.conv2d(1, 3, (9, 9), 2, (3, 2), dilation=2, layout="NHWC")
    data, weight = random_inputs(dag, 0)
    x = data.astype(np.float64)[0]
    expected = sum(
        x[2 * i : 2 * i + 5, 2 * j : 2 * j + 7] @ weight[i, j].astype(np.float64)
        for i in range(3)
        for j in range(2)
    )
    assert np.allclose(evaluate(dag, [data, weight])[0][0], expected, rtol=1e-12)


def test_softmax_formula():
    dag = S.softmax(5, 9)
    (x,) = random_inputs(dag, 3)
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    assert np.allclose(evaluate(dag, [x])[0], e / e.sum(axis=1, keepdims=True), rtol=1e-13)


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pool_formula(kind):
    dag = S.pool(1, 2, (6, 7), 3, 2, 1, kind)
    (x,) = random_inputs(dag, 0)
    fill = -np.inf if kind == "max" else 0
    p = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=fill)
    windows = np.lib.stride_tricks.sliding_window_view(p, (3, 3), (2, 3))[:, :, ::2, ::2]
    expected = windows.max(axis=(4, 5)) if kind == "max" else windows.mean(axis=(4, 5))
    assert np.allclose(evaluate(dag, [x])[0], expected, rtol=1e-13)


def test_flipped_and_shifted_indices_take_the_fast_path():
    x = te.placeholder((9,), name="x")
    w = te.placeholder((3,), name="w")
    k = te.reduce_axis((1, 3), "k")
    out = te.compute((4,), lambda i: te.sum(x[2 * i + 2 - k] * w[k] * 3.0, axis=k), name="out")
    dag = te.ComputeDAG([x, w, out])
    inputs = random_inputs(dag, 0)
    assert contraction(out.op) is not None
    assert same(evaluate(dag, inputs)[0], brute(dag, inputs)[0])


def test_an_axis_that_no_read_uses_multiplies():
    x, y = te.placeholder((3, 2), name="x"), te.placeholder((2,), name="y")
    j, k = te.reduce_axis((0, 2), "j"), te.reduce_axis((0, 5), "k")
    once = te.compute((3,), lambda i: te.sum(x[i, j] * y[j], axis=[j, k]), name="once")
    none = te.compute((4,), lambda i: te.sum(y[1], axis=k), name="none")
    dag = te.ComputeDAG([x, y, once, none])
    inputs = random_inputs(dag, 0)
    for actual, expected in zip(evaluate(dag, inputs), brute(dag, inputs), strict=True):
        assert same(actual, expected)


@pytest.mark.parametrize("divisor", [2, 3, 4])
def test_quotients_and_remainders_that_divide_the_axis_or_not(divisor):
    x, w = te.placeholder((6, 6), name="x"), te.placeholder((6, 4), name="w")
    k = te.reduce_axis((0, 4), "k")
    out = te.compute(
        (6,), lambda i: te.sum(x[i // divisor, i % divisor + k // 2] * w[i, k], axis=k), name="out"
    )
    dag = te.ComputeDAG([x, w, out])
    inputs = random_inputs(dag, 0)
    assert (contraction(out.op) is None) == (divisor == 4)
    assert same(evaluate(dag, inputs)[0], brute(dag, inputs)[0])


def test_integers_stay_exact():
    x = te.placeholder((3,), "int64", name="x")
    k = te.reduce_axis((0, 3), "k")
    out = te.compute((1,), lambda i: te.sum(x[k] * x[k], axis=k), name="out")
    half = te.compute((3,), lambda i: (x[i] - 5) // 3 + (x[i] - 5) % 3, name="half")
    (total, floor) = evaluate(te.ComputeDAG([x, out, half]), [np.array([2**30 + 1, 3, 0])])
    assert total.dtype == np.int64 and total[0] == (2**30 + 1) ** 2 + 9
    assert floor.tolist() == [(v - 5) // 3 + (v - 5) % 3 for v in (2**30 + 1, 3, 0)]


def test_booleans_stay_booleans():
    x = te.placeholder((3,), "bool", name="x")
    out = te.compute((3,), lambda i: te.any(~x[i], i > 1), name="out")
    (value,) = evaluate(te.ComputeDAG([x, out]), [np.array([True, False, True])])
    assert value.dtype == np.bool_ and value.tolist() == [False, True, True]


def test_guarded_divisor_may_be_zero():
    x = te.placeholder((3,), "int32", name="x")
    safe = te.compute((3,), lambda i: te.if_then_else(x[i] > 0, 6 // x[i], -1), name="safe")
    (value,) = evaluate(te.ComputeDAG([x, safe]), [np.array([0, 2, 3], np.int32)])
    assert value.tolist() == [-1, 3, 2]
    unsafe = te.compute((3,), lambda i: 6 // x[i], name="unsafe")
    with pytest.raises(ExpressionError, match="division by zero"):
        evaluate(te.ComputeDAG([x, unsafe]), [np.array([0, 2, 3], np.int32)])


def test_inputs_by_tensor_by_name_and_in_order_agree():
    dag = S.matmul(2, 3, 4)
    a, b = random_inputs(dag, 0)
    ta, tb = dag.args[:2]
    results = [evaluate(dag, given)[0] for given in ([a, b], {ta: a, tb: b}, {"B": b, "A": a})]
    assert np.array_equal(results[0], results[1]) and np.array_equal(results[0], results[2])


def test_inputs_are_rounded_to_their_type():
    x = te.placeholder((1,), name="x")
    out = te.compute((1,), lambda i: x[i] * 1.0, name="out")
    assert evaluate(te.ComputeDAG([x, out]), [np.array([0.1])])[0][0] == np.float64(np.float32(0.1))


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ([np.zeros((2, 4))], "1 inputs for 2 placeholders"),
        ({"A": np.zeros((2, 4))}, "no value for the placeholder 'B'"),
        ([np.zeros((4, 2)), np.zeros((4, 3))], r"array of shape \[4, 2\]"),
    ],
)
def test_refused_inputs(inputs, reason):
    with pytest.raises(ExpressionError, match=reason):
        evaluate(S.matmul(2, 3, 4), inputs)


def outside_plain(x):
    return te.compute((4,), lambda i: x[i + 1], name="out")


def outside_below(x):
    return te.compute((4,), lambda i: x[i - 1] * 2.0, name="out")


def outside_guard_too_weak(x):
    return te.compute((6,), lambda i: te.if_then_else(i < 5, x[i], 0.0), name="out")


def outside_select(x):
    return te.compute((6,), lambda i: te.select(i < 4, x[i], 0.0), name="out")


def outside_sum(x):
    k = te.reduce_axis((0, 3), "k")
    return te.compute((4,), lambda i: te.sum(x[i + k], axis=k), name="out")


@pytest.mark.parametrize(
    "build",
    [outside_plain, outside_below, outside_guard_too_weak, outside_select, outside_sum],
)
def test_reads_outside_a_tensor_are_refused(build):
    x = te.placeholder((4,), name="x")
    dag = te.ComputeDAG([x, build(x)])
    with pytest.raises(ExpressionError, match="leaves the dimension of 4"):
        evaluate(dag, random_inputs(dag, 0))


@pytest.mark.parametrize("build", [outside_select, lambda x: te.compute(
    (4,), lambda i: te.select(i > 0, x[0] + (6 // i), x[i]), name="out"
)], ids=["read", "division"])  # fmt: skip
def test_a_value_that_is_not_selected_is_computed_too(build, monkeypatch):
    """Whatever the blocks are: a kernel computes both."""
    monkeypatch.setattr(module, "BLOCK", 1)
    x = te.placeholder((4,), name="x")
    dag = te.ComputeDAG([x, build(x)])
    with pytest.raises(ExpressionError, match=r"leaves the dimension|division by zero"):
        evaluate(dag, random_inputs(dag, 0))


def test_blocks_that_select_alike_compute_one_value(monkeypatch):
    """As Winograd's transforms do, whose rows are sums of their own."""
    x = te.placeholder((3, 40), name="x")
    rows = te.compute((3, 40), lambda i, j: te.select(
        i == 0, x[0, j] + x[1, j] * 0.3, te.select(i == 1, te.exp(x[2, j]), x[0, j] - x[2, j])
    ), name="rows")  # fmt: skip
    dag = te.ComputeDAG([x, rows])
    inputs = random_inputs(dag, 0)
    whole = module.evaluate_with_tolerance(dag, inputs)
    done = []
    monkeypatch.setattr(module, "BLOCK", 40)
    monkeypatch.setattr(
        module, "apply", lambda node, *rest: (done.append(node.attr), apply(node, *rest))[1]
    )
    parts = module.evaluate_with_tolerance(dag, inputs)
    assert done.count("exp") == 1
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one[0], other[0])


def test_random_inputs_repeat_by_seed_and_have_large_entries():
    dag = S.matmul(64, 64, 64)
    a, b = random_inputs(dag, 5), random_inputs(dag, 5)
    assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    assert not np.array_equal(a[0], random_inputs(dag, 6)[0])
    assert a[0].dtype == np.float32
    large = (np.abs(a[0]) > 20).mean()
    assert 0.002 < large < 0.03


def test_random_inputs_keep_roots_and_logarithms_defined():
    x, v = te.placeholder((50,), name="x"), te.placeholder((50,), name="v")
    out = te.compute((50,), lambda i: x[i] * te.rsqrt(v[i] + 1e-5), name="out")
    dag = te.ComputeDAG([x, v, out])
    a, b = random_inputs(dag, 0)
    assert (a < 0).any() and (b >= 0).all()


def test_random_indices_through_arithmetic_are_valid():
    table, rows = te.placeholder((7, 2), name="table"), te.placeholder((20,), "int32", name="rows")
    shifted = te.compute((20,), lambda i: rows[i] * 2 + 1, name="shifted")
    out = te.compute((20, 2), lambda i, j: table[shifted[i], j], name="out")
    dag = te.ComputeDAG([table, rows, out])
    inputs = random_inputs(dag, 0)
    assert same(evaluate(dag, inputs)[0], brute(dag, inputs)[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dag", "seconds"),
    [
        (S.conv2d(1, 512, (7, 7), 512, (3, 3), 1, 1), 0.5),
        (S.conv2d(1, 64, (56, 56), 64, (3, 3), 1, 1), 1.0),
        (S.conv2d(1, 4, (56, 56), 4, (3, 3), 1, 1, groups=32), 1.0),
        (S.depthwise(1, 32, (112, 112), (3, 3), 1, 1), 1.0),
        (S.pool(1, 64, (112, 112), 3, 2, 1, "max"), 1.0),
    ],
    ids=["conv 512x7x7", "conv 64x56x56", "grouped", "depthwise", "pool"],
)
def test_layers_of_real_size_are_quick(dag, seconds):
    inputs = random_inputs(dag, 0)
    evaluate(dag, inputs)
    start = time.process_time()
    evaluate(dag, inputs)
    assert time.process_time() - start < 2 * seconds  # all cores together, on a busy machine
