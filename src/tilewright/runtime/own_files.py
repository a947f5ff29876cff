"""Which files are of ours: only such a file gives way to another one of its kind.

In: a path.  Out: whether it is a library or an artefact, as `load_module` reads, or one of its
texts.  Read next: `load.py`, `base/output.py`.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from tilewright.base.errors import DeviceError, TilewrightError
from tilewright.base.output import FileKind, PathLike, beginning, write
from tilewright.runtime.artifact_file import MAGIC, OBJECT

HEADER = "network.json"  # the first member of every library
_ZIP, _NAME_AT = b"PK\3\4", 30  # of the first member's name
_MARK = "Written by Tilewright"
_COMMENTS = {".ll": ";", ".s": "#", ".asm": "#", ".cu": "//", ".cl": "//"}


def _is_loadable(path: Path) -> bool:
    with open(path, "rb") as file:
        head = file.read(_NAME_AT + len(HEADER))
        file.seek(-min(len(MAGIC), os.stat(path).st_size), os.SEEK_END)
        foot = file.read()
    if head.startswith((MAGIC, HEADER.encode())) or foot == MAGIC:
        return True
    if head.startswith(_ZIP):
        return head[_NAME_AT:] == HEADER.encode()
    if not head.startswith(OBJECT) or not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return HEADER in archive.namelist()
    except zipfile.BadZipFile:
        return False


LIBRARY = FileKind("a compiled network or kernel", _is_loadable)
_MARKS = [f"{comment} {_MARK}".encode() for comment in _COMMENTS.values()]
TEXT = FileKind("a text that Tilewright wrote", beginning(*_MARKS))


def write_source(
    path: PathLike, text: str, place: str, error: type[TilewrightError] = DeviceError
) -> None:
    """Write the text of kernels, behind a line that says where it is from; see `output.write`."""
    comment = _COMMENTS.get(Path(path).suffix, "//")
    write(path, f"{comment} {_MARK}.\n{text}".encode(), TEXT, place, error)
