"""Extents as plain data: numbers, or arithmetic of what a call gives by name.

In: nested tuples such as ("floordiv", ("add", "n", 63), 64), which travel in artefacts and files.
Out: their values.  Nothing of it is run as code.  Read next: `artifact.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from tilewright.base.errors import DeviceError

Extent = int | str | tuple[Any, ...]

OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "min": min,
    "max": max,
}


def value_of(extent: Any, values: Mapping[str, int]) -> int:
    """Raises DeviceError for what is no extent, divides by zero or names nothing."""
    if isinstance(extent, int):
        return extent
    if isinstance(extent, str) and extent in values:
        return values[extent]
    if isinstance(extent, (tuple, list)) and len(extent) == 3 and extent[0] in OPERATIONS:
        a, b = value_of(extent[1], values), value_of(extent[2], values)
        if b or "floor" not in extent[0]:
            return OPERATIONS[extent[0]](a, b)
    raise DeviceError(f"the extent {text_of(extent)}", "it has no value", "Build it again.")


_SIGNS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "floormod": "%"}


def text_of(extent: Any) -> str:
    """As people write it."""
    if not isinstance(extent, (tuple, list)) or len(extent) != 3:
        return str(extent)
    a, b = text_of(extent[1]), text_of(extent[2])
    sign = _SIGNS.get(extent[0])
    return f"({a} {sign} {b})" if sign else f"{extent[0]}({a}, {b})"
