"""Wrong copies, warps, groups of warps and joins of blocks: rings and products of random shapes,
each fault in turn; rings, and sums that blocks share, that lowering made of a schedule, too.

No device: the verifier and the interpreter must find what is wrong, and must accept what is right.
"""

from __future__ import annotations

import random
import sys
from collections import Counter

import numpy as np

from drills.drill import Counts, Drill
from lowering import row_rings, split_sums
from lowering.row_rings import Rows
from lowering.split_sums import Sums
from tests.ir import bulk_rings, groups, products, rings
from tests.ir.bulk_rings import BulkRing
from tests.ir.products import Product
from tests.ir.rings import Ring
from tilewright.base.errors import InternalError
from tilewright.ir.atoms import ATOMS
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.interpreter_memory import InterpreterError
from tilewright.ir.stmt import Program
from tilewright.ir.verifier import verify
from tilewright.lowering.pipeline import lower_schedule

_LOWERED = {f"lowered, {fault}": fault for fault in row_rings.FAULTS}
_BULK = {f"bulk, {fault}": fault for fault in bulk_rings.FAULTS}
_GROUPS = {f"groups, {fault}": fault for fault in groups.FAULTS}
_PLANTED = [*rings.FAULTS, *products.FAULTS, *_LOWERED, *split_sums.FAULTS, *_BULK, *_GROUPS]
Planted = Ring | Product | Rows | BulkRing | Sums | groups.Product


def run(tries: int, seed: int) -> Counts:
    """As many right kernels as wrong ones."""
    counts: Counts = Counter()
    for number in range(tries):
        fault = _PLANTED[number // 2 % len(_PLANTED)] if number % 2 else ""
        rng = random.Random(f"{seed} {number}")
        kernel = _kernel(rng, fault, number // 2)
        found = _found(kernel, _LOWERED.get(fault, fault))
        happened = f"found: {fault}" if fault and found else f"missed: {fault}"
        if not fault:
            happened = "right and refused" if found else "right and accepted"
        if happened.startswith(("missed", "right and refused")):
            told = f"  planted_warps: seed {seed}, try {number}, {kernel}: {happened}, {found}"
            print(told, file=sys.stderr)
        counts[happened] += 1
    return counts


def _kernel(rng: random.Random, fault: str, number: int) -> Planted:
    """One that has a fault; without one, the kinds in turn."""
    if fault in _LOWERED or (not fault and number % 6 == 0):
        return _rows(rng)
    if fault in _BULK or (not fault and number % 6 == 1):
        return _bulk_ring(rng, _BULK.get(fault, ""))
    if fault in _GROUPS or (not fault and number % 6 == 2):
        return _group_product(rng, _GROUPS.get(fault, ""))
    if fault in split_sums.FAULTS or (not fault and number % 6 == 3):
        return _sums(rng)
    if fault in rings.FAULTS or (not fault and number % 6 == 4):
        return _ring(rng, fault)
    return _product(rng, fault)


def _ring(rng: random.Random, fault: str) -> Ring:
    wide, slots = rng.choice((1, 2, 4)), rng.randint(2, 5)
    threads = rng.randint(2, 40)
    missing = wide * rng.randrange(threads)
    tiles = slots + rng.randint(1, 6)
    return Ring(threads, wide, slots, tiles, missing, rng.choice(("float32", "int32")), fault)


def _bulk_ring(rng: random.Random, fault: str) -> BulkRing:
    """More tiles than slots, more warps than one: each fault shows."""
    least = 2 if fault == "copies never awaited" else 1  # one slot is filled with what is used next
    slots, box = rng.randint(least, 4), (rng.randint(2, 12), rng.choice((16, 32, 48)))
    first = rng.randint(-9, 3), 16 * rng.randint(-1, 1)
    return BulkRing(
        rng.randint(2, 3), box, slots, slots + rng.randint(2, 6), first,
        (rng.randint(8, 60), 48), rng.randint(1, 3), rng.random() < 0.5,
        rng.choice(("float32", "float16", "int8")), fault,
    )  # fmt: skip


def _product(rng: random.Random, fault: str) -> Product:
    return Product(rng.choice([*ATOMS]), rng.randint(1, 4), rng.randint(1, 4), fault)


def _group_product(rng: random.Random, fault: str) -> groups.Product:
    """More slices than slots: a slot that is refilled too early is one that is read."""
    return groups.Product(
        rng.choice(("m64n8k16.float16", "m64n16k16.bfloat16", "m64n8k8.tf32")), rng.randint(1, 2),
        rng.randint(groups.SLOTS + 1, groups.SLOTS + 2), rng.choice((64, 128)), fault,
    )  # fmt: skip


def _rows(rng: random.Random) -> Rows:
    """Several threads, several tiles: each fault shows."""
    slots, step = rng.randint(2, 5), rng.randint(2, 5)
    k = step * (slots + rng.randint(1, 6))
    threads = rng.randint(2, 3), rng.randint(2, 5)
    return Rows(
        rng.randint(2, 6), rng.randint(4, 9), k, step, rng.randint(0, 3), (slots, slots), threads
    )


def _sums(rng: random.Random) -> Sums:
    """Several blocks, several tiles, several threads with something to do."""
    tile, threads = rng.randint(4, 9), rng.randint(2, 4)
    n, blocks = tile * rng.randint(2, 4) + rng.randint(0, 3), rng.randint(2, 5)
    k = blocks * rng.randint(2, 5) + rng.randint(0, 3)
    return Sums(n, k, rng.randint(1, 2), blocks, tile, threads, rng.choice((1, 2, 4)))


def _found(kernel: Planted, fault: str) -> str:
    """What is said against it; "" for a kernel that gives what it must.

    fault: of `row_rings` or `split_sums`, which other kernels have themselves
    """
    if isinstance(kernel, Sums):
        program = split_sums.wrong(kernel, fault) if fault else split_sums.program(kernel)
        return _said(split_sums.ordered(program), *split_sums.arrays(kernel))
    if isinstance(kernel, Rows):
        if fault:
            return _said(row_rings.wrong(kernel, fault), *row_rings.arrays(kernel))
        right = lower_schedule(row_rings.schedule(kernel), row_rings.CUDA)
        return _said(right, *row_rings.arrays(kernel))
    if isinstance(kernel, BulkRing):
        whole = bulk_rings.program(kernel)
        return _said(whole, bulk_rings.arrays(kernel), bulk_rings.expected(kernel))
    if isinstance(kernel, groups.Product):
        given = groups.arrays(kernel)
        return _said(groups.program(kernel), given, groups.expected(kernel, given))
    of = rings if isinstance(kernel, Ring) else products
    program, arrays = of.program(kernel), of.arrays(kernel)  # type: ignore[arg-type]
    wanted = rings.expected(kernel) if isinstance(kernel, Ring) else None
    if isinstance(kernel, Product):
        wanted = products.expected(kernel, arrays)
    return _said(program, arrays, wanted)


def _said(program: Program, arrays: list[np.ndarray], wanted: np.ndarray | None) -> str:
    try:
        verify(program)
        run_fast(program, arrays)
    except (InternalError, InterpreterError) as error:
        return str(error)
    return "" if np.array_equal(arrays[-1], wanted) else "its result is wrong"


DRILL = Drill(
    name="planted_warps",
    tried="kernels with asynchronous copies, matrix instructions, groups of warps or blocks that"
    " join, every other one wrong",
    run=run,
    never=(*(f"missed: {f}" for f in _PLANTED), "right and refused"),
    always=(*(f"found: {f}" for f in _PLANTED), "right and accepted"),
    short=112,
    long=3000,
)
