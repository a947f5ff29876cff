"""Who touched an element of memory, and when: what the definition of the IR keeps of each buffer.

In: accesses of elements.  Out: what is wrong with one, in REASONS of `ir/interpreter_memory.py`.
Read next: `interpreter.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Moment:
    """fork: the launch or parallel loop; block: or iteration; interval: between two barriers; seen:
    of other blocks that came to a join before, each with the interval in which it came."""

    fork: object
    block: int = 0
    interval: int = 0
    thread: int = 0
    seen: frozenset[tuple[int, int]] = frozenset()

    def unordered(self, other: Moment) -> bool:
        """Whether nothing says which of the two comes first."""
        if self.fork is not other.fork:
            return False
        if self.block != other.block:
            return not other.sees(self)
        return self.interval == other.interval and self.thread != other.thread

    def sees(self, other: Moment) -> bool:
        """Whether what another block did is before this."""
        ends = (interval for block, interval in self.seen if block == other.block)
        return any(
            other.interval < end or (other.interval == end and other.thread == 0) for end in ends
        )


@dataclass
class Cells:
    """The elements of one buffer, and the accesses of each that later ones may race with.

    flying: elements that a copy, begun and not yet waited for, will write
    hidden: those that their writer has not shown to what reads beside the threads
    busy:   how many Mmas of groups, not waited for, read an element or add to it
    stored: whether one was stored to since the last MmaBegin
    """

    values: list[Any]
    writer: dict[int, Moment] = field(default_factory=dict)
    readers: dict[int, set[Moment]] = field(default_factory=dict)
    flying: set[int] = field(default_factory=set)
    hidden: set[int] = field(default_factory=set)
    busy: Counter[int] = field(default_factory=Counter)
    stored: bool = False

    def fault_of_read(self, at: int, now: Moment) -> str:
        """What is wrong with reading an element now, in REASONS, or ""; notes the access."""
        if at in self.flying:
            return "in flight"
        if self.writer.get(at, now).unordered(now):
            return "load race"
        before = self.readers.get(at, ())
        self.readers[at] = {now, *(r for r in before if r.unordered(now))}  # the others are settled
        return "unwritten" if self.values[at] is None else ""

    def fault_of_write(self, at: int, value: Any, now: Moment) -> str:
        """As for reading.  Several may write one value; NaN counts as equal to any."""
        if at in self.flying:
            return "in flight"
        again = self.writer.get(at, now).unordered(now)
        if again and value == value and self.values[at] != value:
            return "store twice"
        if any(r.unordered(now) for r in self.readers.get(at, ())):
            return "store race"
        self.writer[at] = now
        return ""
