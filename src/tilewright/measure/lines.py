"""Lines of a log that anyone may have written: read with bounded memory, judged before decoding.

In: a file of JSON lines, whoever's.  Out: lines with their offsets; what is refused, by reason,
with the first line numbers.  Every loader reads through this module: our logs (`database.py`),
those of other programs (`importing.py`).  Read next: `record.py`, which says what a line of ours
is.
"""

from __future__ import annotations

import io
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tilewright.base.errors import RecordError, TilewrightError
from tilewright.base.text import printable

# A record has 2 to 10 KiB, the computation of a fused group up to some hundred; of what a compiler
# says without end we write both ends.  What is longer is no line of ours, and the worst that fits
# (empty lists) is some 30 MB of objects.
LINE_BYTES = 1 << 20
# Lists in lists: expressions nest with their operators.  A fifth of Python's own limit of 1,000
# calls, so that what walks such an expression by recursion has room.
DEPTH = 200
_NEWLINE = ord("\n")
_CHUNK = 1 << 18  # small enough for a core's own cache
_NUMBERS = 5  # line numbers that are kept for each reason
REASONS = 40  # distinct reasons that are kept
_OTHERWISE = "other reasons"
_REASON_LENGTH = 240
Positions = npt.NDArray[np.intp]
NOT_TEXT, NOT_JSON = "not UTF-8 text", "not JSON, or cut off"
TOO_LONG, TOO_DEEP = f"longer than {LINE_BYTES >> 20} MiB", f"nested more than {DEPTH} deep"
_ONES = np.uint64(0x0101010101010101)
_ESCAPES = re.compile(rb"\\.", re.DOTALL)
_NOT_OPENING = bytes(set(range(256)) - set(b"[{"))
_OTHERS = bytes(set(range(256)) - set(b'[]{}"'))
# What plain Python raises for data that no DAG has.
DAMAGE = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError)


class Skipped(Counter[str]):
    """How many lines were not read, by reason.

    lines: the numbers of the first of them, from 1
    """

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, list[int]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Skipped, (), {"lines": self.lines}, None, iter(self.items())

    def note(self, reason: str, line: int) -> None:
        reason = short(reason)
        if reason not in self and len(self) >= REASONS:
            reason = _OTHERWISE
        self[reason] += 1
        numbers = self.lines.setdefault(reason, [])
        if len(numbers) < _NUMBERS:
            numbers.append(line)

    @property
    def overflows(self) -> bool:
        """Whether there were more reasons than are kept."""
        return _OTHERWISE in self

    def add(self, other: Skipped, lines: int = 0) -> None:
        """Those of another log, too, or of what follows so many lines of this one."""
        self.update(other)
        for reason, numbers in other.lines.items():
            moved = [lines + n for n in numbers]
            self.lines[reason] = [*self.lines.get(reason, ()), *moved][:_NUMBERS]

    def clear(self) -> None:
        super().clear()
        self.lines.clear()

    def told(self) -> list[str]:
        """A text per reason, the most frequent first: `3 lines (4, 9, 12): not JSON`."""
        texts = []
        for reason, count in self.most_common():
            where = numbered(self.lines.get(reason, ()), count)
            texts.append(f"{count} line{'s' * (count > 1)} ({where}): {reason}")
        return texts


def numbered(lines: Sequence[int], count: int) -> str:
    """The numbers of the first of `count` lines: `4, 9, 12, ...`."""
    return ", ".join([*map(str, lines), *["..."][: count - len(lines)]])


def short(text: str) -> str:
    """One line of at most 240 characters that is safe on a terminal."""
    shown = printable(text[: _REASON_LENGTH + 1].replace("\n", " "))
    return shown if len(shown) <= _REASON_LENGTH else shown[: _REASON_LENGTH - 3] + "..."


class _From(io.RawIOBase):
    """A file from an offset on, read without moving its position."""

    def __init__(self, file: int, offset: int) -> None:
        self._file, self._offset = file, offset

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = os.preadv(self._file, [buffer], self._offset)
        self._offset += count
        return count


def read_lines(file: int, offset: int = 0) -> Iterator[tuple[int, bytes | None, int]]:
    """(offset, line without its newline, offset behind it) of each line from `offset` on.

    The offset behind a last line that has no newline is -1.
    None stands for a line that is longer than `LINE_BYTES`; no more than that is kept of it.
    file: the descriptor of a regular file, whose position does not matter
    """
    reader = io.BufferedReader(_From(file, offset), _CHUNK)
    at = offset
    while line := reader.readline(LINE_BYTES + 1):
        end = at + len(line)
        if line[-1] == _NEWLINE:
            yield at, line[:-1], end
        elif len(line) <= LINE_BYTES:
            yield at, line, -1
        else:
            while line and line[-1] != _NEWLINE:
                line = reader.readline(LINE_BYTES)
                end += len(line)
            yield at, None, end if line else -1
        at = end


@dataclass(frozen=True)
class Block:
    """Some whole lines, each with its newline, that begin at `offset` of a file.

    starts, ends: of the lines in `text`, without newlines
    """

    offset: int
    text: bytes
    starts: Positions
    ends: Positions

    @property
    def plain(self) -> bool:
        """Whether all lines are ASCII, from { to }, and none is deep or long."""
        if not self.text.isascii():
            return False
        marks = np.frombuffer(self.text, np.uint8)
        if not ((marks[self.starts] == ord("{")) & (marks[self.ends - 1] == ord("}"))).all():
            return False
        # Brackets that open in each line, added up in eights of bytes by one product each: eights
        # that two lines share, or the text cuts short, may be missing.
        opening = marks[: len(marks) & -8] | 0x20 == ord("{")  # [ and { differ in this bit
        eights = opening.view(np.uint64) * _ONES >> np.uint64(56)
        first = np.minimum(self.starts // 8, len(eights) - 1)
        count = np.add.reduceat(eights, first) if len(eights) else np.zeros(1)
        return all(not is_deep(self.line(int(k))) for k in np.flatnonzero(count > DEPTH - 16))

    def line(self, number: int) -> bytes:
        return self.text[self.starts[number] : self.ends[number]]

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Each with its offset in the file."""
        for k, start in enumerate(self.starts):
            yield self.offset + int(start), self.line(k)


def next_block(file: int, offset: int, end: int | None = None) -> Block | None:
    """Whole lines from `offset` on, not beyond `end`; None where the next one is long, or torn."""
    text = os.pread(file, _CHUNK if end is None else min(_CHUNK, end - offset), offset)
    text = text[: text.rfind(b"\n") + 1]
    if not text:
        return None
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == _NEWLINE)
    return Block(offset, text, np.concatenate([[0], ends[:-1] + 1]), ends)


def refusal(line: bytes) -> str | None:
    """Why nobody should decode the line, or None: its length, its bytes, its nesting."""
    if len(line) > LINE_BYTES:
        return TOO_LONG
    if not is_text(line):
        return NOT_TEXT
    return TOO_DEEP if is_deep(line) else None


def is_text(line: bytes) -> bool:
    """Whether it is UTF-8."""
    if line.isascii():
        return True
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_deep(line: bytes) -> bool:
    """Whether lists and objects of JSON text nest more than `DEPTH`; nothing is decoded."""
    if len(line.translate(None, _NOT_OPENING)) <= DEPTH:
        return False
    depth, in_string = 0, False
    for mark in _ESCAPES.sub(b"", line).translate(None, _OTHERS):
        if mark in b'"':
            in_string = not in_string
        elif not in_string:
            depth += 1 if mark in b"[{" else -1
            if depth > DEPTH:
                return True
    return False


def decoded(text: bytes | msgspec.Raw, what: str, kind: Any = Any) -> Any:
    """JSON of a line as Python values.  Raises RecordError naming `what`, and nothing else."""
    text = bytes(text)
    reason = refusal(text)
    if reason is None:
        try:
            return msgspec.json.decode(text, type=kind)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            reason = short(str(error))
    raise RecordError(what, reason, "Leave the line out.")


@contextmanager
def from_log(what: str) -> Iterator[None]:
    """What the block makes of a computation that a log tells may fail in any way: then RecordError.

    Attributes of operations do not count for a hash, so those of a line may be damaged.
    """
    try:
        yield
    except TilewrightError:
        raise
    except DAMAGE as error:
        raise RecordError(
            what, f"the log tells its computation wrongly ({type(error).__name__}: {error})",
            "Leave that line out.",
        ) from error  # fmt: skip
