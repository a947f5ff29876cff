"""The same call here and of a peer: ONNX nodes in onnxruntime, PyTorch's operators in PyTorch,
relay's in numpy, over their whole attribute space.

A try is one call with random shapes, attributes and data (`draw.py`); what is compared, and how far
two values may be apart, is said in `case.py`, and what may differ in `known.py`.  Faults are
printed with a command that repeats them.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

import numpy as np

from drills.differential.case import DIFFERS, EQUAL, FAULTS, FOREIGN, REFUSED, Outcome
from drills.differential.sides import present, side
from drills.differential.worker import Spec, Worker
from drills.drill import Counts, Drill

SHRINKS = 12  # smaller cases that are looked at for one that shows the same
EVERY = 20.0  # seconds between lines of progress


def run(tries: int, seed: int) -> Counts:
    counts: Counts = Counter()
    found: Counts = Counter()
    worker = Worker()
    rng = np.random.default_rng(seed)
    begun = told = time.monotonic()
    names = {s: side(s).operators for s in present()}
    try:
        for done in range(tries):
            at = list(names)[done % len(names)]
            weights = np.array(list(names[at].values()), float)
            operator = str(rng.choice(list(names[at]), p=weights / weights.sum()))
            spec = (at, operator, int(rng.integers(1 << 31)), False)
            text, outcome = worker.judge(spec)
            counts[outcome.what] += 1
            if outcome.what in FAULTS:
                spec, text, outcome = _shrunk(worker, spec, text, outcome)
                print(_line(spec, text, outcome), file=sys.stderr, flush=True)
            elif outcome.what == REFUSED:
                found[f"{at} {operator}"] += 1
            if tries > 1000 and time.monotonic() - told > EVERY:
                told = time.monotonic()
                told_of = ", ".join(f"{n} {what}" for what, n in counts.most_common())
                print(f"[{told - begun:.0f} s] {done + 1} cases: {told_of}", file=sys.stderr)
    finally:
        worker.end()
    if tries > 1000:
        most = ", ".join(f"{n} {name}" for name, n in found.most_common(40))
        print(f"refused with a sentence, most: {most}", file=sys.stderr)
    return counts


def _shrunk(worker: Worker, spec: Spec, text: str, outcome: Outcome) -> tuple[Spec, str, Outcome]:
    """A case of smaller shapes that shows the same kind of fault, else the same one."""
    if outcome.what not in (DIFFERS, FOREIGN):
        return spec, text, outcome
    best = spec, text, outcome
    for k in range(SHRINKS):
        other = (*spec[:2], spec[2] + k, True)
        shorter, again = worker.judge(other)
        same = again.what == outcome.what and again.why[:24] == outcome.why[:24]
        if same and len(shorter) < len(best[1]):
            best = other, shorter, again
    return best


def _line(spec: Spec, text: str, outcome: Outcome) -> str:
    name, operator, seed, small = spec
    command = f"python -m drills.differential {name} {operator} {seed}{' small' if small else ''}"
    return f"{outcome.what}: {text}\n    {outcome.why[:400]}\n    {command}"


DRILL = Drill(
    name="differential",
    tried="calls compared with onnxruntime, PyTorch, numpy",
    run=run,
    never=FAULTS,
    always=(EQUAL,),
    short=150,
    long=20_000,
)
