"""Large arrays of floats, some rows at a time."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilewright.graph import evaluate as evaluation
from tilewright.graph import floats
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import Constant, Function, TensorType, Tuple, Var
from tilewright.graph.floats import largest, product, same, widened
from tilewright.graph.narrow import can_hold, packed
from tilewright.graph.op import call
from tilewright.topi.nn.narrow import KINDS

TYPES = [np.float32, np.float16, ml_dtypes.bfloat16]


@pytest.fixture(autouse=True)
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floats, "AT_A_TIME", 64)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


@pytest.mark.parametrize("dtype", TYPES)
def test_floats_are_widened_exactly(dtype: type) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    array = drawn(40, 24) if dtype is np.float32 else every.view(dtype)
    np.testing.assert_array_equal(widened(array), array.astype(np.float32))


@pytest.mark.parametrize("dtype", TYPES)
def test_the_largest_has_either_sign(dtype: type) -> None:
    array = drawn(33, 24).astype(dtype)
    assert largest(array) == np.abs(array.astype("float64")).max() and largest(array[:0]) == 0
    for value in (-100.0, -np.inf):
        array[32, 23] = value
        assert largest(array) == -value
    array[0, 0] = np.nan
    assert np.isnan(largest(array))


def test_equal_arrays_are_equal_to_the_last_element() -> None:
    array = drawn(33, 24)
    other = array.copy()
    assert same(array, other)
    other[32, 23] = 0
    assert not same(array, other)


@pytest.mark.parametrize("rows", [1, 16, 17])
def test_a_product_goes_by_rows_of_weights(rows: int) -> None:
    data, weights, asked = drawn(rows, 24), drawn(33, 24), list[slice]()

    def part(of: slice) -> np.ndarray:
        asked.append(of)
        return weights[of]

    wanted = data.astype("float64") @ weights.T
    np.testing.assert_allclose(product(data, 33, part), wanted, atol=1e-5)
    assert sorted(k for of in asked for k in range(33)[of]) == list(range(33))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [0, 1e-43, 1e-37, 1.0, 3e38, np.inf, np.nan])
def test_the_largest_tells_whether_bytes_can_hold_all(kind: str, size: float) -> None:
    matrix = np.clip(drawn(8, 64), -1, 1) * np.float32(size)
    matrix[3, 5] = size
    assert can_hold(matrix, kind) == (packed(matrix, kind, 32).error < 1)


def test_a_table_is_looked_up_in_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read of it is converted; one that something else reads is converted as a whole."""
    shapes: list[tuple[int, ...]] = []
    convert = evaluation._as

    def seen(value: np.ndarray, dtype: str) -> np.ndarray:
        shapes.append(value.shape)
        return convert(value, dtype)

    monkeypatch.setattr(evaluation, "_as", seen)
    table, places = drawn(100, 4).astype("float16"), Var("places", TensorType((3,), "int32"))
    constant = Constant(table)
    taken = call("take", constant, places, axis=0)
    given = {"places": np.array([7, 0, 99], "int32")}
    for body, whole in ((taken, False), (Tuple([taken, constant]), True), (constant, True)):
        shapes.clear()
        found = evaluate(Function([places], body), given, "float64")
        rows = found[0] if isinstance(found, tuple) else found
        assert rows.dtype == "float64"
        np.testing.assert_array_equal(rows, table if body is constant else table[given["places"]])
        assert ((100, 4) in shapes) == whole
