"""Records of several logs and of memory as rows, by task; decoded when they are asked for.

In: contents of logs, records.  Out: rows that fit a question, their records, the best of a task.
Read next: `contents.py`, which makes rows; `database.py`, which asks.
"""

from __future__ import annotations

import errno
import os
import weakref
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import eq
from pathlib import Path
from typing import overload

import numpy as np

from tilewright.base.errors import RecordError
from tilewright.measure.contents import ELIGIBLE, FINAL, ROW, WRONG, Contents, Rows, figures
from tilewright.measure.index import forget
from tilewright.measure.record import Candidate, Key, Line, Record, TaskId, read

_HELD = -1  # the `file` of a row whose record is in memory; its offset is a number in `held`


class Changed(RecordError):
    """A log is no more what it was when it was read: cut, replaced, or its index lied."""


class LogFile:
    """A log that is open for reading, as long as anybody has use for it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if "\0" in str(path):  # a ValueError to `os.open`
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        self.file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self.file)

    def line(self, offset: int, size: int) -> Line:
        """Raises Changed where no line of a log is there."""
        found, reason = read(os.pread(self.file, size, offset))
        if found is None:
            raise self.changed(offset, reason)
        return found

    def changed(self, offset: int, reason: str) -> Changed:
        forget(self.path)
        return Changed(
            f"log {self.path}", f"it was changed while it was in use (at byte {offset}: {reason})",
            "Load it again.",
        )  # fmt: skip


@dataclass
class Entry:
    """Rows of one task on one device, oldest first; `best` is worked out when asked for.

    judged: so many rows were looked at for verdicts on candidates: wrong is for good; the last
            final timing, by its row, is the only one that counts
    """

    rows: array[int] = field(default_factory=lambda: array("q"))
    best: Record | None = None
    stale: bool = True
    judged: int = 0
    wrong: set[Candidate] = field(default_factory=set)
    last: dict[Candidate, int] = field(default_factory=dict)


class Table:
    """
    files: that rows are of; held: records that are in memory only, None: written since
    tasks, origins: by the numbers that rows have
    """

    def __init__(self) -> None:
        self.files: list[LogFile] = []
        self.held: list[Record | None] = []
        self.tasks: list[TaskId] = []
        self.origins: list[str] = []
        self.entries: dict[Key, Entry] = {}
        self.anywhere: dict[Key, list[Entry]] = {}  # of a key without a device
        self._rows: Rows = np.empty(16, ROW)
        self._count = 0
        self._entry_of: list[Entry] = []  # of a task
        self._task_numbers: dict[TaskKey, int] = {}
        self._origin_numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> Rows:
        return self._rows[: self._count]

    # -- adding ------------------------------------------------------------------------------------
    def take(self, log: LogFile, contents: Contents) -> None:
        """Add what a log holds."""
        if log not in self.files:
            self.files.append(log)
        tasks = np.array([self._task(task) for task in contents.tasks], np.int32)
        origins = np.array([self._origin(o) for o in contents.origins], np.int32)
        rows, begin = contents.rows, self._count
        if not len(rows):
            return
        self._grow(begin + len(rows))
        own = self._rows[begin : self._count]
        own[:] = rows
        own["task"], own["origin"] = tasks[rows["task"]], origins[rows["origin"]]
        own["file"] = self.files.index(log)
        # A task may have several labels and still be one entry.
        entries = {id(e): e for e in (self._entry_of[n] for n in tasks.tolist())}
        places = {key: n for n, key in enumerate(entries)}
        of = np.array([places[id(e)] for e in self._entry_of if id(e) in places] or [0])
        number = np.full(len(self.tasks), -1)
        number[[n for n, e in enumerate(self._entry_of) if id(e) in places]] = of
        group = number[own["task"]]
        order = np.argsort(group, kind="stable")
        bounds = np.searchsorted(group[order], np.arange(len(entries) + 1))
        for entry, first, end in zip(entries.values(), bounds[:-1], bounds[1:], strict=True):
            entry.rows.frombytes((order[first:end] + begin).astype(np.int64).tobytes())
            entry.stale = True

    def append(self, record: Record) -> int:
        """Add a record that is in memory; returns its row."""
        seconds, flags = figures(record.result)
        task, row = self._task(record.task), self._count
        self._grow(row + 1)
        size, origin = 0, self._origin(record.origin)
        self._rows[row] = len(self.held), seconds, size, task, origin, _HELD, flags
        self.held.append(record)
        entry = self._entry_of[task]
        entry.rows.append(row)
        best = entry.best
        if flags & (FINAL | WRONG) or (
            flags & ELIGIBLE and (best is None or seconds < best.seconds)
        ):  # it may be the best, or refute it
            entry.stale = True
        return row

    def written(self, row: int, log: LogFile, offset: int, size: int) -> None:
        """The record of `row` is in a file now, and need not be in memory."""
        own = self._rows[row]
        self.held[int(own["offset"])] = None
        if log not in self.files:
            self.files.append(log)
        own["file"], own["offset"], own["size"] = self.files.index(log), offset, size

    def _grow(self, count: int) -> None:
        if count > len(self._rows):
            self._rows = np.concatenate([self.rows, np.empty(max(count, 1024), ROW)])
        self._count = count

    def _task(self, task: TaskId) -> int:
        labels = task.key, task.name, repr(task.args)
        number = self._task_numbers.get(labels)
        if number is None:
            number = self._task_numbers[labels] = len(self.tasks)
            self.tasks.append(task)
            entry = self.entries.get(task.key)
            if entry is None:
                entry = self.entries[task.key] = Entry()
                self.anywhere.setdefault(task.of_any_device, []).append(entry)
            self._entry_of.append(entry)
        return number

    def _origin(self, origin: str) -> int:
        number = self._origin_numbers.get(origin)
        if number is None:
            number = self._origin_numbers[origin] = len(self.origins)
            self.origins.append(origin)
        return number

    # -- asking ------------------------------------------------------------------------------------
    def record(self, row: int) -> Record:
        """Raises Changed where the log has something else there than the row says."""
        offset, seconds, size, task, origin, number, flags = self._rows[row].item()
        if number == _HELD:
            held: Record | None = self.held[offset]
            assert held is not None
            return held
        log = self.files[number]
        found = log.line(offset, size)
        if (
            not isinstance(found, Record)
            or found.key != self.tasks[task].key
            or found.origin != self.origins[origin]
            or figures(found.result) != (seconds, flags)
        ):
            raise log.changed(offset, "another line")
        return found

    def by_preference(self, key: Key) -> Iterator[list[Entry]]:
        """What there is of a task: that of its own device before that of an unknown one."""
        if not key.fingerprint:
            yield self.anywhere.get(key, [])
            return
        for known in (key, Key(key.dag, key.target)):
            entry = self.entries.get(known)
            if entry is not None:
                yield [entry]

    def best(self, entry: Entry, origin: str | None = None) -> Record | None:
        """The fastest that may be the best; of those of `origin`, if it is given."""
        if origin is not None:
            return self._best(entry, self._origin_numbers.get(origin, -1))
        if entry.stale:
            entry.best, entry.stale = self._best(entry, None), False
        return entry.best

    def _best(self, entry: Entry, origin: int | None) -> Record | None:
        return next(self.fastest(entry, origin), None)

    def fastest(self, entry: Entry, origin: int | None = None) -> Iterator[Record]:
        """Those that may be the best, fastest first; only those of the numbered `origin`."""
        numbers = np.array(entry.rows)
        flags = self._rows["flags"][numbers]
        self._judge(entry, numbers, flags)
        usable = flags & ELIGIBLE != 0
        if origin is not None:
            usable &= self._rows["origin"][numbers] == origin
        seconds = np.where(usable, self._rows["seconds"][numbers], np.inf)
        while len(seconds) and np.isfinite(seconds[at := int(np.argmin(seconds))]):
            row = int(numbers[at])
            record = self.record(row)
            candidate = record.candidate
            refuted = candidate in entry.wrong or entry.last.get(candidate, row) != row
            if not refuted and record.is_whole:
                yield record
            seconds[at] = np.inf

    def _judge(self, entry: Entry, numbers: Rows, flags: Rows) -> None:
        """Take in verdicts on candidates that came since."""
        since = numbers[entry.judged :]
        for row in since[flags[entry.judged :] & (FINAL | WRONG) != 0].tolist():
            record = self.record(row)
            if record.result.error == "wrong":
                entry.wrong.add(record.candidate)
            else:
                entry.last[record.candidate] = row
        entry.judged = len(entry.rows)


class Records(Sequence[Record]):
    """All records of a database, oldest first.  Those in a file are decoded one by one."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    @overload
    def __getitem__(self, at: int) -> Record: ...
    @overload
    def __getitem__(self, at: slice) -> list[Record]: ...
    def __getitem__(self, at: int | slice) -> Record | list[Record]:
        rows = range(len(self))[at]
        if isinstance(rows, int):
            return self._table.record(rows)
        return [self._table.record(row) for row in rows]

    def __iter__(self) -> Iterator[Record]:
        return map(self._table.record, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    def __repr__(self) -> str:
        return f"<{len(self)} records>"


TaskKey = tuple[Key, str, str]
