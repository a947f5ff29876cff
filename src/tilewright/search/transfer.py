"""What other tasks, shapes and devices taught: logs as something for a model to start from.

In: logs of this project or of TVM.  Out: measured candidates of every computation in them that this
version can rebuild, as rows for a cost model, and the fastest of the very same computations, to be
tried first.  What is of no use is counted by reason.  A log tells how to compute; what is computed
comes from its own description of the computation, whose hash is worked out again.
Read next: `loop.py` (`tune(history=)`), `imported.py`.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from tilewright.base.errors import RecordError, TilewrightError
from tilewright.cost.features import Matrix, Vector, with_atoms
from tilewright.measure.database import Database, readable
from tilewright.measure.formats import Workloads
from tilewright.measure.importing import import_lines, log_lines
from tilewright.measure.lines import from_log
from tilewright.measure.record import Record, TaskId
from tilewright.schedule.task import Task, create, task_of_dag
from tilewright.search.imported import Replays, member
from tilewright.search.propose.cost_model import CostModel
from tilewright.search.propose.model_proposer import evaluate, rows_key
from tilewright.search.propose.proposers import Candidate, Outcome, Past
from tilewright.search.rules.derive import with_rules
from tilewright.targets.target import Target

REPLAYED = 400  # records of a computation, at most: each takes some ten milliseconds


@dataclass
class History:
    """told: what models learn from; skipped: records that are of no use, by reason

    records: of all computations, usable or not
    """

    told: list[Past] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    records: dict[str, list[Record]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(len(past.outcomes) for past in self.told)

    def text(self) -> str:
        """One line for the user."""
        tasks = len({past.key.dag for past in self.told})
        found = f"The model starts from {self.rows} trials of {tasks} computations."
        if self.skipped:
            why = "; ".join(f"{n} x {reason}" for reason, n in self.skipped.most_common(3))
            found += f"  {self.skipped.total()} trials of the history cannot be used: {why}"
        return found


def read_history(paths: Sequence[str | os.PathLike[str]], tasks: Sequence[Task] = ()) -> Database:
    """The records of logs of Tilewright and of TVM together; nothing is written to them.

    tasks: which lines of TVM's may be about, beside what function templates are registered for
    Raises RecordError for a file that is missing, or of which no line can be used.
    """
    foreign = {path: _imported(path, tasks) for path in paths}
    own = [path for path, found in foreign.items() if found is None]
    database = readable(*own) if own else Database()
    for found in foreign.values():
        for record in found or ():
            assert found is not None
            database.append(record, found.dag_of(record))
    return database


def _imported(path: str | os.PathLike[str], tasks: Sequence[Task]) -> Database | None:
    """What a log of TVM holds; None for a log of Tilewright."""
    database = Database.load(path)
    if len(database) or not database.skipped:
        return None
    found = Database()
    report = import_lines(log_lines(path), found, Workloads(tasks=tasks))
    if not len(found):
        raise RecordError(
            f"history {os.fspath(path)!r}",
            f"no line can be used ({'; '.join(report.unusable.told())})",
            "`tilewright records import` finds more lines of TVM's, with the network they are of.",
        )
    if report.unusable:
        told = "; ".join(report.unusable.told())
        warnings.warn(f"history {os.fspath(path)!r}: skipped {told}", RuntimeWarning, stacklevel=3)
    return found


def recall(database: Database, kind: str | None = None) -> History:
    """What `database` tells of any computation.

    kind: of devices whose trials count: a model knows CPUs or GPUs of one family.  None: all
    """
    history = History()
    for identity in database.tasks():
        mine = [r for r in database.query(identity) if r.task.key == identity.key]
        history.records.setdefault(identity.dag, []).extend(mine)
        made = identity.target.strip().partition(" ")[0]
        if kind is not None and made != kind:
            history.skipped[f"for {made}, not {kind}"] += len(mine)
            continue
        try:
            with from_log(f"task {identity.name}"):
                task = _task(database, identity, mine)
                outcomes = list(_outcomes(task, database, mine, history.skipped))
        except TilewrightError as error:
            history.skipped[error.reason] += len(mine)
            continue
        if outcomes:
            history.told.append(Past(task, identity.key, outcomes))
    return history


def teach(model: CostModel, history: History, atoms: bool | None = None) -> None:
    """Add all that was told to a model that tasks share, and fit it.

    atoms: only kernels with matrix instructions, or only those without; None: all
    """
    for past in history.told:
        key = f"{rows_key(past.task)} {past.key.fingerprint}"
        features, machine, measured = described(past)
        mine = np.ones(len(machine), bool) if atoms is None else with_atoms(features) == atoms
        model.add(key, features[mine], machine[mine], measured[mine])
    model.fit()


def described(past: Past) -> tuple[Matrix, Vector, Vector]:
    """Features, machine model's seconds and measured seconds of what was measured."""
    parts: list[tuple[Matrix, Vector, Vector]] = []
    for sketch, mine in past.by_sketch().items():
        indices = np.array([o.candidate.index for o in mine], np.int64)
        parts.append((*evaluate(sketch, indices), np.array([o.seconds for o in mine])))
    features, machine, measured = (np.concatenate(part) for part in zip(*parts, strict=True))
    return features, machine, measured


def _task(database: Database, identity: TaskId, records: Sequence[Record]) -> Task:
    """The task that was measured.  Raises RecordError where the log does not tell it."""
    target = Target(identity.target)
    named = _named(identity, target)
    if named is not None:
        return named
    dag = database.computation(identity.dag)
    if dag is None:
        raise RecordError(
            f"task {identity.name}", "the log does not tell its computation",
            "Logs that searches write do.",
        )  # fmt: skip
    found = task_of_dag(dag, target, identity.name, tuple(identity.args))
    known = {sketch.origin for sketch in found.sketches}
    by_rules = any(r.origin not in known and ":" in r.origin for r in records)
    return with_rules(found) if by_rules else found


def _named(identity: TaskId, target: Target) -> Task | None:
    """The task of a function template that this process knows by that name."""
    try:
        task = create(identity.name, identity.args, target)
    except TilewrightError:
        return None
    except Exception:  # the template is the user's, its arguments are a log's
        return None
    return task if task.key == identity.dag else None


def _outcomes(
    task: Task, database: Database, records: Sequence[Record], skipped: Counter[str]
) -> Iterator[Outcome]:
    """One for each candidate: what was measured last.

    Records that are no member of a sketch are replayed by their steps, one by one: of many, some.
    """
    found: dict[Candidate, Outcome] = {}
    others: list[Record] = []
    for record in records:
        candidate = None
        with suppress(TilewrightError):  # it is damaged: its steps will tell
            candidate = member(task, record)
        if candidate is None:
            others.append(record)
        else:
            found[candidate] = _outcome(candidate, record)
    replays, every = Replays(task, database), -(-len(others) // REPLAYED) or 1
    if every > 1:
        skipped[f"more than {REPLAYED} lists of steps"] += len(others) - len(others[::every])
    for record in others[::every]:
        try:
            candidate = replays.candidate(record)
        except TilewrightError as error:
            skipped[error.reason] += 1
            continue
        found[candidate] = _outcome(candidate, record)
    return iter(found.values())


def _outcome(candidate: Candidate, record: Record) -> Outcome:
    return Outcome(candidate, record.seconds, record.result.costs)
