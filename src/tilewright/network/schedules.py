"""Which schedule a kernel gets: the best record, one that ships, its anchor's, the one that is
predicted to be fastest, or the default.

In: schedule sources (logs), what is known of the class of device, and a kernel's computation.
Out: choices, the preferred one first, all of them on that very computation: a log says how to
compute, never what.
Read next: `ship.py`, which takes the first that compiles and computes the right thing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from statistics import median
from typing import Any

from tilewright.base import context
from tilewright.base.concurrency import cached_property
from tilewright.base.errors import ModelError, TilewrightError
from tilewright.measure.anchors import bests_by_anchor
from tilewright.measure.database import Database
from tilewright.measure.record import Key, NetworkLine, Record
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.task import ScheduleSource
from tilewright.schedule.template import (
    RegisteredAnchor,
    anchor_key,
    anchor_templates,
    find_anchor,
    sketch_of_anchor,
)
from tilewright.search.predictions import Predictions
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright_tvm.logs.history import History
from tilewright_tvm.logs.sources import source_of

RECORD, KNOWLEDGE, REINSTANTIATED = "record", "knowledge", "re-instantiated"
PREDICTED, DEFAULT = "predicted", "default"
_RECORDS = 3  # of a kernel that are tried
_TIMED = 16  # fastest candidates of a task among which a known schedule is looked for
_ANCHORS = 2  # records of other kernels whose template is tried on this one


@dataclass(frozen=True)
class Choice:
    """source: `RECORD`, `KNOWLEDGE`, `REINSTANTIATED`, `PREDICTED` or `DEFAULT`.

    schedule: of exactly the kernel's computation; or why there is none; None: the default schedule
    seconds:  of one call, as the record claims for this kernel
    """

    source: str
    schedule: Schedule | str | None
    seconds: float | None = None


def sources_of(schedules: Any) -> list[ScheduleSource]:
    """What `relay.build(schedules=)` may be as a list of sources, those that count more first.

    None: what `with autotvm.apply_history_best(log):` entered, innermost first.
    A path is read as a log, ours or AutoTVM's.  Raises RecordError for a file that is missing or of
    another program, ModelError for anything else.
    """
    if schedules is None:
        found = (s for s in context.every("dispatch") if isinstance(s, ScheduleSource))
        return [part for source in found for part in _parts(source)]
    if isinstance(schedules, (str, os.PathLike)):
        return [source_of(schedules)]
    if isinstance(schedules, ScheduleSource):
        return _parts(schedules)
    if isinstance(schedules, (list, tuple)):
        return [source for s in schedules for source in sources_of(s)]
    raise ModelError(
        f"relay.build(schedules={type(schedules).__name__})", "it has no lookup(dag, target)",
        "Give a log's path or a measure.Database.",
    )  # fmt: skip


def _parts(source: ScheduleSource) -> list[ScheduleSource]:
    """A source, and behind it what it has beside its records: logs of another program that it has
    read, and what it says of similar computations (`also`)."""
    foreign, also = getattr(source, "foreign", None), getattr(source, "also", None)
    behind = [foreign] if isinstance(foreign, History) and len(foreign) else []
    return [source, *behind, *([] if also is None else [also])]


@dataclass(frozen=True)
class _Log:
    """Records behind a source.

    names: spellings of targets whose records count; fingerprint: of the device whose records do,
    "": of any
    """

    database: Database
    names: tuple[str, ...]
    fingerprint: str
    label: str

    def keys(self, dag: str) -> list[Key]:
        """Of a computation's records."""
        return [Key(dag, name, self.fingerprint) for name in self.names]


@dataclass(frozen=True)
class _Judge:
    """Logs whose figures count; pace: what they are multiplied by."""

    logs: Sequence[_Log]
    pace: float


class Chooser:
    """Choices for kernels of one target.

    names:       the spellings of the target that records may carry
    fingerprint: of the device it is built for; "" where that is not known
    knowledge:   records of devices of its class, however their targets are spelled, which count
                 where the sources have none; then those of other classes
    predictions: of what none of them has; None: it runs its default schedule
    """

    def __init__(
        self,
        sources: Sequence[ScheduleSource],
        names: Sequence[str],
        fingerprint: str = "",
        knowledge: Sequence[Sequence[Database]] = (),
        predictions: Predictions | None = None,
    ) -> None:
        self.sources, self.fingerprint = sources, fingerprint
        self.knowledge, self.predictions = knowledge, predictions
        self.names = tuple(dict.fromkeys(names))
        databases = [d for d in map(_database, sources) if d is not None]
        self._own = [_Log(d, self.names, fingerprint, RECORD) for d in databases]
        self._known = [[_Log(d, _targets(d), "", KNOWLEDGE) for d in of] for of in knowledge]
        self._by_anchor: dict[int, dict[str, list[tuple[bool, Record]]]] = {}

    @cached_property
    def without_log(self) -> Chooser:
        """The same, as if there were no sources."""
        return Chooser((), self.names, self.fingerprint, self.knowledge, self.predictions)

    def confirmed(self, network: str) -> NetworkLine | None:
        """How this network was fastest as a whole on this device, as the last search found."""
        for log in self._own:
            for line in reversed(log.database.networks):
                same = line.network == network and line.target in self.names
                if same and line.fingerprint == self.fingerprint:
                    return line
        return None

    def choices(self, dag: ComputeDAG, target: Target) -> Iterator[Choice]:
        """Preferred first; the last one is the default schedule.

        Those that do not replay are among them, with the reason.
        """
        for source in self.sources:
            yield from self._exact(source, dag, target)
        for log in chain(*self._known):
            yield from self._recorded(log, dag)
        yield from islice(self._reinstantiated(dag, target), _ANCHORS)
        yield from self._predicted(dag, target)
        yield Choice(DEFAULT, None)

    def seconds(self, dag: ComputeDAG) -> float | None:
        """Of one call of this computation, as its best record claims; None where there is none."""
        return self._seconds(partial(self._best, dag))

    def best(self, dag: ComputeDAG) -> Record | None:
        """The fastest record of this computation."""
        return self._first(partial(self._best, dag))[0]

    def seconds_of_anchor(self, dag: ComputeDAG) -> float | None:
        """Of one call of what has the same anchor, as the best record claims."""
        return self._seconds(partial(self._best_of_anchor, dag))

    def expected_seconds(self, dag: ComputeDAG) -> float | None:
        """`seconds`, else `seconds_of_anchor`."""
        known = self.seconds(dag)
        return self.seconds_of_anchor(dag) if known is None else known

    def predicted_seconds(self, dag: ComputeDAG) -> float | None:
        """Of one call, by the trees of knowledge; None without them, or without a template."""
        found = self.predictions.get(dag) if self.predictions else None
        return None if found is None else found.seconds

    def best_of_anchor(self, dag: ComputeDAG) -> Record | None:
        """The fastest record of what has the same anchor."""
        return self._first(partial(self._best_of_anchor, dag))[0]

    def bests(self) -> list[tuple[str, float]]:
        """What `seconds` and `seconds_of_anchor` may tell: computations and seconds, sorted."""
        found = [
            (dag, record.seconds * judge.pace)
            for judge in self._judges
            for dag, record in self._fastest(judge.logs).items()
        ]
        return sorted(found)

    @property
    def has_records(self) -> bool:
        return bool(self._judges)

    @cached_property
    def _judges(self) -> list[_Judge]:
        """Whose figures are compared with each other: those of this device, and where it has none
        of a computation those of its class, then of the next one, at the pace of this device.  The
        pace is that of schedules that were timed on both; without any, this device's figures stand
        alone."""
        own = self._fastest(self._own)
        judges = [_Judge(self._own, 1.0)] if own else []
        for logs in self._known:
            known = self._fastest(logs)
            pace = self._pace(known) if own else 1.0
            judges += [_Judge(logs, pace)] if known and pace is not None else []
        return judges

    def _pace(self, known: Mapping[str, Record]) -> float | None:
        """What this device takes for one second of those whose records are `known`."""
        ratios = [
            mine.seconds / record.seconds
            for dag, record in known.items()
            for log in self._own
            for key in log.keys(dag)
            for mine in log.database.leaders(key, _TIMED)
            if _is_alike(mine, record)
        ]
        return median(ratios) if ratios else None

    def _seconds(self, find: Callable[[Sequence[_Log]], Record | None]) -> float | None:
        record, pace = self._first(find)
        return None if record is None else record.seconds * pace

    def _first(
        self, find: Callable[[Sequence[_Log]], Record | None]
    ) -> tuple[Record | None, float]:
        """What the first judge has that has anything, and its pace."""
        for judge in self._judges:
            record = find(judge.logs)
            if record is not None:
                return record, judge.pace
        return None, 1.0

    def _best(self, dag: ComputeDAG, logs: Sequence[_Log]) -> Record | None:
        every = ((log, key) for log in logs for key in log.keys(dag.hash))
        bests = [best for log, key in every if (best := log.database.best(key)) is not None]
        return min(bests, key=lambda r: r.seconds, default=None)

    def _best_of_anchor(self, dag: ComputeDAG, logs: Sequence[_Log]) -> Record | None:
        anchor = find_anchor(dag)
        if anchor is None:
            return None
        found = [r for _, r in self._with_anchor(logs, anchor_key(anchor)[0])]
        return min(found, key=lambda r: r.seconds, default=None)

    def _fastest(self, logs: Sequence[_Log]) -> dict[str, Record]:
        """The best record of every computation in the logs, on any device that counts."""
        found: dict[str, Record] = {}
        keys = {(log, key) for log in logs for t in log.database.tasks() for key in log.keys(t.dag)}
        for log, key in keys:
            best = log.database.best(key)
            known = found.get(key.dag)
            if best is not None and (known is None or best.seconds < known.seconds):
                found[key.dag] = best
        return found

    def task_names(self) -> set[str]:
        """Of all that was measured, for whatever target."""
        return {
            t.name for judge in self._judges for log in judge.logs for t in log.database.tasks()
        }

    def note(self) -> str:
        """Why the sources can have had nothing for this target; "" where they may have."""
        tasks = [t for log in self._own for t in log.database.tasks()]
        foreign = [s for s in self.sources if isinstance(s, History)]
        if any(name.split()[0] in s.kinds for s in foreign for name in self.names):
            return ""
        held = sorted({t.target for t in tasks}.union(*(s.kinds for s in foreign)))
        if held and not any(name in held for name in self.names):
            return f"the log holds records for {', '.join(held)}, none for {self.names[0]}"
        devices = sorted({t.fingerprint for t in tasks if t.target in self.names})
        if not devices or not self.fingerprint or {"", self.fingerprint} & set(devices):
            return ""
        return f"the log holds records of {', '.join(devices)}, none of this device"

    def imported(self) -> list[str]:
        """What logs of AutoTVM told."""
        found = [s for s in self.sources if isinstance(s, History)]
        return [
            "; ".join([f"{len(s)} configurations of AutoTVM's logs", *s.unusable.told()])
            for s in found
        ]  # fmt: skip

    def _exact(self, source: ScheduleSource, dag: ComputeDAG, target: Target) -> Iterator[Choice]:
        database = _database(source)
        if database is not None:
            yield from self._recorded(_Log(database, self.names, self.fingerprint, RECORD), dag)
            return
        found = source.lookup(dag, target)
        if found is not None:
            same, label = found.dag.hash == dag.hash, getattr(source, "label", RECORD)
            yield Choice(label, found if same else "it computes something else")

    def _recorded(self, log: _Log, dag: ComputeDAG) -> Iterator[Choice]:
        """The fastest records of this computation; the others are looked for when they fail."""
        keys = log.keys(dag.hash)
        bests = [best for key in keys if (best := log.database.best(key)) is not None]
        first = min(bests, key=lambda r: r.seconds, default=None)
        if first is None:
            return
        yield _replayed(log, first, dag)
        others = [r for key in keys for r in log.database.leaders(key, _RECORDS)]
        others = [r for r in others if r.candidate != first.candidate]
        for record in sorted(others, key=lambda r: r.seconds)[: _RECORDS - 1]:
            yield _replayed(log, record, dag)

    def _reinstantiated(self, dag: ComputeDAG, target: Target) -> Iterator[Choice]:
        """The anchor's template again, on this DAG, with the decisions of other DAGs' records."""
        templates = {t.origin: t for t in anchor_templates(dag, target)}
        anchor = find_anchor(dag)
        if not templates or anchor is None:
            return
        key, packable, own = *anchor_key(anchor), dag.hash
        for logs in (self._own, *self._known):
            usable = [
                (constant != packable, record.seconds, record)
                for constant, record in self._with_anchor(logs, key)
                if record.task.dag != own and record.origin in templates
            ]
            for _, _, record in sorted(usable, key=lambda item: item[:2]):
                with suppress(TilewrightError):
                    schedule = _close(templates[record.origin], record.decisions, dag, target)
                    yield Choice(REINSTANTIATED, schedule)

    def _predicted(self, dag: ComputeDAG, target: Target) -> Iterator[Choice]:
        """What the trees of knowledge say is the fastest of its templates."""
        found = self.predictions.get(dag) if self.predictions else None
        if found is not None:
            templates = {t.origin: t for t in anchor_templates(dag, target)}
            with suppress(TilewrightError):
                schedule = _close(templates[found.origin], found.decisions, dag, target)
                yield Choice(PREDICTED, schedule)

    def _with_anchor(self, logs: Sequence[_Log], structure: str) -> list[tuple[bool, Record]]:
        """The best record of each task with that anchor, and whether its operands are constant."""
        return [found for log in logs for found in self._index(log).get(structure, ())]

    def _index(self, log: _Log) -> dict[str, list[tuple[bool, Record]]]:
        found = self._by_anchor.get(id(log))
        if found is None:
            tasks = (t for t in log.database.tasks() if t.target in log.names)
            keys = (key for t in tasks for key in log.keys(t.dag))
            found = self._by_anchor[id(log)] = bests_by_anchor(log.database, keys)
        return found


def _close(
    template: RegisteredAnchor, decisions: Mapping[str, Any], dag: ComputeDAG, target: Target
) -> Schedule:
    """The template's schedule of another DAG.  Raises a TilewrightError where it has none."""
    sketch = sketch_of_anchor(template, dag, target)
    return sketch.close(sketch.space.index_of(decisions))


def _database(source: Any) -> Database | None:
    """The records behind a source; `apply_history_best` has them as `.database`."""
    inner = getattr(source, "database", source)
    return inner if isinstance(inner, Database) else None


def _is_alike(one: Record, other: Record) -> bool:
    """Whether both are of one candidate; on wider vectors its decisions give other steps."""
    (origin, decisions, steps), (*same, theirs) = one.candidate, other.candidate
    return [origin, decisions] == same and (bool(one.decisions) or steps == theirs)


def _targets(database: Database) -> tuple[str, ...]:
    """As its records spell them."""
    return tuple(sorted({task.target for task in database.tasks()}))


def _replayed(log: _Log, record: Record, dag: ComputeDAG) -> Choice:
    try:
        return Choice(log.label, log.database.replay(record, dag), record.seconds)
    except TilewrightError as error:
        return Choice(log.label, str(error))
