"""What logs tell of workloads, and how they are written; the lines are this project's.

In: the path of a log.  Out: the best record of a workload, or why there is none.  Read next:
`measure/database.py`, `pairs.py` (the names users type).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import IO, Any

from msgspec.structs import replace

from tilewright.base.errors import RecordError
from tilewright.measure.database import Database, readable
from tilewright.measure.formats import Workloads
from tilewright.measure.importing import import_lines, log_lines
from tilewright.measure.record import Key, NetworkLine, Record, RunLine
from tilewright.measure.sources import key_of, nothing_valid
from tilewright.targets.spec import DeviceSpec
from tilewright_tvm.auto_scheduler.compute_dag import ComputeDAG
from tilewright_tvm.auto_scheduler.results import MeasureInput, MeasureResult, record_of
from tilewright_tvm.auto_scheduler.workload_registry import knows, normal

Path = str | os.PathLike[str]


class RecordToFile:
    """A measure callback: every trial, failures included, becomes a line of the file.

    Lines are written as soon as a trial is over, so a run may be stopped at any time.  The file's
    folder is made where it is missing.  Raises RecordError where the file cannot be written.
    """

    def __init__(self, filename: Path) -> None:
        self.filename = os.fspath(filename)
        make_folder(filename)
        self.database = Database(filename)

    def callback(
        self, policy: object, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        """Add trials by hand; a search writes its own at once."""
        for given, result in zip(inputs, results, strict=True):
            record = record_of(given, result)
            self.database.append(record, given.dag.to_json() if given.dag else None)


def read_log(filename: Path) -> Database:
    """The records of a log of ours; of one of TVM those of computations that this process knows by
    their workload keys, which nobody verified.

    Raises RecordError for a file that is missing, or of which no line can be used.
    """
    own = Database.load(filename)
    if len(own) or not own.skipped:
        return readable(filename)
    found = Database()
    report = import_lines(log_lines(filename), found, Workloads(lookup=_computation))
    told = "; ".join(report.unusable.told())
    if not len(found):
        raise RecordError(
            f"log {os.fspath(filename)!r}", f"no line can be read ({told})",
            "Register its workload functions here; `tilewright records import` reads lines of "
            "networks, too.",
        )  # fmt: skip
    if report.unusable:
        warnings.warn(f"log {os.fspath(filename)!r}: skipped {told}", RuntimeWarning, stacklevel=3)
    return found


def _computation(workload_key: str) -> ComputeDAG | None:
    return ComputeDAG(workload_key) if knows(workload_key) else None


def trials_of(database: Database, count: int | None = None) -> Iterator[Record]:
    """Each trial once, oldest first, with its final timing where it has one.

    A search times its leaders again at the end: that is no trial, but the last word on one.
    count: the first so many only.  Raises RecordError for a number below 0
    """
    if count is not None and count < 0:
        raise RecordError(f"n_lines={count}", "there are no fewer than 0", "Leave it out for all.")
    return islice(_trials(database), None if count is None else min(count, len(database)))


def _trials(database: Database) -> Iterator[Record]:
    final = {(r.key, r.candidate): r for r in database.query(final=True)}
    told = set()
    for record in database:
        identity = (record.key, record.candidate) if final else None
        if identity not in final:
            yield record
        elif identity not in told:
            told.add(identity)
            yield replace(record, result=final[identity].result)


def best_record(
    database: Database,
    filename: Path,
    hashes: set[str] | None,
    target: str | None,
    what: str,
    device: DeviceSpec | None = None,
) -> Record:
    """The best record of the computations `hashes` on `target` and `device` (None: all)."""
    fitting = [
        t for t in database.tasks()
        if (hashes is None or t.dag in hashes) and (target is None or t.target == target)
    ]  # fmt: skip
    fingerprint = "" if device is None else device.fingerprint
    keys = {Key(t.dag, t.target, fingerprint) for t in fitting}
    bests = [best for key in keys if (best := database.best(key)) is not None]
    best = min(bests, key=lambda r: (r.seconds, r.key), default=None)
    if best is None and any(database.best(t) for t in fitting):
        devices = ", ".join(sorted({t.fingerprint for t in fitting}))
        raise RecordError(
            f"log {os.fspath(filename)!r}", f"its records of {what} are of {devices}",
            "Tune on this device.",
        )  # fmt: skip
    if best is None:
        raise nothing_valid(database, filename, fitting, target, what)
    return best


def hashes_of(database: Database, workload_key: str) -> set[str]:
    """Hashes of the computations in the log that a key may stand for."""
    key = normal(workload_key)
    known = {ComputeDAG(key).hash} if knows(key) else set()
    if known:
        return known
    found = {t.dag for t in database.tasks() if key_of(t) == key}
    if found:
        return found
    dags = {t.dag: dag_of(database, t.dag) for t in database.tasks()}
    return {name for name, dag in dags.items() if dag is not None and dag.workload_key() == key}


def dag_of(database: Database, key: str) -> ComputeDAG | None:
    """The computation of a hash, where the log tells it and this version can read it."""
    found = database.computation(key)
    return None if found is None else ComputeDAG(found)


def make_folder(filename: Path) -> None:
    """Make the folder of a file that is to be written.  Raises RecordError where that cannot be."""
    try:
        os.makedirs(os.path.dirname(os.path.abspath(filename)), exist_ok=True)
    except OSError as error:
        raise _unwritable(filename, error) from None


@contextmanager
def writing(filename: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """A text file to write to; its folder is made.  Raises RecordError where that cannot be."""
    make_folder(filename)
    try:
        with open(filename, mode, encoding="utf-8") as f:
            yield f
    except OSError as error:
        raise _unwritable(filename, error) from None


def _unwritable(filename: Path, error: OSError) -> RecordError:
    return RecordError(
        f"file {os.fspath(filename)!r}", f"it cannot be written ({error.strerror or error})",
        "Name a file in a folder that you may write to.",
    )  # fmt: skip


class Log(Database):
    """What a search knows and finds: in memory, and in every file that a `RecordToFile` names."""

    files: Sequence[Database] = ()

    def append(self, record: Record, dag: object = None) -> None:
        super().append(record, dag)
        self._each(lambda file: file.append(record, dag))

    def note(self, line: RunLine | NetworkLine) -> None:
        super().note(line)
        self._each(lambda file: file.note(line))

    def flush_files(self) -> None:
        """What could not be written is saved elsewhere.  Raises RecordError, which says where."""
        self._each(lambda file: file.flush())

    def _each(self, act: Callable[[Database], None]) -> None:
        """A file that cannot be written keeps nothing from the others."""
        failed: RecordError | None = None
        for file in self.files:
            try:
                act(file)
            except RecordError as error:
                failed = error
        if failed is not None:
            raise failed
