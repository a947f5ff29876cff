"""`Computations`: what logs tell of the computations of their records, by hash.

In: lines that tell one (`DagLine`), in files and in memory.  Out: JSON of computations.
A hash says nothing of names, but the steps of records name operations and axes: a computation that
a script and a network name each in their way is told twice, so that the records of both replay.
Read next: `database.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from tilewright.base.dtype import json_name
from tilewright.base.errors import RecordError
from tilewright.measure.lines import decoded
from tilewright.measure.record import DagLine, Line
from tilewright.measure.record_table import LogFile


@dataclass(frozen=True)
class Place:
    """Where a line is that is no record."""

    log: LogFile
    offset: int
    size: int

    def line(self) -> Line:
        """Raises Changed where it is no more."""
        return self.log.line(self.offset, self.size)


class Computations:
    """Knows of each hash every way in which its operations are named, the first told first."""

    def __init__(self) -> None:
        self._told: dict[str, list[msgspec.Raw | Place]] = {}
        self._texts: dict[str, set[bytes]] = {}  # of hashes that were added to

    def add(self, hash: str, dag: Any) -> DagLine | None:
        """Take what `ComputeDAG.to_json` gave; returns its line where none tells it in this way."""
        raw = msgspec.Raw(msgspec.json.encode(dag, enc_hook=json_name))
        if hash not in self._texts:
            self._texts[hash] = set(self._each(hash))
        if bytes(raw) in self._texts[hash]:
            return None
        self._texts[hash].add(bytes(raw))
        self._told.setdefault(hash, []).append(raw)
        return DagLine(hash=hash, dag=raw)

    def take(self, hash: str, places: Iterable[Place]) -> None:
        """Take lines of a file."""
        self._told.setdefault(hash, []).extend(places)
        self._texts.pop(hash, None)

    def keep_memory(self) -> None:
        """Forget what is in files: they are read anew."""
        for hash, told in list(self._told.items()):
            self._told[hash] = [one for one in told if isinstance(one, msgspec.Raw)]
        self._texts.clear()

    def told(self, hash: str) -> Iterator[Any]:
        """Decode every way in which a computation is told; what cannot be read is left out."""
        for text in self._each(hash):
            try:
                yield decoded(text, f"computation {hash}")
            except RecordError:
                continue

    def lines(self) -> Iterator[DagLine]:
        """Give the line of every way in which each computation is told."""
        for hash in self._told:
            for dag in self.told(hash):
                raw = msgspec.Raw(msgspec.json.encode(dag, enc_hook=json_name))
                yield DagLine(hash=hash, dag=raw)

    def _each(self, hash: str) -> Iterator[bytes]:
        """Lines of a file may be copies of each other."""
        seen: set[bytes] = set()
        for raw in map(bytes, self._raws(hash)):
            if raw not in seen:
                seen.add(raw)
                yield raw

    def _raws(self, hash: str) -> Iterator[msgspec.Raw]:
        for one in self._told.get(hash, ()):
            if isinstance(one, msgspec.Raw):
                yield one
                continue
            try:
                line = one.line()
            except RecordError:
                continue
            if isinstance(line, DagLine):
                yield line.dag
