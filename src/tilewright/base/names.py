"""Names from elsewhere that become names of files: in the folder that was meant, and nowhere else.

In: what a user typed, or a stranger sent.  Out: the same, or an error.
"""

from __future__ import annotations

import os
import re

from tilewright.base.errors import TilewrightError

_LONGEST = 200  # bytes; file systems take 255, and temporary names are made of them


def is_plain(name: str) -> bool:
    """Whether it is the name of a file or folder in whatever folder it is put behind."""
    return (
        name not in ("", ".", "..")
        and name.isprintable()
        and not any(mark and mark in name for mark in ("/", "\\", os.sep, os.altsep))
        and len(name.encode()) <= _LONGEST
    )


def as_plain(text: str) -> str:
    """`text`, or a plain name that is like it."""
    return text if is_plain(text) else re.sub(r"\W", "_", text)[: _LONGEST // 4] or "_"


def plain_name(name: str, place: str, error: type[TilewrightError]) -> str:
    """`name`, where it is plain.  Raises `error` about `place` for anything else."""
    if not is_plain(name):
        raise error(place, f"{name[:80]!r} is no plain name", "Leave out folders and odd letters.")
    return name
