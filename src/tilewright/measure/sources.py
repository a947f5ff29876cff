"""Logs as sources of schedules: ours, and what those of other programs recommend.

In: the path of a log.  Out: schedules, or why it has nothing for a target.
Read next: `database.py`, `formats.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import closing, suppress
from itertools import islice

from tilewright.base.errors import RecordError
from tilewright.measure.database import Database, readable
from tilewright.measure.formats import Format, Recommendations
from tilewright.measure.importing import is_comment, log_lines
from tilewright.measure.lines import decoded
from tilewright.measure.record import TaskId, format_of, is_own
from tilewright.targets.target import Target

PathLike = str | os.PathLike[str]
_LOOKED_AT = 20  # lines of a file that tell whose it is


def source_of(path: PathLike) -> Database | Recommendations:
    """What a log knows: our records, or what one of another program recommends.

    Raises RecordError for a file that is missing, or without a line that can be used.
    """
    format = format_of_log(path)
    if format is None or format.source is None:
        return readable(path)
    return format.source(path)


def format_of_log(path: PathLike) -> Format | None:
    """The format of a log of another program, by its first line that is no comment.

    Raises RecordError for a file that is missing.
    """
    with closing(log_lines(path)) as lines:
        for line in islice(lines, _LOOKED_AT):
            if line is not None and not is_comment(line):
                with suppress(RecordError):
                    told = decoded(line, "line")
                    found: Format | None = None if is_own(told) else format_of(told)
                    return found
    return None


def check_history(
    database: Database, filename: PathLike, target: Target, what: str = "this task"
) -> None:
    """Raises RecordError for a log that has something, but nothing on `target`."""
    targets = {t.target for t in database.tasks()}
    if (targets or database.skipped) and str(target) not in targets:
        raise nothing_valid(database, filename, [], str(target), what)


def nothing_valid(
    database: Database, filename: PathLike, fitting: Sequence[TaskId], target: str | None, what: str
) -> RecordError:
    """Why a log has no schedule: what was expected, and what it holds."""
    place = f"log {os.fspath(filename)!r}"
    reason = f"Cannot find any valid schedule for {what}"
    if target is not None:
        reason += f" on {target}"
    tasks = database.tasks()
    if not tasks:
        database.check_readable(place)
        return RecordError(place, f"{reason}: it is empty", "Tune first.")
    if fitting:
        own = Database()  # failures of other tasks may have the same reason
        for record in (r for t in fitting for r in database.query(t)):
            own.append(record)
        failures = own.failures()
        if not failures:
            return RecordError(place, f"{reason}: no trial was verified", "Tune the task.")
        why = f"{failures[0].kind}: {failures[0].reason}"
        return RecordError(
            place, f"{reason}: every trial failed, most often by {why}", "Tune for longer."
        )
    targets = sorted({t.target for t in tasks})
    if target is not None and target not in targets:
        return RecordError(
            place, f"{reason}: it holds records for {', '.join(targets)}",
            f"Tune for {target}, or ask for what is there.",
        )  # fmt: skip
    names = sorted({key_of(t) for t in tasks if target in (None, t.target)})
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return RecordError(
        place, f"{reason}: it holds {', '.join(names[:3])}{more}", "Tune this workload first."
    )


def key_of(task: TaskId) -> str:
    """The workload key that name and arguments make."""
    return json.dumps([task.name, *task.args])
