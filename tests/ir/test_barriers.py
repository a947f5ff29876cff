"""Where barriers go: before a loop that may run not at all, too, whatever its body begins with."""

from __future__ import annotations

import numpy as np
import pytest

from ir.programs import BOTH, A, B, N, T, V, execute, launch
from tilewright.ir import expr as E
from tilewright.ir.barriers import insert_barriers
from tilewright.ir.stmt import Allocate, Barrier, Buffer, For, Kernel, Store, load, seq, statements


def turned_again(extent: int | E.Expr) -> Kernel:
    """b is a turned round, with one added per iteration; each fills shared memory anew."""
    shared = Buffer("s", "float32", N, "shared")
    turn = Store(B, T, load(shared, N - 1 - T))
    step = seq(Store(shared, T, load(A, T) + E.cast("float32", V) + 1.0), turn)
    body = seq(Store(shared, T, load(A, T)), For(V, extent, step), turn)
    return insert_barriers(launch(Allocate(shared, body)))


def barriers(kernel: Kernel) -> int:
    return sum(isinstance(s, Barrier) for s in statements(kernel.body))


@BOTH
@pytest.mark.parametrize("extent", [0, 1, 3])
def test_what_was_stored_before_a_loop_is_read_behind_it(extent, run):
    made = execute(turned_again(extent), run=run)
    np.testing.assert_array_equal(made, np.arange(N)[::-1] + float(extent))


def test_a_loop_that_begins_with_a_barrier_needs_none_before_it_where_it_surely_runs():
    assert barriers(turned_again(3)) == 2
    assert barriers(turned_again(0)) == barriers(turned_again(E.var("n"))) == 3
