"""`say`: lines for the user, which may be lost: what they tell of must not stop with them.

In: text.  Out: the text on standard output, where somebody reads it.
"""

from __future__ import annotations

import sys
from typing import TextIO

from tilewright.base.text import printable


def say(text: str = "", *, begin: str = "", end: str = "\n", stream: TextIO | None = None) -> bool:
    """Write to `stream` (default: standard output) at once; whether that went well.

    Control characters in `text` are spelled out: it may hold names from models and logs.  A pipe
    that was closed and a full disk are no errors here, and characters that the stream cannot encode
    become question marks.
    """
    out = sys.stdout if stream is None else stream
    if out is None:  # this process has no standard output
        return False
    text = begin + printable(text) + end
    try:
        try:
            out.write(text)
        except UnicodeEncodeError:
            encoding = out.encoding or "ascii"
            out.write(text.encode(encoding, "replace").decode(encoding))
        out.flush()
    except (OSError, ValueError):  # ValueError: the stream was closed
        return False
    return True
