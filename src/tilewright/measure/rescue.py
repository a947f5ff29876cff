"""Logs that cannot be written: known before anything is measured, or what becomes of the results
then, another file, or the terminal's last word.

In: a path; the lines that are in memory only.  Out: the error that says where they are now.
Read next: `database.py`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from tilewright.base.errors import RecordError

_FOLDERS: tuple[Callable[[], str | Path], ...] = (tempfile.gettempdir, Path.home, Path.cwd)


def can_be_made(log: Path) -> bool:
    """Whether there is nothing yet, and a file can be made.  Raises RecordError where it cannot."""
    try:
        log.lstat()
        return False
    except FileNotFoundError:
        if not os.access(log.parent, os.F_OK):
            raise unwritable(log, OSError(errno.ENOENT, os.strerror(errno.ENOENT))) from None
    except OSError as error:
        raise unwritable(log, error) from None
    if not os.access(log.parent, os.W_OK | os.X_OK):
        raise unwritable(log, OSError(errno.EACCES, os.strerror(errno.EACCES)))
    return True


def unwritable(log: Path, error: OSError) -> RecordError:
    return RecordError(
        f"log {log}", f"it cannot be written ({error.strerror or error})",
        "Name a file in a directory that exists and that you may write to.",
    )  # fmt: skip


def save_elsewhere(log: Path, lines: Sequence[bytes]) -> Path | None:
    """A new file with the lines of `log`, in the first folder that takes all of them; or None."""
    for folder in _FOLDERS:
        with contextlib.suppress(OSError, RuntimeError):  # there is no such folder, or no space
            handle, name = tempfile.mkstemp(".jsonl", f"{log.stem}-rescued-", folder())
            try:
                with os.fdopen(handle, "wb") as f:
                    f.writelines(lines)
                    f.flush()
                    os.fsync(handle)
                return Path(name)
            except BaseException:
                os.unlink(name)
                raise
    return None


def not_written(log: Path, reason: str, lines: Sequence[bytes], file: Path | None) -> RecordError:
    """The error of a log that cannot be written.  file: where its lines were saved"""
    place = f"log {log}"
    if file is not None:
        return RecordError(
            place, f"{reason}; {len(lines)} lines are not in it, but in {file}",
            "Free some space and append that file to the log.",
        )  # fmt: skip
    return RecordError(
        place, f"{reason}; {len(lines)} lines are not in it, and no other folder takes them",
        "\n".join(["Keep these, the best of each task, in a log of their own:", *_best(lines)]),
    )  # fmt: skip


def _best(lines: Sequence[bytes]) -> list[str]:
    """The fastest record of each computation among these lines."""
    best: dict[object, tuple[float, str]] = {}
    for line in lines:
        data = msgspec.json.decode(line)
        costs = data.get("result", {}).get("costs")
        if data.get("kind") != "record" or not costs or not data["result"].get("verified"):
            continue
        task, found = data["task"]["dag"], (statistics.median(costs), line.decode().strip())
        best[task] = min(best.get(task, found), found)
    return [text for _, text in best.values()]
