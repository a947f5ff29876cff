"""What becomes of each trial of a tuner on a farm: a state machine without clock or connection.

In: work, devices granted and lost, results.  Out: which work a device does now, what is settled.
Work is done in the order in which it came.  What a lost device was doing is done again elsewhere;
what fails is tried once more on another device before it counts, and a device that contradicts
others too often is left out.  `runner.py` drives it with a real farm, a simulation without one.
Read next: `leases.py` (the tracker's side), `runner.py`.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

LOSSES = 3  # devices that one piece of work may lose before it is suspected itself
STRIKES = 3  # contradictions before a device is left out
MISSES = 5  # attempts in a row to reach a device, before it is left out


@dataclass
class Opinion:
    """What a device said of a piece of work.  failed: the work, as far as that device can tell."""

    device: str
    value: Any
    failed: bool


@dataclass(order=True)
class Ticket:
    """A piece of work.

    twice:   a failure counts only when another device confirms it
    losses:  devices that were lost while they did it
    first:   the opinion that another device shall confirm
    """

    number: int
    work: Any = field(compare=False)
    twice: bool = field(default=True, compare=False)
    losses: int = field(default=0, compare=False)
    first: Opinion | None = field(default=None, compare=False)

    @property
    def without(self) -> frozenset[str]:
        return frozenset() if self.first is None else frozenset({self.first.device})


@dataclass(frozen=True)
class Settled:
    """What came of a ticket.

    opinion:   the last one; None: it was given up
    confirmed: two devices say so
    why:       it was given up for this
    """

    ticket: Ticket
    opinion: Opinion | None = None
    confirmed: bool = False
    why: str = ""


class Dispatch:
    """total: devices of the key.  left_out: devices not to be used, and why; resting: not now."""

    def __init__(self) -> None:
        self.total = 0
        self.left_out: dict[str, str] = {}
        self.doing: dict[str, Ticket] = {}
        self.resting: set[str] = set()
        self.strikes: Counter[str] = Counter()
        self.misses: Counter[str] = Counter()
        self.notices: list[str] = []  # for the user, taken by whoever shows them
        self._waiting: list[Ticket] = []  # a heap: whatever any device may do
        self._doubted: list[Ticket] = []  # of which a second opinion is wanted
        self._number = 0

    # -- work --------------------------------------------------------------------------------------
    def add(self, work: Any, twice: bool = True) -> Ticket:
        ticket = Ticket(self._number, work, twice)
        self._number += 1
        heapq.heappush(self._waiting, ticket)
        return ticket

    @property
    def useful(self) -> int:
        """Devices that may be used."""
        return max(self.total - len(self.left_out), 0)

    @property
    def wanted(self) -> tuple[int, frozenset[str]]:
        """How many more devices there is work for, and which ones are of no use to any of it."""
        count = len(self._waiting) + len(self._doubted)
        useless = [ticket.without for ticket in self._doubted]
        common = frozenset[str]()
        if useless and not self._waiting:
            common = frozenset.intersection(*useless)
        return count, common | self.left_out.keys() | self.resting

    def granted(self, device: str) -> Ticket | None:
        """The work that this device does from now on; None: there is none for it."""
        if device in self.left_out or device in self.resting or device in self.doing:
            return None
        fitting = [t for t in self._doubted if device not in t.without]
        ticket = min([*fitting, *self._waiting[:1]], default=None)
        if ticket is None:
            return None
        if ticket.first is None:
            heapq.heappop(self._waiting)
        else:
            self._doubted.remove(ticket)
        self.doing[device] = ticket
        return ticket

    def done(self, device: str, value: Any, failed: bool) -> Iterator[Settled]:
        """A device has an answer."""
        self.misses.pop(device, None)
        ticket = self.doing.pop(device, None)
        if ticket is None:
            return
        opinion = Opinion(device, value, failed)
        if ticket.first is not None:
            confirmed = failed == ticket.first.failed
            if not confirmed:
                self._strike(ticket.first.device, f"{device} finds right what it refused")
            yield Settled(ticket, opinion, confirmed)
        elif failed and ticket.twice and self.useful > 1:
            ticket.first = opinion
            self._wait(ticket)
        else:
            yield Settled(ticket, opinion)

    def lost(self, device: str, why: str) -> Iterator[Settled]:
        """A device is gone, or does not answer: what it was doing is done again."""
        ticket = self.doing.pop(device, None)
        if ticket is None:
            return
        ticket.losses += 1
        if ticket.losses >= LOSSES:
            yield Settled(ticket, why=f"{ticket.losses} devices were lost with it, at last {why}")
        else:
            self.notices.append(f"{device} is lost ({why}); its trial is made again elsewhere.")
            self._wait(ticket)

    def unreached(self, device: str, why: str) -> None:
        """It was lent and does not listen, perhaps since it starts anew: it rests, and its work,
        which had not begun, is done elsewhere."""
        self.misses[device] += 1
        if self.misses[device] >= MISSES:
            self.leave_out(device, f"it cannot be reached from here ({why})")
            return
        if self.misses[device] == 1:
            self.notices.append(f"{device} cannot be reached ({why}); it is tried again.")
        self.resting.add(device)
        ticket = self.doing.pop(device, None)
        if ticket is not None:
            self._wait(ticket)

    def leave_out(self, device: str, why: str) -> None:
        """Use the device no more; what it was doing is done elsewhere, and nobody is to blame."""
        if device not in self.left_out:
            self.left_out[device] = why
            self.notices.append(f"{device} is left out: {why}")
        ticket = self.doing.pop(device, None)
        if ticket is not None:
            self._wait(ticket)

    def forgive(self) -> None:
        """Devices that were left out get another chance."""
        self.left_out.clear()
        self.strikes.clear()
        self.misses.clear()

    def alone(self) -> Iterator[Settled]:
        """Nobody is left to confirm a failure: the first opinion counts, unless it is that of a
        device which was left out."""
        if self.useful > 1:
            return
        doubted, self._doubted = self._doubted, []
        for ticket in doubted:
            if ticket.without <= self.left_out.keys():
                ticket.first = None
                self._wait(ticket)
            else:
                yield Settled(ticket, ticket.first)

    def give_up(self, why: str) -> Iterator[Settled]:
        """Nothing that waits will be done."""
        given_up = sorted([*self._waiting, *self._doubted])
        self._waiting, self._doubted = [], []
        for ticket in given_up:
            yield Settled(ticket, why=why)

    def _wait(self, ticket: Ticket) -> None:
        if ticket.first is None:
            heapq.heappush(self._waiting, ticket)
        else:
            self._doubted.append(ticket)

    def _strike(self, device: str, why: str) -> None:
        self.strikes[device] += 1
        if self.strikes[device] >= STRIKES and self.useful > 1:
            self.leave_out(device, f"it contradicts other devices ({why})")
