"""Text that others wrote, made harmless for a terminal.

In: names, reasons, messages, as logs, models and compilers have them.  Out: the same text with its
control characters spelled out.  Whoever prints or raises such text calls this; what reads files
does not change it.
"""

from __future__ import annotations

import re

# C0 but tab and newline, DEL, C1, and what turns the direction of a line around.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)

_ENDLESS = re.compile(r"\S{501,}")


def printable(text: str) -> str:
    """`text` with control characters as Python writes them, such as `\\x1b`.

    Newlines and tabs stay.
    """
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def shortened(text: str) -> str:
    """`text` where names without end, of more than 500 characters, are their two ends."""
    return _ENDLESS.sub(lambda found: f"{found[0][:60]}...{found[0][-20:]}", text)
