"""Prefetches of steady arguments before the wait: of what threads load first, nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.c_family_programs import glob, program
from tests.interpreter import InterpreterError, run
from tilewright.base.artifact import AWAIT_ONLY
from tilewright.base.dtype import FLOAT32
from tilewright.base.errors import InternalError
from tilewright.codegen import generate
from tilewright.codegen.asked_first import MOST, asked_first
from tilewright.ir import expr as E
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import (
    Allocate,
    AsyncCopy,
    Barrier,
    Buffer,
    Commit,
    For,
    If,
    Kernel,
    Prefetch,
    Program,
    Region,
    Stmt,
    Store,
    Thread,
    Wait,
    load,
    seq,
    statements,
)
from tilewright.ir.verifier import verify
from tilewright.targets.target import Target

SM90 = Target("cuda -arch=sm_90")
THREADS, STEPS = 8, 24
X, Y = glob("x", "float32", STEPS), glob("y", "float32", THREADS)
W = glob("w", "float32", 4 * THREADS * STEPS)
OWN, TOTAL = Buffer("own", FLOAT32, 4, "local"), Buffer("total", FLOAT32, 1, "local")
T, U, P, K = (E.var(n) for n in "tupk")


def vector(at: E.Expr) -> E.Expr:
    return E.make("ramp", (at, E.const(1)), None, "int32", 4)


def rows(guard: E.Expr | None = None, scope: str = "local", blocks: int = 1) -> Program:
    """y[t] = sum over p and k of x[p] * w[p, t, k], of which each thread loads a vector a step."""
    own = replace(OWN, scope=scope, size=4 * THREADS) if scope != "local" else OWN
    fetch: Stmt = Store(own, vector(E.const(0)), load(W, vector((P * THREADS + T) * 4)))
    value = load(X, P) * load(own, K) + load(TOTAL, E.const(0))
    step = seq(fetch, For(K, 4, Store(TOTAL, E.const(0), value)))
    body = seq(
        Store(TOTAL, E.const(0), E.const(0.0, FLOAT32)),
        For(P, STEPS, Allocate(own, step if guard is None else If(guard, step))),
        Store(Y, T, load(TOTAL, E.const(0))),
    )
    threads = (Thread("threadIdx.x", T, THREADS), Thread("blockIdx.x", U, blocks))
    return program(Kernel("rows", (X, W, Y), Allocate(TOTAL, body), threads), 2)


def chained(made: Program, *steady: Buffer) -> Program:
    return replace(made, steady=frozenset(steady), lets_in=True)


def asked(made: Program) -> list[Stmt]:
    return [s for s in statements(made.kernels[0].body) if isinstance(s, Prefetch)]


def test_what_threads_load_first_is_asked_for_before_the_wait() -> None:
    text = generate(chained(rows(), W), SM90).text
    body = text[text.index("__global__") :]
    before, _, behind = body.partition(f"{AWAIT_ONLY}();")
    assert f"< {MOST}; ++p" in before and "tw_prefetch(&w[" in before
    assert "x[" not in before and "tw_prefetch(" not in behind


def test_it_computes_the_same() -> None:
    made = rows()
    arranged = asked_first(chained(made, W))
    verify(arranged)
    assert asked(arranged)
    rng = np.random.default_rng(0)
    x, w = rng.integers(-4, 5, STEPS), rng.integers(-4, 5, (STEPS, THREADS, 4))
    for interpreter in (run, run_fast):
        y = np.zeros(THREADS, "float32")
        interpreter(arranged, [x.astype("f4"), w.reshape(-1).astype("f4"), y])
        np.testing.assert_array_equal(y, (x[:, None, None] * w).sum((0, 2)))


@pytest.mark.parametrize("ring", [False, True])
def test_copies_to_shared_memory_are_asked_for_but_those_of_a_ring(ring: bool) -> None:
    near = Buffer("near", FLOAT32, 4 * THREADS, "shared")
    copy = AsyncCopy(
        Region(near, T * 4, 4), Region(W, (P * THREADS + T) * 4, 4), E.binary("lt", P, 9)
    )
    use = Store(TOTAL, E.const(0), load(TOTAL, E.const(0)) + load(X, P) * load(near, T))
    waits = seq(Commit(), Wait(0), Barrier())
    step = seq(copy, waits if ring else None, use, Barrier())
    start = Store(TOTAL, E.const(0), E.const(0.0, FLOAT32))
    body = seq(start, For(P, STEPS, step), waits, Store(Y, T, load(TOTAL, E.const(0))))
    body = Allocate(TOTAL, Allocate(near, body))
    kernel = Kernel("ring", (X, W, Y), body, (Thread("threadIdx.x", T, THREADS),))
    made = asked_first(chained(program(kernel, 2), W))
    verify(made)
    assert len(asked(made)) == (0 if ring else 1)
    if ring:
        return
    (prefetch,) = asked(made)
    around = [s for s in statements(made.kernels[0].body) if prefetch in statements(s)]
    kinds = [type(s) for s in around]
    assert kinds[-3:] == [For, If, Prefetch] and AsyncCopy in {
        type(s) for s in statements(made.kernels[0].body)
    }


def test_what_a_condition_leaves_out_is_not_asked_for() -> None:
    made = asked_first(chained(rows(guard=E.binary("lt", P * T, 20)), W))
    (prefetch,) = asked(made)
    around = [s for s in statements(made.kernels[0].body) if isinstance(s, If)]
    assert any(prefetch in statements(s) for s in around)


@pytest.mark.parametrize(
    "made",
    [
        rows(),  # no chain
        chained(rows(), X),  # weights that others write
        chained(rows(), X, W),  # nothing to wait for
        chained(rows(guard=E.binary("lt", load(X, P), E.const(0.0, FLOAT32))), W),  # data decide
        chained(rows(scope="shared"), W),  # no copy to registers
        chained(rows(blocks=2), W),  # both read all of them
    ],
    ids=["no chain", "of others", "no wait", "data decide", "shared memory", "read twice"],
)
def test_nothing_else_is_asked_for(made: Program) -> None:
    if made.steady == {X, W}:
        made = replace(made, kernels=(replace(made.kernels[0], params=(X, W)),))
    assert not asked(asked_first(made))


def test_a_prefetch_stays_inside_and_reads_memory_that_is_far() -> None:
    def asking(region: Region) -> Program:
        body = Allocate(TOTAL, seq(Prefetch(region), Store(Y, T, E.const(0.0, FLOAT32))))
        return program(Kernel("k", (W, Y), body, (Thread("threadIdx.x", T, THREADS),)), 1)

    beyond = asking(Region(W, E.const(W.size) - T, 4))
    for interpreter in (run, run_fast):
        with pytest.raises(InterpreterError):
            interpreter(beyond, [np.zeros(W.size, "f4"), np.zeros(THREADS, "f4")])
    with pytest.raises(InternalError, match="is near already"):
        verify(asking(Region(TOTAL, E.const(0), 1)))
