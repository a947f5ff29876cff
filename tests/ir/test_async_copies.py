"""Copies beside the threads: what they mean, and each way to use them wrongly, found by running."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.interpreter import InterpreterError, run
from tests.ir.programs import BOTH
from tests.ir.rings import FAULTS, Ring, arrays, expected, program
from tests.ir.test_interpreters_agree import outcome
from tilewright.base.errors import InternalError
from tilewright.ir import expr as E
from tilewright.ir.barriers import insert_barriers
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import (
    Allocate,
    AsyncCopy,
    Barrier,
    Buffer,
    Commit,
    If,
    Kernel,
    Program,
    Region,
    Stmt,
    Store,
    Thread,
    Wait,
    load,
    map_children,
    seq,
    statements,
)
from tilewright.ir.verifier import verify
from tilewright.lowering.loops import simplify_indices

RINGS = {
    "three slots of 16 bytes": Ring(),
    "two slots": Ring(slots=2),
    "four slots, more than tiles": Ring(slots=6, tiles=4),
    "words": Ring(wide=1, missing=3),
    "8 bytes": Ring(wide=2, missing=2),
    "halves": Ring(wide=8, missing=8, dtype="float16"),
    "integers": Ring(dtype="int32"),
    "one thread": Ring(threads=1),
}


@BOTH
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("ring", RINGS.values(), ids=RINGS)
def test_a_ring_gives_what_it_must(ring, check, run) -> None:
    verify(program(ring))
    given, result = arrays(ring)
    run(program(ring), [given, result], check=check)
    assert np.array_equal(result, expected(ring))


@BOTH
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found(fault, run) -> None:
    ring = Ring(slots=4, tiles=9, fault=fault)
    with pytest.raises(InterpreterError, match=FAULTS[fault]):
        run(program(ring), arrays(ring))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("ring", RINGS.values(), ids=RINGS)
def test_both_interpreters_say_the_same(ring, fault) -> None:
    wrong = replace(ring, fault=fault)
    told = [outcome(r, program(wrong), arrays(wrong)) for r in (run, run_fast)]
    assert told[0] == told[1]


T, ZERO = E.var("t"), E.const(0)
A, B = Buffer("a", "float32", 8), Buffer("b", "float32", 8)
S = Buffer("s", "float32", 8, "shared")
ALL = E.const(True)


def launched(*body: Stmt, params=(A, B), shared=S) -> Program:
    kernel = Kernel("k", params, Allocate(shared, seq(*body)), (Thread("threadIdx.x", T, 2),))
    return Program("p", params, ("input", "output"), (kernel,))


def copied(at=T * 4, source=T * 4, to=S, given=A, count=4, condition=ALL) -> Stmt:
    return AsyncCopy(Region(to, at, count), Region(given, source, count), condition)


WRITTEN = Store(B, T, E.const(0.0))
SMALL = {
    "source beyond": (copied(source=T * 4 + 8), r"a\[8\]: outside the 8"),
    "target beyond": (copied(at=T * 4 + 8), r"s\[8\]: outside the 8"),
    "source not aligned": (copied(source=T * 4 + 1), r"a\[1\]: this vector must start at a mul"),
    "target not aligned": (copied(at=T * 4 + 2), r"s\[2\]: this vector must start at a multiple"),
    "stored to in flight": (seq(copied(), Store(S, T * 4, E.const(0.0))), r"s\[0\]: a copy into"),
    "NaN stored in flight": (
        seq(copied(), Store(S, T * 4, E.const(float("nan")))),
        r"s\[0\]: a copy into",
    ),
    "two copies to one place": (seq(copied(), copied()), r"s\[0\]: a copy into this"),
    "both threads to one place": (
        seq(copied(at=ZERO, source=ZERO), Barrier()),
        r"s\[0\]: a copy into this",
    ),
    "over what the other reads": (
        seq(
            Store(S, T * 4, E.const(0.0)),
            Barrier(),
            If(T < 1, Store(B, T, load(S, E.const(4)))),
            If(T > 0, copied()),
        ),
        r"s\[4\]: another thread read this element",
    ),
    "of the other's, behind a wait alone": (
        seq(copied(), Commit(), Wait(0), If(T > 0, Store(B, T, load(S, ZERO)))),
        r"s\[0\]: another thread wrote this element",
    ),
    "given back": (seq(copied(), Commit()), r"s\[0\]: this memory is given back"),
    "a newer group is not waited for": (
        seq(copied(), Commit(), Commit(), Wait(2), WRITTEN),
        r"s\[0\]: this memory is given back",
    ),
}


@BOTH
@pytest.mark.parametrize("case", SMALL)
def test_small_faults(case, run) -> None:
    body, message = SMALL[case]
    with pytest.raises(InterpreterError, match=message):
        run(launched(body, WRITTEN), [np.zeros(8, np.float32), np.zeros(8, np.float32)])


@BOTH
def test_a_source_that_is_not_wanted_is_not_looked_at(run) -> None:
    arrived = (Commit(), Wait(0), Barrier())
    rest = [Store(B, T * 4 + k, load(S, (1 - T) * 4 + k)) for k in range(4)]
    body = seq(copied(source=T * 800 - 4, condition=T > 5), *arrived, *rest)
    result = np.ones(8, np.float32)
    run(launched(body), [np.ones(8, np.float32), result])
    assert not result.any()


@BOTH
def test_groups_land_in_the_order_of_their_commits(run) -> None:
    """After a wait that leaves one group, the older is there and the newer is not."""
    halves = [copied(T * 4 + k, T * 4 + k, count=1) for k in range(4)]
    early = seq(*halves[:2], Commit(), *halves[2:], Commit(), Wait(1), Barrier())
    late = seq(Wait(0), Barrier())
    other = [Store(B, T * 4 + k, load(S, (1 - T) * 4 + k)) for k in range(4)]
    result = np.zeros(8, np.float32)
    run(launched(early, *other[:2], late, *other[2:]), [np.arange(8, dtype="f4"), result])
    assert result.tolist() == [4, 5, 6, 7, 0, 1, 2, 3]
    with pytest.raises(InterpreterError, match=r"s\[6\]: a copy into this element is under way"):
        run(launched(early, *other, late), [np.arange(8, dtype="f4"), result])


REFUSED = {
    "of 12 bytes": copied(count=3),
    "to global memory": copied(to=B),
    "from shared memory": copied(given=S, to=S),
    "from what is stored to": seq(copied(given=B), WRITTEN),
    "of another type": copied(given=Buffer("a", "int32", 8)),
    "of a vector of places": copied(at=E.ramp(ZERO, E.const(1), 4)),
    "by a number": copied(condition=E.const(1)),
    "pending": Wait(-1),
}


@pytest.mark.parametrize("case", REFUSED)
def test_the_verifier_refuses(case) -> None:
    body = REFUSED[case]
    params = [A, B]
    for s in statements(body):
        if isinstance(s, AsyncCopy) and s.source.buffer.name == "a":
            params[0] = s.source.buffer
    with pytest.raises(InternalError, match="p|k"):
        verify(launched(body, params=tuple(params)))
    verify(launched(copied()))


def test_text() -> None:
    text = str(program(Ring()))
    for line in (
        "async s[p % 3*32 + t*4 +: 4] = a[p*32 + t*4 +: 4] if p*32 + t*4 < 156",
        "commit",
        "wait 1",
    ):
        assert f"\n{line}\n" in re.sub(r"\n +", "\n", text), text
    assert str(copied()) == "async s[t*4 +: 4] = a[t*4 +: 4]"


@pytest.mark.parametrize("ring", RINGS.values(), ids=RINGS)
def test_barriers_are_found_where_copies_need_them(ring) -> None:
    """Without its barriers, and with those that the pass inserts, a ring is right."""

    def bare(s: Stmt) -> Stmt:
        return seq() if isinstance(s, Barrier) else map_children(s, bare)

    whole = program(ring)
    (kernel,) = whole.kernels
    without = replace(kernel, body=bare(kernel.body))
    again = insert_barriers(without)
    if ring.threads > 1:
        assert any(isinstance(s, Barrier) for s in statements(again.body))
    given, result = arrays(ring)
    run_fast(replace(whole, kernels=(again,)), [given, result])
    assert np.array_equal(result, expected(ring))


def test_a_barrier_before_the_wait_is_not_enough() -> None:
    shown = Store(B, T, load(S, 4 - T * 4))
    body = seq(copied(), Commit(), Barrier(), Wait(0), shown, Store(B, T + 2, E.const(0.0)))
    (kernel,) = launched(body).kernels
    found = [type(s) for s in statements(insert_barriers(kernel).body)]
    assert found.index(Wait) < len(found) - 1 - found[::-1].index(Barrier) < found.index(Store)


def test_indices_of_regions_are_rewritten() -> None:
    (kernel,) = launched(copied(at=(T * 8) // 2, source=T * 4 + ZERO * T)).kernels
    (new,) = (s for s in statements(simplify_indices(kernel).body) if isinstance(s, AsyncCopy))
    assert new.to.index is T * 4 and new.source.index is T * 4
