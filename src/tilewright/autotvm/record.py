"""`autotvm.record`: reading logs back: `load_from_file`, `pick_best`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import SpaceError, absent
from tilewright.measure.database import Database, pick_best
from tilewright.measure.record import Record
from tilewright.search.transfer import read_history

__all__ = ["load_from_file", "pick_best"]

_ELSEWHERE = {
    "decode": "Use tilewright.measure.record.decode.",
    "encode": "Use tilewright.measure.record.encode.",
    "load_from_buffer": "Write it to a file and use load_from_file.",
    "split_workload": "Use tilewright.measure.Database.load(log).query(...).",
}


class Records(Iterator[Record]):
    """The records of a log, oldest first.  database: the log, which tells what they computed."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._left = iter(database)

    def __next__(self) -> Record:
        return next(self._left)


def load_from_file(filename: str | os.PathLike[str]) -> Records:
    """The records of a log, oldest first; lines that cannot be read are left out, with a warning.

    `tuner.load_history` takes them.  Of a log of TVM, the lines that function templates of this
    process can be found for.  Raises RecordError for a log of another program.
    """
    return Records(read_history([filename]))


open_doors(globals(), __all__, SpaceError)


def __getattr__(name: str) -> Any:
    raise absent("autotvm.record", name, _ELSEWHERE)
