"""A long log in parts, by several processes: the first load of one takes that much less time.

In: contents of a log and how far it was read.  Out: the same contents further on, as if this
process had read it all.  Where a process fails, or its part would not be told the same, the rest is
left to the caller, who reads on.  Read next: `contents.py`, `pool.py`.
"""

from __future__ import annotations

import os
from concurrent.futures import Future
from pathlib import Path

from tilewright.base.errors import RecordError, TilewrightError
from tilewright.measure.contents import Contents
from tilewright.measure.lines import LINE_BYTES
from tilewright.measure.pool import WorkerFailure, WorkerPool

PART_BYTES = 256 << 20  # takes longer to read than a process to start
_SLOWEST = 4 << 20  # bytes a second


def read_ahead(contents: Contents, path: Path, file: int) -> None:
    """Take in most of what is left of the log `path`, open as `file`, if that is much."""
    todo = os.fstat(file).st_size - contents.covered
    count = min(len(os.sched_getaffinity(0)), todo // PART_BYTES)
    if count < 2:
        return
    wanted = (contents.covered + todo * k // count for k in range(1, count))
    begins = [contents.covered, *filter(None, (_line_after(file, at) for at in wanted))]
    end = _line_after(file, contents.covered + todo - LINE_BYTES)
    if end is None:
        return
    spans = list(zip(begins, [*begins[1:], end], strict=True))
    status = os.fstat(file)
    whose = (status.st_dev, status.st_ino)
    with WorkerPool(len(spans) - 1) as pool:
        others: list[Future[Contents]] = [
            pool.submit(read_part, str(path), whose, *span, timeout=30 + todo / _SLOWEST)
            for span in spans[1:]
        ]
        contents.read(file, spans[0][1])
        try:
            for (begin, _), part in zip(spans[1:], others, strict=True):
                if contents.covered != begin or not contents.join(part.result()):
                    return
        except (WorkerFailure, TilewrightError):  # no process, no memory, another file by now
            return


def read_part(path: str, whose: tuple[int, int], begin: int, end: int) -> Contents:
    """Lines of the log between two places where lines begin.  Raises RecordError, OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(file)
        if (status.st_dev, status.st_ino) != whose:
            raise RecordError(f"log {path}", "it was replaced", "Load it again.")
        found = Contents()
        found.covered = begin
        found.read(file, end)
    finally:
        os.close(file)
    return found


def _line_after(file: int, offset: int) -> int | None:
    """Where the first line begins behind `offset`; None where that one is too long, or the last."""
    found = os.pread(file, LINE_BYTES, offset).find(b"\n")
    return None if found < 0 else offset + found + 1
