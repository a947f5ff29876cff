"""`Database`: all records of a log, appended to a file of JSON lines.

In: `Record`s.  Out: the best of a task, counts, a histogram of failures.  In memory is a row for
each record (`contents.py`); records that are in a file are decoded when they are asked for.
Several processes may append to one file; a damaged line is skipped and counted.
Read next: `record.py`, `index.py`, `pipeline.py`.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from tilewright.base.concurrency import lock
from tilewright.base.errors import RecordError, TilewrightError
from tilewright.base.output import check, replacing
from tilewright.measure.computations import Computations, Place
from tilewright.measure.contents import FINAL, OK
from tilewright.measure.failures import Failure, histogram
from tilewright.measure.index import contents_of
from tilewright.measure.lines import DAMAGE, Skipped
from tilewright.measure.record import (
    LOG,
    Candidate,
    Key,
    Line,
    NetworkLine,
    Record,
    RunLine,
    TaskId,
    encode,
    own_versions,
)
from tilewright.measure.record_table import Changed, LogFile, Records, Table
from tilewright.measure.rescue import can_be_made, not_written, save_elsewhere, unwritable
from tilewright.te.dag import ComputeDAG

if TYPE_CHECKING:
    from tilewright.schedule.schedule import Schedule
    from tilewright.targets.target import Target

T = TypeVar("T")


@dataclass(frozen=True)
class Counts:
    """skipped: lines that were not read, by reason."""

    records: int
    ok: int
    failed: int
    tasks: int
    skipped: dict[str, int]


class Database:
    """Records by task, and the log file they are appended to.  Safe to share between threads.

    It is a `schedule.task.ScheduleSource`: `lookup` gives the best schedule of a computation.

    path:          the log; read now; where it is missing, the first line creates it; None: memory
                   only; a file that is no log is refused with a RecordError
    fsync_seconds: lines older than this survive a power failure (killing a process loses none)
    on_error:      called with the first RecordError of a series of failing writes, which is
                   otherwise raised; the record is in memory, and written as soon as it can be
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        fsync_seconds: float = 1.0,
        on_error: Callable[[RecordError], None] | None = None,
    ) -> None:
        self.path = None if path is None else Path(path)
        self.skipped = Skipped()
        self.on_error = on_error
        self._table = Table()
        self._runs: list[RunLine | NetworkLine | Place] = []
        self._dags = Computations()
        self._computations: dict[str, list[ComputeDAG]] = {}
        self._lock = lock()
        self._file: int | None = None
        self._log: LogFile | None = None  # the same file, to read from
        self._unwritten: list[tuple[bytes, int | None]] = []  # lines, rows of their records
        self._failing = False
        self._reason = ""  # why the last write failed
        self._rescued: Path | None = None  # what `flush` could not write
        self._torn = False  # the file ends inside a line
        self._fsync_seconds, self._synced = fsync_seconds, time.monotonic()
        self._closed = False
        if self.path is not None:
            check(self.path, LOG, f"log {self.path}", RecordError)
        if self.path is not None and not can_be_made(self.path):
            try:
                self._file = self._open(self.path)
            except OSError as error:
                raise unwritable(self.path, error) from None
            if self.path.is_file():  # a pipe or a device is only written to
                self._log = self._read(self.path)

    @property
    def records(self) -> Records:
        """All records, oldest first: log after log, then what was appended."""
        return Records(self._table)

    @property
    def runs(self) -> list[RunLine]:
        """The tuning runs that the logs tell of."""
        return [line for line in self._told_of_runs() if isinstance(line, RunLine)]

    @property
    def networks(self) -> list[NetworkLine]:
        """How networks were fastest as wholes, oldest first."""
        return [line for line in self._told_of_runs() if isinstance(line, NetworkLine)]

    def _told_of_runs(self) -> list[Line]:
        return self._asked(lambda: [r.line() if isinstance(r, Place) else r for r in self._runs])

    @classmethod
    def load(cls, *paths: str | os.PathLike[str]) -> Self:
        """The records of existing logs; nothing is written to them.

        Raises RecordError for a missing file.
        """
        database = cls()
        for path in paths:
            if Path(path).exists() and not Path(path).is_file():
                raise RecordError(f"Database.load({str(path)!r})", "it is not a file")
            database._read(Path(path))
        return database

    def check_readable(self, place: str) -> None:
        """Raises RecordError for a log that has lines, but none that can be read."""
        if len(self._table) or not self.skipped:
            return
        skipped = "; ".join(self.skipped.told())
        raise RecordError(
            place, f"no line can be read ({skipped})",
            "Give a log of Tilewright; `tilewright records import` reads those of TVM.",
        )  # fmt: skip

    def append(self, record: Record, dag: Any = None) -> None:
        """Add a record, in memory and to the file.

        dag: `ComputeDAG.to_json()` of its task, with the names that its steps use; written the
             first time that it is seen
        Raises RecordError the first time that the file cannot be written (the disk is full).
        """
        lines: list[tuple[bytes, int | None]] = []
        line = encode(record)
        with self._lock:
            told = None if dag is None else self._dags.add(record.task.dag, dag)
            if told is not None:
                lines.append((encode(told), None))
                self._computations.pop(record.task.dag, None)
            row = self._table.append(record)
            self._write([*lines, (line, row)])

    def note_run(self, **options: Any) -> None:
        """Write down the options of a tuning run that starts now."""
        self.note(RunLine(options=options, timestamp=time.time(), versions=own_versions()))

    def note(self, line: RunLine | NetworkLine) -> None:
        """Write down a line that is no record."""
        encoded = encode(line)
        with self._lock:
            self._runs.append(line)
            self._write([(encoded, None)])

    def best(
        self, task: TaskId | Key | tuple[str, str], origin: str | None = None
    ) -> Record | None:
        """The fastest verified record of a task, or None.

        Where the task names a device, the records of that device count; where there are none, those
        of a device that is not known, as logs have that are older than fingerprints.  They never
        beat the device's own, and those of other devices do not count.  Where the task names no
        device, all count.

        A candidate that was wrong once is out for good; one with a `final` timing counts with its
        last one, and not at all if that failed.
        One that did not run because its program equals another's leaves the honour to that one.

        origin: of the records that take part; default: all
        """

        def best() -> Record | None:
            for entries in self._table.by_preference(_key(task)):
                every = [self._table.best(entry, origin) for entry in entries]
                found = min(filter(None, every), key=lambda r: r.seconds, default=None)
                if found is not None:
                    return found
            return None

        return self._asked(best)

    def leaders(self, task: TaskId | Key | tuple[str, str], count: int) -> list[Record]:
        """The fastest candidates among those of which `best` gives the first, at most `count`."""

        def leaders() -> list[Record]:
            for entries in self._table.by_preference(_key(task)):
                by_candidate: dict[Candidate, Record] = {}
                for record in heapq.merge(
                    *map(self._table.fastest, entries), key=lambda r: r.seconds
                ):
                    by_candidate.setdefault(record.candidate, record)
                    if len(by_candidate) == count:
                        break
                if by_candidate:
                    return list(by_candidate.values())
            return []

        return self._asked(leaders)

    def lookup(self, dag: ComputeDAG, target: Target) -> Schedule | None:
        """The schedule of the best record of exactly this computation and target, or None.

        Where the target is that of a real device (`Target.on`), its device counts, see `best`.
        """
        record = self.best(Key(dag.hash, str(target), target.fingerprint))
        return None if record is None else self.replay(record, dag)

    def replay(self, record: Record, dag: ComputeDAG) -> Schedule:
        """The schedule of a record of `dag`, on `dag`: what it computes is never taken from a log.

        Steps name stages and axes.  Where those of the computation that was measured have other
        names, the schedule is of a copy of `dag` with these: of those that are told, and of `dag`,
        the first whose names the steps fit.  Raises a TilewrightError where they fit none.
        """
        return self._replayed(record, dag)[0]

    def dag_of(self, record: Record) -> Any:
        """`ComputeDAG.to_json()` of a record's task, with the names that its steps use, or None
        where no line tells it: what `append` wants where it goes to another log."""
        every = list(self._dags.told(record.task.dag))
        known = self._truly(record.task.dag) if len(every) > 1 else []
        if len(known) < 2:  # nothing to choose
            return every[0] if every else None
        try:
            return self._replayed(record, known[0])[1].to_json()
        except TilewrightError:  # of another version, or damaged
            return every[0]

    def _replayed(self, record: Record, dag: ComputeDAG) -> tuple[Schedule, ComputeDAG]:
        """The schedule, and whose names its steps use."""
        from tilewright.schedule.schedule import Schedule

        failure: TilewrightError | None = None
        for measured in (*self._truly(dag.hash), dag):
            try:
                named = dag.named_as(measured.to_json())
                return Schedule.replay(named, record.steps), named
            except TilewrightError as error:
                failure = failure or error
        assert failure is not None
        raise failure

    def tasks(self) -> list[TaskId]:
        """Every task with records, once per device, in the order of their first ones."""
        with self._lock:
            entries = self._table.entries.values()
            return [
                self._table.tasks[self._table.rows[e.rows[0]]["task"]] for e in entries if e.rows
            ]

    def keys(self, name: str, args: list[Any], target: str) -> set[Key]:
        """What the records are found by that carry these labels."""
        with self._lock:
            every = [t for t in self._table.tasks if t.name == name and t.target == target]
        return {task.key for task in every if task.args == args}

    def query(
        self,
        task: TaskId | Key | tuple[str, str] | None = None,
        *,
        name: str | None = None,
        target: str | None = None,
        origin: str | None = None,
        ok: bool | None = None,
        final: bool | None = None,
    ) -> list[Record]:
        """The records that fit everything given, oldest first.

        task: where it names a device, records of that device, and of one that is not known
        """
        table = self._table

        def chosen() -> list[Record]:
            numbers, entries = np.arange(len(table)), []
            if task is not None:
                entries = [e for es in table.by_preference(_key(task)) for e in es]
                numbers = np.concatenate(
                    [np.empty(0, np.int64), *(np.array(e.rows) for e in entries)]
                )
            rows = table.rows[numbers]
            fits = np.ones(len(rows), bool)
            if ok is not None:
                fits &= (rows["flags"] & OK != 0) == ok
            if final is not None:
                fits &= (rows["flags"] & FINAL != 0) == final
            if name is not None or target is not None:
                named = [name in (None, t.name) and target in (None, t.target) for t in table.tasks]
                fits &= np.array([*named, False])[rows["task"]]
            if origin is not None:
                fits &= np.array([*(o == origin for o in table.origins), False])[rows["origin"]]
            found = [table.record(row) for row in numbers[fits].tolist()]
            return sorted(found, key=lambda r: r.timestamp) if len(entries) > 1 else found

        return self._asked(chosen)

    def tally(self, task: TaskId | Key | tuple[str, str]) -> tuple[int, int]:
        """How many records `query` would give of a task, and how many of them failed."""
        with self._lock:
            entries = [e for es in self._table.by_preference(_key(task)) for e in es]
            rows = [row for entry in entries for row in entry.rows]
            ok = int(np.count_nonzero(self._table.rows["flags"][np.array(rows, np.int64)] & OK))
        return len(rows), len(rows) - ok

    def origins(self) -> list[str]:
        """Every origin that a record has."""
        return list(self._table.origins)

    def dag(self, hash: str) -> Any:
        """`ComputeDAG.to_json()` of a task, or None where no line tells it."""
        return next(self._dags.told(hash), None)

    def computation(self, hash: str) -> ComputeDAG | None:
        """The computation of that hash, where a line tells it, truly, and this version can read it.

        A computation whose hash is another one is none.
        """
        return next(iter(self._truly(hash)), None)

    def _truly(self, hash: str) -> list[ComputeDAG]:
        """That computation in each way in which its operations are named."""
        if hash not in self._computations:
            self._computations[hash] = []
            for data in self._dags.told(hash):
                why = "it cannot be read"
                try:
                    found = ComputeDAG.from_json(data)
                    if found.hash == hash:
                        self._computations[hash].append(found)
                        continue
                    why = "its hash is another"
                except (TilewrightError, *DAMAGE):
                    pass
                self.skipped[f"a computation: {why}"] += 1
        return self._computations[hash]

    def counts(self) -> Counts:
        total = len(self._table)
        ok = int(np.count_nonzero(self._table.rows["flags"] & OK))
        return Counts(total, ok, total - ok, len(self.tasks()), dict(self.skipped))

    def failures(self) -> list[Failure]:
        """What went wrong, most frequent first."""
        return histogram(self.query(ok=False))

    def distill(self) -> Database:
        """The best record of each task on each device, with its computation, in memory, and the
        last line of each network."""
        small = Database()
        for line in {(n.network, n.target, n.fingerprint): n for n in self.networks}.values():
            small.note(line)
        table = self._table
        for best in self._asked(lambda: [table.best(e) for e in list(table.entries.values())]):
            if best is not None:
                small.append(best, self.dag_of(best))
        return small

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to `path`, which is replaced only when all is written.

        Raises RecordError where it cannot be written, and where a file is there that is no log.
        """
        every: Iterable[Line] = chain(self._told_of_runs(), self._dags.lines(), self.records)
        lines = map(encode, every)
        with replacing(path, LOG, f"log {path}", RecordError) as made, open(made, "wb") as f:
            f.writelines(lines)

    def flush(self) -> None:
        """Write what could not be written before, and wait for the disk.

        Where that cannot be, what is missing is saved elsewhere.  Raises RecordError, whether or
        not there is an `on_error`: it says where.
        """
        with self._lock:
            if self._closed or (self._file is None and not self._unwritten):
                return
            self._failing = True  # all is said here
            self._write([])
            if self._file is not None:
                self._sync()
            earlier, self._rescued = self._rescued, None
            if self._unwritten and self.path is not None:
                self._rescued = save_elsewhere(self.path, self._missing())
            if earlier is not None and (self._rescued is not None or not self._unwritten):
                earlier.unlink(missing_ok=True)
            if self._unwritten and self.path is not None:
                raise not_written(self.path, self._reason, self._missing(), self._rescued)

    def close(self) -> None:
        """`flush`, then let go of the file; further records stay in memory."""
        with self._lock:
            try:
                self.flush()
            finally:
                if self._file is not None:
                    os.close(self._file)
                self._file, self._closed = None, True

    @property
    def unwritten(self) -> int:
        """Lines that are in memory only, because the file could not be written."""
        return len(self._unwritten)

    def _missing(self) -> list[bytes]:
        """The lines that are in memory only."""
        return [line for line, _ in self._unwritten]

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __repr__(self) -> str:
        c = self.counts()
        skipped = f", {self.skipped.total()} lines skipped" if c.skipped else ""
        where = f"{self.path}: " if self.path else ""
        what = f"{c.records} records of {c.tasks} tasks, {c.failed} failed"
        return f"Database({where}{what}{skipped})"

    def _asked(self, call: Callable[[], T]) -> T:
        """`call()`; once more, with all logs read anew, where one has changed or its index lied."""
        with self._lock:
            try:
                return call()
            except Changed:
                self._reload()
                return call()

    def _reload(self) -> None:
        old, self._table = self._table, Table()
        self._dags.keep_memory()
        self._runs = [run for run in self._runs if not isinstance(run, Place)]
        self.skipped.clear()
        for log in old.files:
            self._take(log, fresh=True)
        rows = {at: self._table.append(r) for at, r in enumerate(old.held) if r is not None}
        moved = {
            row: rows.get(int(old.rows[row]["offset"]))
            for _, row in self._unwritten
            if row is not None
        }
        self._unwritten = [
            (line, None if row is None else moved[row]) for line, row in self._unwritten
        ]

    def _open(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def _make(self, path: Path) -> int:
        """The file for the first line; another process may have made it meanwhile."""
        file = self._open(path)
        self._log = LogFile(path)
        size = os.fstat(file).st_size
        self._torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
        return file

    def _read(self, path: Path) -> LogFile:
        try:
            log = LogFile(path)
            self._take(log)
        except OSError as error:
            raise RecordError(
                f"Database.load({str(path)!r})", error.strerror or str(error), "Check the path."
            ) from None
        return log

    def _take(self, log: LogFile, *, fresh: bool = False) -> None:
        contents, torn = contents_of(log.path, log.file, fresh=fresh)
        self._torn = torn is not None
        for part in (contents, torn):
            if part is None:
                continue
            self._table.take(log, part)
            for name, places in part.dags.items():
                self._dags.take(name, [Place(log, *place) for place in places])
                self._computations.pop(name, None)
            self._runs += [Place(log, *place) for place in part.runs]
            self.skipped.add(part.skipped)

    def _write(self, lines: list[tuple[bytes, int | None]]) -> None:
        """One write per line, so that lines of two processes never mix."""
        if self.path is None or self._closed:
            return
        self._unwritten += lines
        try:
            if self._file is None:
                self._file = self._make(self.path)
            while self._unwritten:
                own, row = self._unwritten[0]
                line = b"\n" * self._torn + own
                written = os.write(self._file, line)
                self._torn = written < len(line)
                if self._torn:  # the fragment stays and is skipped by readers
                    raise OSError(errno.ENOSPC, "the disk is full")
                del self._unwritten[0]
                if row is not None and self._log is not None:
                    end = os.lseek(self._file, 0, os.SEEK_CUR)  # of what was just appended
                    self._table.written(row, self._log, end - len(own), len(own) - 1)
            if time.monotonic() - self._synced > self._fsync_seconds:
                self._sync()
            self._failing = False
        except OSError as error:
            self._complain(error)

    def _sync(self) -> None:
        assert self._file is not None
        self._synced = time.monotonic()
        with contextlib.suppress(OSError):  # pipes and some file systems cannot
            os.fsync(self._file)

    def _complain(self, cause: OSError) -> None:
        """Report the first failure of a series."""
        self._reason = cause.strerror or str(cause)
        if self._failing:
            return
        self._failing = True
        error = RecordError(
            f"log {self.path}",
            f"{self._reason}; {len(self._unwritten)} lines are in memory only",
            "Free some space: they are written with the next record.",
        )
        if self.on_error is None:
            raise error from None
        self.on_error(error)


def readable(*paths: str | os.PathLike[str]) -> Database:
    """The records of logs that a user named, of which each must be a log of Tilewright.

    Lines that were skipped are counted in a RuntimeWarning.  Raises RecordError for a missing file,
    and for one that has lines, but none that can be read.
    """
    for path in paths if len(paths) > 1 else ():
        Database.load(path).check_readable(f"log {os.fspath(path)!r}")
    found = Database.load(*paths)
    names = " and ".join(repr(os.fspath(path)) for path in paths)
    found.check_readable(f"log {names}")
    if found.skipped:
        told = "; ".join(found.skipped.told())
        warnings.warn(f"log {names}: skipped {told}", RuntimeWarning, stacklevel=3)
    return found


def pick_best(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> int:
    """Write the best record of each task of log `source` to `target`; returns how many there are.

    Records that `target` already holds take part, so several logs can be merged one by one.
    Raises RecordError for a log of which no line can be read.
    """
    both = Database.load(source)
    both.check_readable(f"log {os.fspath(source)!r}")
    if Path(target).exists():
        both._read(Path(target))
    small = both.distill()
    small.save(target)
    return len(small)


def _key(task: TaskId | Key | tuple[str, str]) -> Key:
    return task.key if isinstance(task, TaskId) else Key(*task)
