"""Lines of a log that anyone may have written: read with bounded memory, judged before decoding.

In: a file of JSON lines, whoever's.  Out: lines with their offsets; what is refused, by reason,
with the first line numbers.  Every loader reads through this module: our logs (`database.py`),
those of TVM (`foreign/tvm_logs.py`).  Read next: `record.py`, which says what a line of ours is.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tilewright.base.errors import RecordError
from tilewright.base.text import printable

# A record has 2 to 10 KiB, the computation of a fused group up to some hundred; of what a compiler
# says without end we write both ends.  What is longer is no line of ours, and the worst that fits
# (empty lists) is some 30 MB of objects.
LINE_BYTES = 1 << 20
# Lists in lists: expressions nest with their operators.  A fifth of Python's own limit of 1,000
# calls, so that what walks such an expression by recursion has room.
DEPTH = 200
_CHUNK = 1 << 18  # small enough for a core's own cache
_NUMBERS = 5  # line numbers that are kept for each reason
_REASONS = 40  # distinct reasons that are kept
_REASON_LENGTH = 240
NOT_TEXT, NOT_JSON = "not UTF-8 text", "not JSON, or cut off"
TOO_LONG, TOO_DEEP = f"longer than {LINE_BYTES >> 20} MiB", f"nested more than {DEPTH} deep"
_ESCAPES = re.compile(rb"\\.", re.DOTALL)
_OTHERS = bytes(set(range(256)) - set(b'[]{}"'))


class Skipped(Counter[str]):
    """How many lines were not read, by reason.

    lines: the numbers of the first of them, from 1
    """

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, list[int]] = {}

    def note(self, reason: str, line: int) -> None:
        reason = short(reason)
        if reason not in self and len(self) >= _REASONS:
            reason = "other reasons"
        self[reason] += 1
        numbers = self.lines.setdefault(reason, [])
        if len(numbers) < _NUMBERS:
            numbers.append(line)

    def add(self, other: Skipped) -> None:
        """Those of another log, too."""
        self.update(other)
        for reason, numbers in other.lines.items():
            self.lines[reason] = [*self.lines.get(reason, ()), *numbers][:_NUMBERS]

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


def read_lines(file: int, offset: int = 0) -> Iterator[tuple[int, bytes | None, int]]:
    """(offset, line without its newline, offset behind it) of each line from `offset` on.

    The offset behind a last line that has no newline is -1.
    None stands for a line that is longer than `LINE_BYTES`; no more than that is kept of it.
    file: the descriptor of a regular file, whose position does not matter
    """
    at, kept, dropping = offset, b"", False  # `at`: where `kept` begins, or what is dropped
    position = offset
    while chunk := os.pread(file, _CHUNK, position):
        position += len(chunk)
        *whole, rest = (kept + chunk).split(b"\n") if kept else chunk.split(b"\n")
        if dropping and whole:
            begin, at = at, position - len(chunk) + len(whole[0]) + 1
            yield begin, None, at
            dropping, whole = False, whole[1:]
        for line in whole:
            end = at + len(line) + 1
            yield at, line if len(line) <= LINE_BYTES else None, end
            at = end
        kept = b"" if dropping else rest
        if len(kept) > LINE_BYTES:
            kept, dropping = b"", True
    if dropping:
        yield at, None, -1
    elif kept:
        yield at, kept, -1


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
    if line.count(b"[") + line.count(b"{") <= DEPTH:
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
