"""Modules of LLVM that others wrote, whose functions kernels call.

In: their texts.  Out: a table by function; lines that carry a text inside that of a kernel, as a
comment, from which the compiler takes it again.  Read next: `driver/llvm.py`, which links it.
"""

from __future__ import annotations

import base64
import re

_HEAD = "; includes "
_DEFINITION = re.compile(r"^define\b[^@\n]*@\"?([\w.$]+)\"?\(", re.M)
DEFINED: dict[str, str] = {}


def define(text: str) -> list[str]:
    """Make the functions that a module defines known; their names."""
    names = _DEFINITION.findall(text)
    DEFINED.update(dict.fromkeys(names, text))
    return names


def included(text: str) -> str:
    """A line with a module in it."""
    return _HEAD + base64.b64encode(text.encode()).decode()


def modules_of(text: str) -> list[str]:
    """The modules that the lines at its begin have."""
    found = []
    for line in text.splitlines():
        if not line.startswith(_HEAD):
            break
        found.append(base64.b64decode(line.removeprefix(_HEAD)).decode())
    return found
