"""`TrackerClient`: one connection to the tracker, made again whenever it breaks.

In: what is wanted of which key.  Out: calls of a listener: devices granted, lost, counted, and the
tracker lost and found.  Everything here runs on the loop of `network.background`.
Read next: `runner.py`, `session.py`, which listen; `tracker.py`, the other side.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import ssl
import time
from contextlib import suppress
from typing import Protocol

from tilewright.base.errors import DeviceError, TilewrightError
from tilewright.base.text import printable
from tilewright.farm import bounds, wire
from tilewright.farm.network import Line, joined, reason

_PING_SECONDS = 2.0
_PAUSE = 0.3


class Listener(Protocol):
    """Told what the tracker says.  `connected` after each new connection: nothing is held then."""

    def connected(self) -> None: ...
    def disconnected(self, why: str) -> None: ...
    def granted(self, key: str, device: str) -> None: ...
    def lost(self, device: str, why: str) -> None: ...
    def counted(self, key: str, total: int) -> None: ...


def user_name() -> str:
    """Who this is, for tables."""
    with suppress(KeyError, OSError, ImportError):
        return printable(f"{getpass.getuser()}:{os.getpid()}".replace("\n", " "))[:200]
    return str(os.getpid())


class TrackerClient:
    """certificates: folder, "none", or None for where they usually are."""

    def __init__(self, host: str, port: int, certificates: str | None, listener: Listener) -> None:
        self.host, self.port = host, port
        self._certificates, self._listener = certificates, listener
        self.context: ssl.SSLContext | None = None
        self._line: Line | None = None
        self._heard = 0.0
        self._task: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()  # which asyncio itself would forget

    async def start(self) -> None:
        """Raises DeviceError where the tracker is not reached, or refuses us."""
        line = await self._first()
        self._task = asyncio.ensure_future(self._live(line))

    def send(self, message: wire.Message) -> None:
        """Soon; lost where the connection is: `connected` says when to say it again."""
        if self._line is not None:
            task = asyncio.ensure_future(self._write(self._line, message))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._line is not None:
            self._line.abort()

    async def _write(self, line: Line, message: wire.Message) -> None:
        with suppress(OSError):
            await line.write(message)

    async def _first(self) -> Line:
        try:
            return await self._connect()
        except OSError as error:
            raise unreachable(self.host, self.port, error) from None

    async def _connect(self) -> Line:
        line, self.context = await joined(self.host, self.port, self._certificates, user_name())
        return line

    async def _live(self, line: Line) -> None:
        """Read until closed, connect again, for ever."""
        while True:
            self._line, self._heard = line, time.monotonic()
            self._listener.connected()
            pinging = asyncio.ensure_future(self._ping(line))
            try:
                while True:
                    message = await line.read()
                    self._heard = time.monotonic()
                    self._take(message)
            except (OSError, TilewrightError) as error:
                why = reason(error)
            finally:
                pinging.cancel()
                line.abort()
                self._line = None
            self._listener.disconnected(why)
            line = await self._again()

    async def _again(self) -> Line:
        while True:
            await asyncio.sleep(_PAUSE)
            with suppress(OSError, TilewrightError):
                return await self._connect()

    async def _ping(self, line: Line) -> None:
        while time.monotonic() - self._heard < bounds.DEAF_SECONDS:
            await self._write(line, wire.Ping())
            await asyncio.sleep(_PING_SECONDS)
        line.abort()

    def _take(self, message: wire.Message) -> None:
        if isinstance(message, wire.Granted):
            self._listener.granted(message.key, message.device)
        elif isinstance(message, wire.Lost):
            self._listener.lost(message.device, message.why)
        elif isinstance(message, wire.Devices):
            self._listener.counted(message.key, message.total)
        elif isinstance(message, wire.Refused):
            raise DeviceError(message.place, message.reason, message.way_out)


async def summary(host: str, port: int, certificates: str | None = None) -> wire.Summary:
    """What the tracker knows now.  Raises DeviceError."""
    try:
        line, _ = await joined(host, port, certificates, user_name())
    except OSError as error:
        raise unreachable(host, port, error) from None
    try:
        async with asyncio.timeout(bounds.DEAF_SECONDS):
            answer = await line.ask(wire.Ask())
    except OSError as error:
        raise unreachable(host, port, error) from None
    finally:
        line.abort()
    if not isinstance(answer, wire.Summary):
        raise wire.malformed(f"tracker {host}:{port}", type(answer).__name__)
    return answer


def unreachable(host: str, port: int, error: OSError) -> DeviceError:
    return DeviceError(
        f"tracker {host}:{port}", f"it cannot be reached ({reason(error)})",
        f"Start it with `tilewright farm tracker --port {port}`, and check the "
        "address.",
    )  # fmt: skip
