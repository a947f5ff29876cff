"""A day of tuning in minutes: a fake device, a virtual clock, faults of machine and candidates.

Everything between proposals and log is real; only builds, trials and time are not.
"""

from __future__ import annotations

import random
import resource
import tempfile
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from drills.drill import Counts, Drill
from search.spaces import answer, flagship
from tilewright.base.artifact import Artifact, Source
from tilewright.base.errors import DeviceError
from tilewright.measure.database import Database
from tilewright.measure.jobs import Built, Cause, Job, RunJob, RunResult
from tilewright.measure.pipeline import Pipeline
from tilewright.search.loop import tune
from tilewright.search.report import Event, Options
from tilewright.targets.spec import DeviceSpec
from tilewright.targets.target import Target

T = TypeVar("T")
TRIAL_SECONDS = 10.0
TRIALS = 3600 / TRIAL_SECONDS  # an hour
BYTES = 5_000  # of memory for a trial, its record included
SLACK = 16_000_000  # bytes, by which memory may grow without reason
PLANTED = 0.05  # of the candidates fail by themselves
CALM = 100.0  # seconds between two troubles of the machine, at least


class World:
    """Builder, runner and clock in one: a device that comes and goes, workers that die."""

    n_parallel = 4

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.gone_until = self.calm_until = 0.0
        self.answer = answer(flagship())

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def describe(self, target: Target) -> DeviceSpec:
        return DeviceSpec(target.kind)

    def trouble(self) -> Cause | None:
        """What happens to the machine now, if anything."""
        if self.now < self.calm_until or self.rng.random() < 0.8:
            return None
        self.calm_until = self.now + CALM
        causes: tuple[Cause, ...] = ("unclear", "killed", "machine")
        return self.rng.choice(causes)

    def build(self, job: Job) -> Future[Built]:
        if (cause := self.trouble()) is not None:
            return _done(Built(None, "compile", "a worker died", cause=cause))
        return _done(Built(Artifact(Source("cuda", repr(job.decisions), "f", (), ()), b"")))

    def run(self, run: RunJob) -> Future[RunResult]:
        self.now += TRIAL_SECONDS
        if self.now < self.gone_until:
            return _done(RunResult(error="run", message="lost", fatal=True))
        if (cause := self.trouble()) is not None:
            self.gone_until = self.now + self.rng.choice([0, 0, 5, 20])
            return _done(RunResult(error="timeout", message="?", cause=cause, fatal=True))
        if _is_faulty(run.job):
            return _done(RunResult(error="run", message="segmentation fault", cause="unclear"))
        return _done(self.answer(run.job))

    def probe(self, target: Target) -> None:
        self.now += 1.0
        if self.now < self.gone_until:
            raise DeviceError("cuda(0)", "no such device")

    def close(self) -> None:
        """There is nothing to close."""


class Half:
    """One side of the world, as the pipeline wants it."""

    def __init__(self, world: World, submit: str) -> None:
        self.n_parallel = world.n_parallel if submit == "build" else 1
        self.submit = getattr(world, submit)
        self.describe, self.probe, self.close = world.describe, world.probe, world.close


def run(tries: int, seed: int) -> Counts:
    """tries: simulated hours"""
    world, counts = World(seed), Counter[str]()
    builder, runner = Half(world, "build"), Half(world, "run")
    sizes: list[int] = []
    consumed = 0

    def on_event(event: Event) -> None:
        nonlocal consumed
        consumed += event.kind == "trial"
        if event.kind == "trial" and len(sizes) < (consumed - 1) // TRIALS:
            sizes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)

    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.jsonl")
        with Database(log) as database, Pipeline(builder, runner, database) as pipeline:
            options = Options(
                trials=round(tries * TRIALS) + 1, tuner="random", negligible=0, leaders=0,
                fruitless=0, seed=seed,
            )  # fmt: skip
            tune(
                [flagship()], pipeline, database, options, on_event=on_event, verify=False,
                clock=world.clock, sleep=world.sleep,
            )  # fmt: skip
        written = Database.load(log)
    assert database.unwritten == 0
    for hour in range(tries):  # the first one loads what the others need, too
        allowed = SLACK + hour * TRIALS * BYTES
        counts[_hour(database, written, sizes[hour] - sizes[0] > allowed, hour)] += 1
    return counts


def _hour(database: Database, written: Database, grown: bool, hour: int) -> str:
    """What became of the trials of an hour."""
    mine = range(round(hour * TRIALS), round((hour + 1) * TRIALS))
    records, read = ([r for r in source if r.trial in mine] for source in (database, written))
    if {r.trial for r in read} != set(mine) or len(read) != len(records):
        return "records lost"
    if any(not r.result.ok and not _is_faulty(r) for r in records):
        return "candidate blamed"
    if any(r.result.ok and _is_faulty(r) for r in records):
        return "fault unseen"
    if grown:
        return "memory grew"
    return "all measured, memory flat"


def _is_faulty(of: object) -> bool:
    decisions = sorted(of.decisions.items())  # type: ignore[attr-defined]
    return random.Random(repr(decisions)).random() < PLANTED


def _done(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future


DRILL = Drill(
    name="long_run",
    tried="simulated hours of tuning",
    run=run,
    never=("records lost", "candidate blamed", "fault unseen", "memory grew"),
    always=("all measured, memory flat",),
    short=1,
    long=24,
)
