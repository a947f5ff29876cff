"""Where records come from: logs of ours or of AutoTVM, open files, records, pairs.

In: any of these.  Out: records in a database, and lines of AutoTVM in a `History`.
Read next: `history.py`.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterable
from typing import Any

from tilewright.base.errors import RecordError
from tilewright.measure.database import Database, readable
from tilewright.measure.importing import log_lines
from tilewright.measure.lines import Skipped
from tilewright.measure.record import DagLine, Record, read
from tilewright.measure.sources import format_of_log
from tilewright_tvm.logs.autotvm_line import AUTOTVM, read_autotvm
from tilewright_tvm.logs.history import History


def recommended(path: str | os.PathLike[str]) -> History:
    """What a log of AutoTVM recommends.

    Raises RecordError for a file that is missing, or without a line that can be used.
    """
    found = History()
    _load_log(found, path)
    return found


def _load_log(foreign: History, path: str | os.PathLike[str]) -> None:
    before = len(foreign)
    foreign.load(log_lines(path))
    _tell(foreign.unusable, f"log {os.fspath(path)!r}", len(foreign) > before)


def load_into(database: Database | None, foreign: History, source: Any) -> bool:
    """Add what `source` holds; whether it is of ours.

    database: None for a path of a log of ours, which is then not read
    """
    if isinstance(source, (str, os.PathLike)):
        format = format_of_log(source)
        if format is not None and format.name == AUTOTVM:
            _load_log(foreign, source)
            return False
        if database is not None:
            _copy(readable(source), database)
        return True
    if isinstance(source, Database):
        _copy(source, _needed(database))
    elif isinstance(source, Record):
        _needed(database).append(source, None)
    elif isinstance(source, io.IOBase) or hasattr(source, "readline"):
        _load_lines(_needed(database), foreign, source)
    elif isinstance(source, tuple) and len(source) == 2 and hasattr(source[0], "config"):
        _load_pair(_needed(database), foreign, *source)
    elif isinstance(source, Iterable):
        known = getattr(source, "database", None)
        for one in source:
            if isinstance(one, Record) and isinstance(known, Database):
                _needed(database).append(one, known.dag(one.task.dag))
            else:
                load_into(_needed(database), foreign, one)
    else:
        raise RecordError(
            f"records {source!r:.100}", "neither a log nor records",
            "Give the path of a log, or what load_from_file gives.",
        )  # fmt: skip
    return True


def _needed(database: Database | None) -> Database:
    assert database is not None
    return database


def _tell(unusable: Skipped, place: str, some: bool) -> None:
    if not some:
        told = "; ".join(unusable.told()) or "it is empty"
        raise RecordError(place, f"no line can be used: {told}", "Check where it comes from.")
    if unusable:
        told = "; ".join(unusable.told())
        warnings.warn(f"{place}: skipped {told}", RuntimeWarning, stacklevel=5)


def _copy(source: Database, database: Database) -> None:
    for record in source:
        database.append(record, source.dag(record.task.dag))


def _load_lines(database: Database, foreign: History, file: Any) -> None:
    """Lines of an open file, of ours and of AutoTVM."""
    dags: dict[str, Any] = {}
    skipped, some = Skipped(), False
    for number, text in enumerate(file, 1):
        line = text.encode(errors="surrogatepass") if isinstance(text, str) else text
        if not line.strip() or line[:1] == b"#":
            continue
        found, reason = read(line)
        if isinstance(found, DagLine):
            dags[found.hash] = found.dag
        elif isinstance(found, Record):
            database.append(found, dags.get(found.task.dag))
            some = True
        elif reason == f"a line of {AUTOTVM}":
            try:
                foreign.add(read_autotvm(line))
                some = True
            except RecordError as error:
                skipped.note(error.reason, number)
        elif found is None:
            skipped.note(reason, number)
    _tell(skipped, f"file {getattr(file, 'name', file)!r:.100}", some)


def _load_pair(database: Database, foreign: History, given: Any, result: Any) -> None:
    record = getattr(result, "record", None)
    if isinstance(record, Record):
        database.append(record, given.task.dag.to_json())
    elif result.error_no == 0:
        foreign.tell(
            given.task.target, given.task.name, given.task.args, given.config, result.costs
        )
