"""`Store`: files that were sent to a device, by what is in them, so that each is sent once.

In: parts of files.  Out: paths.  A file counts when all of it is there and its hash is its name.
Those used longest ago go when there are too many.  `Arrivals` says whether there is room for one.
Read next: `board.py`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from tilewright.base.errors import DeviceError
from tilewright.farm import bounds, wire
from tilewright.farm.session_calls import plain_name
from tilewright.measure.run_folder import RunFolder


def hash_of(data: bytes | bytearray | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


class Store:
    """In a folder of its own, which goes with it.  most_bytes: of all files together."""

    def __init__(self, most_bytes: int = bounds.STORED_BYTES) -> None:
        self._folder = RunFolder()
        self.path = self._folder.path
        self._most = most_bytes
        self._sizes: OrderedDict[str, int] = OrderedDict()  # used last: at the end
        self._sets: OrderedDict[str, frozenset[str]] = OrderedDict()  # folder -> files; used last

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
        while len(self._sizes) > 1 and (
            sum(self._sizes.values()) > self._most or len(self._sizes) > bounds.STORED_FILES
        ):
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
        self._sets.move_to_end(made.name)
        while len(self._sets) > bounds.STORED_FOLDERS:
            oldest, _ = self._sets.popitem(last=False)
            shutil.rmtree(self.path / oldest, ignore_errors=True)
        return made

    def close(self) -> None:
        self._folder.close()

    def _drop(self, name: str) -> None:
        del self._sizes[name]
        (self.path / name).unlink(missing_ok=True)
        for folder in [f for f, names in self._sets.items() if name in names]:
            del self._sets[folder]
            shutil.rmtree(self.path / folder, ignore_errors=True)


class Arrivals:
    """Files on their way to one device: to `path`, or to folders of sessions in it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._coming: dict[Incoming, Path] = {}  # with the folders they are for

    def begin(self, folder: Path, part: wire.Part) -> Incoming:
        """Room for a file.  Raises DeviceError where there is none, OSError."""
        if folder != self._path:
            self._check_session(folder, plain_name(part.name), part.total)
        elif part.total > bounds.STORED_BYTES:
            raise _too_large(part.name, f"more than {bounds.STORED_BYTES >> 30} GiB")
        rest = sum(one.rest for one in self._coming)
        if shutil.disk_usage(self._path).free - rest - part.total < bounds.FREE_BYTES:
            raise DeviceError(
                "device's disk", f"a file of {part.total} bytes cannot be kept there",
                "Free some space on it, or set TMPDIR of its server to a larger directory.",
            )  # fmt: skip
        handle, path = tempfile.mkstemp(prefix="part-", dir=folder)
        os.close(handle)
        incoming = Incoming(Path(path), part.total)
        self._coming[incoming] = folder
        return incoming

    def end(self, incoming: Incoming) -> None:
        """It is there, or will not come."""
        self._coming.pop(incoming, None)

    def _check_session(self, folder: Path, name: str, total: int) -> None:
        """Raises DeviceError where the files of a session, or of all, become too many."""
        coming = {one: place for one, place in self._coming.items() if place != self._path}
        sizes = {path: path.stat().st_size for path in self._path.glob("session-*/*")}
        sizes |= {one.path: one.total for one in coming}
        sizes.pop(folder / name, None)  # it takes that one's place
        mine = [size for path, size in sizes.items() if path.parent == folder]
        if len(mine) >= bounds.SESSION_FILES:
            raise _too_large(name, f"a session has at most {bounds.SESSION_FILES} files")
        if sum(mine) + total > bounds.SESSION_BYTES:
            raise _too_large(name, f"those of a session have {bounds.SESSION_BYTES >> 30} GiB")
        if sum(sizes.values()) + total > bounds.SESSIONS_BYTES:
            raise _too_large(name, f"all sessions have {bounds.SESSIONS_BYTES >> 30} GiB")


def _too_large(name: str, why: str) -> DeviceError:
    return DeviceError(f"file {name[:40]}", why, "Remove others first: remote.remove(name).")


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
    def rest(self) -> int:
        """Bytes that are still to come."""
        return self.total - self._at

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
