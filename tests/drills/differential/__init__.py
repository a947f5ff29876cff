"""The same call here and of a peer: ONNX nodes in onnxruntime, PyTorch's operators in PyTorch,
relay's in numpy, over their whole attribute space.

A try is one call with random shapes, attributes and data (`draw.py`); what is compared, and how far
two values may be apart, is said in `case.py`, and what may differ in `known.py`.  Faults are
printed with a command that repeats them.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache

import numpy as np

from drills.differential.case import DIFFERS, EQUAL, FAULTS, FOREIGN, Outcome
from drills.differential.sides import present
from drills.differential.worker import ANY, Spec, Worker
from drills.drill import Counts, Drill

SHRINKS = 12  # smaller cases that are looked at for one that shows the same
SHORT = 80
# PyTorch exports in the time of a hundred others, so a short run has few calls of it
SHARES = {"onnx": 12, "relay": 12, "torch": 1}
OF_LONG = {"onnx": 4, "relay": 3, "torch": 3}


@cache
def _worker() -> Worker:
    return Worker()


def run(tries: int, seed: int) -> Counts:
    counts: Counts = Counter()
    rng = np.random.default_rng(seed)
    names = present()
    shares = np.array([(SHARES if tries <= SHORT else OF_LONG)[s] for s in names], float)
    for _ in range(tries):
        at = str(rng.choice(names, p=shares / shares.sum()))
        spec = (at, ANY, int(rng.integers(1 << 31)), False)
        operator, text, outcome = _worker().judge(spec)
        spec = (at, operator, *spec[2:])
        counts[outcome.what] += 1
        if outcome.what in FAULTS:
            print(_line(*_shrunk(_worker(), spec, text, outcome)), file=sys.stderr, flush=True)
    return counts


def _shrunk(worker: Worker, spec: Spec, text: str, outcome: Outcome) -> tuple[Spec, str, Outcome]:
    """A case of smaller shapes that shows the same kind of fault, else the same one."""
    if outcome.what not in (DIFFERS, FOREIGN):
        return spec, text, outcome
    best = spec, text, outcome
    for k in range(SHRINKS):
        other = (*spec[:2], spec[2] + k, True)
        _, shorter, again = worker.judge(other)
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
    short=SHORT,
    long=20_000,
)
