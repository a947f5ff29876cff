"""Right kernels: random schedules of random computations, in every element type, are accepted."""

from __future__ import annotations

import random
import sys
from collections import Counter

from codegen.typed_operators import OPERATORS
from drills._kernels import Kernel, bench, drawn, kinds, of_dag
from drills.drill import Counts, Drill
from tilewright.base.errors import ExpressionError
from tilewright.te.dag import ComputeDAG

_TYPED = [(name, dtype) for name, (_, types) in OPERATORS.items() for dtype in types]


def run(tries: int, seed: int) -> Counts:
    counts: Counts = Counter()
    with bench() as on:
        for number in range(tries):
            rng = random.Random(f"{seed} {number}")
            kind = kinds()[number % len(kinds())]
            kernel = _typed(rng, kind) if number % 4 >= 2 else None
            result = on.result(kernel or drawn(rng, kind), rng.randrange(1000))
            if result.error:
                told = f"  sound_kernels: seed {seed}, try {number}, {kind}: {result.message}"
                print(told, file=sys.stderr)
            counts["refused" if result.error else "accepted"] += 1
    return counts


def _typed(rng: random.Random, kind: str) -> Kernel | None:
    name, dtype = rng.choice(_TYPED)
    try:
        return of_dag(ComputeDAG(OPERATORS[name][0](dtype)), rng, kind)
    except ExpressionError:  # sums of int16 that int32 may not hold
        return None


DRILL = Drill(
    name="sound_kernels",
    tried="right kernels",
    run=run,
    never=("refused",),
    always=("accepted",),
    short=12,
    long=2000,
)
