"""A process that judges cases, one after another, each within its time.

In: (side, operator, seed, small).  Out: an `Outcome`; one that ends no more, or whose process
dies, is one, too.  Read next: `__main__.py`.
"""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

import numpy as np

from drills.differential import known
from drills.differential.case import BEYOND, DIFFERS, FOREIGN, HANGS, STATED, Outcome, judged
from drills.differential.draw import Draw
from drills.differential.sides import NEEDS, side

SECONDS = 60.0
START = 120.0
FRESH = 400  # cases of one process, so that none of them grows without end

Spec = tuple[str, str, int, bool]  # side, operator, seed, small


def outcome(spec: Spec) -> tuple[str, Outcome]:
    """The text of the case and what became of it."""
    name, operator, seed, small = spec
    numbers = [seed, *operator.encode(), *name.encode()]
    case = side(name).make(operator, Draw(numbers, small))
    found = judged(case, np.random.default_rng(numbers))
    if found.what in (DIFFERS, FOREIGN, BEYOND):
        line = known.stated(name, operator, case.text, found.why)
        if line is not None:
            return case.text, Outcome(STATED, line.reason)
    return case.text, found


def _serve(link: Any) -> None:
    while True:
        spec = link.recv()
        if spec is None:
            return
        try:
            link.send(outcome(spec))
        except Exception as error:  # of the generator itself
            link.send(("", Outcome(FOREIGN, f"the drill: {type(error).__name__}: {error}")))


class Worker:
    """Starts its process when it is first asked, and again where it was lost."""

    def __init__(self) -> None:
        self._process: Any = None
        self._link: Any = None
        self._left = 0

    def judge(self, spec: Spec, seconds: float = SECONDS) -> tuple[str, Outcome]:
        if self._process is None or self._left == 0:
            self.end()
            context = multiprocessing.get_context("spawn")
            self._link, other = context.Pipe()
            self._process = context.Process(target=_serve, args=(other,), daemon=True)
            self._process.start()
            other.close()
            self._left, seconds = FRESH, seconds + START
        self._left -= 1
        self._link.send(spec)
        try:
            if self._link.poll(seconds):
                found: tuple[str, Outcome] = self._link.recv()
                return found
            why = f"no answer within {seconds:.0f} s"
        except (EOFError, ConnectionError):
            why = "the process died"
        self.end()
        return "", Outcome(HANGS, why)

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = None


def main(arguments: list[str]) -> int:
    """One case in this process: SIDE OPERATOR SEED [small]."""
    if len(arguments) not in (3, 4) or arguments[0] not in NEEDS:
        print("python -m drills.differential SIDE OPERATOR SEED [small]", file=sys.stderr)
        return 2
    text, found = outcome((arguments[0], arguments[1], int(arguments[2]), len(arguments) == 4))
    print(f"{text}\n{found.what}: {found.why}")
    return 0
