"""HTML and SVG as text in which nothing that was given can become markup.

In: names of elements, attributes, children.  Out: `Html`.  A child that is a plain `str` is
escaped, and control characters are spelled out; only `tag` and `joined` make `Html`.
Read next: `svg.py`, `page.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html import escape
from typing import Any

from tilewright.base.text import printable

_EMPTY = frozenset(("br", "meta", "link", "path", "circle", "line", "rect", "use"))
_LONGEST = 160  # characters of a name
_DIGITS = 1  # of coordinates: a tenth of a pixel


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


Child = Any  # Html, str, int, float, None, or an iterable of these


def tag(name: str, /, *children: Child, **attributes: Any) -> Html:
    """An element.  Of attributes `class_` is `class`, other underscores are dashes, floats are
    coordinates, and those that are None or False are left out."""
    told = "".join(
        f" {_spelled(key)}" if value is True else f' {_spelled(key)}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _EMPTY:
        return Html(f"<{name}{told}/>" if name not in ("br", "meta", "link") else f"<{name}{told}>")
    return Html(f"<{name}{told}>{joined(*children)}</{name}>")


def joined(*children: Child) -> Html:
    """Several as one."""
    return Html("".join(map(_child, children)))


def island(data: Any) -> Html:
    """JSON in an element of its own, which no text in it can end."""
    text = json.dumps(data, separators=(",", ":"), sort_keys=True, allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Html(f'<script type="application/json" id="data">{text}</script>')


def clipped(name: str) -> str:
    """A name that somebody may have made endless."""
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…"


def breakable(name: str) -> Html:
    """A name that may be broken behind its signs, where it is too long for its place."""
    parts = re.split(r"(?<=[+./_:])(?=\w)", clipped(name))
    return Html("<wbr>".join(map(_child, parts)))


def number(value: float) -> str:
    """A coordinate, as short as it can be."""
    text = f"{value:.{_DIGITS}f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _child(child: Child) -> str:
    if child is None or child is False:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, Iterable) and not isinstance(child, str):
        return joined(*child)
    return escape(printable(str(child)), quote=False)


def _attribute(value: Any) -> str:
    return number(value) if isinstance(value, float) else escape(printable(str(value)))


def _spelled(name: str) -> str:
    return "viewBox" if name == "view_box" else name.rstrip("_").replace("_", "-")
