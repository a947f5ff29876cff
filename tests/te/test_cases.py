"""Whole numbers leave nothing to round: the bound is zero, and honestly so."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies as S
from te.retype import retyped
from tests.tiers import examples
from tilewright import te, topi
from tilewright.base.dtype import DType
from tilewright.te import cases as te_cases
from tilewright.te import rounding
from tilewright.te.cases import cases, whole_numbers
from tilewright.te.chains import LONGEST, depth
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate, evaluate_with_tolerance
from tilewright.te.rounding import LARGE_GRID, grid_of
from tilewright.topi.nn.winograd import winograd

FLOATS = ("float16", "bfloat16", "float32", "float64")


def in_order(terms: np.ndarray, dtype: str, order: np.ndarray) -> np.ndarray:
    """The sum over the last axis, rounded to `dtype` after every addition."""
    total = np.zeros(terms.shape[:-1], DType(dtype).storage)
    for k in order:
        total = (total + terms[..., k].astype(total.dtype)).astype(total.dtype)
    return total.astype(np.float64)


@pytest.mark.parametrize("k", [576, 4608, 25088])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("epilogue", ["", "bias_relu"])
def test_one_missing_term_of_a_long_sum_shows(k: int, dtype: str, epilogue: str) -> None:
    dag = S.matmul(4, 5, k, dtype=dtype, epilogue=epilogue)
    case = whole_numbers(dag)
    (expected,), (slack,) = case.expected, case.tolerance
    assert slack == 0 and np.count_nonzero(expected) > 0.9 * expected.size
    a, b, *bias = (x.astype(np.float64) for x in case.inputs)
    terms = a[:, None, :] * b.T[None, :, :]
    assert (np.abs(terms) >= 1).all()
    rest = terms.sum(axis=2, keepdims=True) - terms + (bias[0][None, :, None] if bias else 0.0)
    without = np.maximum(rest, 0.0) if epilogue else rest
    assert (without != expected[:, :, None]).mean() > 0.95  # a relu may hide a negative sum


@examples(40)
@given(st.sampled_from(FLOATS), st.integers(1, 300), st.integers(0, 5))
def test_where_the_bound_is_zero_every_order_gives_the_same(dtype: str, k: int, seed: int) -> None:
    x, r = te.placeholder((3, k), dtype, name="x"), te.reduce_axis((0, k), "r")
    dag = te.ComputeDAG([x, te.compute((3,), lambda i: te.sum(x[i, r] * x[i, r], axis=r))])
    case = whole_numbers(dag, seed)
    value, bound = (v[0] for v in evaluate_with_tolerance(dag, case.inputs))
    terms = case.inputs[0].astype(np.float64) ** 2
    accumulator = DType(dtype).accumulator
    for order in (np.arange(k), np.arange(k)[::-1], np.random.default_rng(seed).permutation(k)):
        total = in_order(terms, accumulator, order).astype(DType(dtype).storage)
        exact = bound == 0
        assert (total.astype(np.float64)[exact] == value[exact]).all()
    assert DType(dtype).bits < 32 or (bound == 0).all()


@pytest.mark.slow
@examples(40)
@given(S.dags(1500), st.sampled_from(FLOATS), st.integers(0, 3))
def test_expected_is_the_reference(drawn: S.Drawn, dtype: str, seed: int) -> None:
    dag = retyped(drawn[0], dtype)
    for case in cases(dag, seed):
        for tensor, want, slack, value in zip(
            dag.outputs, case.expected, case.tolerance, evaluate(dag, case.inputs), strict=True
        ):
            assert np.array_equal(want.astype(np.float64), value, equal_nan=True)
            assert slack.any() or want.dtype == tensor.dtype.storage


@pytest.mark.parametrize("shape", [(64,), (7, 9), (3, 4, 5)])
def test_no_input_is_zero_and_neighbours_differ(shape: tuple[int, ...]) -> None:
    x = te.placeholder(shape, name="x")
    (values,) = whole_numbers(te.ComputeDAG([x, te.compute(shape, lambda *i: x(*i) + 1.0)])).inputs
    assert (values != 0).all() and (values == np.rint(values)).all()
    for axis in range(len(shape)):
        assert (np.diff(values, axis=axis) != 0).all()


def test_what_saturates_gets_fractions() -> None:
    x, y, r = te.placeholder((16, 96)), te.placeholder((96, 16), name="y"), te.reduce_axis((0, 96))
    total = te.compute((16, 16), lambda i, j: te.sum(x[i, r] * y[r, j], axis=r))
    out = te.compute((16, 16), lambda i, j: te.minimum(te.maximum(total[i, j], 0.0), 6.0))
    case = whole_numbers(te.ComputeDAG([x, y, out]))
    assert case.tolerance[0] == 0
    assert ((case.expected[0] > 0) & (case.expected[0] < 6)).mean() > 0.8


def test_behind_what_is_inexact_the_bound_stays() -> None:
    dag = S.softmax(3, 20)
    case = whole_numbers(dag)
    assert 0 < case.tolerance[0].max() < 1e-4


@pytest.mark.parametrize(
    "values, grid",
    [([0.75, 2.0], 0.25), ([8.0, 24.0], 8.0), ([0.0, 0.0], LARGE_GRID), ([3.0, np.inf], 1.0),
     ([0.1], 2.0**-55), ([], LARGE_GRID), ([-5e-324], 5e-324)],
)  # fmt: skip
def test_grids(values: list[float], grid: float) -> None:
    assert grid_of(np.array(values)) == grid


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_a_grid_is_the_last_bit_of_the_number_that_has_the_finest(kind) -> None:
    """Of any bits of any type, wherever in a long array; as fractions have it."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        few = np.frombuffer(rng.bytes(8 * kind().nbytes), kind)
        numbers = [Fraction(float(x)) for x in few if np.isfinite(x) and x]
        finest = max(n.denominator for n in numbers)
        wholes = [int(n * finest) for n in numbers]
        grid = Fraction(min(w & -w for w in wholes), finest)
        long = np.zeros(3 * rounding._BLOCK + 7, kind)
        long[rng.choice(len(long), len(few), replace=False)] = few
        assert grid_of(long) == float(grid) == grid_of(few.reshape(2, 4))


def test_sums_of_either_sign_behind_a_relu_are_told_at_once(monkeypatch):
    """Half of them are zero with any numbers, so no others are tried."""
    tried = []
    drawing = te_cases._drawing
    monkeypatch.setattr(
        te_cases, "_drawing", lambda dag, *scale: tried.append(scale) or drawing(dag, *scale)
    )
    data = te.placeholder((1, 16, 8, 8), name="data")
    weight = te.placeholder((6, 6, 16, 16), name="weight", constant=True)
    made = winograd(data, weight, 1, transformed=True)
    case = te_cases.whole_numbers(ComputeDAG([data, weight, topi.nn.relu(made)]))
    assert len(tried) == 1
    (expected,), (slack,) = case.expected, case.tolerance
    assert 0.3 < (expected == 0).mean() < 0.7 and not np.asarray(slack).any()


SUMS = {
    "rows": ((6, 1 << 16), (1,)),
    "columns": ((1 << 16, 6), (0,)),
    "all": ((1 << 17,), (0,)),
    "image": ((1, 3, 256, 256), (2, 3)),
}


def summed(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str = "float32") -> ComputeDAG:
    x = te.placeholder(shape, dtype, name="x")
    return ComputeDAG([x, topi.sum(x, axis=axes)])


@pytest.mark.parametrize("name", SUMS)
def test_a_serial_sum_is_refused_and_blocks_are_not(name: str) -> None:
    """What one accumulator makes of a long sum is beyond the bound; sums of sums are inside."""
    shape, axes = SUMS[name]
    case = cases(summed(shape, axes))[0]
    terms = np.moveaxis(case.inputs[0], axes, range(-len(axes), 0))
    terms = terms.reshape(*terms.shape[: -len(axes)], -1)
    (expected,), (slack,) = case.expected, case.tolerance
    serial = np.cumsum(terms, axis=-1, dtype=np.float32)[..., -1]
    assert (np.abs(serial - expected) > slack).any()
    parts = terms.reshape(*terms.shape[:-1], -1, 256)
    within = np.cumsum(parts, axis=-1, dtype=np.float32)[..., -1]
    blocked = np.cumsum(within, axis=-1, dtype=np.float32)[..., -1]
    assert (np.abs(blocked - expected) <= slack / 4).all()


@pytest.mark.parametrize("dtype", FLOATS[:3])
def test_half_of_the_numbers_of_a_long_sum_are_far_from_zero(dtype: str) -> None:
    (x,) = cases(summed((4, LONGEST + 1), (1,), dtype))[0].inputs
    far = np.abs(x.astype(np.float64) - (1.073 if dtype == "float16" else 107.3)) < 0.5
    assert far[:2].all() and far[2:].mean() < (0.5 if dtype == "float16" else 0.05)
    (x,) = cases(summed((4, LONGEST), (1,), dtype))[0].inputs
    assert (x < 0).any(axis=1).all(), "a sum that one accumulator may take"


def test_far_from_zero_is_within_the_domain_and_promises_something() -> None:
    shape = (4, LONGEST + 1)
    x, k = te.placeholder(shape, name="x"), te.reduce_axis((0, shape[1]), "k")
    for function in (te.log, te.sqrt, te.asin):
        out = te.compute((4,), lambda i, f=function: te.sum(f(x[i, k]), axis=k), name="C")
        case = cases(ComputeDAG([x, out]))[0]
        assert np.isfinite(case.expected[0]).all(), function
        assert np.isfinite(case.tolerance[0]).mean() >= 0.5, function
    (half,) = cases(summed((1, 1 << 17), (1,), "float16"))[0].inputs
    assert (half[:, :100] < 0).any(), "far from zero the sum would be infinite"


def test_indices_and_integers_of_a_long_sum_are_drawn_as_ever() -> None:
    table = te.placeholder((50,), name="table")
    at = te.placeholder((LONGEST + 1,), "int32", name="at")
    k = te.reduce_axis((0, LONGEST + 1), "k")
    dag = ComputeDAG([table, at, te.compute((1,), lambda i: te.sum(table[at[k]], axis=k))])
    values, places = cases(dag)[0].inputs
    assert places.min() >= 0 and places.max() < 50 and len(np.unique(places)) > 40
    assert (np.abs(values[:25] - 107.3) < 0.1).all() and (values[25:] < 50).mean() > 0.9


@examples(40)
@given(st.integers(1, LONGEST), st.integers(1, LONGEST))
def test_the_bound_admits_every_two_levels_of_blocks(inner: int, outer: int) -> None:
    """Of any chains that are allowed; of float64, which has no blocks, of one chain."""
    few, many = (depth(inner * outer, DType(f"float{bits}")) for bits in (32, 64))
    assert many == math.sqrt(inner * outer) >= 0.99 * few
    if inner * outer > LONGEST:
        assert few * 1.01 >= math.sqrt(inner) + math.sqrt(outer) - 2
