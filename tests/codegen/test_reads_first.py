"""What a nest that is written out reads of other kernels' results comes before its stores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.c_family_programs import glob, program
from tests.interpreter import run
from tilewright.codegen import generate
from tilewright.codegen.reads_first import MOST, reads_first
from tilewright.ir import expr as E
from tilewright.ir.stmt import (
    Allocate,
    Buffer,
    For,
    If,
    Kernel,
    Program,
    Stmt,
    Store,
    Thread,
    load,
    seq,
    statements,
)
from tilewright.targets.target import Target

SM90 = Target("cuda -arch=sm_90")
THREADS = 8
T, R, P = (E.var(n) for n in "trp")
SIZE = 4 * 2 * THREADS
X, W, Y = (glob(name, "float32", SIZE) for name in "xwy")


def linked(body: Stmt, *args: Buffer) -> Program:
    kernel = Kernel("k", args, body, (Thread("threadIdx.x", T, THREADS),))
    return replace(program(kernel, len(args) - 1), steady=frozenset({W}))


def nest(kind: str = "unrolled", y: Buffer = Y) -> Stmt:
    """y[t, r, 2] = x[t, r, 2] * w[t, r, 2], two neighbours at a time, where y has them."""
    at = E.ramp((T * 4 + R) * 2, 1, 2)
    body: Stmt = Store(y, at, load(X, at) * load(W, at))
    return For(R, 4, body if y is Y else If(y.size // 2 > T * 4 + R, body), kind)


def loads_before_stores(made: Program) -> bool:
    (kernel,) = made.kernels
    text = [s for s in statements(kernel.body) if isinstance(s, Store)]
    first = [s.buffer not in kernel.params for s in text]
    return any(first) and first == sorted(first, reverse=True)


@pytest.mark.parametrize("y", [Y, glob("y", "float32", 26)])
def test_reads_come_first_and_nothing_else_changes(y: Buffer) -> None:
    before = linked(nest(y=y), X, W, y)
    after = reads_first(before)
    assert loads_before_stores(after) and not loads_before_stores(before)
    (kernel,) = after.kernels
    reads = [n for s in statements(kernel.body) if isinstance(s, Store) for n in E.walk(s.value)
             if n.op == "load" and n.attr is W and s.buffer is not y]  # fmt: skip
    assert not reads  # weights are known before the wait, compilers move them by themselves
    x, w = np.random.default_rng(0).normal(size=(2, SIZE)).astype(np.float32)
    for made in (before, after):
        found = np.zeros(y.size, np.float32)
        run(made, [x, w, found])
        np.testing.assert_array_equal(found, (x * w)[: y.size])
    assert "x_first" in generate(before, SM90).text


def test_what_stays_as_it_is() -> None:
    """Loops that are loops, one read alone, more than registers hold, what the kernel writes."""
    at = E.ramp(T * 2, 1, 2)
    wide = Buffer("x", X.dtype, MOST * THREADS), Buffer("y", Y.dtype, MOST * THREADS)
    much = For(R, MOST, Store(wide[1], T * MOST + R, load(wide[0], T * MOST + R)), "unrolled")
    own = For(R, 4, Store(Y, T * 4 + R, load(Y, T * 4 + R) + 1.0), "unrolled")
    for before in (
        linked(nest("serial"), X, W, Y), linked(Store(Y, at, load(X, at)), X, Y),
        linked(much, *wide), linked(own, Y), replace(linked(nest(), X, W, Y), steady=None),
    ):  # fmt: skip
        after = reads_first(before)
        assert str(after.kernels[0].body) == str(before.kernels[0].body)


def test_sums_of_partial_sums_are_read_first() -> None:
    total, y = Buffer("total", X.dtype, 1, "local"), glob("y", "float32", 4 * THREADS)
    zero = E.const(0)
    each = seq(
        Store(total, zero, E.const(0.0, "float32")),
        For(P, 2, Store(total, zero, load(total, zero) + load(X, (P * THREADS + T) * 4 + R)),
            "unrolled"),
        Store(y, T * 4 + R, load(total, zero)),
    )  # fmt: skip
    before = linked(Allocate(total, For(R, 4, each, "unrolled")), X, y)
    after = reads_first(before)
    x = np.random.default_rng(0).normal(size=SIZE).astype(np.float32)
    for made in (before, after):
        found = np.zeros(y.size, np.float32)
        run(made, [x, found])
        np.testing.assert_array_equal(found, x[: y.size] + x[y.size :])
    (kernel,) = after.kernels
    stores = [s.buffer.name for s in statements(kernel.body) if isinstance(s, Store)]
    assert stores[0] == "x_first" and stores.count("x_first") == 1


def test_what_is_chosen_is_read_where_it_is_chosen() -> None:
    inside = E.if_then_else(T * 4 + R < 20, load(X, T * 4 + R), E.const(0.0, "float32"))
    body = For(R, 4, Store(Y, T * 4 + R, inside), "unrolled")
    before = linked(body, X, W, Y)
    assert str(reads_first(before)) == str(before)
