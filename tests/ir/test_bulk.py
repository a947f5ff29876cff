"""Bulk copies and gates: what they mean, and each way to use them wrongly, found by running."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.ir.bulk_rings import FAULTS, BulkRing, arrays, expected, program
from tests.ir.programs import BOTH
from tests.ir.test_interpreters_agree import outcome
from tests.interpreter import InterpreterError, run
from tilewright.ir.fast_interpreter import run_fast
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
    "bytes": BulkRing(dtype="int8", box=(4, 32), shape=(40, 64)),
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
