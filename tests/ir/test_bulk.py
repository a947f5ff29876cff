"""Bulk copies and gates: what they mean, and each way to use them wrongly, found by running."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.interpreter import InterpreterError, run
from tests.ir import boxes
from tests.ir.boxes import CASES, Boxed
from tests.ir.bulk_rings import FAULTS, BulkRing, arrays, expected, program
from tests.ir.programs import BOTH
from tests.ir.test_interpreters_agree import outcome
from tilewright.base.errors import InternalError
from tilewright.ir import expr as E
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import Allocate, Stmt, Store, seq, statements
from tilewright.ir.verifier import verify

RINGS = {
    "one thread of those that read": BulkRing(),
    "a warp of its own": BulkRing(loader=True),
    "one slot": BulkRing(slots=1),
    "one slot and a warp of its own": BulkRing(slots=1, loader=True),
    "more slots than tiles": BulkRing(slots=6),
    "the ring turns again": BulkRing(again=3),
    "it turns again for a warp of its own": BulkRing(again=3, loader=True),
    "halves": BulkRing(dtype="float16", box=(8, 24)),
    "bytes": BulkRing(dtype="int8", box=(4, 32), shape=(40, 64), first=(-1, -16)),
    "one warp": BulkRing(warps=1, tiles=2),
    "beyond all ends": BulkRing(first=(-9, 20), tiles=7),
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
@pytest.mark.parametrize("loader", [True, False])
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found(fault, loader, run) -> None:
    ring = BulkRing(slots=3, tiles=7, loader=loader, fault=fault)
    with pytest.raises(InterpreterError, match=FAULTS[fault]):
        run(program(ring), arrays(ring))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("ring", RINGS.values(), ids=RINGS)
def test_both_interpreters_say_the_same(ring, fault) -> None:
    wrong = replace(ring, fault=fault)
    told = [outcome(r, program(wrong), arrays(wrong)) for r in (run, run_fast)]
    assert told[0] == told[1]


@BOTH
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_box_is_what_it_must_be(case, run) -> None:
    whole, given = boxes.program(case), boxes.arrays(case)
    verify(whole)
    run(whole, given)
    assert np.array_equal(given[1], boxes.expected(case))


REFUSED = {
    "one dimension": (Boxed((64,), (16,), (0,)), "1 dimensions, of which a box has 2 to 5"),
    "six dimensions": (Boxed((2,) * 5 + (16,), (1,) * 5 + (16,), (0,) * 6), "6 dimensions"),
    "odd rows": (Boxed((4, 7), (2, 4), (0, 0)), "rows that are not a multiple of 16 bytes apart"),
    "short rows": (Boxed((4, 8), (2, 3), (0, 0)), "rows of 12 bytes"),
    "swizzled rows": (Boxed((8, 32), (8, 16), (0, 0), swizzle=128), "64 bytes, swizzled by 128"),
    "large": (Boxed((512, 8), (257, 8), (0, 0)), "a box of 257 elements along a dimension"),
    "large by steps": (Boxed((512, 8), (130, 8), (0, 0), (2, 1)), "a box of 259 elements"),
    "columns": (Boxed((8, 16), (8, 8), (0, 0), order=(1, 0)), "no neighbours in memory"),
    "long steps": (Boxed((64, 8), (4, 8), (0, 0), (9, 1)), "which are 1 to 8"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_boxes_that_no_engine_copies(name) -> None:
    case, told = REFUSED[name]
    with pytest.raises(InternalError, match=told):
        verify(boxes.program(case))


def test_what_bulk_copies_fill_is_theirs() -> None:
    ring = program(BulkRing())
    (kernel,) = ring.kernels
    (s,) = (x.buffer for x in statements(kernel.body)
            if isinstance(x, Allocate) and x.buffer.name == "s")  # fmt: skip
    (gates,) = (x.buffer for x in statements(kernel.body)
                if isinstance(x, Allocate) and x.buffer.name == "gates")  # fmt: skip
    for extra, told in (
        (Store(s, E.const(0), E.const(0.0)), "bulk copies fill the buffer, and nothing else"),
        (Store(gates, E.const(0), E.const(0, "int64")), "holds gates, and is read or stored to"),
    ):
        with pytest.raises(InternalError, match=told):
            verify(replace(ring, kernels=(replace(kernel, body=_before(kernel.body, extra)),)))


def _before(body: Stmt, extra: Stmt) -> Stmt:
    return replace(body, body=_before(body.body, extra)) if isinstance(body, Allocate) else seq(
        extra, body
    )  # fmt: skip


@BOTH
def test_a_box_begins_at_whole_units(run) -> None:
    """The engine faults where the begin of a row is no multiple of 16 bytes in memory."""
    case = replace(CASES["halves"], at=(7, 12))
    with pytest.raises(
        InterpreterError, match=r"a\[12\]: this vector must start at a multiple of 8"
    ):
        run(boxes.program(case), boxes.arrays(case))
