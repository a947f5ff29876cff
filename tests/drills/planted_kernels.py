"""Wrong kernels: each of fourteen mistakes is planted in random kernels, and must be refused.

A change that changes nothing (a guard that was needless, a barrier between what does not meet) is
no mistake: the interpreter decides, on inputs that verification does not use.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable

from drills._kernels import Bench, Kernel, bench, drawn, kinds, long_sums, tiles
from drills._mutations import MUTATIONS, harmful
from drills.drill import Counts, Drill
from tilewright.base.errors import TilewrightError

_DRAWS = 400  # of kernels, until one has a place for a mistake
_OF_A_GPU = ("missing barrier",)
_MADE_FOR: dict[str, Callable[[random.Random, str], Kernel]] = {
    "race": long_sums,
    "missing barrier": tiles,
}


def run(tries: int, seed: int) -> Counts:
    counts: Counts = Counter()
    pairs = [
        (mistake, kind) for mistake in MUTATIONS for kind in kinds()
        if kind != "llvm" or mistake not in _OF_A_GPU
    ]  # fmt: skip
    with bench() as on:
        for number in range(tries):
            mistake, kind = pairs[number % len(pairs)]
            happened = _try(on, mistake, kind, random.Random(f"{seed} {number}"))
            if not happened.startswith("refused"):
                told = f"  planted_kernels: seed {seed}, try {number}, {kind}: {happened}"
                print(told, file=sys.stderr)
            counts[happened] += 1
    return counts


def _try(on: Bench, mistake: str, kind: str, rng: random.Random) -> str:
    for _ in range(_DRAWS):
        wrong = _planted(mistake, kind, rng)
        if wrong is None:
            continue
        try:
            result = on.result(wrong, rng.randrange(1000))
        except TilewrightError:  # no text for it: no kernel
            continue
        return f"{'refused' if result.error else 'accepted'}: {mistake}"
    return f"no place for: {mistake}"


def _planted(mistake: str, kind: str, rng: random.Random) -> Kernel | None:
    """A random kernel with the mistake, or None if it has no place for one or does no harm."""
    draw = _MADE_FOR.get(mistake, drawn)
    try:
        wrong = MUTATIONS[mistake](draw(rng, kind), rng)
    except TilewrightError:  # a constant that its type does not hold
        return None
    races = mistake in _MADE_FOR
    return wrong if wrong is not None and harmful(wrong, rng.randrange(1000), races) else None


DRILL = Drill(
    name="planted_kernels",
    tried="planted wrong kernels",
    run=run,
    never=tuple(f"{what}: {m}" for m in MUTATIONS for what in ("accepted", "no place for")),
    always=("refused: missing term",),
    short=27,
    long=216,
)
