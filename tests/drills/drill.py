"""What a drill is: something is broken on purpose, many times, and what follows is counted.

In: a number of tries and a seed; the same two give the same faults.  Out: counts by name.  Some of
them must be zero, such as wrong kernels that were accepted; every name of the others says what
happened instead.  Read next: `__main__.py`, `test_drills.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

Counts = Counter[str]


@dataclass(frozen=True)
class Drill:
    """
    name:    as the command knows it and as its module is called
    tried:   what one try is, for the table: "planted wrong kernels"
    run:     (tries, seed) -> how often each thing happened; each try counts once, under one name
    never:   the names that must not occur
    always:  the names that must occur: a drill whose faults are never met shows nothing
    short:   tries in CI, some seconds
    long:    tries of the command, for the table in `docs/reliability.md`
    """

    name: str
    tried: str
    run: Callable[[int, int], Counts]
    never: tuple[str, ...]
    always: tuple[str, ...]
    short: int
    long: int

    def broken(self, counts: Counts) -> list[str]:
        """What these counts hold against the system, empty if nothing."""
        happened = [f"{counts[name]} times {name!r}" for name in self.never if counts[name]]
        return happened + [f"never {name!r}" for name in self.always if not counts[name]]
