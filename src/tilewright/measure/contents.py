"""What one log file holds, line by line, without holding the lines: a row for each record.

In: an open log.  Out: rows (where a record is, of which task, how fast, whether it may be best),
the tasks they are of, where computations, runs and networks are told, what was skipped.  A million
records are 30 MB of rows; a record is decoded when somebody asks for it.
Read next: `index.py`, which keeps this between processes; `database.py`, which puts logs together.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tilewright.measure.lines import (
    NOT_TEXT,
    REASONS,
    TOO_DEEP,
    TOO_LONG,
    Block,
    Skipped,
    is_deep,
    is_text,
    next_block,
)
from tilewright.measure.lines import read_lines as lines_of
from tilewright.measure.record import (
    UNREADABLE,
    DagLine,
    Glance,
    Result,
    TaskId,
    glance,
    why_not,
)

# file: which log of a database, -1 for none; offset, size: of the line in it; task, origin: numbers
# in the lists beside the rows; seconds: infinity for a failure; flags: as below
ROW = np.dtype([
    ("offset", "<i8"), ("seconds", "<f8"), ("size", "<i4"), ("task", "<i4"), ("origin", "<i4"),
    ("file", "<i2"), ("flags", "u1"),
])  # fmt: skip
Rows = npt.NDArray[Any]
OK, ELIGIBLE, FINAL, WRONG = 1, 2, 4, 8
Place = tuple[int, int]  # offset, size
_COPIES = 4  # of a computation: the first may be damaged


def figures(result: Result) -> tuple[float, int]:
    """(seconds, flags) of a row.

    OK: it ran; ELIGIBLE: it may be the best, as far as it alone says; FINAL: timed in turn with
    other leaders; WRONG: its results were
    """
    flags = FINAL if result.final else 0
    if result.error is not None or not result.costs:
        return math.inf, flags | WRONG if result.error == "wrong" else flags
    seconds = result.seconds
    if result.verified and result.same_as is None and 0 < seconds < math.inf:
        flags |= ELIGIBLE
    return seconds, flags | OK


class Contents:
    """covered: bytes that were read, up to the end of a line; lines: how many these are

    runs: lines that tell of runs: what they began with, how networks were fastest
    """

    def __init__(self) -> None:
        self.rows: Rows = np.empty(0, ROW)
        self.tasks: list[TaskId] = []
        self.origins: list[str] = []
        self.dags: dict[str, list[Place]] = {}
        self.runs: list[Place] = []
        self.skipped = Skipped()
        self.covered = self.lines = 0
        self._task_numbers: dict[bytes, int] = {}
        self._origin_numbers: dict[str, int] = {}
        self._new: list[tuple[Any, ...]] = []

    def read(self, file: int, end: int | None = None) -> Contents | None:
        """Read on from `covered`, up to `end`, where a line must end; None: as far as there is any.

        A last line without its end (a writer was killed, or is still writing) is not covered; it
        comes back by itself.
        """
        torn = None
        blocks = [self.rows]
        while end is None or self.covered < end:
            block = next_block(file, self.covered, end)
            if block is not None:
                self._take_block(block, blocks)
                self.covered += len(block.text)
                continue
            offset, line, behind = next(lines_of(file, self.covered), (0, None, None))
            if behind is None:
                break
            if behind < 0:
                torn = Contents()
                torn.lines = self.lines
                torn._take(offset, line)
                torn.rows = np.array(torn._new, ROW)
                break
            self._take(offset, line)
            self._gather(blocks)
            self.covered = behind
        self.rows = np.concatenate(blocks)
        return torn

    def join(self, other: Contents) -> bool:
        """Take in what was read from `covered` on; False where that would not be told the same."""
        if other.skipped.overflows or len({*self.skipped, *other.skipped}) > REASONS:
            return False
        rows = other.rows.copy()
        tasks = [self._task(text) for text in other._task_numbers]  # as they are written
        origins = [self._origin(origin) for origin in other.origins]
        if len(rows):
            rows["task"] = np.array(tasks)[rows["task"]]
            rows["origin"] = np.array(origins)[rows["origin"]]
        self.rows = np.concatenate([self.rows, rows])
        for hash_, places in other.dags.items():
            own = self.dags.setdefault(hash_, [])
            own += places[: _COPIES - len(own)]
        self.runs += other.runs
        self.skipped.add(other.skipped, self.lines)
        self.lines += other.lines
        self.covered = other.covered
        return True

    def name(self, tasks: list[TaskId], origins: list[str]) -> None:
        """Go on from these tasks and origins, which rows have the numbers of."""
        self.tasks, self.origins = tasks, origins
        self._task_numbers = {_write_task(task): n for n, task in enumerate(tasks)}
        self._origin_numbers = {origin: n for n, origin in enumerate(origins)}

    def _gather(self, blocks: list[Rows]) -> None:
        blocks.append(np.array(self._new, ROW))
        self._new.clear()

    def _take_block(self, block: Block, blocks: list[Rows]) -> None:
        """The same as `_take` of each line, sooner where all are records of ours.

        Where each line goes from { to }, no value goes over the end of a line: read in one go, as
        many values as lines are one in each.
        """
        found: list[Glance] = []
        tasks: list[int] = []
        with contextlib.suppress(*UNREADABLE):
            values = _read_all(block.text) if block.plain else []
            found = [one for one in values if isinstance(one, Glance)]
            if len(found) == len(values) == len(block.starts):
                tasks = [self._task(bytes(one.task)) for one in found]
        if not tasks:
            for offset, line in block.lines():
                self._take(offset, line)
            self._gather(blocks)
            return
        rows = np.empty(len(found), ROW)
        rows["offset"], rows["size"] = block.offset + block.starts, block.ends - block.starts
        rows["file"], rows["task"] = 0, tasks
        rows["seconds"], rows["flags"] = zip(*[figures(one.result) for one in found], strict=True)
        rows["origin"] = [self._origin(one.origin) for one in found]
        self.lines += len(found)
        blocks.append(rows)

    def _take(self, offset: int, line: bytes | None) -> None:
        self.lines += 1
        if line is None:
            self.skipped.note(TOO_LONG, self.lines)
            return
        if not line or line.isspace():
            return
        reason = self._refused(offset, line)
        if reason is not None:
            self.skipped.note(reason, self.lines)

    def _refused(self, offset: int, line: bytes) -> str | None:
        """Take in what the line holds, or say why it is skipped."""
        if not line.isascii() and not is_text(line):
            return NOT_TEXT
        if is_deep(line):
            return TOO_DEEP
        try:
            found = _read(line)
            if isinstance(found, Glance):
                seconds, flags = figures(found.result)
                task, origin = self._task(bytes(found.task)), self._origin(found.origin)
                self._new.append((offset, seconds, len(line), task, origin, 0, flags))
                return None
        except UNREADABLE as error:
            return why_not(line, error)
        if isinstance(found, DagLine):
            places = self.dags.setdefault(found.hash, [])
            if len(places) < _COPIES:
                places.append((offset, len(line)))
        else:
            self.runs.append((offset, len(line)))
        return None

    def _task(self, text: bytes) -> int:
        number = self._task_numbers.get(text)
        if number is None:
            self.tasks.append(_read_task(text))
            number = self._task_numbers[text] = len(self.tasks) - 1
        return number

    def _origin(self, origin: str) -> int:
        number = self._origin_numbers.get(origin)
        if number is None:
            self.origins.append(origin)
            number = self._origin_numbers[origin] = len(self.origins) - 1
        return number


_read, _read_all = glance().decode, glance().decode_lines
_read_task = msgspec.json.Decoder(TaskId).decode
_write_task = msgspec.json.Encoder().encode
