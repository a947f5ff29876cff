"""Who may stay connected: a state machine without clock or connection.

In: connections that come, say who they are, speak, work and go.  Out: which of them is cut off.
Each role has places, in all and for one address; nobody can take another role's, so however many
strangers come, a known device finds a place.  Where all are taken, the newest gets that of the one
who has been idle for longest at the address that has most; who is busy is not cut off.
Read next: `bounds.py`, `plain_comm.py`, which drives it.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tilewright.farm import bounds

STRANGER, TUNER, DEVICE, VISITOR = "stranger", "tuner", "device", "visitor"


@dataclass(frozen=True)
class Places:
    """How many of a role there are, and of them at most for one address."""

    total: int
    of_address: int


@dataclass(eq=False)
class Guest:
    """A connection.  address: of its machine; cut: ends it; busy: something runs for it."""

    gate: Gate
    address: str
    cut: Callable[[], object]
    role: str = STRANGER
    busy: bool = False

    def admit(self, role: str) -> bool:
        """Whether it has a place of `role` now; a stranger's it no longer needs."""
        return self.gate.admit(self, role)

    def spoke(self) -> None:
        """It is the last to be idle for longest."""
        self.gate.spoke(self)


@dataclass
class _Role:
    places: Places
    guests: dict[Guest, None] = field(default_factory=dict)  # idle for longest: at the front
    of: Counter[str] = field(default_factory=Counter)  # by address

    def add(self, guest: Guest) -> None:
        self.guests[guest] = None
        self.of[guest.address] += 1

    def remove(self, guest: Guest) -> None:
        if guest in self.guests:
            del self.guests[guest]
            self.of[guest.address] -= 1
            if not self.of[guest.address]:
                del self.of[guest.address]


class Gate:
    """places: of each role, strangers' too."""

    def __init__(self, places: Mapping[str, Places]) -> None:
        self._roles = {name: _Role(places_of) for name, places_of in places.items()}

    def enter(self, address: str, cut: Callable[[], object]) -> Guest:
        """Somebody connects."""
        guest = Guest(self, address, cut)
        self._make_room(STRANGER, address)
        self._roles[STRANGER].add(guest)
        return guest

    def admit(self, guest: Guest, role: str) -> bool:
        if guest.role == role:
            return True
        if guest not in self._roles[guest.role].guests or not self._make_room(role, guest.address):
            return False
        self._roles[guest.role].remove(guest)
        guest.role = role
        self._roles[role].add(guest)
        return True

    def spoke(self, guest: Guest) -> None:
        guests = self._roles[guest.role].guests
        if guest in guests:
            del guests[guest]
            guests[guest] = None

    def leave(self, guest: Guest) -> None:
        self._roles[guest.role].remove(guest)

    def count(self, role: str) -> int:
        return len(self._roles[role].guests)

    def _make_room(self, role: str, address: str) -> bool:
        """Whether there is a place; somebody idle may have lost it."""
        of = self._roles[role]
        if of.of[address] >= of.places.of_address:
            return self._cut(of, address)
        if len(of.guests) >= of.places.total:
            return self._cut(of, None)
        return True

    def _cut(self, of: _Role, address: str | None) -> bool:
        idle = [
            g for g in of.guests
            if (g.role == STRANGER or not g.busy) and address in (None, g.address)
        ]  # fmt: skip
        if not idle:
            return False
        most = max(of.of[g.address] for g in idle)
        victim = next(g for g in idle if of.of[g.address] == most)
        of.remove(victim)
        victim.cut()
        return True


def trackers_places(files: int) -> dict[str, Places]:
    """Those of a tracker that may open so many files."""
    left = max(files - bounds.OWN_FILES, 16)
    strangers = min(bounds.STRANGERS, left // 4)
    tuners = min(bounds.TUNERS, left // 4)
    devices = min(2 * bounds.DEVICES, left - strangers - tuners)
    return {
        STRANGER: Places(strangers, min(bounds.STRANGERS_OF_ADDRESS, strangers)),
        TUNER: Places(tuners, min(bounds.TUNERS_OF_ADDRESS, tuners)),
        DEVICE: Places(devices, devices),
    }


def devices_places(files: int, servers: int = 1) -> dict[str, Places]:
    """Those of a process with so many servers, that may open so many files.

    Half of these are for what is received and for processes that work.
    """
    left = max(files - bounds.OWN_FILES, 16) // 2
    strangers = min(bounds.STRANGERS, left // 4)
    visitors = min(servers * bounds.VISITORS, left - strangers)
    return {
        STRANGER: Places(strangers, min(bounds.STRANGERS_OF_ADDRESS, strangers)),
        VISITOR: Places(visitors, min(servers * bounds.VISITORS_OF_ADDRESS, visitors)),
    }


def open_files(most: int = 8192) -> int:
    """How many files this process may open, which is raised as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    infinite = resource.RLIM_INFINITY
    wanted = most if hard == infinite else min(most, hard)
    if soft != infinite and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return most if soft == infinite else soft
