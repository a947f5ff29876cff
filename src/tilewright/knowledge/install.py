"""`use`: a site's folder of knowledge, from a path or an address, becomes part of what counts here.

In: a folder that `tilewright records publish` wrote, or the URL of one.  Out: a copy with the data
of this user.  What is fetched is named by the folder's index, with sizes and digests; nothing else
is.  Nothing is downloaded unless this is called.  Read next: `store.py`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path

import msgspec

from tilewright.base.errors import RecordError
from tilewright.base.output import FileKind, write
from tilewright.knowledge import store
from tilewright.knowledge.store import RECORDS, TREES
from tilewright.knowledge.trees import Trees
from tilewright.measure.database import Database

INDEX = "knowledge.json"
MAX_FILES, MAX_BYTES, INDEX_BYTES = 200, 512 << 20, 1 << 20
_SECONDS = 30.0  # without an answer
_NAME = re.compile(rf"[a-z0-9_-]{{1,80}}/({re.escape(RECORDS)}|{re.escape(TREES)})")
_SITE = re.compile(r"[A-Za-z0-9_.-]{1,80}")


class _Entry(msgspec.Struct, frozen=True):
    bytes: int
    sha256: str


class _Index(msgspec.Struct, frozen=True):
    files: dict[str, _Entry]
    v: int = 1


def write_index(folder: Path) -> None:
    """The list of a folder's files, by which `use` fetches them."""
    found = sorted(p for p in folder.glob("*/*") if p.name in (RECORDS, TREES))
    entries = {
        path.relative_to(folder).as_posix(): _Entry(path.stat().st_size, _digest(path.read_bytes()))
        for path in found
    }
    data = msgspec.json.format(msgspec.json.encode(_Index(entries)))
    write(folder / INDEX, data, _INDEX, f"knowledge {str(folder)!r}", RecordError)


def use(source: str | os.PathLike[str], name: str | None = None) -> Path:
    """Install a folder of knowledge for this user; returns where it is now.

    source: a folder, or the URL (https, http) of one
    name:   what it is called here, default: by its place; one of that name is replaced
    Raises RecordError for what cannot be fetched, is damaged, or is no folder of knowledge: then
    nothing has changed.
    """
    text = os.fspath(source)
    place, fetch = f"knowledge {text!r}", _fetcher(text)
    name = _checked(_default_name(text) if name is None else name, place)
    index = _index(fetch(INDEX, INDEX_BYTES), place)
    home = store.installed()
    try:
        home.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=home, prefix=".new-"))
        try:
            for file, entry in index.files.items():
                data = fetch(file, entry.bytes)
                if len(data) != entry.bytes or _digest(data) != entry.sha256:
                    raise RecordError(
                        place, f"{file} is not the file that its index names",
                        "Publish the folder again.",
                    )  # fmt: skip
                (new / file).parent.mkdir(exist_ok=True)
                (new / file).write_bytes(data)
                _check(new / file)
            forget(name, missing_ok=True)
            os.rename(new, home / name)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    except OSError as error:
        raise RecordError(
            place, f"it cannot be written to {home} ({error.strerror})",
            "Make room there, or name the folder in TILEWRIGHT_KNOWLEDGE.",
        ) from None  # fmt: skip
    return home / name


def forget(name: str, *, missing_ok: bool = False) -> None:
    """Remove what `use` installed under that name.

    Raises RecordError where there is none, and where it cannot be removed.
    """
    place = f"knowledge {name!r}"
    path = store.installed() / _checked(name, place)
    if path.is_dir() and not path.is_symlink():
        try:
            shutil.rmtree(path)
        except OSError as error:
            raise RecordError(
                place, f"{str(path)!r} cannot be removed ({error.strerror})",
                "See who owns it and what is in it.",
            ) from None  # fmt: skip
    elif not missing_ok:
        raise RecordError(
            place, "there is none of that name",
            "`tilewright records use` lists what is there.",
        )  # fmt: skip


def _checked(name: str, place: str) -> str:
    """A folder's name in the folder of all knowledge.  Raises RecordError for anything else."""
    if not _SITE.fullmatch(name) or name.startswith("."):
        raise RecordError(
            place, f"{name!r} is no name for a folder", "Give one of letters, digits, dots and -."
        )
    return name


def _default_name(source: str) -> str:
    path = urllib.parse.urlsplit(source).path if "://" in source else str(Path(source).resolve())
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", path.rstrip("/").rpartition("/")[2])[:80] or "site"


def _index(data: bytes, place: str) -> _Index:
    try:
        index = msgspec.json.decode(data, type=_Index)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise RecordError(place, f"its {INDEX} cannot be read", _WAY_OUT) from None
    total = sum(entry.bytes for entry in index.files.values())
    if len(index.files) > MAX_FILES or not 0 <= total <= MAX_BYTES:
        raise RecordError(
            place, f"it lists {len(index.files)} files of {total} bytes",
            f"At most {MAX_FILES} of {MAX_BYTES >> 20} MiB together are taken.",
        )  # fmt: skip
    for file, entry in index.files.items():
        if not _NAME.fullmatch(file) or entry.bytes < 0:
            raise RecordError(place, f"its {INDEX} names {file[:80]!r}", _WAY_OUT)
    return index


def _check(path: Path) -> None:
    """A folder counts only if all that is in it can be read."""
    if path.name == TREES:
        Trees.load(path)
    else:
        Database.load(path).check_readable(f"{path.parent.name}/{path.name}")


def _fetcher(source: str) -> Callable[[str, int], bytes]:
    """What gives a file of the folder, by its name, of at most so many bytes."""
    if re.match(r"https?://", source):
        return lambda file, most: _downloaded(f"{source.rstrip('/')}/{file}", most)
    if "://" in source:
        raise RecordError(
            f"knowledge {source!r}", "only https and http addresses are fetched", "Give a folder."
        )
    return lambda file, most: _local(Path(source), file, most)


def _local(folder: Path, file: str, most: int) -> bytes:
    try:
        with open(folder / file, "rb") as opened:
            return opened.read(most + 1)
    except OSError as error:
        raise RecordError(
            f"knowledge {str(folder)!r}", f"{file}: {error.strerror}", _WAY_OUT
        ) from None


def _downloaded(url: str, most: int) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as answer:
            found: bytes = answer.read(most + 1)
            return found
    except (OSError, ValueError) as error:  # urllib's own are OSErrors
        reason = getattr(error, "reason", None) or error
        raise RecordError(
            f"knowledge {url!r}", f"it cannot be fetched ({reason})",
            "See whether the address and the network are right.",
        ) from None  # fmt: skip


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _is_index(path: Path) -> bool:
    try:
        _index(path.read_bytes(), "")
    except RecordError:
        return False
    return True


_INDEX = FileKind("an index of knowledge", _is_index)
_WAY_OUT = "Give a folder that `tilewright records publish` wrote."
