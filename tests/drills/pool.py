"""Parallel loops of random sizes on pools of random sizes, beside busy processes.

More threads than cores, workers that sleep at once or never, several callers at a time, loops in
loops, threads that sleep inside of chunks and between the pool's own steps, both ways to sleep,
after `fork`; a child process for each setting, with a deadline.  A loop is right when each of its
iterations ran once, and had ended when the loop had.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from drills.drill import Counts, Drill

_CHILD = Path(__file__).with_name("_pool_child.py")
_LOOPS = 2_000  # of a child
_SECONDS = 60  # for them; they take less than one where nothing else runs
_BUSY = "while True: pass"


def run(tries: int, seed: int) -> Counts:
    rng, counts = random.Random(seed), Counts()
    for number in range(-(-tries // _LOOPS)):
        setting = {
            "seed": rng.getrandbits(32),
            "loops": min(_LOOPS, tries - counts.total()),
            "callers": rng.choice([1, 1, 2, 3, 6]),
            "threads": rng.choice([2, 3, 8]),
            "spin_ns": rng.choice([0, 20_000, 500_000]),
            "futex": number % 4 != 3,
            "fork": number % 3 == 2,
            "stretch": number % 2 == 1,
            "seconds": _SECONDS,
        }
        counts += _child(setting, busy=rng.choice([0, 0, 2]))
    return counts


def _child(setting: dict[str, int], busy: int) -> Counts:
    """What happened to each loop of one child."""
    with ExitStack() as stack:
        for _ in range(busy):
            process = subprocess.Popen([sys.executable, "-c", _BUSY])
            stack.callback(process.wait)
            stack.callback(process.kill)
        done = subprocess.run(
            [sys.executable, str(_CHILD), json.dumps(setting)],
            capture_output=True, text=True, timeout=3 * _SECONDS, check=False,
        )  # fmt: skip
    if done.returncode:
        return Counter({"hung" if "Timeout" in done.stderr else "died": setting["loops"]})
    suffix = ", forked" if setting["fork"] else ""
    return Counter({name + suffix: n for name, n in json.loads(done.stdout).items()})


DRILL = Drill(
    name="pool",
    tried="parallel loops on busy cores",
    run=run,
    never=("wrong", "wrong, forked", "hung", "died"),
    always=("once, by several threads", "once, by several threads, forked"),
    short=8_000,
    long=100_000,
)
