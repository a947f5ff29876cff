"""Why trials failed: a histogram of their messages.

In: records of failures.  Out: `Failure`s, the most frequent first.  Read next: `record.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.base.text import printable
from tilewright.measure.record import ERROR_KINDS, ErrorKind, Record

_REASON_LENGTH, _LOOKED_AT = 160, 1000  # characters


@dataclass(frozen=True)
class Failure:
    """Failures of a kind whose texts differ in numbers only."""

    kind: ErrorKind
    reason: str
    count: int
    example: Record


def histogram(records: Iterable[Record]) -> list[Failure]:
    """The most frequent first."""
    groups: dict[tuple[ErrorKind, str], list[Record]] = {}
    for record in records:
        if record.result.error is not None:
            group = record.result.error, blotted(record.result.message)
            groups.setdefault(group, []).append(record)
    rows = [Failure(kind, why, len(rs), rs[0]) for (kind, why), rs in groups.items()]
    return sorted(rows, key=lambda f: (-f.count, ERROR_KINDS.index(f.kind), f.reason))


def blotted(message: str) -> str:
    """The first line of a message with its numbers blotted out, so that similar ones are equal."""
    first = printable(message.strip().partition("\n")[0][:_LOOKED_AT])
    return re.sub(r"\d+(\.\d+)?(e[-+]?\d+)?", "#", first)[:_REASON_LENGTH] or "no message"
