"""Folders of knowledge: `CLASS/records.jsonl`, the best of each task, and `CLASS/trees.msgpack`.

In: a target.  Out: the databases and the trees of its class of device, those that count more first:
folders that TILEWRIGHT_KNOWLEDGE names, those that `use` installed, what ships with the package.
They are read like any log of a stranger.  Read next: `install.py`, `trees.py`.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from tilewright.base import environment
from tilewright.base.errors import RecordError
from tilewright.knowledge.device_class import device_class, device_classes, machine_class
from tilewright.knowledge.trees import Trees
from tilewright.measure.database import Database, readable
from tilewright.targets.target import Target

RECORDS, TREES = "records.jsonl", "trees.msgpack"
SHIPPED = Path(__file__).parent / "shipped"


def installed() -> Path:
    """Where `use` puts folders: with the data of this user."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "tilewright" / "knowledge"


def folders() -> list[Path]:
    """Those in force, the first counts most.  None where TILEWRIGHT_KNOWLEDGE is "off".

    Raises RecordError for a folder that the variable names and that is not there.
    """
    said = environment.knowledge()
    if said.lower() in ("off", "0", "no"):
        return []
    named = [Path(part).expanduser() for part in said.split(os.pathsep) if part]
    for folder in named:
        if not folder.is_dir():
            raise RecordError(
                f"TILEWRIGHT_KNOWLEDGE={said!r}", f"{str(folder)!r} is no folder",
                "Name folders that `tilewright records publish` wrote, or off.",
            )  # fmt: skip
    return [*named, *_added(), SHIPPED]


def _added() -> list[Path]:
    try:
        return sorted(p for p in installed().iterdir() if p.is_dir() and p.name[0] != ".")
    except (OSError, RuntimeError):  # none yet; this user has no home
        return []


def records(target: Target) -> list[list[Database]]:
    """Records for devices of the target's class, one of each folder that has some; then those of
    the next class that counts for it, and so on (`device_classes`).  Classes without are left out.

    Lines that are skipped are told in a RuntimeWarning.  Raises RecordError for a file of records
    of which no line can be read.
    """
    files = [_files(name, RECORDS) for name in device_classes(target)]
    return [[_database(*_state(path)) for path in of] for of in files if of]


def trees(target: Target) -> Trees | None:
    """What the search for devices of the target's class begins with: of the first folder that has
    trees, those of its precision before others.  Raises ModelError for a file that holds none."""
    classes = dict.fromkeys((device_class(target), machine_class(target)))
    found = [path for of in classes for path in _files(of, TREES)]
    return _trees(*_state(found[0])) if found else None


def _files(of: str, name: str) -> list[Path]:
    """Those of a class, one of each folder that has it."""
    return [path for folder in folders() if (path := folder / of / name).is_file()]


def _state(path: Path) -> tuple[Path, int, int]:
    """A file, and what changes when it does."""
    at = path.stat()
    return path, at.st_mtime_ns, at.st_size


@lru_cache(maxsize=8)
def _database(path: Path, modified: int, size: int) -> Database:
    return readable(path)


@lru_cache(maxsize=8)
def _trees(path: Path, modified: int, size: int) -> Trees:
    return Trees.load(path)
