"""Groups of warps that multiply tiles in shared memory: what is right, and what is found."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests import interpreter
from tests.ir.groups import FAULTS, Product, arrays, expected, program
from tilewright.base.errors import InternalError
from tilewright.ir.atoms import GROUP, GROUP_ATOMS, multiplied
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.interpreter_memory import InterpreterError
from tilewright.ir.verifier import verify

RUNS = {"fast": run_fast, "definition": interpreter.run}
RIGHT = {
    "halves": Product(),
    "two groups": Product("m64n16k16.bfloat16", groups=2, slices=2),
    "rows of 64 bytes": Product(nbytes=64),
    "rows of 32 bytes": Product("m64n24k16.float16", nbytes=32, slices=3),
    "tf32": Product("m64n8k8.tf32", slices=2),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize("product", RIGHT.values(), ids=RIGHT)
@pytest.mark.slow
def test_groups_multiply(product: Product, run) -> None:
    whole, given = program(product), arrays(product)
    verify(whole)
    run(whole, given)
    np.testing.assert_array_equal(given[2], expected(product, given))


def said(product: Product, run) -> str:
    whole, given = program(product), arrays(product)
    try:
        verify(whole)
        run(whole, given)
    except (InternalError, InterpreterError) as error:
        return str(error)
    return "" if np.array_equal(given[2], expected(product, given)) else "wrong"


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found_by_both_interpreters_alike(fault: str) -> None:
    found = [said(Product(slices=5, fault=fault), run) for run in RUNS.values()]
    first, other = (text.partition(" (in ")[0] for text in found)  # they name variables differently
    assert first == other
    assert re.search(FAULTS[fault] or "wrong", first), first


@pytest.mark.parametrize("name", ["m64n8k16.float16", "m64n96k16.bfloat16", "m64n256k8.tf32"])
def test_lanes_hold_sums_as_the_layout_says(name: str) -> None:
    held = GROUP_ATOMS[name].sum
    assert held.elements == GROUP_ATOMS[name].extents["n"] // 2
    for lane in range(0, GROUP, 7):
        w, g, q = lane // 32, lane // 4 % 8, lane % 4
        for element in range(held.elements):
            j, h, e = element // 4, element // 2 % 2, element % 2
            row, column = held.place(lane, element)
            assert (row, column) == (16 * w + g + 8 * h, 8 * j + 2 * q + e)
            assert held.holder(row, column) == (lane, element)


def test_every_element_of_a_tile_is_read_by_two_lanes() -> None:
    tile = GROUP_ATOMS["m64n8k16.float16"].a
    read = [at for lane in range(GROUP) for at in tile.offsets(128, lane)]
    assert len(read) == 2 * len(set(read)) == 2 * 64 * 16
    assert max(read) == tile.span(128) - 1


def test_tiles_are_multiplied() -> None:
    atom = GROUP_ATOMS["m64n24k16.float16"]
    rng = np.random.default_rng(0)
    a, b = rng.integers(-5, 6, (64, 16)), rng.integers(-5, 6, (24, 16))
    left, right = (
        [[x[divmod(at, 16)] for at in of.offsets(32, lane)] for lane in range(GROUP)]
        for x, of in ((a, atom.a), (b, atom.b))
    )
    sums = multiplied(atom, left, right, [[1] * atom.sum.elements] * GROUP)
    for lane in range(0, GROUP, 5):
        for k, total in enumerate(sums[lane]):
            assert total == (a @ b.T + 1)[atom.sum.place(lane, k)]
