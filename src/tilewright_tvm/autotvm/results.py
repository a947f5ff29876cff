"""What callbacks and histories hold: `MeasureInput`, `MeasureResult`, by AutoTVM's names.

In: records of the loop, pairs of the user's.  Out: each as the other side knows it.
Read next: `tuners.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from numbers import Real
from typing import Any, NamedTuple

from tilewright.base.errors import RecordError, SpaceError, TilewrightError
from tilewright.measure.database import Database
from tilewright.measure.record import (
    MOST_SECONDS,
    ErrorKind,
    Key,
    Record,
    Result,
    make_record,
)
from tilewright.schedule.space.config_space import ConfigEntity
from tilewright.schedule.task import Task
from tilewright.search.imported import Replays, member
from tilewright.search.jobs import task_id
from tilewright.search.propose.proposers import Candidate, Outcome, Past
from tilewright.search.transfer import History, recall

# AutoTVM's numbers for the kinds of failure.
ERROR_NUMBERS: dict[ErrorKind, int] = {
    "instantiate": 1, "compile": 2, "verify": 1, "run": 4, "wrong": 5, "timeout": 7,
}  # fmt: skip


class MeasureInput(NamedTuple):
    """What was measured: target, task and configuration."""

    target: Any
    task: Task
    config: ConfigEntity


class _ResultFields(NamedTuple):
    costs: tuple[Any, ...]
    error_no: int
    all_cost: float
    timestamp: float


class MeasureResult(_ResultFields):
    """costs: seconds per repeat, or one exception; error_no: 0 for success, see ERROR_NUMBERS;
    all_cost: wall seconds of build and trial; timestamp: since the epoch; record: the full record
    """

    record: Record | None = None

    def __repr__(self) -> str:
        fields = ", ".join(f"{n}={getattr(self, n)!r}" for n in self._fields)
        return f"MeasureResult({fields})"


class MeasureError(Exception):
    """In the costs of a result that failed: what went wrong."""


def measure_result(record: Record) -> MeasureResult:
    """A record as AutoTVM's callbacks expect it."""
    r = record.result
    costs: tuple[Any, ...] = r.costs
    if r.error is not None:
        first = r.message.strip().partition("\n")[0]
        costs = (MeasureError(f"{r.error}: {first}"),)
    number = 0 if r.error is None else ERROR_NUMBERS[r.error]
    result = MeasureResult(costs, number, r.build_s + r.run_s, record.timestamp)
    result.record = record
    return result


def record_of(given: MeasureInput, result: MeasureResult) -> Record:
    """The record that it is, or that a result made by hand stands for."""
    known = getattr(result, "record", None)
    if known is not None:
        assert isinstance(known, Record)
        return known
    if result.error_no == 0 and not all(map(_is_time, result.costs)):
        raise RecordError(
            f"MeasureResult(costs={result.costs!r:.60})", "no reader of a log would take these",
            "Give positive seconds, and an error_no for what failed.",
        )  # fmt: skip
    task, values = given.task, {name: entity.value for name, entity in given.config.items()}
    sketch = task.sketches[0]
    kinds = (kind for kind, n in ERROR_NUMBERS.items() if n == result.error_no)
    failed: ErrorKind = next(kinds, "run")
    outcome = (
        Result(costs=tuple(result.costs)) if result.error_no == 0
        else Result(error=failed, message=str(result.costs))
    )  # fmt: skip
    steps = sketch.close(sketch.space.index_of(values)).to_json() if outcome.ok else []
    return make_record(
        task_id(task), outcome, origin=sketch.origin, decisions=values, steps=steps,
        timestamp=result.timestamp,
    )  # fmt: skip


def _is_time(cost: Any) -> bool:
    return isinstance(cost, Real) and 0 < float(cost) < MOST_SECONDS


def outcome_of(candidate: Candidate, result: MeasureResult) -> Outcome:
    """A result as proposers are told it."""
    if result.error_no:
        return Outcome(candidate, float("inf"))
    costs = tuple(result.costs)
    return Outcome(candidate, sum(costs) / len(costs), costs)


def candidate_by_values(task: Task, config: ConfigEntity) -> Candidate | None:
    """The candidate of a configuration, by its values."""
    values = {name: entity.value for name, entity in config.items()}
    for sketch in task.sketches:
        try:
            return Candidate(sketch, sketch.space.index_of(values))
        except SpaceError:
            continue
    return None


def told(task: Task, data_set: Iterable[Any]) -> tuple[list[Outcome], History]:
    """What a history tells of `task`, and of other tasks on devices of its kind.

    data_set: see `Tuner.load_history`.  Raises SpaceError for an item of another sort.
    """
    own: dict[Candidate, Outcome] = {}
    database = Database()
    source = data_set if isinstance(data_set, Database) else getattr(data_set, "database", None)
    pairs: dict[tuple[str, str], Past] = {}
    replays = Replays(task, database if source is None else source)
    skipped: Counter[str] = Counter()
    for item in data_set:
        if isinstance(item, Record):
            if item.task.dag != task.key or item.task.target != str(task.target):
                database.append(item, None if source is None else source.dag(item.task.dag))
                continue
            outcome = _of_record(task, replays, item)
            if outcome is not None:
                own[outcome.candidate] = outcome
            continue
        given, result = _pair(item)
        candidate = candidate_by_values(given.task, given.config)
        if candidate is None:
            skipped["the task has no such configuration"] += 1
            continue
        key = Key(given.task.key, str(given.target))
        if key == Key(task.key, str(task.target)):
            candidate = candidate_by_values(task, given.config)
            if candidate is not None:
                own[candidate] = outcome_of(candidate, result)
        elif given.task.target.kind != task.target.kind:
            skipped[f"for {given.task.target.kind}, not {task.target.kind}"] += 1
        else:
            past = pairs.setdefault((key.dag, key.target), Past(given.task, key, []))
            past.outcomes.append(outcome_of(candidate, result))
    history = recall(database, task.target.kind)
    history.told += pairs.values()
    history.skipped += skipped
    return list(own.values()), history


def told_of(task: Task, data_set: Iterable[Any]) -> list[Outcome]:
    """What a history tells of `task` alone; data_set: as for `told`."""
    source = data_set if isinstance(data_set, Database) else getattr(data_set, "database", None)
    replays, found = Replays(task, Database() if source is None else source), []
    for item in data_set:
        if isinstance(item, Record):
            if item.task.dag == task.key and item.task.target == str(task.target):
                found.append(_of_record(task, replays, item))
            continue
        given, result = _pair(item)
        if given.task.key == task.key and str(given.target) == str(task.target):
            candidate = candidate_by_values(task, given.config)
            found.append(None if candidate is None else outcome_of(candidate, result))
    return list({o.candidate: o for o in found if o is not None}.values())


def _of_record(task: Task, replays: Replays, record: Record) -> Outcome | None:
    try:
        candidate = member(task, record) or replays.candidate(record)
    except TilewrightError:  # damaged, or of a computation with other names
        return None
    if candidate is None:
        return None
    return Outcome(candidate, record.seconds, record.result.costs)


def _pair(item: Any) -> tuple[MeasureInput, MeasureResult]:
    try:
        given, result = item
        given.task.key, given.config, result.costs, result.error_no  # noqa: B018
    except (TypeError, ValueError, AttributeError):
        raise SpaceError(
            "load_history", f"{item!r:.100} is no record",
            "Give a Database, records, or (MeasureInput, MeasureResult) pairs.",
        ) from None  # fmt: skip
    return given, result
