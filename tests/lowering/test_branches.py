"""Fewer branches on GPUs: the same values by safe reads and by guards that are shared."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright import te, topi
from tilewright.codegen import generate
from tilewright.ir import expr as E
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import (
    Buffer,
    For,
    If,
    Kernel,
    Program,
    Stmt,
    Store,
    load,
    seq,
    statements,
)
from tilewright.lowering.branches import flatten_choices, merge_guards
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.targets.target import Target

V, ZERO = E.var("i"), E.const(0)
A, B, OUT = Buffer("A", "float32", 8), Buffer("B", "float32", 8), Buffer("out", "float32", 8)


def counted(body: Stmt, kind: type[Stmt]) -> int:
    return sum(isinstance(s, kind) for s in statements(body))


def outputs(body: Stmt) -> np.ndarray:
    """What `for i in 8: body` leaves in OUT."""
    kernel = Kernel("k", (A, B, OUT), For(V, 8, body))
    program = Program("k", (A, B, OUT), ("input", "input", "output"), (kernel,))
    out = np.full(8, -1, np.float32)
    run_fast(program, [np.arange(8, dtype=np.float32), np.arange(8, 16, dtype=np.float32), out])
    return out


def rewritten(body: Stmt, apply: Callable[[Kernel], Kernel]) -> Stmt:
    loop = apply(Kernel("k", (A, B, OUT), For(V, 8, body))).body
    assert isinstance(loop, For)
    return loop.body


def test_a_padded_read_becomes_a_safe_read() -> None:
    inside = E.all_of(V >= 2, V < 7)
    padded = Store(OUT, V, E.if_then_else(inside, load(A, V - 2), E.const(0.0)))
    flat = rewritten(padded, flatten_choices)
    assert isinstance(flat, Store) and flat.value.op == "select"
    np.testing.assert_array_equal(outputs(flat), outputs(padded))
    np.testing.assert_array_equal(outputs(flat), [0, 0, 0, 1, 2, 3, 4, 0])


def test_a_choice_of_two_reads_keeps_both_inside() -> None:
    choice = Store(OUT, V, E.if_then_else(V < 4, load(A, V), load(B, V - 4)))
    flat = rewritten(choice, flatten_choices)
    np.testing.assert_array_equal(outputs(flat), [0, 1, 2, 3, 8, 9, 10, 11])


def test_dear_sides_and_many_reads_keep_their_branch() -> None:
    dear = Store(OUT, V, E.if_then_else(V < 4, E.call("exp", load(A, V)), E.const(0.0)))
    many = load(A, V) + load(B, V) + load(A, V - 1)
    for store in (dear, Store(OUT, V, E.if_then_else(V >= 1, many, E.const(0.0)))):
        assert rewritten(store, flatten_choices) is store


def test_neighbours_and_loops_share_a_guard() -> None:
    j, guard = E.var("j"), V < 5
    first = If(guard, Store(OUT, V, load(A, V)))
    added = Store(OUT, V, load(OUT, V) + load(B, j))
    start = Store(OUT, V, E.const(0.0))
    body = seq(start, first, For(j, 3, If(guard, added)))
    merged = rewritten(body, merge_guards)
    assert counted(body, If) == 2 and counted(merged, If) == 1
    np.testing.assert_array_equal(outputs(merged), outputs(body))


def test_a_guard_of_the_loop_itself_stays_inside() -> None:
    j = E.var("j")
    loop = For(j, 8, If(j < V, Store(OUT, j, load(A, V))))
    assert rewritten(loop, merge_guards) is loop


def test_a_guard_that_the_statement_changes_stays() -> None:
    guard = load(OUT, ZERO) < 0.0
    body = seq(If(guard, Store(OUT, ZERO, E.const(1.0))), If(guard, Store(OUT, V, E.const(2.0))))
    assert counted(rewritten(body, merge_guards), If) == 2


def padded_copy() -> Schedule:
    """A padded slice fetched by more threads than it has elements, in two uneven rounds."""
    data = te.placeholder((10,), name="data")
    pad = topi.nn.pad(data, (3,), (3,))
    out = te.compute((16,), lambda i: pad[15 - i] * 2.0, name="out")
    s = create_schedule(out)
    s[pad].set_scope("shared")
    block, thread = s[out].split(s[out].op.axis[0], factor=12)
    s[out].bind(block, "blockIdx.x")
    s[out].bind(thread, "threadIdx.x")
    s[pad].compute_at(s[out], block)
    _, lane = s[pad].split(s[pad].op.axis[0], factor=9)
    s[pad].bind(lane, "threadIdx.x")
    return s


def test_a_guarded_padded_fetch_has_no_branch_around_its_load() -> None:
    s = padded_copy()
    program = lower_schedule(s, Target("cuda"))
    result = np.full(16, np.nan, np.float32)
    run_fast(program, [np.arange(1, 11, dtype=np.float32), result])
    wanted = np.pad(np.arange(1, 11), 3)[::-1] * 2
    np.testing.assert_array_equal(result, wanted)
    lines = [line.strip() for line in generate(program, Target("cuda")).text.splitlines()]
    fetch = next(line for line in lines if "= data[" in line)
    assert fetch.startswith("const float ") and fetch.endswith(": 0];")
