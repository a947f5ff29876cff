"""Searches are killed: the tuner, a worker, two of them at once, at random moments."""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from pathlib import Path

from drills._processes import Tuner, marked, signal_each
from drills.drill import Counts, Drill
from tilewright.measure.database import Database

SIZES = (16, 32, 16)  # 780 candidates
VICTIMS = ("tuner", "worker", "worker", "both workers", "tuner and worker")


def run(tries: int, seed: int) -> Counts:
    rng = random.Random(seed)
    counts: Counts = Counter()
    with tempfile.TemporaryDirectory() as folder:
        log, temporary = Path(folder, "log.jsonl"), Path(folder, "tmp")
        temporary.mkdir()
        tuner = _start(log, temporary)
        for n in range(tries):
            if not _has_work(tuner):  # all was measured: the next run begins anew
                assert tuner.end(60) == 0, tuner.said
                log.unlink()
                tuner = _start(log, temporary)
            time.sleep(rng.uniform(0, 0.8))
            victim = VICTIMS[n] if n < len(VICTIMS) else rng.choice(VICTIMS)
            workers = tuner.workers()
            rng.shuffle(workers)
            killed = workers if victim == "both workers" else workers[: "worker" in victim]
            signal_each([*[tuner.process.pid] * ("tuner" in victim), *killed])
            counts[_what_follows(tuner, victim, log, temporary)] += 1
            if "tuner" in victim:
                tuner = _start(log, temporary)
        signal_each([tuner.process.pid])
        tuner.end(10)
    return counts


def _start(log: Path, temporary: Path) -> Tuner:
    tuner = Tuner(log, 5.0, SIZES, TMPDIR=str(temporary))
    tuner.wait_for("trial")
    return tuner


def _has_work(tuner: Tuner) -> bool:
    return not tuner.wait_for("best", seconds=0) and tuner.process.poll() is None


def _what_follows(tuner: Tuner, victim: str, log: Path, temporary: Path) -> str:
    """What a kill has cost."""
    if "tuner" in victim:
        tuner.end(10)
        end = time.monotonic() + 5
        while (left := marked(tuner.mark)) and time.monotonic() < end:
            time.sleep(0.05)
        signal_each(left)
        if left:
            return "process orphaned"
    else:
        done = sum(line.startswith("trial") for line in tuner.said)
        if not tuner.wait_for("trial", done + 1) and not tuner.wait_for("best", seconds=10):
            return "search stopped"
    known = Database.load(log)
    told = {line for line in tuner.said if line.startswith("trial")}
    if told - {f"trial {sorted(record.decisions.items())}" for record in known}:
        return "record lost"
    if known.counts().failed:
        return "candidate blamed"
    if len(list(temporary.iterdir())) > 2:  # of this run, and of the one that was killed last
        return "leftovers kept"
    return f"{victim} killed, nothing lost"


DRILL = Drill(
    name="kills",
    tried="moments of kill -9",
    run=run,
    never=(
        "process orphaned", "search stopped", "record lost", "candidate blamed", "leftovers kept",
    ),
    always=("tuner killed, nothing lost", "worker killed, nothing lost"),
    short=3,
    long=200,
)  # fmt: skip
