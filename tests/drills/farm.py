"""A farm of three devices: a server or the tracker is killed or frozen in the middle of trials."""

from __future__ import annotations

import random
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

from drills.drill import Counts, Drill
from farm.processes import Farm
from measure.kernels import job, reference
from tilewright.farm.runner import FarmRunner
from tilewright.measure.jobs import RunJob
from tilewright.measure.local import LocalBuilder
from tilewright.measure.reference import ReferenceStore

VICTIMS = ("server killed", "tracker killed", "server frozen")
TRIALS = 9


def run(tries: int, seed: int) -> Counts:
    rng = random.Random(seed)
    counts: Counts = Counter()
    build = "tilewright.measure.calls:build_source"
    with tempfile.TemporaryDirectory() as folder, ReferenceStore() as store:
        with LocalBuilder(build_func=build, n_parallel=1, timeout=60) as builder:
            stored = reference(store)
            built = builder.submit(job("good", stored)).result()
        trial = RunJob(job("good", stored), built.artifact, race=False)
        farm = Farm(Path(folder))
        try:
            servers = farm.serve("k", "k", "k")
            with FarmRunner(
                "k", "127.0.0.1", farm.port, timeout=30, number=1, repeat=1, cooldown_interval=0.1,
                on_notice=lambda text: None,
            ) as runner:  # fmt: skip
                for n in range(tries):
                    victim = VICTIMS[n] if n < len(VICTIMS) else rng.choice(VICTIMS)
                    futures = [runner.submit(trial) for _ in range(TRIALS)]
                    time.sleep(rng.uniform(0, 0.5))
                    _break(farm, servers, victim, rng)
                    counts[_what_follows(victim, [f.result(120) for f in futures])] += 1
                    _mend(farm, servers, victim)
        finally:
            farm.stop()
    return counts


def _break(farm: Farm, servers: list, victim: str, rng: random.Random) -> None:
    if victim == "tracker killed":
        farm.tracker.kill()
        farm.restart_tracker()
        return
    rng.shuffle(servers)
    servers[0].send(signal.SIGKILL if victim == "server killed" else signal.SIGSTOP)


def _mend(farm: Farm, servers: list, victim: str) -> None:
    if victim == "server killed":
        servers[0].kill()
        servers[:1] = farm.serve("k")
    elif victim == "server frozen":
        servers[0].send(signal.SIGCONT)


def _what_follows(victim: str, results: list) -> str:
    if any(r.cause == "machine" for r in results):
        return "trial lost"
    if any(r.error is not None for r in results):
        return "candidate blamed"
    return f"{victim}, nothing lost"


DRILL = Drill(
    name="farm",
    tried="faults of a device farm",
    run=run,
    never=("trial lost", "candidate blamed"),
    always=("server killed, nothing lost",),
    short=3,
    long=50,
)
