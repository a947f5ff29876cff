"""The index of a log: what `contents.py` found in it, kept between processes.

In: an open log.  Out: its contents; of a log that was read before, only what was appended since is
read again.  The log stays the truth: an index that does not fit it, or is damaged, is made anew,
and a record that is used is decoded from the log and compared (`record_table.py`).

It lies in the user's cache, not beside the log: logs are mailed, committed and shared, and what a
stranger says of a log is worth nothing.  Small logs have none.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import tempfile
import zlib
from pathlib import Path

import msgspec
import numpy as np

from tilewright.driver.cache import default_cache
from tilewright.measure.contents import ROW, Contents, Place
from tilewright.measure.parallel_load import read_ahead
from tilewright.measure.record import TaskId

FROM_BYTES = 4 << 20  # of log that is not covered yet, for which an index is written
_MAGIC = b"TWLOG\x00\x00\x01"  # the last byte is the version of the format
_SAMPLE = 64 << 10  # bytes at both ends of what is covered that must be the same
_MOST = 64  # indices that are kept


class _Header(msgspec.Struct):
    """Of which file it is and what is covered of it; everything of `Contents` but the rows."""

    path: str
    file: tuple[int, int]  # device, inode
    size: int
    modified: int
    ends: str
    covered: int
    lines: int
    tasks: list[TaskId]
    origins: list[str]
    dags: dict[str, list[Place]]
    runs: list[Place]
    skipped: dict[str, tuple[int, list[int]]]
    rows: int


def contents_of(path: Path, file: int, *, fresh: bool = False) -> tuple[Contents, Contents | None]:
    """What the log `path`, open as `file`, holds, and what its last, torn line does (None: none).

    fresh: read all of it, whatever the index says
    """
    place = _place(path) if os.fstat(file).st_size >= FROM_BYTES else None
    known = None if place is None or fresh else _load(place, file)
    contents = Contents() if known is None else known
    before = contents.covered
    read_ahead(contents, path, file)
    torn = contents.read(file)
    if place is not None and contents.covered - before >= FROM_BYTES:
        _save(place, path, file, contents)
    return contents, torn


def forget(path: Path) -> None:
    """Drop the index of a log: what it said was not true."""
    place = _place(path)
    if place is not None:
        with contextlib.suppress(OSError):
            place.unlink()


def _place(path: Path) -> Path | None:
    directory = default_cache().directory
    if directory is None:
        return None
    name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]
    return directory / "logs" / f"{name}.index"


def _ends(file: int, covered: int) -> str:
    """A digest of the first and the last bytes that are covered."""
    size = min(_SAMPLE, covered)
    both = os.pread(file, size, 0) + os.pread(file, size, covered - size)
    return hashlib.sha256(both).hexdigest()


def _load(place: Path, file: int) -> Contents | None:
    """What is kept, where it is of this file, to which nothing happened but appends."""
    try:
        data = _own_bytes(place)
        crc, size = struct.unpack_from("<II", data, len(_MAGIC))
        begin = len(_MAGIC) + 8
        if data[: len(_MAGIC)] != _MAGIC or zlib.crc32(data[begin:]) != crc:
            return None
        header = msgspec.msgpack.decode(data[begin : begin + size], type=_Header)
        rows = np.frombuffer(data[begin + size :], ROW)
        status = os.fstat(file)
    except (OSError, ValueError, struct.error, msgspec.MsgspecError, RecursionError):
        return None
    same = header.file == (status.st_dev, status.st_ino)
    changed = status.st_size == header.size and status.st_mtime_ns != header.modified
    if not same or changed or status.st_size < header.covered or len(rows) != header.rows:
        return None
    if _ends(file, header.covered) != header.ends:
        return None
    if len(rows) and not (
        0 <= rows["task"].min() <= rows["task"].max() < len(header.tasks)
        and 0 <= rows["origin"].min() <= rows["origin"].max() < len(header.origins)
        and rows["offset"].min() >= 0
        and rows["size"].min() > 0
    ):
        return None
    return _contents(header, rows)


def _own_bytes(place: Path) -> bytes:
    """Raises OSError for a file of another user, too."""
    with place.open("rb") as f:
        if hasattr(os, "getuid") and os.fstat(f.fileno()).st_uid != os.getuid():
            raise PermissionError(f"{place} is another user's")
        return f.read()


def _contents(header: _Header, rows: np.ndarray) -> Contents:
    found = Contents()
    found.rows, found.covered, found.lines = rows, header.covered, header.lines
    found.dags, found.runs = header.dags, header.runs
    for reason, (count, numbers) in header.skipped.items():
        found.skipped[reason] = count
        found.skipped.lines[reason] = numbers
    found.name(header.tasks, header.origins)
    return found


def _save(place: Path, path: Path, file: int, contents: Contents) -> None:
    """Written beside and renamed; where it cannot be written, the next process reads all again."""
    status, skipped = os.fstat(file), contents.skipped
    header = _encoded(
        _Header(
            path=os.path.realpath(path), file=(status.st_dev, status.st_ino), size=status.st_size,
            modified=status.st_mtime_ns, ends=_ends(file, contents.covered),
            covered=contents.covered, lines=contents.lines, tasks=contents.tasks,
            origins=contents.origins, dags=contents.dags, runs=contents.runs,
            skipped={why: (n, skipped.lines.get(why, [])) for why, n in skipped.items()},
            rows=len(contents.rows),
        )
    )  # fmt: skip
    if header is None:
        return
    body = header + contents.rows.tobytes()
    with contextlib.suppress(OSError):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(_MAGIC + struct.pack("<II", zlib.crc32(body), len(header)))
                f.write(body)
            os.replace(temporary, place)
        except BaseException:  # Ctrl-C too
            os.unlink(temporary)
            raise
        _prune(place.parent)


def _encoded(header: _Header) -> bytes | None:
    """None where a line has an integer of more than 64 bits among the arguments of its task."""
    try:
        return msgspec.msgpack.encode(header)
    except OverflowError:
        return None


def _prune(directory: Path) -> None:
    """Keep those that were made last; what killed processes left counts as one."""
    entries = sorted(directory.iterdir(), key=lambda p: p.stat().st_mtime, reverse=True)
    for old in entries[_MOST:]:
        old.unlink()
