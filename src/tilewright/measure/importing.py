"""Logs of other programs as our records: candidates to try here, and what they cost there.

In: lines, and what their names stand for (`Workloads`).  Out: records whose origin begins with
"import:".  They are not verified, so none is ever the best of its task; a line that cannot be used
is counted by reason.  Read next: `formats.py`, `record.py`, `database.py`.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

from tilewright.base.errors import RecordError, TilewrightError
from tilewright.measure.database import Database
from tilewright.measure.formats import Format, Found, Reader, Workloads, formats, refuse
from tilewright.measure.lines import DAMAGE, NOT_JSON, TOO_LONG, Skipped, read_lines, refusal
from tilewright.measure.record import (
    IMPORT,
    Key,
    Record,
    Result,
    TaskId,
    decode,
    encode,
    format_of,
    is_own,
    make_record,
    own_versions,
)
from tilewright.schedule.tree.legality import REASONS, judge
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Target


@dataclass
class ImportReport:
    """lines: read, less comments and empty ones; unusable: of these, by reason

    imported: new records of each of `tasks`; a line may be good for several kernels of a network
    known:    lines that an earlier import had put into the database
    """

    lines: int = 0
    known: int = 0
    tasks: dict[Key, TaskId] = field(default_factory=dict)
    imported: Counter[Key] = field(default_factory=Counter)
    unusable: Skipped = field(default_factory=Skipped)


def import_lines(
    lines: Iterable[str | bytes | None],
    database: Database,
    workloads: Workloads | None = None,
    target: Target | None = None,
) -> ImportReport:
    """Append to `database` every line that makes a legal schedule here.

    lines:  of a log; None stands for one that is too long.  `log_lines` reads them from a file
    target: what the records are filed under; only lines of its kind are used.  None: what each line
            names, less what it says of the device's limits
    """
    importer = _Importer(workloads or Workloads(), target)
    own = [r for o in database.origins() if o.startswith(IMPORT) for r in database.query(origin=o)]
    known = {(r.key, r.candidate, r.timestamp) for r in own}
    report = ImportReport()
    for number, line in enumerate(lines, 1):
        data = line.encode(errors="surrogatepass") if isinstance(line, str) else line
        if data is not None and is_comment(data):
            continue
        report.lines += 1
        try:
            found = [(one, _record(one)) for one in importer.read(data)]
        except TilewrightError as error:
            report.unusable.note(error.reason, number)
            continue
        new = [(one, r) for one, r in found if (r.key, r.candidate, r.timestamp) not in known]
        report.known += not new
        for one, record in new:
            known.add((record.key, record.candidate, record.timestamp))
            database.append(record, one.schedule.dag.to_json())
            report.tasks.setdefault(record.key, record.task)
            report.imported[record.key] += 1
    return report


def log_lines(path: str | os.PathLike[str]) -> Generator[bytes | None]:
    """The lines of a file, with bounded memory.  Raises RecordError where it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            for _, line, _ in read_lines(file.fileno()):
                yield line
    except (OSError, ValueError) as error:  # the latter of a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise RecordError(f"log {os.fspath(path)!r}", reason, "Check the path.") from None


def is_comment(line: bytes) -> bool:
    """Whether it says nothing."""
    return not line.strip() or line[:1] in b"# "


def decoded_line(line: bytes | None) -> Any:
    """The value of a line, whoever wrote it; None stands for one that is too long."""
    reason = TOO_LONG if line is None else refusal(line)
    if line is None or reason is not None:
        raise refuse(reason or TOO_LONG)
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise refuse(NOT_JSON) from None


def programs() -> str:
    """Whose logs are read here, in words: "AutoTVM or of the auto-scheduler"."""
    return " or of ".join(f.program for f in formats()) or "a program whose logs are read here"


class _Importer:
    """Reads lines; a reader for each format keeps what they share."""

    def __init__(self, workloads: Workloads, target: Target | None) -> None:
        self.workloads, self.target = workloads, target
        self._readers: dict[str, Reader] = {}

    def read(self, line: bytes | None) -> list[Found]:
        """Raises a TilewrightError saying why the line is of no use."""
        data = decoded_line(line)
        if is_own(data):
            raise refuse("a line of Tilewright's own log, which needs no import")
        format: Format | None = format_of(data)
        if format is None:
            raise refuse(f"no line of {programs()}")
        try:
            found = self._reader(format)(data)
            broken = [_broken(one) for one in found]
        except TilewrightError:  # says why; some of these are ValueErrors, too
            raise
        except DAMAGE:
            raise refuse(f"a damaged line of {format.name}") from None
        if all(broken):
            raise refuse(f"not legal on {found[0].task.target}: {broken[0]}")
        return [one for one, reason in zip(found, broken, strict=True) if not reason]

    def _reader(self, format: Format) -> Reader:
        if format.name not in self._readers:
            self._readers[format.name] = format.reader(self.workloads, self.target)
        return self._readers[format.name]


def _broken(found: Found) -> str:
    """Why the device of its target cannot run it; ""."""
    target = Target(found.task.target).native()
    reasons = judge(Resources(LoopTree(found.schedule).bounds(), target)).reasons()
    return REASONS[reasons[0]] if reasons else ""


def _record(found: Found) -> Record:
    """Raises RecordError for one that our own readers would skip: its labels are endless, say."""
    record = make_record(
        found.task, Result(costs=found.costs), origin=IMPORT + found.format,
        decisions=found.decisions, steps=found.schedule.to_json(), device=found.device,
        timestamp=found.timestamp, versions=own_versions() | found.versions,
    )  # fmt: skip
    decode(encode(record))
    return record
