"""What the end of a kernel reads of other kernels' results is read behind the wait, once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.c_family_programs import glob, program
from tests.interpreter import run
from tilewright.codegen import generate
from tilewright.codegen.reads_ahead import MOST, reads_ahead
from tilewright.ir import expr as E
from tilewright.ir.stmt import (
    Allocate,
    Barrier,
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
T, K = E.var("t"), E.var("k")
ENDS = 6  # threads that store
X, R = (glob(name, "float32", THREADS) for name in "xr")
Y = glob("y", "float32", ENDS)
HELD = Buffer("held", "float32", THREADS, "shared")
SUM = Buffer("sum", "float32", 1, "local")


def ends(value: E.Expr, residual: Buffer = R, barrier: bool = True) -> Program:
    """y[t] = sums of four neighbours of x, and `value`; of some threads."""
    term = load(HELD, (T + K) % THREADS)
    parts: list[Stmt] = [Barrier()] if barrier else []
    loop = For(K, 4, seq(*parts, Store(SUM, E.const(0), load(SUM, E.const(0)) + term)), "serial")
    end = If(T < ENDS, Store(Y, T, load(SUM, E.const(0)) + value))
    body = seq(
        Store(HELD, T, load(X, T)), Store(SUM, E.const(0), E.const(0.0, "float32")), loop, end
    )
    kernel = Kernel(
        "k", (X, residual, Y), Allocate(HELD, Allocate(SUM, body)),
        (Thread("threadIdx.x", T, THREADS),),
    )  # fmt: skip
    return replace(program(kernel, 2), steady=frozenset())


def first_read(made: Program, buffer: Buffer) -> int:
    """Where in the kernel it stands."""
    stores = enumerate(statements(made.kernels[0].body))
    values = [(k, s.value) for k, s in stores if isinstance(s, Store)]
    reads = [k for k, v in values if any(n.op == "load" and n.attr is buffer for n in E.walk(v))]
    return reads[0]


def loop_of(made: Program) -> int:
    return next(k for k, s in enumerate(statements(made.kernels[0].body)) if isinstance(s, For))


def test_a_residual_is_read_in_front_of_the_sums() -> None:
    before = ends(load(R, T))
    after = reads_ahead(before)
    assert first_read(before, R) > loop_of(before) and first_read(after, R) < loop_of(after)
    x, r = np.random.default_rng(0).normal(size=(2, THREADS)).astype(np.float32)
    for made in (before, after):
        found = np.zeros(ENDS, np.float32)
        run(made, [x, r, found])
        wanted = [sum(np.roll(x, -t)[:4]) + r[t] for t in range(ENDS)]
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    text = generate(replace(before, lets_in=True), SM90).text
    _, behind = text.split("tw_await_kernel_only();\n")
    assert behind.index("r_first[0] = r[") < behind.index("for (") < behind.index("] = sum[0]")


def test_choices_elsewhere_in_an_end_do_not_matter() -> None:
    large = load(SUM, E.const(0)) < float("inf")
    scale = E.select(large, E.const(0.5, "float32"), E.const(float("nan"), "float32"))
    before = ends(load(R, T) * scale + E.if_then_else(T < 5, load(R, (T + 1) % 5), 0.0))
    after = reads_ahead(before)
    reads = [str(s.value) for s in statements(after.kernels[0].body) if isinstance(s, Store)]
    assert reads[0] == "r[t]" and sum("r[" in read for read in reads[1:]) == 1
    x, r = np.random.default_rng(0).normal(size=(2, THREADS)).astype(np.float32)
    found = np.zeros((2, ENDS), np.float32)
    for made, own in zip((before, after), found, strict=True):
        run(made, [x, r, own])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    "before",
    [
        replace(ends(load(R, T)), steady=None),
        replace(ends(load(R, T)), steady=frozenset({R})),
        ends(load(Y, T)),
        ends(E.if_then_else(T < 5, load(R, T), E.const(0.0, "float32"))),
        ends(load(R, T), barrier=False),
        ends(sum((load(R, (T + n) % THREADS) for n in range(MOST)), E.const(0.0, "float32"))),
    ],
    ids=["alone", "weights", "own", "where it chooses to", "nothing between", "too much"],
)
def test_what_stays_as_it_is(before: Program) -> None:
    after = reads_ahead(before)
    assert str(after) == str(before)
