"""`autotvm.record`: reading logs back: `load_from_file`, `pick_best`."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tilewright.measure.database import Database, pick_best
from tilewright.measure.record import Record

__all__ = ["load_from_file", "pick_best"]


def load_from_file(filename: str | os.PathLike[str]) -> Iterator[Record]:
    """The records of a log, oldest first; lines that cannot be read are left out.

    `tuner.load_history` takes them.
    """
    return iter(Database.load(filename))
