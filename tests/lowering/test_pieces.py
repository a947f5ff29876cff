"""Sums of exponentials in pieces: pieces without a term, and rows that are read otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import te
from tilewright.base.errors import ScheduleError
from tilewright.ir.fast_interpreter import run_fast
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor

ROWS, KEYS, COLUMNS = 2, 8, 3
Read = Callable[[Tensor, Any, Any], Any]


def schedule(read: Read = lambda m, i, c: m[i], keys: int = KEYS) -> tuple[Schedule, Tensor]:
    """softmax(A) V, whose exponentials read their maximum as `read` says."""
    a, v = te.placeholder((ROWS, keys), name="A"), te.placeholder((KEYS, COLUMNS), name="V")
    j, g, x = (te.reduce_axis((0, KEYS if n == "x" else keys), n) for n in "jgx")
    m = te.compute((ROWS,), lambda i: te.max(a[i, j], axis=j), name="M")
    t = te.compute((ROWS,), lambda i: te.sum(te.exp(a[i, g] - m[i]), axis=g), name="T")
    p = te.compute((ROWS, keys), lambda i, c: te.exp(a[i, c] - read(m, i, c)), name="P")
    o = te.compute((ROWS, COLUMNS), lambda i, c: te.sum(p[i, x] * v[x, c], axis=x), name="O")
    c = te.compute((ROWS, COLUMNS), lambda i, c: o[i, c] / t[i], name="C")
    return Schedule(ComputeDAG([a, v, c])), o


def test_a_piece_without_a_term_adds_nothing() -> None:
    s, sums = schedule()
    s.split_softmax(sums, 4)
    rng = np.random.default_rng(0)
    a, v = (rng.standard_normal(n).astype("float32") for n in ((ROWS, KEYS), (KEYS, COLUMNS)))
    a[0, 2:6], a[1, :2] = -np.inf, np.finfo("float32").min
    found = np.zeros((ROWS, COLUMNS), "float32")
    run_fast(lower_schedule(s, Target("llvm -num-cores=1")), [a, v, found])
    share = np.exp(a.astype("float64") - a.max(axis=1, keepdims=True))
    want = share / share.sum(axis=1, keepdims=True) @ v
    np.testing.assert_allclose(found, want, rtol=1e-6)


@pytest.mark.parametrize(
    "read", [lambda m, i, c: m[0], lambda m, i, c: m[(i + 1) % ROWS], lambda m, i, c: m[c % ROWS]]
)
def test_other_rows_of_the_maximum_are_refused(read: Read) -> None:
    s, sums = schedule(read)
    with pytest.raises(ScheduleError, match=r"split_softmax\(O, 2\)"):
        s.split_softmax(sums, 2)


def test_a_sum_of_some_of_the_terms_is_refused() -> None:
    s, sums = schedule(keys=2 * KEYS)
    with pytest.raises(ScheduleError, match="no maximum|maximum of as many terms"):
        s.split_softmax(sums, 2)
