"""Wrong copies and wrong warps: rings and products of random shapes, each fault in turn.

No device: the verifier and the interpreter must find what is wrong, and must accept what is right.
"""

from __future__ import annotations

import random
import sys
from collections import Counter

import numpy as np

from drills.drill import Counts, Drill
from tests.ir import products, rings
from tests.ir.products import Product
from tests.ir.rings import Ring
from tilewright.base.errors import InternalError
from tilewright.ir.atoms import ATOMS
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.interpreter_memory import InterpreterError
from tilewright.ir.verifier import verify

_PLANTED = [*rings.FAULTS, *products.FAULTS]


def run(tries: int, seed: int) -> Counts:
    """As many right kernels as wrong ones."""
    counts: Counts = Counter()
    for number in range(tries):
        fault = _PLANTED[number // 2 % len(_PLANTED)] if number % 2 else ""
        rng = random.Random(f"{seed} {number}")
        ring = fault in rings.FAULTS if fault else number % 4 == 0
        kernel = _ring(rng, fault) if ring else _product(rng, fault)
        found = _found(kernel)
        happened = f"found: {fault}" if fault and found else f"missed: {fault}"
        if not fault:
            happened = "right and refused" if found else "right and accepted"
        if happened.startswith(("missed", "right and refused")):
            told = f"  planted_warps: seed {seed}, try {number}, {kernel}: {happened}, {found}"
            print(told, file=sys.stderr)
        counts[happened] += 1
    return counts


def _ring(rng: random.Random, fault: str) -> Ring:
    wide, slots = rng.choice((1, 2, 4)), rng.randint(2, 5)
    threads = rng.randint(2, 40)
    missing = wide * rng.randrange(threads)
    tiles = slots + rng.randint(1, 6)
    return Ring(threads, wide, slots, tiles, missing, rng.choice(("float32", "int32")), fault)


def _product(rng: random.Random, fault: str) -> Product:
    return Product(rng.choice([*ATOMS]), rng.randint(1, 4), rng.randint(1, 4), fault)


def _found(kernel: Ring | Product) -> str:
    """What is said against it; "" for a kernel that gives what it must."""
    of = rings if isinstance(kernel, Ring) else products
    program, arrays = of.program(kernel), of.arrays(kernel)  # type: ignore[arg-type]
    try:
        verify(program)
        run_fast(program, arrays)
    except (InternalError, InterpreterError) as error:
        return str(error)
    wanted = rings.expected(kernel) if isinstance(kernel, Ring) else None
    if isinstance(kernel, Product):
        wanted = products.expected(kernel, arrays)
    return "" if np.array_equal(arrays[-1], wanted) else "its result is wrong"


DRILL = Drill(
    name="planted_warps",
    tried="kernels with asynchronous copies or matrix instructions, every other one wrong",
    run=run,
    never=(*(f"missed: {f}" for f in _PLANTED), "right and refused"),
    always=(*(f"found: {f}" for f in _PLANTED), "right and accepted"),
    short=60,
    long=3000,
)
