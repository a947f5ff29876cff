"""Weights that are scaled, looked at and packed by several threads, as they would be by one."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilewright.base import artifact
from tilewright.base.artifact import Packing
from tilewright.graph import floats
from tilewright.graph.passes import weights
from tilewright.graph.passes.weights import _scaled, all_finite

BFLOAT16 = ml_dtypes.bfloat16


@pytest.fixture(autouse=True)
def by_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "AT_A_TIME", 64)
    monkeypatch.setattr(floats, "AT_A_TIME", 64)
    monkeypatch.setattr(artifact, "_LARGE", 64)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(BFLOAT16)


@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("shape", [(1, 24), (33, 1), (1, 1)])
def test_a_weight_times_a_vector_is_rounded_once(shape: tuple[int, int], short: bool) -> None:
    weight, vector = drawn(33, 24), np.random.default_rng(1).standard_normal(shape)
    vector = vector.astype(BFLOAT16).astype("float64") if short else vector
    wanted = (weight.astype("float64") * vector).astype(BFLOAT16)
    np.testing.assert_array_equal(_scaled(weight, vector).view("u2"), wanted.view("u2"))


def test_a_scale_of_ones_copies_nothing() -> None:
    weight = drawn(33, 24)
    assert _scaled(weight, np.ones((1, 24))) is weight


@pytest.mark.parametrize("dtype", [BFLOAT16, np.float16, np.float32])
def test_what_is_not_finite_is_seen(dtype: type) -> None:
    array = drawn(33, 24).astype(dtype)
    assert all_finite(array) and all_finite(array[:0])
    for value in (np.inf, -np.inf, np.nan):
        array[32, 23] = value
        assert not all_finite(array)


def test_a_product_beyond_the_greatest_number_is_seen() -> None:
    weight = np.full((4, 4), 3e38, BFLOAT16)
    assert not all_finite(_scaled(weight, np.full((1, 4), 2.0)))


@pytest.mark.parametrize("dtype", [np.int8, BFLOAT16, np.float32, np.float64])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 0, 2, 3), (0, 1, 3, 2), (1, 3, 0, 2)])
def test_what_is_packed_has_its_parts_in_order(order: tuple[int, ...], dtype: type) -> None:
    array = drawn(21, 29).astype(dtype)
    blocks = np.pad(array, ((0, 3), (0, 1))).reshape(6, 4, 15, 2)
    parts = {0: 0, 2: 1, 1: 2, 3: 3}  # of the numbers in `order` the axes of `blocks`
    wanted = blocks.transpose([parts[k] for k in order])
    packing = Packing((21, 29), (4, 2), order)
    for given in (array, np.asfortranarray(array)):
        made = packing.apply(given)
        assert made.dtype == array.dtype
        np.testing.assert_array_equal(made, wanted)
