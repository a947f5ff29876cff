"""The error bound: correct float32 kernels pass, wrong ones do not, and it says what it says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as S
from tests.te.brute import brute
from tests.tiers import examples
from tilewright import te
from tilewright.base.dtype import FLOAT32
from tilewright.te import rounding as module
from tilewright.te.evaluate import (
    agrees,
    evaluate,
    evaluate_with_tolerance,
    random_inputs,
    tolerance,
)

EPS = float(np.finfo(np.float32).eps)


@pytest.mark.slow
@examples(40)
@given(S.dags(2000), st.integers(0, 5))
def test_accepts_a_plain_kernel_in_the_types_of_the_dag(drawn, seed):
    dag, _ = drawn
    inputs = random_inputs(dag, seed)
    values, bounds = evaluate_with_tolerance(dag, inputs)
    for actual, value, bound in zip(
        brute(dag, inputs, mode="rounded"), values, bounds, strict=True
    ):
        assert bound.shape == value.shape and not np.isnan(bound).any()
        assert agrees(actual, value, bound).all()


@examples(40)
@given(S.dags(2000))
def test_is_a_small_part_of_the_largest_value(drawn):
    dag, text = drawn
    if any(word in text for word in ("floor", "prod", "either", "exp")):
        return  # discontinuous or ill conditioned for large entries
    values, bounds = evaluate_with_tolerance(dag, random_inputs(dag, 0))
    for value, bound in zip(values, bounds, strict=True):
        assert np.median(bound) <= 1e-3 * max(1.0, np.abs(value).max())


def test_of_a_sum_of_products_is_the_documented_formula():
    dag = S.matmul(5, 7, 90)
    a, b = (x.astype(np.float64) for x in random_inputs(dag, 0))
    expected = 8 * np.sqrt(90) * EPS * (np.abs(a) @ np.abs(b))
    assert np.allclose(tolerance(dag, [a, b])[0], expected, rtol=1e-6)


def test_of_a_generic_sum_of_products_is_the_same():
    """Three factors do not take the fast path."""
    x, y, z = (te.placeholder((6, 4), name=n) for n in "xyz")
    k = te.reduce_axis((0, 4), "k")
    out = te.compute((6,), lambda i: te.sum(x[i, k] * (y[i, k] * z[i, k]), axis=k), name="out")
    dag = te.ComputeDAG([x, y, z, out])
    a, b, c = random_inputs(dag, 0)
    size = np.abs(a.astype(np.float64) * b * c)
    bound = tolerance(dag, [a, b, c])[0]
    least = 8 * 2 * EPS * size.sum(axis=1)
    assert (bound >= 0.99 * least).all() and (bound <= 1.2 * least).all()


def test_carries_the_errors_of_operands_through_sums_and_products():
    """Operands near 1000 with known errors: what they cause is larger than any rounding."""
    x, y = te.placeholder((3, 4), name="x"), te.placeholder((3, 4), name="y")
    k = te.reduce_axis((0, 4), "k")
    p = te.compute((3, 4), lambda i, j: x[i, j] + 1000.0, name="p")
    q = te.compute((3, 4), lambda i, j: y[i, j] + 100.0, name="q")
    total = te.compute((3,), lambda i: te.sum(p[i, k] * q[i, k], axis=k), name="total")
    each = te.compute((3, 4), lambda i, j: p[i, j] * q[i, j], name="each")
    dag = te.ComputeDAG([x, y, total, each])
    a, b = (v.astype(np.float64) for v in random_inputs(dag, 0))
    of_sum, of_product = tolerance(dag, [a, b])
    size = np.abs((a + 1000) * (b + 100))
    assert np.allclose(of_product, 3 * EPS * size, rtol=1e-5)
    assert np.allclose(of_sum, (2 + 8 * 2) * EPS * size.sum(axis=1), rtol=1e-5)


def test_of_exact_computations_is_zero():
    for dag in (S.transpose((3, 4), (1, 0)), S.reduction((3, 4), (1,), "max")):
        assert not tolerance(dag, random_inputs(dag, 0))[0].any()


def test_of_integers_is_zero():
    dag = S.reduction((3, 4), (1,), "sum", "int32")
    assert not tolerance(dag, random_inputs(dag, 0))[0].any()


@pytest.mark.parametrize("seed", range(3))
def test_rejects_a_dropped_term_a_wrong_element_and_a_nan(seed):
    dag = S.conv2d(1, 8, (6, 6), 4, (3, 3), 1, 1)
    data, weight = random_inputs(dag, seed)
    (value,), (bound,) = evaluate_with_tolerance(dag, [data, weight])
    broken = weight.copy()
    broken[:, 3, 1, 1] = 0
    assert agrees(evaluate(dag, [data, broken])[0], value, bound).mean() < 0.1
    assert agrees(np.roll(value, 1), value, bound).mean() < 0.1
    assert not agrees(np.full_like(value, np.nan), value, bound).any()


def test_is_infinite_where_float32_overflows():
    x = te.placeholder((3,), name="x")
    out = te.compute((3,), lambda i: te.exp(x[i]), name="out")
    dag = te.ComputeDAG([x, out])
    values, bounds = evaluate_with_tolerance(dag, [np.array([1.0, 88.7, 300.0])])
    assert np.isfinite(bounds[0]).tolist() == [True, True, False]
    assert agrees(np.array([np.e, 3.3e38, np.inf], np.float32), values[0], bounds[0])[2]


def test_allows_for_a_choice_that_rounding_may_flip():
    x, y = te.placeholder((2,), name="x"), te.placeholder((2,), name="y")
    total = te.compute((2,), lambda i: x[i] + y[i], name="total")
    out = te.compute((2,), lambda i: te.if_then_else(total[i] > 0.3, 5.0, -5.0), name="out")
    dag = te.ComputeDAG([x, y, out])
    (bound,) = tolerance(dag, [np.array([0.1, 1.0]), np.array([0.2, 1.0])])
    assert bound[0] >= 10 and bound[1] == 0


def test_of_cancelling_stages_grows():
    """(x + 1000) - 1000 keeps only the digits that float32 kept of the sum."""
    x = te.placeholder((1,), name="x")
    high = te.compute((1,), lambda i: x[i] + 1000.0, name="high")
    out = te.compute((1,), lambda i: high[i] - 1000.0, name="out")
    (bound,) = tolerance(te.ComputeDAG([x, out]), [np.array([0.3])])
    assert 1000 * EPS <= bound[0] < 1100 * EPS


def test_of_float64_uses_its_epsilon():
    dag = S.matmul(3, 3, 16, dtype="float64")
    inputs = random_inputs(dag, 0)
    single = tolerance(S.matmul(3, 3, 16), inputs)[0]
    assert (tolerance(dag, inputs)[0] < 1e-8 * single).all()


NUMBERS = [0.0, 1.0, -3.5, 1e-42, 3e38, -3.5e38, 1e300, np.inf, -np.inf, np.nan]


@given(
    st.lists(st.sampled_from(NUMBERS), max_size=4),
    st.lists(st.sampled_from([0.0, 1.0, 1e38, np.inf, np.nan]), min_size=4, max_size=4),
)
def test_what_is_finite_throughout_is_bounded_like_all_else(numbers, errors):
    """Most arrays are, and skip what infinities and NaN need."""
    value, error = np.array(numbers), np.array(errors)[: len(numbers)]
    limit, size = FLOAT32.greatest, np.abs(value)
    with np.errstate(all="ignore"):
        beyond = np.where(np.isfinite(size), size + error, 0.0) > limit
        rounded = np.where(np.isfinite(value), FLOAT32.eps * size + module._flushed(FLOAT32), 0.0)
        same = np.testing.assert_array_equal
        same(module.overflowing(value, error, limit), np.where(beyond, np.inf, error))
        same(module.rounding(value, FLOAT32), rounded)
        same(module.no_nan(error), np.where(np.isnan(error), np.inf, error))
