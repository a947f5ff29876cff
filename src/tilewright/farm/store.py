"""`Store`: files that were sent to a device, by what is in them, so that each is sent once.

In: parts of files.  Out: paths.  A file counts when all of it is there and its hash is its name.
Those used longest ago go when there are too many.  Read next: `board.py`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from tilewright.base.errors import DeviceError
from tilewright.farm import wire
from tilewright.measure.run_folder import RunFolder

MOST_BYTES = 8 << 30


def hash_of(data: bytes | bytearray | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


class Store:
    """In a folder of its own, which goes with it.  most_bytes: of all files together."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._folder = RunFolder()
        self.path = self._folder.path
        self._most = most_bytes
        self._sizes: OrderedDict[str, int] = OrderedDict()  # used last: at the end
        self._sets: dict[str, frozenset[str]] = {}  # folder -> the files it holds

    def __contains__(self, name: str) -> bool:
        return name in self._sizes

    def get(self, name: str) -> Path:
        self._sizes.move_to_end(name)
        return self.path / name

    def add(self, name: str, incoming: Incoming) -> None:
        """Take a file that is complete.  Raises DeviceError where its content has another hash."""
        if incoming.digest != name:
            raise DeviceError(f"file {name[:12]}", "its content has another hash", "Send it again.")
        incoming.move(self.path / name)
        self._sizes[name] = incoming.total
        while len(self._sizes) > 1 and sum(self._sizes.values()) > self._most:
            self._drop(next(iter(self._sizes)))

    def folder(self, files: Iterable[tuple[str, str]]) -> Path:
        """A folder with stored files under other names: (name, hash).  Equal for equal files."""
        listed = sorted(files)
        made = self.path / hash_of(repr(listed).encode())[:32]
        for _, name in listed:
            self._sizes.move_to_end(name)
        if made.name not in self._sets:
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
            for alias, name in listed:
                os.link(self.path / name, made / alias)
            self._sets[made.name] = frozenset(name for _, name in listed)
        return made

    def close(self) -> None:
        self._folder.close()

    def _drop(self, name: str) -> None:
        del self._sizes[name]
        (self.path / name).unlink(missing_ok=True)
        for folder in [f for f, names in self._sets.items() if name in names]:
            del self._sets[folder]
            shutil.rmtree(self.path / folder, ignore_errors=True)


class Incoming:
    """A file on its way, part by part, at `path`; it is removed unless it is moved."""

    def __init__(self, path: Path, total: int) -> None:
        self.path, self.total = path, total
        self._at = 0
        self._hash = hashlib.sha256()
        self._file: BinaryIO = open(path, "wb")  # noqa: SIM115  # closed by `move` and `drop`

    @property
    def is_complete(self) -> bool:
        return self._at == self.total

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def write(self, part: wire.Part) -> None:
        """Raises DeviceError where it is not the next part, OSError where it cannot be kept."""
        if part.at != self._at or part.total != self.total or part.at + len(part.data) > self.total:
            raise DeviceError(
                f"file {part.name[:40]}", "its parts do not follow each other", "Send it again."
            )
        self._file.write(part.data)
        self._hash.update(part.data)
        self._at += len(part.data)

    def move(self, path: Path) -> None:
        self._file.close()
        self.path.replace(path)

    def drop(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)


def hashes(files: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """(name, hash of the content) of files that are in memory."""
    return tuple((name, hash_of(data)) for name, data in sorted(files.items()))
