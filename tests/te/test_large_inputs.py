"""The reference costs what a computation reads of its inputs, not what they hold."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from tilewright import te, topi
from tilewright.base.errors import ExpressionError
from tilewright.te import reference_inputs
from tilewright.te.cases import cases
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import approximations, evaluate, evaluate_with_tolerance, random_inputs
from tilewright.te.tensor import Tensor

ROWS, WIDTH = 20_000, 512


def table(dtype: str) -> Tensor:
    return te.placeholder((ROWS, WIDTH), dtype, "table")


def index(*shape: int) -> Tensor:
    return te.placeholder(shape, "int64", "at")


READS: dict[str, Callable[[Tensor], list[Tensor]]] = {
    "take": lambda t: [t, at := index(3), topi.take(t, at, axis=0)],
    "take of one axis of two": lambda t: [t, at := index(3), topi.take(t, at, axis=1)],
    "gather_nd": lambda t: [t, at := index(2, 5), topi.gather_nd(t, at)],
    "strided_slice": lambda t: [t, topi.strided_slice(t, [7, 0], [9, WIDTH])],
    "a slice in an expression": lambda t: [
        t, te.compute((4, WIDTH), lambda i, j: t[i + 11, j] + t[2 * i, j])
    ],
    "a sum of some rows": lambda t: [t, at := index(3), topi.sum(topi.take(t, at, axis=0), axis=0)],
}  # fmt: skip


@pytest.mark.sampled(9)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["uint8", "float32", "int32", "float16"])
@pytest.mark.parametrize("name", READS)
def test_cases_take_the_room_of_the_inputs(name, dtype):
    dag = ComputeDAG(READS[name](table(dtype)))
    size = ROWS * WIDTH * np.dtype(dtype).itemsize
    tracemalloc.start()
    try:
        found = cases(dag)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    least = sum(c.nbytes for c in found)
    room = 6 << 23 if name != "take of one axis of two" else 10 << 23  # blocks and what is drawn
    assert 2 * size <= least and peak < least + size + room


@pytest.mark.parametrize("name", READS)
def test_what_is_read_is_what_the_whole_gives(name, monkeypatch):
    """Of a table that is converted as a whole, and of one of which parts are."""
    dag = ComputeDAG(READS[name](te.placeholder((40, WIDTH), "float32", "table")))
    inputs = random_inputs(dag, 3)
    part = evaluate_with_tolerance(dag, inputs)
    monkeypatch.setattr(
        reference_inputs.Values, "picked", lambda self, t, pick, most: self[t].map(pick)
    )
    whole = evaluate_with_tolerance(dag, inputs)
    for a, b in zip(part, whole, strict=True):
        np.testing.assert_array_equal(a, b)


def test_of_what_is_read_the_grid_is_known():
    """Whole numbers are exact whatever else the table holds."""
    t, at = te.placeholder((5000, 8), "float32", "table"), index(2)
    dag = ComputeDAG([t, at, topi.sum(topi.take(t, at, axis=0), axis=1)])
    data = np.full((5000, 8), 0.1, np.float32)
    data[[1, 3]] = np.arange(16).reshape(2, 8)
    (result,) = approximations(dag, [data, np.array([1, 3])])
    assert result.grid >= 1 and (result.error is None or not result.error.any())
    assert result.value.tolist() == [28, 92]


@pytest.mark.parametrize("shape", [(300, 7), (7, 300), (50, 60), (2, 3, 500), (3000,)])
def test_a_large_input_repeats_what_is_drawn(shape, monkeypatch):
    monkeypatch.setattr(reference_inputs, "MOST_DRAWN", 100)
    drawn: list[tuple[int, ...]] = []

    def draw(part: Tensor) -> np.ndarray:
        drawn.append(part.shape)
        return np.arange(math.prod(part.shape)).reshape(part.shape)

    made = reference_inputs.repeated(te.placeholder(shape, "int64", "x"), draw)
    assert made.shape == shape and math.prod(drawn[0]) <= 100
    for axis, (part, whole) in enumerate(zip(drawn[0], shape, strict=True)):
        if part != whole:
            assert part % 2 == 0  # odd and even places stay so
            rest = np.arange(part, whole)
            np.testing.assert_array_equal(
                made.take(rest, axis), made.take(np.arange(whole - part), axis)
            )


def test_a_small_input_is_drawn_as_it_is():
    x = te.placeholder((4, 5), "float32", "x")
    assert reference_inputs.repeated(x, lambda part: part) is x


def test_whole_numbers_of_a_large_table_have_neighbours_that_differ(monkeypatch):
    monkeypatch.setattr(reference_inputs, "MOST_DRAWN", 1000)
    t, at = te.placeholder((90, 100), "float32", "table"), index(3)
    whole = cases(ComputeDAG([t, at, topi.take(t, at, axis=0)]))[1].inputs[0]
    odd = whole.astype(int) % 2
    assert (odd[1:] != odd[:-1]).all() and (odd[:, 1:] != odd[:, :-1]).all()


def test_inputs_are_not_written_to():
    x = te.placeholder((300,), "float64", "x")
    dag = ComputeDAG([x, te.compute((300,), lambda i: te.exp(x[i]) - x[i])])
    data = np.linspace(-1, 1, 300)
    data.flags.writeable = False
    np.testing.assert_allclose(evaluate(dag, [data])[0], np.exp(data) - data)


def test_an_index_into_nothing_is_an_error():
    t, at = te.placeholder((0, 3), "float32", "table"), index(2)
    dag = ComputeDAG([t, at, te.compute((2, 3), lambda i, j: t[at[i], j])])
    with pytest.raises(ExpressionError, match="leaves the dimension of 0 elements"):
        evaluate(dag, random_inputs(dag, 0))
