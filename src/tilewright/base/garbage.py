"""How often Python looks for garbage: seldom where schedules are made by the thousand.

A schedule, its loop tree and its expressions are many objects with cycles among them; by Python's
own thresholds an eighth of the time of a search went into looking at them again and again.
Read next: `measure/worker.py`, `search/loop.py`.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG, _OLDER = 20_000, 20  # objects made before a look, looks before one at older objects


def look_seldom() -> None:
    """For a process of our own, from now on: leave alone what is there, look seldom at the rest."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _OLDER, _OLDER)


@contextmanager
def looked_for_seldom() -> Iterator[None]:
    """The same for a while, in a process that belongs to others: nothing is left alone."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], _YOUNG) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
