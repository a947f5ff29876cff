"""A process that judges cases, one after another, each within its time.

In: (side, operator, seed, small).  Out: an `Outcome`; one that ends no more, or whose process
dies, is one, too.  Read next: `__main__.py`.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from drills.differential import known
from drills.differential.case import BEYOND, DIFFERS, FOREIGN, HANGS, STATED, Outcome, judged
from drills.differential.draw import Draw
from drills.differential.sides import NEEDS, side

SECONDS = 60.0  # of the processor: a machine that is busy with others is no hang
START = 60.0  # more for the first case of a process, which imports both sides
WAITING = 10  # times as long by the clock: what sleeps for ever uses no processor
LOOK = 0.5
FRESH = 400  # cases of one process, so that none of them grows without end

ANY = "drawn"  # operator of a side, as the seed says
Spec = tuple[str, str, int, bool]  # side, operator, seed, small
Answer = tuple[str, str, Outcome]  # operator, text of the case, what became of it


def outcome(spec: Spec) -> Answer:
    """The operator, the text of the case and what became of it."""
    name, asked, seed, small = spec
    operator = _drawn(name, seed) if asked == ANY else asked
    numbers = [seed, *operator.encode(), *name.encode()]
    case = side(name).make(operator, Draw(numbers, small))
    found = judged(case, np.random.default_rng(numbers))
    if found.what in (DIFFERS, FOREIGN, BEYOND):
        line = known.stated(name, operator, case.text, found.why)
        if line is not None:
            found = Outcome(STATED, line.reason)
    return operator, case.text, found


def _drawn(name: str, seed: int) -> str:
    operators = side(name).operators
    weights = np.array(list(operators.values()), float)
    rng = np.random.default_rng(seed)
    return str(rng.choice(list(operators), p=weights / weights.sum()))


def _serve(link: Any) -> None:
    while True:
        spec = link.recv()
        if spec is None:
            return
        try:
            link.send(outcome(spec))
        except Exception as error:  # of the generator itself
            link.send(
                (spec[1], "", Outcome(FOREIGN, f"the drill: {type(error).__name__}: {error}"))
            )


def _used(pid: int) -> float:
    """Seconds of the processor that a process has used, all its threads together; 0 where the
    system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Worker:
    """Starts its process when it is first asked, and again where it was lost."""

    def __init__(self) -> None:
        self._process: Any = None
        self._link: Any = None
        self._left = 0

    def judge(self, spec: Spec, seconds: float = SECONDS) -> Answer:
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
            if self._answers(seconds):
                found: Answer = self._link.recv()
                return found
            why = f"no answer within {seconds:.0f} s"
        except (EOFError, ConnectionError):
            why = "the process died"
        self.end()
        return spec[1], "", Outcome(HANGS, why)

    def _answers(self, seconds: float) -> bool:
        begun, before = time.monotonic(), _used(self._process.pid)
        while not self._link.poll(LOOK):
            spent = _used(self._process.pid) - before
            if spent > seconds or time.monotonic() - begun > WAITING * seconds:
                return False
        return True

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = None


def main(arguments: list[str]) -> int:
    """One case in this process: SIDE, OPERATOR or "drawn", SEED, and "small" or not."""
    if len(arguments) not in (3, 4) or arguments[0] not in NEEDS:
        print("python -m drills.differential SIDE OPERATOR SEED [small]", file=sys.stderr)
        return 2
    _, text, found = outcome((arguments[0], arguments[1], int(arguments[2]), len(arguments) == 4))
    print(f"{text}\n{found.what}: {found.why}")
    return 0
