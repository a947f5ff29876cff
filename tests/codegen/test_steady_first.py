"""Copies of weights before the wait: in the text, and without changing what a kernel computes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.c_family_programs import glob, program
from tests.interpreter import run
from tilewright.base.artifact import AWAIT_ONLY
from tilewright.base.dtype import FLOAT32
from tilewright.codegen import generate
from tilewright.codegen.steady_first import steady_first
from tilewright.driver import nvrtc
from tilewright.ir import expr as E
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.printer import text_of
from tilewright.ir.stmt import (
    Allocate,
    AsyncCopy,
    Barrier,
    Buffer,
    Commit,
    For,
    If,
    Kernel,
    Program,
    Region,
    Stmt,
    Store,
    Thread,
    Wait,
    load,
    seq,
)
from tilewright.targets.target import Target

SM90 = Target("cuda -arch=sm_90")
THREADS, TILES, SLOTS = 8, 5, 3
SIZE = 4 * THREADS * TILES
X, W = glob("x", "float32", SIZE), glob("w", "float32", SIZE)
Y = glob("y", "float32", 2 * THREADS)
NEAR = {b: Buffer(f"{b.name}_near", FLOAT32, 4 * THREADS * SLOTS, "shared") for b in (X, W)}
T, U, P, K, J = (E.var(n) for n in "tupkj")
LAUNCH = (Thread("threadIdx.x", T, THREADS), Thread("blockIdx.x", U, 2))


def fetch(source: Buffer, tile: E.Expr, *, asynchronous: bool) -> Stmt:
    """What a thread copies of a tile; nothing of tiles that are not there."""
    to, at = (tile % SLOTS * THREADS + T) * 4, (tile * THREADS + T) * 4
    near, inside = NEAR[source], E.binary("lt", tile, TILES)
    if asynchronous:
        return AsyncCopy(Region(near, to, 4), Region(source, at, 4), inside)
    one = Store(near, to + J, load(source, at + J))
    return If(inside, For(J, 4, one))


def ring(*, asynchronous: bool = True) -> Program:
    """y[block, t] = the sum of x * w over what other threads have copied: two tiles are fetched
    beforehand, x first."""

    def both(tile: E.Expr) -> tuple[Stmt, ...]:
        return tuple(fetch(b, tile, asynchronous=asynchronous) for b in (X, W))

    total = Buffer("sum", FLOAT32, 1, "local")
    place = (P % SLOTS * THREADS + (THREADS - 1 - T)) * 4 + K
    product = load(NEAR[X], place) * load(NEAR[W], place)
    add = Store(total, E.const(0), load(total, E.const(0)) + product)
    body = seq(
        Store(total, E.const(0), E.const(0.0, FLOAT32)),
        For(P, SLOTS - 1, seq(*both(P), Commit())),
        For(
            P,
            TILES,
            seq(Wait(SLOTS - 2), Barrier(), For(K, 4, add), *both(P + SLOTS - 1), Commit()),
        ),
        Wait(0),
        Store(Y, U * THREADS + T, load(total, E.const(0))),
    )
    for buffer in (total, *NEAR.values()):
        body = Allocate(buffer, body)
    return program(Kernel("ring", (X, W, Y), body, LAUNCH), 2)


def chained(made: Program, *steady: Buffer) -> Program:
    return replace(made, steady=frozenset(steady), lets_in=True)


def lines_of(made: Program) -> list[str]:
    source = generate(made, SM90)
    return [line.strip() for line in source.text[source.text.index("__global__") :].splitlines()]


def of_body(*stmts: Stmt) -> Program:
    body = seq(*stmts, Store(Y, T, load(NEAR[W], T) + load(NEAR[X], T)))
    for buffer in NEAR.values():
        body = Allocate(buffer, body)
    return chained(program(Kernel("k", (X, W, Y), body, LAUNCH[:1]), 2), W)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_what_is_fetched_of_weights_beforehand_comes_before_the_wait(asynchronous: bool) -> None:
    lines = lines_of(chained(ring(asynchronous=asynchronous), W))
    at = lines.index(f"{AWAIT_ONLY}();")
    before, behind = "\n".join(lines[:at]), "\n".join(lines[at:])
    first = "tw_copy_16(&w_near" if asynchronous else "w_near["
    assert first in before and first in behind
    assert "x_near[" not in before.replace("* const x_near", "") and "tw_commit" not in before


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("steady", [(), (W,), (X,), (X, W)])
def test_it_computes_the_same(steady: tuple[Buffer, ...], asynchronous: bool) -> None:
    made = ring(asynchronous=asynchronous)
    arranged = steady_first(chained(made, *steady))
    assert (text_of(arranged) == text_of(made)) == (len(steady) != 1)
    rng = np.random.default_rng(0)
    x, w = rng.integers(-4, 5, (2, SIZE)).astype("float32")
    want = (x * w).reshape(TILES, THREADS, 4).sum((0, 2))[::-1]
    for interpreter in (run, run_fast):
        y = np.zeros(2 * THREADS, "float32")
        interpreter(arranged, [x, w, y])
        np.testing.assert_array_equal(y, np.tile(want, 2))


@pytest.mark.parametrize("asynchronous", [True, False])
def test_copies_cross_barriers_and_nothing_crosses_a_wait(asynchronous: bool) -> None:
    x = fetch(X, E.const(0), asynchronous=False)
    w = seq(fetch(W, E.const(0), asynchronous=asynchronous), Commit())
    other = Store(Y, T + THREADS, E.const(0.0, FLOAT32))
    arranged = steady_first(of_body(x, Barrier(), w, Wait(0), Barrier(), other))
    crossed = [line for line in lines_of(arranged) if "w_near[" in line or AWAIT_ONLY in line]
    assert "w_near[" in crossed[0] and crossed[1] == f"{AWAIT_ONLY}();"
    given, y = [np.arange(SIZE, dtype="float32") * scale for scale in (1, 3)], np.zeros(16, "f4")
    run_fast(arranged, [*given, y])
    np.testing.assert_array_equal(y[:THREADS], sum(given)[:THREADS])
    made = of_body(x, Wait(0), w)
    assert steady_first(made).kernels[0].body is made.kernels[0].body


def test_a_copy_stays_behind_who_still_reads_its_buffer() -> None:
    """Of two tiles that take turns in one place the second one waits for the barrier."""
    first, second = (fetch(W, E.const(k), asynchronous=False) for k in (0, SLOTS))
    x = fetch(X, E.const(0), asynchronous=False)
    use = Store(NEAR[X], T, load(NEAR[X], T) + load(NEAR[W], THREADS - 1 - T))
    arranged = steady_first(of_body(first, x, Barrier(), use, Barrier(), second))
    lines = lines_of(arranged)
    at = lines.index(f"{AWAIT_ONLY}();")
    assert sum("w_near[" in line and "= w[" in line for line in lines[:at]) == 1


def test_copies_through_registers_come_last() -> None:
    both = glob("v", "float32", SIZE)
    near = Buffer("v_near", FLOAT32, 4 * THREADS * SLOTS, "shared")
    plain = Store(near, T, load(both, T))
    end = Store(Y, T, load(NEAR[W], T) + load(near, T) + load(X, T))
    body = seq(Store(Y, T, load(X, T)), plain, fetch(W, E.const(0), asynchronous=True), Commit(),
               Wait(0), Barrier(), end)  # fmt: skip
    nest = Allocate(near, Allocate(NEAR[W], body))
    made = chained(program(Kernel("k", (X, W, both, Y), nest, LAUNCH[:1]), 3), W, both)
    lines = lines_of(made)
    at = [
        k
        for k, line in enumerate(lines)
        if line.startswith(("tw_copy_16(", "v_near[T", "v_near[t"))
    ]
    assert lines[at[0]].startswith("tw_copy_16(") and at[1] < lines.index(f"{AWAIT_ONLY}();")


def test_what_writes_where_others_read_stays() -> None:
    """x lands where w lands later: that order counts."""
    w = fetch(W, E.const(0), asynchronous=False)
    over = Store(NEAR[W], T * 4, load(X, T))
    made = of_body(over, w)
    assert steady_first(made).kernels[0].body is made.kernels[0].body
    both = For(
        P, 2, seq(Store(NEAR[X], T, load(NEAR[W], T) + load(X, T)), fetch(W, P, asynchronous=False))
    )
    made = of_body(both)
    assert steady_first(made).kernels[0].body is made.kernels[0].body


def inside(own: Buffer, before: Stmt, *more: Stmt) -> Program:
    """Weights are fetched where their shared memory is allocated, behind what is read of x."""
    use = Store(own, E.const(0), load(own, E.const(0)) + load(NEAR[W], T))
    copy = fetch(W, E.const(0), asynchronous=True)
    ring = Allocate(NEAR[W], seq(copy, Commit(), Wait(0), Barrier(), use))
    end = Store(Y, U * THREADS + T, load(own, E.const(0)) + load(NEAR[X], T))
    start = Store(own, E.const(0), E.const(0.0, FLOAT32))
    nest = Allocate(NEAR[X], seq(before, Allocate(own, seq(start, ring, end, *more))))
    return chained(program(Kernel("k", (X, W, Y), nest, LAUNCH), 2), W)


def test_shared_memory_is_allocated_where_it_is_filled_first() -> None:
    own = Buffer("own", FLOAT32, 1, "local")
    made = inside(own, fetch(X, E.const(0), asynchronous=False))
    arranged = steady_first(made)
    lines = lines_of(made)
    first = next(k for k, line in enumerate(lines) if line.startswith("tw_copy_16(&w_near"))
    assert first < lines.index(f"{AWAIT_ONLY}();")
    x, w = (np.arange(SIZE, dtype="float32") * scale for scale in (1, 3))
    for interpreter in (run, run_fast):
        y = np.zeros(2 * THREADS, "float32")
        interpreter(arranged, [x, w, y])
        np.testing.assert_array_equal(y, np.tile((x + w)[:THREADS], 2))


def test_it_takes_no_more_shared_memory_than_before() -> None:
    """What is allocated behind it takes its place."""
    other = Buffer("other", FLOAT32, NEAR[W].size, "shared")
    later = Allocate(other, seq(Barrier(), Store(other, T, load(X, T))))
    made = inside(Buffer("own", FLOAT32, 1, "local"), Store(NEAR[X], T, load(X, T)), later)
    assert steady_first(made).kernels[0].body is made.kernels[0].body


def test_groups_of_copies_stay_what_they_are() -> None:
    """A commit of weights' copies does not pass copies of others."""
    x, w = (fetch(b, E.const(0), asynchronous=True) for b in (X, W))
    lines = lines_of(of_body(x, For(P, 2, seq(w, Commit())), Wait(0)))
    at = lines.index(f"{AWAIT_ONLY}();")
    assert not any("tw_commit" in line or "tw_copy_16" in line for line in lines[:at])


def test_copies_to_registers_stay() -> None:
    own = Buffer("own", FLOAT32, 1, "local")
    body = seq(
        Store(NEAR[X], T, load(X, T)), Store(own, E.const(0), load(W, T)),
        Store(Y, T, load(own, E.const(0)) + load(NEAR[X], T)),
    )  # fmt: skip
    body = Allocate(own, Allocate(NEAR[X], body))
    made = chained(program(Kernel("k", (X, W, Y), body, LAUNCH[:1]), 2), W)
    assert steady_first(made).kernels[0].body is body


@pytest.mark.slow
@pytest.mark.parametrize("asynchronous", [True, False])
def test_nvrtc_accepts(asynchronous: bool) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    made = nvrtc.build(generate(chained(ring(asynchronous=asynchronous), W), SM90), SM90)
    assert "error" not in made.meta["log"]
