"""Sessions of this process that have nothing on their device: they give it to whoever waits.

A script asks a board what it is, keeps the session, and tunes: with one board its own tuner would
wait for ever.  In: sessions, a key that is waited for.  Out: devices that are free again; who else
holds one, in words.  Read next: `session.py`, `fleet.py`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Protocol

from tilewright.farm import wire
from tilewright.farm.client import user_name


class Session(Protocol):
    """key: of its device."""

    key: str

    def give_way(self) -> None:
        """Let others have the device, if nothing is there and no call is under way; the next call
        requests one again.  Returns at once, from any thread."""


_OPEN: weakref.WeakSet[Session] = weakref.WeakSet()


def note(session: Session) -> None:
    """From now on `session` is asked."""
    _OPEN.add(session)


def give_way(key: str, but: Session | None = None) -> None:
    """Have the idle sessions of a key give their devices back, except that of `but`."""
    for session in list(_OPEN):
        if session.key == key and session is not but:
            session.give_way()


def holders(members: Iterable[wire.Member], key: str) -> tuple[str, str]:
    """Who holds devices of a key, in words, and what to do about it; "" where nobody does."""
    names = sorted({m.holder for m in members if m.key == key and m.holder})
    if not names:
        return "", ""
    others = [name for name in names if not name.startswith(f"{user_name()} at ")]
    own = ["this process itself, by a session that has something there"] * (
        len(others) < len(names)
    )
    way_out = "Wait, give a priority=, or start more servers."
    if own:
        way_out = "Close that session, or delete its arrays and modules and remove its files."
    return f"held by {' and '.join([*own, *others])}", way_out
