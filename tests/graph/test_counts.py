"""Tables of whole numbers that follow from where they stand."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph.counts import Count, count_of

LEAST, MOST = -(1 << 63), (1 << 63) - 1


@pytest.mark.parametrize(
    ("table", "count"),
    [
        (np.arange(12).reshape(3, 4), Count(0, (4, 1))),
        (np.array(5), Count(5, ())),
        (np.array([[7]]), Count(7, (0, 0))),
        (np.arange(5, dtype="int8")[::-1], Count(4, (-1,))),
    ],
)
def test_a_table_that_counts(table: np.ndarray, count: Count) -> None:
    assert count_of(table) == count


@pytest.mark.parametrize(
    "table",
    [
        np.where(np.arange(12) == 11, 0, np.arange(12)).reshape(3, 4),  # but for its last element
        np.where(np.arange(12) == 2, 0, np.arange(12)).reshape(3, 4),
        np.array([LEAST, MOST]), np.array([0, MOST]), np.array(MOST),
        np.zeros((0, 3), int), np.arange(3.0),
    ],
)  # fmt: skip
def test_a_table_that_does_not(table: np.ndarray) -> None:
    assert count_of(table) is None


def test_what_is_no_table_is_seen_by_a_line_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights in bytes are constants of whole numbers, too, and many: they are never compared
    whole with what would be counted."""
    weights = np.random.default_rng(0).integers(-127, 127, (64, 64), "int8")
    monkeypatch.delattr("numpy.full")
    assert count_of(weights) is None
    with pytest.raises(AttributeError):
        count_of(np.arange(4))
