"""`runtime.container`: what lists and tuples of results are, under TVM's names.

Several results are a list of Python: `isinstance(result, container.ADT)` tells them from one.
Read next: `virtual_machine.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.base.doors import door, is_integer
from tilewright.base.errors import DeviceError

Array = list
Map = dict
String = str


class _Lists(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, list)


class ADT(list[Any], metaclass=_Lists):
    """Values as one, with the number of the constructor that made them; any list is an instance.

    tag: that number, from 0; fields: the values
    """

    @door(DeviceError, "runtime.container.ADT")
    def __init__(self, tag: int, fields: Iterable[Any]) -> None:
        super().__init__(fields)
        self.tag = tag


class _Shapes(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, tuple) and all(map(is_integer, value))


class ShapeTuple(tuple[int, ...], metaclass=_Shapes):
    """Whole numbers, as a shape has them; any tuple of such is an instance.

    ndim: how many.  Raises DeviceError for others.
    """

    def __new__(cls, shape: Iterable[int] = ()) -> ShapeTuple:
        listed = list(shape)
        wrong = next((n for n in listed if not is_integer(n)), None)
        if wrong is not None:
            raise DeviceError(
                f"runtime.ShapeTuple({listed!r:.80})", f"{wrong!r} is no whole number", "Give ints."
            )
        return super().__new__(cls, map(int, listed))

    @property
    def ndim(self) -> int:
        return len(self)


@door(DeviceError, "runtime.container.tuple_object")
def tuple_object(fields: Iterable[Any] = ()) -> ADT:
    """Values as one: the input of a network that takes a tuple."""
    return ADT(0, fields)


__all__ = ["ADT", "Array", "Map", "ShapeTuple", "String", "tuple_object"]
