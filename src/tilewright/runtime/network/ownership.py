"""`Ownership`: whose turn it is on an object whose calls leave state for the next call.

In: threads.  Out: one of them at a time, or a DeviceError.  Read next: `graph_executor.py`.
"""

from __future__ import annotations

import threading
from threading import get_ident

from tilewright.base.concurrency import lock
from tilewright.base.errors import DeviceError


class Ownership:
    """`with ownership:` is one call of the owner, the thread that came first and still runs.

    `take` and `leave` are around several calls that belong together: any thread may take, and waits
    until who took before has left.
    place, way_out: of the error for a call of another thread
    """

    def __init__(self, place: str, way_out: str) -> None:
        self._place, self._way_out = place, way_out
        self._turn = lock()
        self._owner: threading.Thread | None = None
        self._ident = 0  # of the owner; quicker to compare

    def __enter__(self) -> None:
        if self._ident != get_ident():
            self._refuse()
        self._turn.acquire()
        if self._ident != get_ident():
            self._claim()

    def __exit__(self, *_: object) -> None:
        self._turn.release()

    def take(self) -> None:
        self._turn.acquire()
        self._owner, self._ident = threading.current_thread(), get_ident()

    def leave(self) -> None:
        self._turn.release()

    def _claim(self) -> None:
        """Own it, unless somebody has taken it meanwhile.  The turn is this thread's."""
        try:
            self._refuse()
        except DeviceError:
            self._turn.release()
            raise
        self._owner, self._ident = threading.current_thread(), get_ident()

    def _refuse(self) -> None:
        owner, me = self._owner, threading.current_thread()
        if owner is None or owner is me or not owner.is_alive():
            return
        raise DeviceError(
            self._place, f"thread {me.name} calls it, but it belongs to thread {owner.name}",
            self._way_out,
        )  # fmt: skip
