"""Padding by the names that scripts of TVM import from `topi.nn.utils`.

In: an int, a list or a word, and a window.  Out: elements on each side.  Read next:
`topi/nn/window.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ExpressionError
from tilewright.topi.nn import window
from tilewright.topi.nn.window import Ints
from tilewright.topi.stage import per_axis

__all__ = ["get_pad_tuple", "get_pad_tuple1d", "get_pad_tuple3d", "get_pad_tuple_generic"]


def get_pad_tuple(padding: Any, kernel: Sequence[int]) -> Ints:
    """(top, left, bottom, right).

    padding: an int, (height, width), the four sides, "VALID" or "SAME"
    kernel: (height, width) of the dilated window
    """
    return _sides(padding, kernel, 2, "get_pad_tuple")


def get_pad_tuple1d(padding: Any, kernel: Any) -> Ints:
    """(left, right); see `get_pad_tuple`."""
    return _sides(padding, kernel, 1, "get_pad_tuple1d")


def get_pad_tuple3d(padding: Any, kernel: Sequence[int]) -> Ints:
    """(front, top, left, back, bottom, right); see `get_pad_tuple`."""
    return _sides(padding, kernel, 3, "get_pad_tuple3d")


def get_pad_tuple_generic(padding: Any, kernel: Sequence[int]) -> tuple[Ints, Ints]:
    """(in front of each axis, behind each axis), for as many axes as the window has."""
    rank = len(kernel)
    sides = _sides(padding, kernel, rank, "get_pad_tuple_generic")
    return sides[:rank], sides[rank:]


def _sides(padding: Any, kernel: Any, rank: int, name: str) -> Ints:
    place = f"{name}(padding={padding!r}, kernel={kernel!r})"
    return window.get_pad_tuple(padding, per_axis(kernel, rank, "kernel", place), place)


open_doors(globals(), __all__, ExpressionError)
