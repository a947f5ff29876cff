"""`RunFolder`: a temporary folder that belongs to one run; it goes with that or with the next one.

In: nothing.  Out: a path.  Whose folder it is tells a lock on it, not the number of a process: runs
in different containers may share the folder of temporary files, but not their numbers, and the
kernel frees the lock of a process that was killed.  Read next: `reference.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path

PREFIX = "tilewright-run-"


class RunFolder:
    """A new folder among the temporary files; what killed runs left there is removed first.

    It is removed by `close`, with the object, or at exit; not by a process that forked from this
    one.  Raises OSError where there is no space for it.
    """

    def __init__(self) -> None:
        parent = Path(tempfile.gettempdir())
        sweep(parent)
        self.path, lock = _made(parent)
        self._finalizer = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def close(self) -> None:
        self._finalizer()


def sweep(parent: Path) -> None:
    """Remove the folders whose lock is free: their runs are no more."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another's, or just removed
            lock = _open(folder)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _made(parent: Path) -> tuple[Path, int]:
    """A new folder and its lock.  Another run may sweep it away before it is locked."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        try:
            lock = _open(folder)
        except FileNotFoundError:
            continue
        with contextlib.suppress(OSError):  # a file system without locks, where nobody sweeps
            fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder, lock
        os.close(lock)


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _remove(folder: Path, lock: int, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)
