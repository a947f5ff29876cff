"""Where barriers go: before a loop that may run not at all, too, whatever its body begins with;
not before one that surely runs and begins with its own."""

from __future__ import annotations

import numpy as np
import pytest

from ir.programs import BOTH, A, B, N, T, V, execute, launch
from tilewright.ir import expr as E
from tilewright.ir.barriers import insert_barriers
from tilewright.ir.stmt import (
    Allocate,
    AsyncCopy,
    Barrier,
    Buffer,
    Commit,
    For,
    Kernel,
    Region,
    Store,
    Wait,
    load,
    seq,
    statements,
)


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


@BOTH
@pytest.mark.parametrize(("extent", "count"), [(0, 2), (2, 1)])
def test_a_wait_for_copies_may_stand_before_the_barrier_of_a_loop(extent, count, run):
    """As in a ring of slices, beside what was stored before it."""
    shared, ring = (Buffer(name, "float32", N, "shared") for name in "sr")
    copied = seq(AsyncCopy(Region(ring, T, 1), Region(A, T, 1), E.const(True)), Commit())
    both = load(shared, N - 1 - T) + load(ring, N - 1 - T)
    body = seq(
        copied, Store(shared, T, load(A, T)), Store(B, T, E.const(0.0, "float32")),
        For(V, extent, seq(Wait(0), Barrier(), Store(B, T, both))), Wait(0),
    )  # fmt: skip
    kernel = insert_barriers(launch(Allocate(shared, Allocate(ring, body))))
    assert barriers(kernel) == count
    expected = 2 * np.arange(N)[::-1] if extent else np.zeros(N)
    np.testing.assert_array_equal(execute(kernel, run=run), expected)
