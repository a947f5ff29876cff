"""Rings of asynchronous copies: what lowering makes of `async_copy` and `pipeline`.

The interpreters find what is wrong with waits, barriers and slots; numpy says what comes out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.row_rings import CUDA, FAULTS, Rows, arrays, schedule, wrong
from tests.interpreter import run
from tests.tiers import examples
from tilewright import te
from tilewright.base.errors import LoweringError, ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.interpreter_memory import InterpreterError
from tilewright.ir.stmt import (
    Allocate,
    AsyncCopy,
    Barrier,
    Commit,
    For,
    Program,
    Stmt,
    Store,
    Wait,
    statements,
)
from tilewright.ir.verifier import verify
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import create_schedule
from tilewright.schedule.tree.legality import judge
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Target


def check(r: Rows, runner: Callable[..., None] = run_fast) -> Program:
    program = lower_schedule(schedule(r), CUDA)
    verify(program)
    given, expected = arrays(r)
    runner(program, given)
    assert np.array_equal(given[-1], expected)
    return program


def count(program: Program, kind: type[Stmt]) -> int:
    return sum(isinstance(s, kind) for k in program.kernels for s in statements(k.body))


def loop_of_ring(program: Program) -> Stmt:
    """What one iteration of the ring's loop does."""
    return next(
        s.body for k in program.kernels for s in statements(k.body)
        if isinstance(s, For) and any(isinstance(b, Wait) for b in statements(s.body))
        and not any(isinstance(b, For) and any(isinstance(c, Wait) for c in statements(b))
                    for b in statements(s.body))
    )  # fmt: skip


@pytest.mark.parametrize("runner", [run, run_fast])
@pytest.mark.parametrize("slots", [0, 1, 2, 3, 4, 5])
def test_a_pipelined_sum_is_what_it_was(slots: int, runner: Callable[..., None]) -> None:
    program = check(Rows(slots=(slots, slots)), runner)
    assert count(program, AsyncCopy) == {0: 0, 1: 2, 2: 4, 3: 4}.get(slots, 2)  # of 4 tiles


def test_a_ring_with_a_slot_for_each_tile_is_filled_at_once() -> None:
    """Nothing is copied in the loop, which waits for one tile after the other."""
    program = check(Rows(k=12))
    body = list(statements(loop_of_ring(program)))
    kinds = [type(s) for s in body if isinstance(s, (Wait, Barrier, AsyncCopy, Commit))]
    assert kinds == [Wait, Barrier, Commit]
    assert [s.pending for s in body if isinstance(s, Wait)] == [2]
    for slots in ((3, 2), (2, 9)):  # beside a ring that turns
        program = check(Rows(k=12, slots=slots))
        assert count(program, AsyncCopy) == 3
        body = list(statements(loop_of_ring(program)))
        assert [s.pending for s in body if isinstance(s, Wait)] == [0]


def test_one_barrier_in_each_iteration_is_enough() -> None:
    for r in (Rows(), Rows(slots=(2, 4), k=20), Rows(slots=(5, 5), k=40)):
        program = check(r)
        assert sum(isinstance(s, Barrier) for s in statements(loop_of_ring(program))) == 1
        assert count(program, Barrier) == 1
        body = list(statements(loop_of_ring(program)))
        kinds = [type(s) for s in body if isinstance(s, (Wait, Barrier, AsyncCopy, Commit))]
        assert kinds == [Wait, Barrier, AsyncCopy, AsyncCopy, Commit]


def test_copies_without_a_ring_are_waited_for_at_once() -> None:
    program = check(Rows(slots=(1, 1)))
    waits = [s for s in statements(program.kernels[0].body) if isinstance(s, Wait)]
    assert [w.pending for w in waits] == [0] and count(program, Barrier) == 2


def test_a_ring_that_turns_again_has_a_barrier_before_its_first_copies() -> None:
    program = check(Rows(n=3, m=24, again=3))
    assert count(program, Barrier) == 2


def test_padding_is_an_operand_of_the_copy() -> None:
    """No branch and no choice but whether this thread has an element at all."""
    program = check(Rows())
    body = list(statements(program.kernels[0].body))
    copied = [s for s in body if isinstance(s, AsyncCopy) and s.to.buffer.name == "p.shared"]
    assert any(s.condition.op != "const" for s in copied)
    values = [n.op for s in body if isinstance(s, Store) for n in E.walk(s.value)]
    assert not {"select", "if_then_else"}.intersection(values)


def test_no_more_slots_than_tiles() -> None:
    shared = [
        Resources(LoopTree(schedule(r)).bounds(), CUDA).kernels[0].shared_bytes
        for r in (Rows(slots=(n, n), k=12) for n in (0, 1, 2, 3, 9))
    ]
    one = shared[0]
    assert shared == [one, one, 2 * one, 3 * one, 3 * one]  # of 12 / 4 tiles


@pytest.mark.parametrize(
    ("lanes", "copies"), [(4, 16), (2, 8), (1, 4)], ids=["16 bytes", "8 bytes", "4 bytes"]
)
def test_vectors_become_one_copy(lanes: int, copies: int) -> None:
    program = check(Rows(pad=0, m=5, k=16, step=4, lanes=(1, lanes)))
    found = {
        s.to.count * 4
        for s in statements(program.kernels[0].body)
        if isinstance(s, AsyncCopy) and s.to.buffer.name == "w.shared"
    }
    assert found == {copies}


def test_halves_are_copied_in_pairs_or_by_threads() -> None:
    """An element is too small for a copy; what lies on an odd place is, too."""
    pairs = Rows(dtype="float16", lanes=(1, 2), k=16, step=4)
    program = check(pairs)
    copied = [s for s in statements(program.kernels[0].body) if isinstance(s, AsyncCopy)]
    assert {(s.to.buffer.name, s.to.count) for s in copied} == {("w.shared", 2)}
    assert count(check(replace(pairs, lanes=(1, 1))), AsyncCopy) == 0
    odd = replace(pairs, step=3)  # tiles of w begin on odd places
    assert count(check(odd), AsyncCopy) == 0
    verdicts = [
        judge(Resources(LoopTree(schedule(r)).bounds(), CUDA)).discouraged["alignment"]
        for r in (pairs, replace(pairs, lanes=(2, 2)))
    ]
    assert verdicts == [True, False]


def drawn(seed: int) -> Rows:
    rng = random.Random(seed)
    step = rng.randint(1, 5)
    tiles = rng.randint(1, 7)
    slots = rng.choice([None, 0, 1, 2, 3, 4, 5]), rng.randint(1, 5)
    return Rows(
        n=rng.randint(1, 5), m=rng.randint(1, 9), k=max(1, step * tiles - rng.randint(0, step - 1)),
        step=step, pad=rng.choice([0, 0, 1, 3]), slots=slots if rng.random() < 0.5 else slots[::-1],
        threads=(rng.randint(1, 3), rng.randint(1, 5)), again=rng.randint(1, 3),
        lanes=(rng.choice([1, 2, 4]), rng.choice([1, 2, 4])),
        dtype=rng.choice(["float32", "float32", "float16", "int8", "float64"]),
    )  # fmt: skip


@examples(60)
@given(st.integers(0, 10**9))
def test_rings_of_any_shape(seed: int) -> None:
    r = drawn(seed)
    if r.pad >= r.m + r.k - 1:
        return
    check(r)


# -- faults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("runner", [run, run_fast])
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault: str, runner: Callable[..., None]) -> None:
    _, told = FAULTS[fault]
    for r in (Rows(k=28), *[Rows(k=12)] * fault.startswith("no ")):  # the other has no slot again
        with pytest.raises(InterpreterError, match=told):
            runner(wrong(r, fault), arrays(r)[0])


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["opencl", "cuda -arch=sm_75"])
def test_devices_without_such_copies(target: str) -> None:
    with pytest.raises(LoweringError, match="has no asynchronous copies"):
        lower_schedule(schedule(Rows()), Target(target))


def test_what_is_inlined_later_counts() -> None:
    x = te.placeholder((8,), name="x")
    r = te.compute((8,), lambda i: x[i] * 2.0, name="r")
    y = te.compute((8,), lambda i: r[i] + 1.0, name="y")
    s = create_schedule(y.op)
    shared = s.cache_read(r, "shared", [y])
    s[shared].compute_at(s[y], s[y].op.axis[0])
    s[shared].async_copy()
    s[r].compute_inline()
    with pytest.raises(ScheduleError, match="it computes, and asynchronous copies take what"):
        LoopTree(s)


def test_a_source_in_the_same_kernel() -> None:
    x = te.placeholder((8,), name="x")
    r = te.compute((8,), lambda i: x[i] * 2.0, name="r")
    y = te.compute((8,), lambda i: r[i] + 1.0, name="y")
    s = create_schedule(y.op)
    shared = s.cache_read(r, "shared", [y])
    block, _ = s[y].split(s[y].op.axis[0], factor=4)
    s[y].bind(block, "blockIdx.x")
    s[shared].compute_at(s[y], block)
    s[r].set_scope("shared")
    s[r].compute_at(s[y], block)
    s[shared].pipeline(2)
    with pytest.raises(ScheduleError, match="r is computed in the same kernel"):
        LoopTree(s)


def test_data_that_say_what_is_copied() -> None:
    x, at = te.placeholder((8,), name="x"), te.placeholder((4,), "int32", name="at")
    g = te.compute((4,), lambda i: x[at[i]], name="g")
    y = te.compute((4,), lambda i: g[i] + 1.0, name="y")
    s = create_schedule(y.op)
    s[g].set_scope("shared")
    with pytest.raises(ScheduleError, match="data say what is copied"):
        s[g].async_copy()


def test_a_ring_along_threads_is_none() -> None:
    x = te.placeholder((8, 4), name="x")
    y = te.compute((8, 4), lambda i, j: x[i, 3 - j] + 1.0, name="y")
    s = create_schedule(y.op)
    shared = s.cache_read(x, "shared", [y])
    i, j = s[y].op.axis
    s[y].bind(i, "blockIdx.x")
    s[y].bind(j, "threadIdx.x")
    s[shared].compute_at(s[y], i)
    s[shared].pipeline(3)
    program = lower_schedule(s, CUDA)
    (buffer,) = {b.buffer for b in statements(program.kernels[0].body) if isinstance(b, Allocate)}
    assert buffer.slots == 1 and buffer.size == 4
    given = [np.arange(32, dtype="float32").reshape(8, 4), np.zeros((8, 4), "float32")]
    run_fast(program, given)
    assert np.array_equal(given[1], given[0][:, ::-1] + 1)
