"""`publish`: what logs taught becomes a folder of knowledge, for this site or for the package.

In: logs.  Out: in a folder, for each class of device, the best record of each task and trees that
were trained on all records.  Publishing again into a folder adds to its records, and to its trees
others, which learn what those leave.  Read next: `knowledge/store.py`, which reads it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.base.errors import RecordError, TilewrightError
from tilewright.base.names import plain_name
from tilewright.knowledge.device_class import device_class
from tilewright.knowledge.install import write_index
from tilewright.knowledge.store import RECORDS, TREES
from tilewright.knowledge.trees import Trees
from tilewright.measure.database import Database, readable
from tilewright.measure.record import TaskId
from tilewright.runtime.device import local_target
from tilewright.search.propose.cost_model import CostModel, Options
from tilewright.search.propose.prior import both_of, by_kind, is_known, knows_atoms, trees_of
from tilewright.search.transfer import History, recall, teach
from tilewright.targets.target import Target

TREE_OPTIONS = Options(trees=120)
_FEW = 200  # measured candidates, below which trees teach nothing


@dataclass(frozen=True)
class Published:
    """Of one class of device: tasks that have a record now, trials that its trees learned from."""

    device_class: str
    tasks: int
    taught: int


@dataclass
class Report:
    """skipped: records that could not be filed under a class, by reason."""

    published: list[Published] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


def publish(
    logs: Sequence[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    device: str | None = None,
) -> Report:
    """Write the best records of `logs` to `folder`, and train trees on all of them.

    device: the class of device that all records are filed under, default: by the architecture that
            their target names, or that of this machine's device where they were measured on it
    Raises RecordError for a class that is no folder's name, a log that cannot be read, and where no
    record can be filed.
    """
    if device:
        plain_name(device, f"publish(device={device!r})", RecordError)
    database, report, folder = readable(*logs), Report(), Path(folder)
    by_class: dict[str, Database] = {}
    for identity in database.tasks():
        mine = [r for r in database.query(identity) if r.task.key == identity.key]
        try:
            name = device or _class_of(identity)
        except TilewrightError as error:
            report.skipped[error.reason] += len(mine)
            continue
        for record in mine:
            by_class.setdefault(name, Database()).append(record, database.dag_of(record))
    if not by_class:
        why = "; ".join(f"{n} x {reason}" for reason, n in report.skipped.most_common(3))
        raise RecordError(
            "publish", why or "the logs hold no records",
            "Publish where it was measured, or name the class of the device.",
        )  # fmt: skip
    for name, records in sorted(by_class.items()):
        report.published.append(_write(folder / name, name, records))
    write_index(folder)
    return report


def _class_of(identity: TaskId) -> str:
    """Raises RecordError for a device that is not here and has no architecture in its target."""
    target = Target(identity.target)
    if target.arch:
        return device_class(target)
    here, _ = local_target(target)
    if identity.fingerprint and here.fingerprint != identity.fingerprint:
        raise RecordError(
            f"task {identity.name}", f"it was measured on another device ({identity.fingerprint})",
            "Publish it there, or name the class of that device.",
        )  # fmt: skip
    return device_class(here)


def _write(place: Path, name: str, records: Database) -> Published:
    best = _best((records, *([Database.load(old)] if (old := place / RECORDS).exists() else ())))
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(
            f"publish to {place.parent}", error.strerror or str(error),
            "Name a folder that you may write to.",
        ) from None  # fmt: skip
    best.save(place / RECORDS)
    taught = _teach(place / TREES, recall(records))
    return Published(name, len(best), taught)


def _teach(path: Path, history: History) -> int:
    """Train trees on what logs tell and write them; returns the trials that they learned from.

    Kernels with matrix instructions and those without have trees of their own.  Trees that are in
    the file stay, and what they leave is learned.
    """
    old = Trees.load(path) if path.exists() else None
    known = None if old is None or not is_known(old) else old
    new: dict[bool, Trees | None] = {}
    taught = 0
    for atoms in (False, True):
        model = CostModel(TREE_OPTIONS)
        if known is not None:
            model.begin_with(known)
        teach(model, history, atoms)
        enough = len(model) >= _FEW
        new[atoms] = trees_of(model.booster) if enough else None
        taught += len(model) * enough
    if not taught:
        return 0
    plain, atoms_too = new[False], new[True]
    whole = plain if plain is not None and atoms_too is None else by_kind(plain, atoms_too)
    if known is not None:
        apart = knows_atoms(whole) and not knows_atoms(known)
        whole = both_of(by_kind(known, None) if apart else known, whole)
    whole.save(path)
    return taught


def _best(every: Iterable[Database]) -> Database:
    """The best record of each task, of whatever device."""
    joined, small = Database(), Database()
    for database in every:
        for best in database.distill():
            joined.append(best, database.dag_of(best))
    for key in dict.fromkeys(t.of_any_device for t in joined.tasks()):
        fastest = joined.best(key)
        if fastest is not None:
            small.append(fastest, joined.dag_of(fastest))
    return small
