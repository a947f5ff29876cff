"""What interpreted kernels of the fast interpreter call.

In: scalars as generated code has them: numpy's of the type itself, which round as it does, and
Python ints.  Out: the same, or the failure of a check.  Read next: `fast_source.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.dtype import TYPES, DType
from tilewright.ir.interpreter_scalars import FUNCTIONS, evaluated

FLIGHT = 1 << 62  # the stamp of an element that a copy will write: later than any other
Groups = list[list[tuple[list[Any], list[int], Sequence[int], Sequence[Any]]]]  # oldest first


class Failure(Exception):
    """Raised by generated code: the site, the index, the values of the variables."""

    def __init__(self, site: int, index: int, variables: dict[str, Any]) -> None:
        super().__init__(site, index)
        self.site, self.index, self.variables = site, index, variables


def _fail(site: int, index: int, variables: dict[str, Any]) -> None:
    raise Failure(site, index, dict(variables))


def _function(name: str, dtype: DType) -> Callable[..., Any]:
    kind = dtype.storage.type
    return lambda *args: kind(evaluated(name, *args))


# -- asynchronous copies: see `fast_warps.py`


def _depart(
    groups: Groups, elements: list[Any], stamps: list[int], places: Sequence[int], values: Any
) -> None:
    for at in places:
        stamps[at] = FLIGHT
    groups[-1].append((elements, stamps, places, values))


def _land(groups: Groups, kept: int, stamp: int) -> None:
    while len(groups) - 1 > kept:
        for elements, stamps, places, values in groups.pop(0):
            for at, value in zip(places, values, strict=True):
                elements[at], stamps[at] = value, stamp


def _pending(groups: Groups, buffer: list[Any]) -> int:
    into = (places[0] for g in groups for elements, _, places, _ in g if elements is buffer)
    return next(into, -1)


FLOATS = [dtype for dtype in map(DType, TYPES) if dtype.is_float]
NAMESPACE: dict[str, Any] = {
    "fail": _fail,
    "depart": _depart,
    "land": _land,
    "pending": _pending,
    **{f"to_{dtype}": dtype.storage.type for dtype in FLOATS},
    **{f"{name}_{dtype}": _function(name, dtype) for name in FUNCTIONS for dtype in FLOATS},
}


def wrapped(text: str, kind: DType, always: bool = False) -> str:
    """The integer `text` in the range of `kind`, if that wraps around (or in any case)."""
    if not kind.is_int or (kind.is_index and not always):
        return text
    mask = (1 << kind.bits) - 1
    return (
        f"(({text} - {kind.least} & {mask}) + {kind.least})" if kind.least else f"({text} & {mask})"
    )
