"""Every fault the interpreter must find, and what only looks like one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as S
from tests.ir import naive
from tests.ir.programs import (
    BOTH,
    ROLES,
    ZERO,
    A,
    B,
    J,
    N,
    T,
    U,
    V,
    copy,
    execute,
    kernel,
    launch,
    masked,
    reversed_through_shared,
)
from tests.tiers import examples
from tilewright.ir import expr as E
from tilewright.ir.interpreter_memory import InterpreterError
from tilewright.ir.stmt import (
    Allocate,
    Barrier,
    Buffer,
    For,
    If,
    Program,
    Store,
    load,
    map_children,
    seq,
)

SHARED = Buffer("s", "float32", N, "shared")
LOCAL = Buffer("l", "float32", 2, "local")
WIDE = Buffer("w", "float32", N)
C4 = E.const(4)


def shared(*body, **extents):
    return launch(Allocate(SHARED, seq(*body, Store(B, (U * N + T) % N, ZERO))), **extents)


FAULTS = {
    "load beyond": (
        kernel(For(V, N, Store(B, V, load(A, V + 1)))),
        r"^k: a\[8\]: outside the 8 elements of a: float32\[8\] global \(in b\[i\] = .* at i=7\)",
    ),
    "load before": (kernel(For(V, N, Store(B, V, load(A, V - 1)))), r"k: a\[-1\]: outside"),
    "store beyond": (kernel(For(V, N, Store(B, V * 2, ZERO))), r"k: b\[8\]: outside"),
    "vector beyond": (
        kernel(For(V, 2, Store(B, E.ramp(V * 5, 1, 4), E.broadcast(ZERO, 4)))), r"b\[8\]: outside",
    ),
    "select reads both sides": (
        kernel(For(V, N, Store(B, V, E.select(V < N - 1, load(A, V + 1), 0.0)))), r"a\[8\]: outside"
    ),
    "and reads both sides": (
        kernel(For(V, N, If((V < N - 1) & (load(A, V + 1) > 0.0), Store(B, V, ZERO)))),
        r"a\[8\]: outside",
    ),
    "local never written": (
        kernel(Allocate(LOCAL, For(V, N, Store(B, V, load(LOCAL, V % 2))))),
        r"l\[0\]: this element was never written",
    ),
    "local of another iteration": (
        kernel(
            For(V, N, Allocate(LOCAL, seq(
                If(V < 1, Store(LOCAL, E.const(0), ZERO)), Store(B, V, load(LOCAL, E.const(0))),
            )))
        ),
        r"l\[0\]: this element was never written .* at i=1",
    ),
    "output read first": (
        kernel(For(V, N, Store(B, V, load(B, V) + 1.0))), r"b\[0\]: this element was never written"
    ),
    "output left out": (kernel(For(V, N - 1, Store(B, V, ZERO))), r"p: b\[7\]: no kernel writes"),
    "read before another thread writes": (
        reversed_through_shared(barrier=False), r"s\[\d\]: this element was never written"
    ),
    "read what another thread wrote": (
        shared(Store(SHARED, T, ZERO), If(T > 0, Store(B, T, load(SHARED, T - 1)))),
        r"k: s\[0\]: another thread wrote this element and no barrier",
    ),
    "write what another thread read": (
        shared(
            Store(SHARED, T, ZERO), Barrier(), If(T < 4, Store(B, T, load(SHARED, C4))),
            If(T.equal(4), Store(SHARED, T, E.const(1.0))),
        ),
        r"k: s\[4\]: another thread read this element and no barrier",
    ),
    "write what several threads read": (
        shared(
            Store(SHARED, T, ZERO), Barrier(), Store(B, T, load(SHARED, E.const(7))),
            If(T.equal(7), Store(SHARED, T, E.const(1.0))),
        ),
        r"k: s\[7\]: another thread read this element and no barrier",
    ),
    "write another value": (
        shared(Store(SHARED, E.const(0), load(A, T))),
        r"k: s\[0\]: another thread wrote a different value and no barrier",
    ),
    "other blocks write global memory": (
        launch(Store(B, T, load(A, U)), 2, N), r"k: b\[0\]: another thread wrote a different value",
    ),
    "other blocks read global memory": (
        launch(seq(Store(B, U * 4 + T, ZERO), If(U > 0, Store(A, T, load(B, T)))), 2, 4),
        r"k: b\[0\]: another thread wrote this element",
    ),
    "barriers do not join blocks": (
        launch(
            seq(Store(B, U * 4 + T, ZERO), Barrier(), Store(A, T, load(B, 4 - U * 4 + T))), 2, 4
        ),
        r"k: b\[4\]: this element was never written",
    ),
    "a block writes what an earlier one read": (
        launch(seq(Store(B, U * 4 + T, load(A, T)), Barrier(), If(U > 0, Store(A, T, ZERO))), 2, 4),
        r"k: a\[0\]: another thread read this element",
    ),
    "iterations of a parallel loop": (
        kernel(For(V, N, Store(B, V // 2, load(A, V)), "parallel")),
        r"k: b\[0\]: another thread wrote a different value .* at i=1",
    ),
    "parallel iterations read each other": (
        kernel(seq(copy(), For(V, N, Store(B, V, load(B, (V + 1) % N)), "parallel"))),
        r"k: b\[1\]: another thread read this element",
    ),
    "parallel iterations share scratch": (
        kernel(Allocate(LOCAL, For(V, N, seq(
            Store(LOCAL, E.const(0), load(A, V)), Store(B, V, load(LOCAL, E.const(0))),
        ), "parallel"))),
        r"k: l\[0\]: another thread (read|wrote)",
    ),
    "barrier under a condition": (
        launch(seq(If(T < 4, Barrier()), Store(B, T, ZERO))),
        "barrier divergence: thread 0 waits at barrier .*, thread 4 has ended",
    ),
    "different barriers": (
        launch(seq(If(T < 4, Barrier(), Barrier()), Store(B, T, ZERO))),
        "barrier divergence: thread 0 waits at barrier .*, thread 4 waits at barrier",
    ),
    "unaligned vector": (
        launch(Store(B, E.ramp(T * 2, 1, 4), E.broadcast(ZERO, 4)), threads=2),
        r"k: b\[2\]: this vector must start at a multiple of 4",
    ),
    "unaligned vector load": (
        launch(Store(B, E.ramp(T * 4, 1, 4), load(A, E.ramp(T * 3, 1, 4))), threads=2),
        r"k: a\[3\]: this vector must start at a multiple of 4",
    ),
    "integer division by zero": (
        kernel(For(V, N, Store(B, 7 // (V - 3), ZERO))), r"k: b\[\(7 // \(i - 3\)\)\] = 0f|outside"
    ),
    "cast of a NaN": (
        kernel(For(V, N, Store(B, E.cast("int32", load(A, V) / 0.0), ZERO))),
        r"k: b\[int32\(a\[i\]/0f\)\] = 0f: cannot convert float NaN",
    ),
    "lanes of a condition that is loaded": (
        masked(load(A, E.ramp(V * 4, 1, 4)) > 0.0, Store(B, E.ramp(V, 1, 4), E.broadcast(ZERO, 4))),
        "a condition of several lanes must depend on loop variables only",
    ),
    "unbound variable": (kernel(Store(B, J, ZERO)), "the variable j is used outside its loop"),
    "unknown buffer": (kernel(copy(WIDE, B)), "k: w: the program has no such buffer"),
    "type": (kernel(Store(B, E.const(0), E.const(1))), "a int32 is stored to b: float32"),
    "tensor expression": (
        kernel(Store(B, E.const(0), S.softmax(1, 2).compute_ops[0].body)), "has not been lowered"
    ),
}  # fmt: skip


@BOTH
@pytest.mark.parametrize("name", FAULTS)
def test_faults(name, run):
    program, reason = FAULTS[name]
    with pytest.raises(InterpreterError, match=reason):
        execute(program, run=run)


ALLOWED = {
    "equal values": shared(Store(SHARED, E.const(0), ZERO), Barrier(), Store(B, T, ZERO)),
    "reading together": shared(Store(SHARED, T, ZERO), Barrier(), Store(B, T, load(SHARED, C4))),
    "own element": shared(Store(SHARED, T, load(A, T)), Store(B, T, load(SHARED, T))),
    "write after the barrier after reads": shared(
        Store(SHARED, T, ZERO), Barrier(), Store(B, T, load(SHARED, C4)), Barrier(),
        Store(SHARED, N - 1 - T, ZERO),
    ),
    "a barrier orders global memory of one block": launch(
        seq(Store(B, T, load(A, T)), Barrier(), If(T < 0, Store(B, T, load(B, N - 1 - T))))
    ),
    "a barrier under a condition on blocks": launch(
        seq(If(U < 1, Barrier()), Store(B, U * 4 + T, ZERO)), 2, 4
    ),
    "private scratch": kernel(For(V, N, Allocate(LOCAL, seq(
        Store(LOCAL, E.const(0), load(A, V)), Store(B, V, load(LOCAL, E.const(0))),
    )), "parallel")),
    "after a parallel loop": kernel(seq(
        For(V, N, Store(B, V, ZERO), "parallel"), For(J, N, Store(B, J, load(B, N - 1 - J))),
    )),
    "one parallel loop after another": kernel(seq(
        For(V, N, Store(B, V, ZERO), "parallel"),
        For(J, N, Store(B, N - 1 - J, load(B, N - 1 - J)), "parallel"),
    )),
    "nested parallel loops": kernel(
        For(V, 2, For(J, 4, Store(B, V * 4 + J, ZERO), "parallel"), "parallel")
    ),
    "a barrier for one thread": kernel(seq(Barrier(), copy())),
    "unaligned vectors of a CPU": kernel(seq(
        Store(B, E.ramp(E.const(1), 1, 7), E.broadcast(ZERO, 7)), Store(B, E.const(0), ZERO),
    )),
    "a guarded vector load": launch(seq(
        Store(B, E.ramp(T * 4, 1, 4), E.if_then_else(T > 5, load(A, E.ramp(T * 3, 1, 4)), 0.0))
    ), threads=2),
}  # fmt: skip


@BOTH
@pytest.mark.parametrize("name", ALLOWED)
def test_allowed(name, run):
    execute(ALLOWED[name], run=run)


@pytest.mark.parametrize(
    "name", ["output read first", "output left out", "write another value", "unaligned vector"]
)
@BOTH
def test_without_checks_faults_pass(name, run):
    execute(FAULTS[name][0], check=False, run=run)


@BOTH
def test_integer_results_must_fit_their_type(run):
    c = Buffer("c", "int32", 2)
    body = For(V, 2, Store(c, V, V * 2**30 * 4))
    with pytest.raises(InterpreterError, match=r"k: c\[1\]: the value stored does not fit int32"):
        execute(kernel(body, params=(c,)), args=(c,), run=run)


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ([np.zeros(8, np.float32)], "1 arrays for 2 arguments. Give a, b"),
        ([np.zeros(8), np.zeros(8, np.float32)], r"float64\[8\] given for float32\[8\]"),
        ([np.zeros(9, np.float32), np.zeros(8, np.float32)], r"float32\[9\] given for"),
    ],
)
@BOTH
def test_refused_arrays(arrays, reason, run):
    with pytest.raises(InterpreterError, match=reason):
        run(Program("p", (A, B), ROLES, (kernel(copy()),)), arrays)


@pytest.mark.slow
@examples(40)
@given(S.dags(1000), st.sampled_from(["parallel", "launched"]))
def test_wrong_index_is_always_noticed(drawn, style):
    """Every store moved by one: the last element is outside, or another one stays unwritten."""
    dag, _ = drawn
    program = naive.program(dag, style)

    def shift(stmt):
        if isinstance(stmt, Store):
            return Store(stmt.buffer, stmt.index + 1, stmt.value)
        return map_children(stmt, shift)

    last = program.kernels[-1]
    broken = replace(program, kernels=(*program.kernels[:-1], replace(last, body=shift(last.body))))
    with pytest.raises(InterpreterError):
        S.assert_computes(broken, dag)
