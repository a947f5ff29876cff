"""`runtime.container`: what lists and tuples of results are, under TVM's names.

Several results are a list of Python: `isinstance(result, container.ADT)` tells them from one.
Read next: `virtual_machine.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import DeviceError

ADT = Array = list
Map = dict
String = str
ShapeTuple = tuple[int, ...]


@door(DeviceError, "runtime.container.tuple_object")
def tuple_object(fields: Iterable[Any] = ()) -> list[Any]:
    """Values as one: the input of a network that takes a tuple."""
    return list(fields)


__all__ = ["ADT", "Array", "Map", "ShapeTuple", "String", "tuple_object"]
