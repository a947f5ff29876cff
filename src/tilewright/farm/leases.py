"""Who gets which device: a state machine without clock, thread or connection.

In: devices that come, fall silent and go; holders that want devices of a key, release them, go.
Out: `Grant`s, and whom to tell that a device is lost.  The tracker drives it with real time, the
simulation with time of its own.  Read next: `tracker.py`, `dispatch.py`.

Holders of one key share its devices by time: whoever has had least gets the next one, counting what
is under way.  Who comes late does not get what others had before: it starts at the least of those
who are there.  A holder gets the device back that it had last where that is free, since its files
lie there.

What an event costs grows with what it touches: a key is looked at when its devices or its holders
change, and nothing is kept of one that has neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from tilewright.farm.wire import Row

Holder = str
V = TypeVar("V")


@dataclass
class Device:
    """One device.  silent: it says nothing; last: who had it last."""

    address: str
    key: str
    holder: Holder | None = None
    silent: bool = False
    last: Holder | None = None


@dataclass
class _Want:
    """used: seconds of devices of the key that its holder has had, and a start for late comers."""

    holder: Holder
    count: int = 0
    priority: int = 1
    without: frozenset[str] = frozenset()
    used: float = 0.0
    held: dict[str, float] = field(default_factory=dict)  # device -> since when
    began: float = 0.0  # sum of `held`

    def shared(self, now: float) -> float:
        return self.used + len(self.held) * now - self.began

    def take(self, device: str, now: float) -> None:
        self.held[device] = now
        self.began += now

    def give_back(self, device: str, now: float) -> None:
        since = self.held.pop(device, now)
        self.used += now - since
        self.began = self.began - since if self.held else 0.0


@dataclass(frozen=True)
class Grant:
    holder: Holder
    key: str
    device: str


class Leases:
    """devices: by address; changed: keys, since grants were made."""

    def __init__(self) -> None:
        self.devices: dict[str, Device] = {}
        self._wants: dict[str, dict[Holder, _Want]] = {}
        self._keys: dict[Holder, dict[str, None]] = {}  # which it wants devices of
        self._free: dict[str, dict[str, None]] = {}  # key -> free devices, in order
        self._of: dict[str, dict[str, None]] = {}  # key -> devices that are heard of
        self.changed: dict[str, None] = {}

    # -- devices -----------------------------------------------------------------------------------
    def join(self, address: str, key: str) -> None:
        self.devices[address] = Device(address, key)
        self._can_be_had(address, key)

    def leave(self, address: str, now: float) -> Holder | None:
        """The device is gone; whose it was."""
        device = self.devices.pop(address, None)
        if device is None:
            return None
        self._not_heard(device)
        return self._taken_back(device, now)

    def fall_silent(self, address: str, now: float) -> Holder | None:
        """Nothing is heard of it: nobody gets it until it speaks; whose it was."""
        device = self.devices[address]
        device.silent = True
        self._not_heard(device)
        return self._taken_back(device, now)

    def speak(self, address: str) -> None:
        """It is heard of again."""
        device = self.devices[address]
        if device.silent:
            device.silent = False
            self._can_be_had(address, device.key)

    def _can_be_had(self, address: str, key: str) -> None:
        self._of.setdefault(key, {})[address] = None
        self._free.setdefault(key, {})[address] = None
        self.changed[key] = None

    def _not_heard(self, device: Device) -> None:
        for known in (self._of, self._free):
            _without(known, device.key, device.address)
        self.changed[device.key] = None

    # -- holders -----------------------------------------------------------------------------------
    def want(
        self, holder: Holder, key: str, count: int, now: float, priority: int = 1,
        without: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """From now on `holder` wants `count` devices besides those it holds."""
        known = self._wants.setdefault(key, {})
        self._keys.setdefault(holder, {})[key] = None
        self.changed[key] = None
        entry = known.get(holder)
        if entry is None:
            entry = known[holder] = _Want(holder)
        if count and not entry.count and not entry.held:  # it was idle
            active = [w.shared(now) for w in known.values() if w is not entry and _is_active(w)]
            entry.used = max(entry.used, min(active, default=0.0))
        entry.count, entry.priority, entry.without = count, priority, frozenset(without)

    def release(self, holder: Holder, address: str, now: float) -> None:
        """Nothing happens where it is not the holder's."""
        device = self.devices.get(address)
        if device is not None and device.holder == holder:
            self._taken_back(device, now)
            if not device.silent:
                self._can_be_had(address, device.key)

    def gone(self, holder: Holder, now: float) -> None:
        """Its leases end with it."""
        for key in self._keys.pop(holder, ()):
            for address in list(self._wants[key][holder].held):
                self.release(holder, address, now)
            _without(self._wants, key, holder)
            self.changed[key] = None

    # -- what follows ------------------------------------------------------------------------------
    def grants(self, now: float) -> Iterator[Grant]:
        """Give free devices to who wants them; each grant is in force when it is made."""
        changed, self.changed = self.changed, {}
        for key in changed:
            yield from self._grants_of(key, now)

    def _grants_of(self, key: str, now: float) -> Iterator[Grant]:
        free, refused = self._free.get(key, {}), set()
        wants = self._wants.get(key, {})
        while free:
            waiting = [w for w in wants.values() if w.count and w.holder not in refused]
            if not waiting:
                return
            next_one = min(waiting, key=lambda w: (-w.priority, w.shared(now), w.holder))
            address = self._fitting(next_one, free)
            if address is None:
                refused.add(next_one.holder)
                continue
            _without(self._free, key, address)
            device = self.devices[address]
            device.holder = device.last = next_one.holder
            next_one.take(address, now)
            next_one.count -= 1
            yield Grant(next_one.holder, key, address)

    def _fitting(self, want: _Want, free: dict[str, None]) -> str | None:
        """The device it had last, or else the one that has been free for longest."""
        allowed = None
        for address in free:
            if address in want.without:
                continue
            if self.devices[address].last == want.holder:
                return address
            allowed = allowed or address
        return allowed

    def _taken_back(self, device: Device, now: float) -> Holder | None:
        holder, device.holder = device.holder, None
        if holder is not None:
            want = self._wants.get(device.key, {}).get(holder)
            if want is not None:
                want.give_back(device.address, now)
        return holder

    # -- what is known -----------------------------------------------------------------------------
    def total(self, key: str) -> int:
        """Devices of the key that are heard of."""
        return len(self._of.get(key, ()))

    def used(self, holder: Holder, key: str, now: float) -> float:
        """Seconds of devices that the holder has had."""
        want = self._wants.get(key, {}).get(holder)
        return 0.0 if want is None else want.shared(now)

    def rows(self) -> tuple[Row, ...]:
        """The table of `query_rpc_tracker`: keys with devices or with somebody who wants one."""
        made = []
        keys = {d.key: None for d in self.devices.values()}
        keys |= {
            k: None for k, wants in self._wants.items() if any(w.count for w in wants.values())
        }
        for key in sorted(keys):
            pending = sum(w.count for w in self._wants.get(key, {}).values())
            made.append(Row(key, self.total(key), len(self._free.get(key, ())), pending))
        return tuple(made)


def _without(known: dict[str, dict[str, V]], key: str, name: str) -> None:
    """Take `name` out of what is known of a key, and the key when that was all."""
    inner = known.get(key, {})
    inner.pop(name, None)
    if not inner:
        known.pop(key, None)


def _is_active(want: _Want) -> bool:
    return bool(want.count or want.held)
