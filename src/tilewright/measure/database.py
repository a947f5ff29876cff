"""`Database`: all records of a log, kept in memory and appended to a file of JSON lines.

In: `Record`s.  Out: the best of a task, counts, a histogram of failures.  Several processes may
append to one file; a damaged line is skipped and counted.  Read next: `record.py`, `pipeline.py`.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from tilewright.base.dtype import json_name
from tilewright.base.errors import RecordError, TilewrightError
from tilewright.measure.record import (
    ERROR_KINDS,
    Candidate,
    DagLine,
    ErrorKind,
    Key,
    Line,
    Record,
    RunLine,
    TaskId,
    decoder,
    encode,
    own_versions,
    why_not,
)

if TYPE_CHECKING:
    from tilewright.schedule.schedule import Schedule
    from tilewright.targets.target import Target
    from tilewright.te.dag import ComputeDAG

_REASON_LENGTH = 160


@dataclass(frozen=True)
class Counts:
    """skipped: lines that were not read, by reason."""

    records: int
    ok: int
    failed: int
    tasks: int
    skipped: dict[str, int]


@dataclass(frozen=True)
class Failure:
    """One row of the histogram: failures of a kind whose texts differ in numbers only."""

    kind: ErrorKind
    reason: str
    count: int
    example: Record


@dataclass
class _Task:
    """The records of one task; `best` is worked out when asked for."""

    records: list[Record] = field(default_factory=list)
    best: Record | None = None
    stale: bool = False


class Database:
    """Records by task, and the log file they are appended to.  Safe to share between threads.

    It is a `schedule.task.ScheduleSource`: `lookup` gives the best schedule of a computation.

    path:          the log; read now, created where it is missing; None: memory only
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
        self.records: list[Record] = []
        self.runs: list[RunLine] = []
        self.skipped: Counter[str] = Counter()
        self.on_error = on_error
        self._tasks: dict[Key, _Task] = {}
        self._anywhere: dict[Key, list[_Task]] = {}  # of a key without a device
        self._dags: dict[str, msgspec.Raw] = {}
        self._computations: dict[str, ComputeDAG | None] = {}  # of those that were asked for
        self._lock = threading.RLock()
        self._file: int | None = None
        self._unwritten: list[bytes] = []
        self._failing = False
        self._torn = False  # the file ends inside a line
        self._fsync_seconds, self._synced = fsync_seconds, time.monotonic()
        if self.path is not None:
            self._file = self._open(self.path)
            if self.path.is_file():  # a pipe or a device is only written to
                self._read(self.path)

    @classmethod
    def load(cls, *paths: str | os.PathLike[str]) -> Self:
        """The records of existing logs, in memory.  Raises RecordError for a missing file."""
        database = cls()
        for path in paths:
            if Path(path).exists() and not Path(path).is_file():
                raise RecordError(f"Database.load({str(path)!r})", "it is not a file")
            database._read(Path(path))
        return database

    def check_readable(self, place: str, reason: str = "") -> None:
        """Raises RecordError for a log that has lines, but none that can be read."""
        if self.records or not self.skipped:
            return
        skipped = ", ".join(f"{n} lines: {why}" for why, n in self.skipped.items())
        raise RecordError(
            place, f"{reason}no line can be read ({skipped})",
            "Give a log of Tilewright; `tilewright records import` reads those of TVM.",
        )  # fmt: skip

    def append(self, record: Record, dag: Any = None) -> None:
        """Add a record, in memory and to the file.

        dag: `ComputeDAG.to_json()` of its task; written the first time its hash is seen
        Raises RecordError the first time that the file cannot be written (the disk is full).
        """
        lines = []
        line = encode(record)
        with self._lock:
            if dag is not None and record.task.dag not in self._dags:
                raw = msgspec.Raw(msgspec.json.encode(dag, enc_hook=json_name))
                self._dags[record.task.dag] = raw
                lines.append(encode(DagLine(hash=record.task.dag, dag=raw)))
            self._add(record)
            self._write([*lines, line])

    def note_run(self, **options: Any) -> None:
        """Write down the options of a tuning run that starts now."""
        line = RunLine(options=options, timestamp=time.time(), versions=own_versions())
        encoded = encode(line)
        with self._lock:
            self.runs.append(line)
            self._write([encoded])

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
        with self._lock:
            for entries in self._by_preference(_key(task)):
                bests = [best for e in entries if (best := _best_of(e, origin)) is not None]
                if bests:
                    return min(bests, key=lambda r: r.seconds)
        return None

    def leaders(self, task: TaskId | Key | tuple[str, str], count: int) -> list[Record]:
        """The fastest candidates among those of which `best` gives the first, at most `count`."""
        with self._lock:
            for entries in self._by_preference(_key(task)):
                usable = [r for e in entries for r in _usable(e.records)]
                by_candidate: dict[Candidate, Record] = {}
                for record in sorted(usable, key=lambda r: r.seconds):
                    by_candidate.setdefault(record.candidate, record)
                if by_candidate:
                    return list(by_candidate.values())[:count]
        return []

    def lookup(self, dag: ComputeDAG, target: Target) -> Schedule | None:
        """The schedule of the best record of exactly this computation and target, or None.

        Where the target is that of a real device (`Target.on`), its device counts, see `best`.
        """
        record = self.best(Key(dag.hash, str(target), target.fingerprint))
        return None if record is None else self.replay(record, dag)

    def replay(self, record: Record, dag: ComputeDAG) -> Schedule:
        """The schedule of a record of `dag`, on `dag`: what it computes is never taken from a log.

        Steps name stages and axes.  Where those of the computation that was measured have other
        names, the schedule is of a copy of `dag` with these.  Raises a TilewrightError where the
        steps do not fit.
        """
        from tilewright.schedule.schedule import Schedule

        measured = self.computation(dag.hash)
        named = dag if measured is None else dag.named_as(measured.to_json())
        return Schedule.replay(named, record.steps)

    def tasks(self) -> list[TaskId]:
        """Every task with records, once per device, in the order of their first ones."""
        return [entry.records[0].task for entry in list(self._tasks.values())]

    def query(
        self,
        task: TaskId | Key | tuple[str, str] | None = None,
        *,
        name: str | None = None,
        target: str | None = None,
        origin: str | None = None,
        ok: bool | None = None,
    ) -> list[Record]:
        """The records that fit everything given, oldest first.

        task: where it names a device, records of that device, and of one that is not known
        """
        found: Iterable[Record] = self.records
        if task is not None:
            with self._lock:
                entries = [e for es in self._by_preference(_key(task)) for e in es]
            found = [r for e in entries for r in e.records]
            if len(entries) > 1:
                found = sorted(found, key=lambda r: r.timestamp)
        return [
            r
            for r in list(found)
            if (name is None or r.task.name == name)
            and (target is None or r.task.target == target)
            and (origin is None or r.origin == origin)
            and (ok is None or r.result.ok == ok)
        ]

    def dag(self, hash: str) -> Any:
        """`ComputeDAG.to_json()` of a task, or None where no line tells it."""
        raw = self._dags.get(hash)
        return None if raw is None else msgspec.json.decode(raw)

    def computation(self, hash: str) -> ComputeDAG | None:
        """The computation of a task, or None where no line tells it.

        Its hash is worked out again: a line that tells another one, or none that can be read,
        counts as skipped.
        """
        from tilewright.te.dag import ComputeDAG

        if hash not in self._computations:
            try:
                data = self.dag(hash)
                found = None if data is None else ComputeDAG.from_json(data)
                if found is not None and found.hash != hash:
                    raise RecordError("a computation", "its hash is another")
            except (TilewrightError, msgspec.MsgspecError, RecursionError) as error:
                why = error.reason if isinstance(error, RecordError) else "it cannot be read"
                self.skipped[f"a computation: {why}"] += 1
                found = None
            self._computations[hash] = found
        return self._computations[hash]

    def counts(self) -> Counts:
        ok = sum(r.result.ok for r in self.records)
        total = len(self.records)
        return Counts(total, ok, total - ok, len(self._tasks), dict(self.skipped))

    def failures(self) -> list[Failure]:
        """What went wrong, most frequent first."""
        groups: dict[tuple[ErrorKind, str], list[Record]] = {}
        for record in self.records:
            if record.result.error is not None:
                group = record.result.error, blotted(record.result.message)
                groups.setdefault(group, []).append(record)
        rows = [Failure(kind, why, len(rs), rs[0]) for (kind, why), rs in groups.items()]
        return sorted(rows, key=lambda f: (-f.count, ERROR_KINDS.index(f.kind), f.reason))

    def distill(self) -> Database:
        """The best record of each task on each device, with its computation, in memory."""
        small = Database()
        with self._lock:
            bests = [_best_of(entry, None) for entry in self._tasks.values()]
        for best in bests:
            if best is not None:
                small.append(best, self.dag(best.task.dag))
        return small

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to `path`, which is replaced only when all is written."""
        path = Path(path)
        dags = (encode(DagLine(hash=name, dag=raw)) for name, raw in self._dags.items())
        lines = (*(encode(run) for run in self.runs), *dags, *map(encode, self.records))
        try:
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
            try:
                with os.fdopen(handle, "wb") as f:
                    f.writelines(lines)
                os.chmod(temporary, 0o644)
                os.replace(temporary, path)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError as error:
            raise _unwritable(path, error) from None

    def flush(self) -> None:
        """Write what could not be written before, and wait for the disk.  Raises RecordError."""
        with self._lock:
            if self._file is None:
                return
            self._failing = False
            self._write([])
            self._sync()

    def close(self) -> None:
        """`flush`, then let go of the file; further records stay in memory."""
        with self._lock:
            try:
                self.flush()
            finally:
                if self._file is not None:
                    os.close(self._file)
                self._file = None

    @property
    def unwritten(self) -> int:
        """Lines that are in memory only, because the file could not be written."""
        return len(self._unwritten)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __repr__(self) -> str:
        c = self.counts()
        skipped = f", {sum(c.skipped.values())} lines skipped" if c.skipped else ""
        where = f"{self.path}: " if self.path else ""
        what = f"{c.records} records of {c.tasks} tasks, {c.failed} failed"
        return f"Database({where}{what}{skipped})"

    def _add(self, record: Record) -> None:
        self.records.append(record)
        key = record.key
        entry = self._tasks.get(key)
        if entry is None:
            entry = self._tasks[key] = _Task()
            self._anywhere.setdefault(Key(key.dag, key.target), []).append(entry)
        entry.records.append(record)
        result = record.result
        if result.final or result.error == "wrong":
            entry.stale = True  # it may refute the best
        elif _eligible(record) and (entry.best is None or record.seconds < entry.best.seconds):
            entry.stale = True

    def _by_preference(self, key: Key) -> Iterator[list[_Task]]:
        """What there is of a task: that of its own device before that of an unknown one."""
        if not key.fingerprint:
            yield self._anywhere.get(key, [])
            return
        for known in (key, Key(key.dag, key.target)):
            entry = self._tasks.get(known)
            if entry is not None:
                yield [entry]

    def _open(self, path: Path) -> int:
        try:
            return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _unwritable(path, error) from None

    def _read(self, path: Path) -> None:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise RecordError(
                f"Database.load({str(path)!r})", error.strerror or str(error), "Check the path."
            ) from None
        self._torn = bool(data) and not data.endswith(b"\n")
        read = decoder().decode
        enabled = gc.isenabled()
        gc.disable()  # a collection per few hundred new objects costs more than the parsing
        try:
            for line in data.split(b"\n"):
                if not line or line.isspace():
                    continue
                try:
                    self._take(read(line))
                except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                    self.skipped[why_not(line, error)] += 1
        finally:
            if enabled:
                gc.enable()

    def _take(self, line: Line) -> None:
        if isinstance(line, Record):
            self._add(line)
        elif isinstance(line, DagLine):
            self._dags.setdefault(line.hash, line.dag.copy())
        else:
            self.runs.append(line)

    def _write(self, lines: list[bytes]) -> None:
        """One write per line, so that lines of two processes never mix."""
        if self._file is None:
            return
        self._unwritten += lines
        try:
            while self._unwritten:
                line = b"\n" * self._torn + self._unwritten[0]
                written = os.write(self._file, line)
                self._torn = written < len(line)
                if self._torn:  # the fragment stays and is skipped by readers
                    raise OSError(errno.ENOSPC, "the disk is full")
                del self._unwritten[0]
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
        if self._failing:
            return
        self._failing = True
        error = RecordError(
            f"log {self.path}",
            f"{cause.strerror}; {len(self._unwritten)} lines are in memory only",
            "Free some space: they are written with the next record.",
        )
        if self.on_error is None:
            raise error from None
        self.on_error(error)


def pick_best(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> int:
    """Write the best record of each task of log `source` to `target`; returns how many there are.

    Records that `target` already holds take part, so several logs can be merged one by one.
    Raises RecordError for a log of which no line can be read.
    """
    Database.load(source).check_readable(f"log {os.fspath(source)!r}")
    both = Database.load(source, *([target] if Path(target).exists() else []))
    small = both.distill()
    small.save(target)
    return len(small)


def _key(task: TaskId | Key | tuple[str, str]) -> Key:
    return task.key if isinstance(task, TaskId) else Key(*task)


def _best_of(entry: _Task, origin: str | None) -> Record | None:
    if origin is not None:
        return _best([r for r in entry.records if r.origin == origin])
    if entry.stale:
        entry.best, entry.stale = _best(entry.records), False
    return entry.best


def _best(records: list[Record]) -> Record | None:
    return min(_usable(records), key=lambda r: r.seconds, default=None)


def _usable(records: list[Record]) -> list[Record]:
    usable = [r for r in records if _eligible(r)]
    last: dict[Candidate, Record] = {}
    wrong: set[Candidate] = set()
    for record in records:
        if record.result.error == "wrong":
            wrong.add(record.candidate)
        elif record.result.final:
            last[record.candidate] = record
    if wrong or last:
        usable = [r for r in usable if _counts(r, last, wrong)]
    return usable


def _eligible(record: Record) -> bool:
    result = record.result
    return result.ok and result.verified and result.same_as is None


def _counts(record: Record, last: dict[Candidate, Record], wrong: set[Candidate]) -> bool:
    candidate = record.candidate
    return candidate not in wrong and last.get(candidate, record) is record


def blotted(message: str) -> str:
    """The first line of a message with its numbers blotted out, so that similar ones are equal."""
    first = message.strip().partition("\n")[0]
    return re.sub(r"\d+(\.\d+)?(e[-+]?\d+)?", "#", first)[:_REASON_LENGTH] or "no message"


def _unwritable(path: Path, error: OSError) -> RecordError:
    return RecordError(
        f"log {path}", f"it cannot be written ({error.strerror or error})",
        "Name a file in a directory that exists and that you may write to.",
    )  # fmt: skip
