"""Sums of a matrix unit, which cuts towards zero: which chains are allowed, which are found out."""

from __future__ import annotations

import numpy as np
import pytest

from te.matrix_unit import sums
from tilewright import te
from tilewright.te.cases import cases
from tilewright.te.chains import longest_in_unit
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import agrees, evaluate_with_tolerance, random_inputs


def product(m: int, terms: int, n: int, dtype: str = "float16") -> ComputeDAG:
    """Of halves, with sums that leave in float32."""
    a = te.placeholder((m, terms), dtype, "A")
    b = te.placeholder((terms, n), dtype, "B")
    r = te.reduce_axis((0, terms), "r")
    c = te.compute(
        (m, n),
        lambda i, j: te.sum(a[i, r].astype("float32") * b[r, j].astype("float32"), axis=r),
        name="C",
    )
    return ComputeDAG([a, b, c])


def shares(dag: ComputeDAG, inputs: list[np.ndarray], chain: int) -> np.ndarray:
    """By how much of their bounds sums are off."""
    (value,), (bound,) = evaluate_with_tolerance(dag, inputs)
    a, b = (x.astype(np.float64) for x in inputs)
    return np.abs(sums(a, b, chain) - value) / bound


def positive(dag: ComputeDAG, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.uniform(0.5, 1, t.shape).astype(t.dtype.storage) for t in dag.args[:2]]


@pytest.mark.parametrize("terms", [64, 1024, 4608])
def test_a_chain_that_is_allowed_is_within_half_of_the_bound(terms: int) -> None:
    dag = product(8, terms, 8)
    chain = int(min(terms, longest_in_unit(terms, "float32")))
    assert chain == terms, "the sums of usual networks need no cut"
    for inputs in (positive(dag, 0), random_inputs(dag, 0)):
        assert shares(dag, inputs, chain).max() < 0.5


def test_a_chain_that_is_too_long_is_refused_and_would_be_found() -> None:
    """By the inputs that every kernel is compared with, not only by those made for it."""
    terms = 65536
    dag = product(4, terms, 4)
    allowed = longest_in_unit(terms, "float32")
    assert allowed < terms / 4
    timed, _ = cases(dag)
    a, b = (x.astype(np.float64) for x in timed.inputs)
    (value,), (bound,) = timed.expected, timed.tolerance
    assert not agrees(sums(a, b, terms), value, bound).all()
    assert agrees(sums(a, b, int(allowed)), value, bound).all()


def test_longer_sums_may_have_longer_chains_but_not_as_much_longer() -> None:
    four, sixteen = (longest_in_unit(k, "float32") for k in (1024, 4096))
    assert sixteen == pytest.approx(2 * four)
    assert longest_in_unit(4096, "tf32") > 8192, "whose operands lose more than its sums do"
