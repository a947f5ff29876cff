"""Shapes of inputs as text, such as `data:[1,3,224,224]`.

In: what was typed.  Out: lists of extents by name.  Read next: `frontends.py`.
"""

from __future__ import annotations

import argparse
import re
from typing import Any as Anything

from tilewright.base.doors import door
from tilewright.base.errors import ModelError
from tilewright.graph.extents import Any

_SHAPE = re.compile(r"([\w./:-]*\w)\s*:\s*\[([^\]]*)\]")


class ShapeError(ModelError, argparse.ArgumentTypeError):
    """A text that is no list of shapes; `argparse.ArgumentParser` tells it as its own."""


@door(ShapeError)
def parse_shape_string(inputs_string: str) -> dict[str, list[Anything]]:
    """`"data:[1,3,224,224] mask:[-1,7]"` by name; -1 leaves an extent open, as `relay.Any()` does.

    Between inputs is a space or a comma.  Raises ShapeError for what is no such list.
    """
    found, rest = {}, inputs_string
    for match in _SHAPE.finditer(inputs_string):
        name, inner = match.groups()
        parts = [part.strip() for part in inner.split(",")]
        if not all(re.fullmatch(r"-1|[0-9]{1,9}", part) for part in parts):
            break
        found[name] = [Any() if part == "-1" else int(part) for part in parts]
        rest = rest.replace(match.group(), "", 1)
    if not found or rest.strip(", "):
        raise ShapeError(
            f"parse_shape_string({inputs_string!r})", "it is no list of shapes",
            "Example: data:[1,3,224,224] mask:[1,7].",
        )  # fmt: skip
    return found
