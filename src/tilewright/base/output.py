"""Files that a user asked for: written whole or not at all, and never over something else.

In: a path, how to write the file, how to tell files of its kind.  Out: the file.  Where writing
fails, or the process is killed, what was there before is still there, whole.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tilewright.base.errors import TilewrightError

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class FileKind:
    """what: in words, such as "a log"; is_one: whether a file is of this kind"""

    what: str
    is_one: Callable[[Path], bool]


def beginning(*magics: bytes, at: int = 0) -> Callable[[Path], bool]:
    """Whether a file has one of these bytes at a place near its begin."""

    def found(path: Path) -> bool:
        with open(path, "rb") as file:
            return file.read(at + max(map(len, magics)))[at:].startswith(magics)

    return found


def check(path: PathLike, kind: FileKind, place: str, error: type[TilewrightError]) -> None:
    """Raises `error` where `path` is a file of another kind, or none that can be, or its folder is
    not there or cannot be written to.  Files without content are of no kind."""
    file = Path(path)
    if "\0" in str(file):
        raise error(place, "no path has a NUL character in it", "Check the path.")
    try:
        other = file.is_file() and file.stat().st_size > 0 and not kind.is_one(file)
        if not file.exists():
            _check_folder(os.path.dirname(os.path.realpath(file)))
    except OSError as found:
        raise _unwritable(place, found, error) from None
    if other:
        raise error(
            place, f"{os.fspath(path)!r} is there and is not {kind.what}, so it is not replaced",
            "Name another file, or remove that one first.",
        )  # fmt: skip


def _check_folder(folder: str) -> None:
    if not stat.S_ISDIR(os.stat(folder).st_mode):
        raise NotADirectoryError(20, os.strerror(20))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(13, os.strerror(13))


@contextmanager
def replacing(
    path: PathLike, kind: FileKind, place: str, error: type[TilewrightError]
) -> Iterator[str]:
    """The name of a file to write, which takes the place of `path` when the block ends well.

    A device or a pipe is written as it is.  Raises `error` about `place` for a file of another
    kind, see `check`, and for what cannot be written.
    """
    check(path, kind, place, error)
    whole = os.path.realpath(path)  # a link stays one
    made = os.path.join(os.path.dirname(whole), f".new-{os.urandom(8).hex()}")
    try:
        before = os.stat(whole) if os.path.lexists(whole) else None
        if before is not None and not stat.S_ISREG(before.st_mode):
            yield whole  # what is a folder, `open` refuses
            return
        if before is not None and not os.access(whole, os.W_OK):
            raise PermissionError(13, os.strerror(13))  # renaming would not ask
        yield made
        if before is not None:
            os.chmod(made, stat.S_IMODE(before.st_mode))
        os.replace(made, whole)
    except OSError as found:
        raise _unwritable(place, found, error) from None
    finally:
        with suppress(OSError):
            os.unlink(made)


def write(
    path: PathLike, data: bytes, kind: FileKind, place: str, error: type[TilewrightError]
) -> None:
    """Write a file whose content is at hand, see `replacing`."""
    with replacing(path, kind, place, error) as made:
        Path(made).write_bytes(data)


def _unwritable(place: str, found: OSError, error: type[TilewrightError]) -> TilewrightError:
    return error(
        place, f"it cannot be written ({found.strerror or found})",
        "Name a file in a folder that exists and that you may write to.",
    )  # fmt: skip
