"""What is known of kernels before they are built: records of this device and its class, guesses.

In: sources of schedules (logs), records of knowledge, trees.  Out: for a computation its records
and what a call takes.  It is the one table that every decision of a build asks.
Read next: `decide.py`, `schedules.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from tilewright.base import context
from tilewright.base.concurrency import cached_property
from tilewright.base.errors import ModelError
from tilewright.measure.anchors import bests_by_anchor
from tilewright.measure.database import Database
from tilewright.measure.record import Key, NetworkLine, Record
from tilewright.measure.sources import source_of
from tilewright.schedule.task import ScheduleSource
from tilewright.schedule.template import anchor_key, find_anchor, look_for_templates
from tilewright.search.predictions import Predictions
from tilewright.te.dag import ComputeDAG

_TIMED = 16  # fastest candidates of a task among which a known schedule is looked for


def sources_of(schedules: Any) -> list[ScheduleSource]:
    """Give what `relay.build(schedules=)` may be as a list of sources, those that count more first.

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
    """A source, and behind it what it has beside its records: what logs of other programs recommend
    (`foreign`), and what it says of similar computations (`also`)."""
    foreign, also = getattr(source, "foreign", None), getattr(source, "also", None)
    return [source, *([foreign] if foreign else []), *([] if also is None else [also])]


@dataclass(frozen=True)
class Log:
    """Records that count.

    names: spellings of targets whose records count; fingerprint: of the device whose records do,
    "": of any
    """

    database: Database
    names: tuple[str, ...]
    fingerprint: str

    def keys(self, dag: str) -> list[Key]:
        """Give the keys of a computation's records."""
        return [Key(dag, name, self.fingerprint) for name in self.names]


@dataclass(frozen=True)
class _Tier:
    """Logs whose figures are compared with each other.

    scale: from their seconds to those of this device
    """

    logs: Sequence[Log]
    scale: float


class Evidence:
    """Knows records and predictions of kernels for one target.

    sources:     preferred first
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
        self.own = [log for s in sources if (log := self.log_of(s)) is not None]
        look_for_templates(origin for log in self.own for origin in log.database.origins())
        self.known = [[Log(d, _targets(d), "") for d in of] for of in knowledge]
        self._by_anchor: dict[int, dict[str, list[tuple[bool, Record]]]] = {}

    @cached_property
    def without_log(self) -> Evidence:
        """The same, as if there were no sources."""
        return Evidence((), self.names, self.fingerprint, self.knowledge, self.predictions)

    def log_of(self, source: Any) -> Log | None:
        """Give the records behind a source; `apply_history_best` has them as `.database`."""
        inner = getattr(source, "database", source)
        return Log(inner, self.names, self.fingerprint) if isinstance(inner, Database) else None

    # -- networks ----------------------------------------------------------------------------------
    def confirmed(self, network: str) -> NetworkLine | None:
        """Give the way in which this network was fastest as a whole on this device, as the last
        search found."""
        for log in self.own:
            for line in reversed(log.database.networks):
                same = line.network == network and line.target in self.names
                if same and line.fingerprint == self.fingerprint:
                    return line
        return None

    def task_names(self) -> set[str]:
        """Give the names of all that was measured, for whatever target."""
        return {t.name for tier in self._tiers for log in tier.logs for t in log.database.tasks()}

    # -- kernels -----------------------------------------------------------------------------------
    @property
    def has_records(self) -> bool:
        return bool(self._tiers)

    def seconds(self, dag: ComputeDAG) -> float | None:
        """Give what one call of this computation takes, as its best record claims; None where there
        is none."""
        return self._seconds(partial(self._best, dag))

    def best(self, dag: ComputeDAG) -> Record | None:
        """Give the fastest record of this computation."""
        return self._first(partial(self._best, dag))[0]

    def seconds_of_anchor(self, dag: ComputeDAG) -> float | None:
        """Give what one call of what has the same anchor takes, as the best record claims."""
        return self._seconds(partial(self._best_of_anchor, dag))

    def best_of_anchor(self, dag: ComputeDAG) -> Record | None:
        """Give the fastest record of what has the same anchor."""
        return self._first(partial(self._best_of_anchor, dag))[0]

    def expected_seconds(self, dag: ComputeDAG) -> float | None:
        """Give `seconds`, else `seconds_of_anchor`."""
        known = self.seconds(dag)
        return self.seconds_of_anchor(dag) if known is None else known

    def predicted_seconds(self, dag: ComputeDAG) -> float | None:
        """Give what one call takes by the trees of knowledge; None without them, or without a
        template."""
        found = self.predictions.get(dag) if self.predictions else None
        return None if found is None else found.seconds

    def bests(self) -> list[tuple[str, float]]:
        """Give all that `seconds` and `seconds_of_anchor` may tell: computations and seconds,
        sorted."""
        found = [
            (dag, record.seconds * tier.scale)
            for tier in self._tiers
            for dag, record in self._fastest(tier.logs).items()
        ]
        return sorted(found)

    def with_anchor(self, logs: Sequence[Log], structure: str) -> list[tuple[bool, Record]]:
        """Give the best record of each task with that anchor, and whether its operands are
        constant."""
        return [found for log in logs for found in self._index(log).get(structure, ())]

    def _index(self, log: Log) -> dict[str, list[tuple[bool, Record]]]:
        found = self._by_anchor.get(id(log))
        if found is None:
            tasks = (t for t in log.database.tasks() if t.target in log.names)
            keys = (key for t in tasks for key in log.keys(t.dag))
            found = self._by_anchor[id(log)] = bests_by_anchor(log.database, keys)
        return found

    @cached_property
    def _tiers(self) -> list[_Tier]:
        """Records of this device, and for computations of which it has none those of its class,
        then of the next one, in seconds of this device.  Their scale is that of schedules that were
        timed on both; without any, this device's figures stand alone."""
        own = self._fastest(self.own)
        tiers = [_Tier(self.own, 1.0)] if own else []
        for logs in self.known:
            known = self._fastest(logs)
            scale = self._scale(known) if own else 1.0
            tiers += [_Tier(logs, scale)] if known and scale is not None else []
        return tiers

    def _scale(self, known: Mapping[str, Record]) -> float | None:
        """What this device takes for one second of those whose records are `known`."""
        ratios = [
            mine.seconds / record.seconds
            for dag, record in known.items()
            for log in self.own
            for key in log.keys(dag)
            for mine in log.database.leaders(key, _TIMED)
            if _is_alike(mine, record)
        ]
        return median(ratios) if ratios else None

    def _seconds(self, find: Callable[[Sequence[Log]], Record | None]) -> float | None:
        record, scale = self._first(find)
        return None if record is None else record.seconds * scale

    def _first(self, find: Callable[[Sequence[Log]], Record | None]) -> tuple[Record | None, float]:
        """What the first tier has that has anything, and its scale."""
        for tier in self._tiers:
            record = find(tier.logs)
            if record is not None:
                return record, tier.scale
        return None, 1.0

    def _best(self, dag: ComputeDAG, logs: Sequence[Log]) -> Record | None:
        every = ((log, key) for log in logs for key in log.keys(dag.hash))
        bests = [best for log, key in every if (best := log.database.best(key)) is not None]
        return min(bests, key=lambda r: r.seconds, default=None)

    def _best_of_anchor(self, dag: ComputeDAG, logs: Sequence[Log]) -> Record | None:
        anchor = find_anchor(dag)
        if anchor is None:
            return None
        found = [r for _, r in self.with_anchor(logs, anchor_key(anchor)[0])]
        return min(found, key=lambda r: r.seconds, default=None)

    def _fastest(self, logs: Sequence[Log]) -> dict[str, Record]:
        """The best record of every computation in the logs, on any device that counts."""
        found: dict[str, Record] = {}
        keys = {(log, key) for log in logs for t in log.database.tasks() for key in log.keys(t.dag)}
        for log, key in keys:
            best = log.database.best(key)
            known = found.get(key.dag)
            if best is not None and (known is None or best.seconds < known.seconds):
                found[key.dag] = best
        return found

    # -- for people --------------------------------------------------------------------------------
    def notes(self) -> list[str]:
        """Say what logs of other programs told."""
        return [s.told() for s in self.sources if hasattr(s, "told")]

    def mismatch(self) -> str:
        """Say why the sources can have had nothing for this target; "" where they may have."""
        tasks = [t for log in self.own for t in log.database.tasks()]
        kinds = set[str]().union(*(getattr(s, "kinds", ()) for s in self.sources))
        if any(name.split()[0] in kinds for name in self.names):
            return ""
        held = sorted({t.target for t in tasks} | kinds)
        if held and not any(name in held for name in self.names):
            return f"the log holds records for {', '.join(held)}, none for {self.names[0]}"
        devices = sorted({t.fingerprint for t in tasks if t.target in self.names})
        if not devices or not self.fingerprint or {"", self.fingerprint} & set(devices):
            return ""
        return f"the log holds records of {', '.join(devices)}, none of this device"


def _targets(database: Database) -> tuple[str, ...]:
    """As its records spell them."""
    return tuple(sorted({task.target for task in database.tasks()}))


def _is_alike(one: Record, other: Record) -> bool:
    """Whether both are of one candidate; on wider vectors its decisions give other steps."""
    (origin, decisions, steps), (*same, theirs) = one.candidate, other.candidate
    return [origin, decisions] == same and (bool(one.decisions) or steps == theirs)
