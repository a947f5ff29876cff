"""The trials of a log, by task, with the time that searches had run by then.

In: a `Database`.  Out: `Trial`s and what is told of each task.  Of an enormous log every n-th
record is read, beside the best of each task, so that a report of it takes seconds.
Read next: `collect.py`; `knobs.py`, which reads decisions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tilewright.measure.database import Database
from tilewright.measure.record import Key, Record, RunLine, TaskId
from tilewright.reporting.model import Trial

MOST = 120_000  # records that are read
PAUSE = 600.0  # seconds without a record, after which a search that nobody noted had ended


@dataclass
class Told:
    """Of one task: its trials as they finished, and decisions of those that ran, by origin."""

    task: TaskId
    number: int
    trials: list[Trial] = field(default_factory=list)
    decisions: dict[str, list[tuple[float, bytes]]] = field(default_factory=dict)


@dataclass
class Trials:
    """length: seconds that searches ran; devices: names; every: of how many records one was read"""

    tasks: dict[Key, Told]
    devices: list[str]
    length: float
    every: int
    versions: dict[str, str]
    first: float
    last: float


def trials_of(database: Database, runs: Sequence[RunLine]) -> Trials:
    """Read a log's records once."""
    tasks = {task.key: Told(task, number) for number, task in enumerate(database.tasks())}
    records = database.records
    every = math.ceil(len(records) / MOST) or 1
    devices: dict[str, int] = {}
    versions: dict[str, str] = {}
    found: list[tuple[Told, Record]] = []
    for at, record in enumerate(records):
        told = tasks.get(record.key)
        if told is None or record.is_imported or at % every:
            continue
        versions.update(record.versions)
        found.append((told, record))
    found.sort(key=lambda pair: pair[1].timestamp)
    clock = _Clock([run.timestamp for run in runs])
    for told, record in found:
        result, seconds = record.result, record.seconds
        elapsed = clock.elapsed(record.timestamp, result.run_s + result.build_s)
        number = devices.setdefault(record.device, len(devices))
        told.trials.append(
            Trial(
                record.timestamp, record.trial, elapsed, seconds, result.predicted,
                result.error or "", result.raced, result.final,
                result.verified and result.same_as is None, result.build_s, result.run_s,
                result.builder, result.built, number,
            )
        )  # fmt: skip
        if result.ok and not result.final:
            known = told.decisions.setdefault(record.origin, [])
            known.append((seconds, bytes(record.decisions_json)))
    times = [record.timestamp for _, record in found]
    return Trials(
        tasks, list(devices), clock.now, every, versions, min(times, default=0.0),
        max(times, default=0.0),
    )  # fmt: skip


class _Clock:
    """Time of searches: what lies between the end of one and the begin of the next does not count.

    begins: when searches began, as far as a log tells
    """

    def __init__(self, begins: Iterable[float]) -> None:
        self._begins = sorted(begins, reverse=True)
        self._last: float | None = None
        self.now = 0.0

    def elapsed(self, at: float, spent: float) -> float:
        """Of a record at that time, which took so many seconds; in order of time."""
        since = self._last
        while self._begins and self._begins[-1] <= at:
            since = self._begins.pop()
        if since is None or at - since > PAUSE:
            since = at - min(spent, PAUSE)
        self.now += at - since
        self._last = at
        return self.now
