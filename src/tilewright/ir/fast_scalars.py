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
# what copies write, oldest first: elements, stamps, places, values, and `_hide`'s two lists or none
Groups = list[list[tuple[list[Any], list[int], Sequence[int], Sequence[Any], tuple[Any, ...]]]]
Hidden = list[tuple[list[int], int]]  # what a thread has written and not shown


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
    groups: Groups, elements: list[Any], stamps: list[int], places: Sequence[int], values: Any,
    *hidden: Any,
) -> None:  # fmt: skip
    for at in places:
        stamps[at] = FLIGHT
    groups[-1].append((elements, stamps, places, values, hidden))


def _land(groups: Groups, kept: int, stamp: int) -> None:
    while len(groups) - 1 > kept:
        for elements, stamps, places, values, hidden in groups.pop(0):
            for at, value in zip(places, values, strict=True):
                elements[at], stamps[at] = value, stamp
                if hidden:
                    _hide(hidden[0], hidden[1], at)


def _pending(groups: Groups, buffer: list[Any]) -> int:
    into = (places[0] for g in groups for elements, _, places, *_ in g if elements is buffer)
    return next(into, -1)


# -- groups of warps that multiply: see `fast_warps.py`


def _hide(hidden: Hidden, unseen: list[int], at: int) -> None:
    unseen[at] = 1
    hidden.append((unseen, at))


def _show(hidden: Hidden) -> None:
    for unseen, at in hidden:
        unseen[at] = 0
    hidden.clear()


def _engage(batches: list[Any], counts: list[int], places: Sequence[int]) -> None:
    def release() -> None:
        for at in places:
            counts[at] -= 1

    for at in places:
        counts[at] += 1
    batches[-1].append(release)


def _release(batches: list[Any], kept: int) -> None:
    batches.append([])
    while len(batches) - 1 > kept:
        for release in batches.pop(0):
            release()


def _tile(
    elements: list[Any], stamps: list[int], readers: list[int], unseen: list[int],
    places: Sequence[int], fork: int, block: int, epoch: int, cur: int, many: int,
) -> tuple[list[Any], str, int]:  # fmt: skip
    """What a lane reads of a tile; what is wrong with one of the elements, or ""; its place."""
    for at in places:
        w, r = stamps[at], readers[at]
        if w == FLIGHT:
            return [], "in flight", at
        if w >= fork and w != cur and not block <= w < epoch:
            return [], "load race", at
        if r != cur and not fork <= r < block:
            readers[at] = cur if r < epoch else many
        if elements[at] is None:
            return [], "unwritten", at
        if unseen[at]:
            return [], "not shown", at
    return [elements[at] for at in places], "", 0


def _tile_of_gates(
    elements: list[Any], gates: Any, thread: int, buffer: Any, places: Sequence[int]
) -> tuple[list[Any], str, int]:
    """The same of a tile that bulk copies bring."""
    for at in places:
        if why := gates.read(thread, buffer, at, beside=True):
            return [], why, at
    return [elements[at] for at in places], "", 0


FLOATS = [dtype for dtype in map(DType, TYPES) if dtype.is_float]
NAMESPACE: dict[str, Any] = {
    "fail": _fail,
    "depart": _depart,
    "land": _land,
    "pending": _pending,
    "hide": _hide,
    "show": _show,
    "engage": _engage,
    "release": _release,
    "tile": _tile,
    "tile_of_gates": _tile_of_gates,
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
