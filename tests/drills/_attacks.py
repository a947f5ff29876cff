"""What somebody who only reaches a port of a farm may do: attacks, bounded in number and time.

In: the ports of a tracker and of a device on the loopback.  Out: nothing; each ends by itself.
Read next: `strangers.py`.
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import msgspec

from tilewright.base.errors import TilewrightError
from tilewright.farm import bounds, plain_comm, wire
from tilewright.farm.network import OPERATION, opened
from tilewright.farm.versions import VERSION

MOST_SECONDS = 3.0  # of one attack
Attack = Callable[["Ports", random.Random], Awaitable[int | None]]


class Ports:
    def __init__(self, tracker: int, device: int) -> None:
        self.tracker, self.device = tracker, device

    def any(self, rng: random.Random) -> int:
        return rng.choice((self.tracker, self.device))

    @property
    def address(self) -> str:
        """The device's."""
        return f"tcp://127.0.0.1:{self.device}"


def make(name: str, tracker: int, device: int, seed: int) -> int:
    """Attack, in a process of its own; how much was taken of it that should not be."""

    async def attack() -> int:
        with suppress(OSError, TilewrightError):  # it was cut off or refused, as it should
            async with asyncio.timeout(MOST_SECONDS):
                return await ATTACKS[name](Ports(tracker, device), random.Random(seed)) or 0
        return 0

    return asyncio.run(attack())


# -- before anything is said ---------------------------------------------------------------------


async def idle(ports: Ports, rng: random.Random) -> None:
    """Connections that say nothing, or stop in the middle of a word."""
    begun = rng.choice((b"", b"\x10", struct.pack("Q", 400) + b"x"))
    writers = []
    try:
        for port, count in ((ports.device, 100), (ports.tracker, rng.randrange(750, 850))):
            for _ in range(count):
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writers.append(writer)
                    writer.write(begun)
        await asyncio.sleep(0.5)
    finally:
        for writer in writers:
            writer.transport.abort()


async def frames(ports: Ports, rng: random.Random) -> None:
    """A message of as many empty parts as its length allows."""
    for count in (65, 1_000_000, 15_000_000):
        body = struct.pack("Q", count) + bytes(8 * min(count, 1 << 20))
        for port in (ports.device, ports.tracker):
            await _raw(port, struct.pack("Q", 8 + 8 * count) + body, rng.uniform(0, 0.5))


async def sizes(ports: Ports, rng: random.Random) -> None:
    """A message that is longer than any, and the beginning of it."""
    size = rng.choice((1 << 19, 1 << 27, 1 << 40, (1 << 64) - 1))
    await _raw(ports.any(rng), struct.pack("Q", size) + bytes(1 << 20))


async def noise(ports: Ports, rng: random.Random) -> None:
    for _ in range(20):
        await _raw(ports.any(rng), rng.randbytes(rng.randrange(1, 5000)))


# -- with Dask's own words -----------------------------------------------------------------------


async def operations(ports: Ports, rng: random.Random) -> None:
    """Orders to end, to run code, to forget a device."""
    orders: list[dict[str, Any]] = [
        {"op": "terminate", "reply": False}, {"op": "unregister", "address": ports.address},
        {"op": "run", "function": b"x"}, {"op": "retire_workers", "workers": [ports.address]},
    ]  # fmt: skip
    for order in rng.sample(orders, len(orders)):
        port = ports.device if order["op"] in ("terminate", "run") else ports.tracker
        await _asked(port, order, 0.5)


async def posing(ports: Ports, rng: random.Random) -> None:
    """A device with the address of one that is there, or with a name that breaks a table."""
    strange = "k" * 201, "a\nboard  99  99  0", "\x1b[2J", ""
    key, host = rng.choice((
        ("board", ports.address), ("board", "tcp://nowhere.invalid:1"), ("board", "x"),
        *((key, "tcp://127.0.0.1:1") for key in strange),
    ))  # fmt: skip
    said = {
        "op": "register-worker", "reply": False, "address": host, "status": "running",
        "server_id": "x", "extra": {"tilewright-key": key}, "name": "x", "nthreads": 1,
        "metrics": {"tilewright-token": rng.randbytes(16).hex()}, "now": 0, "resources": {},
    }  # fmt: skip
    await _asked(ports.tracker, said, 1.0)


async def beats(ports: Ports, rng: random.Random) -> None:
    """Signs of life for a device that somebody else is."""
    metrics = {"tilewright-token": rng.randbytes(16).hex(), "memory": 1}
    metrics |= {f"m{k}": {"x": k} for k in range(rng.choice((1, 3000)))}
    beat = {"op": "heartbeat_worker", "address": ports.address, "metrics": metrics}
    for _ in range(50):
        await _asked(ports.tracker, beat)


# -- after Hello ---------------------------------------------------------------------------------


async def keys(ports: Ports, rng: random.Random) -> None:
    """Devices of thousands of keys are wanted."""
    line = await opened(f"tcp://127.0.0.1:{ports.tracker}", None, "x")
    try:
        for k in range(5000):
            await line.write(wire.Want(f"key{k}", rng.randrange(3)))
            if k % 100 == 0:
                await asyncio.sleep(0)
    finally:
        line.abort()


async def hellos(ports: Ports, rng: random.Random) -> None:
    """Many say who they are, and then nothing."""
    port = ports.any(rng)
    async with AsyncExitStack() as stack:
        for _ in range(rng.randrange(100, 300)):
            with suppress(OSError):
                line = await opened(f"tcp://127.0.0.1:{port}", None, "x")
                stack.callback(line.abort)
        await asyncio.sleep(0.3)


async def deaf(ports: Ports, rng: random.Random) -> None:
    """Asks, and does not take the answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", ports.tracker, limit=1024)
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    said: list[Any] = [
        {"compression": None, "python": (3, 11), "pickle-protocol": 5},
        {"op": OPERATION, "reply": False}, wire.encoded(wire.Hello(wire.PROTOCOL, VERSION, "x")),
    ]  # fmt: skip
    try:
        for one in said:
            writer.write(framed(msgspec.msgpack.encode(one)))
        ask = framed(msgspec.msgpack.encode(wire.encoded(wire.Ask())))
        for _ in range(200):
            writer.write(ask * 100)
            await writer.drain()
    finally:
        writer.transport.abort()


async def files(ports: Ports, rng: random.Random) -> int:
    """More files than a session may have, and one for no disk; how many too many were kept."""
    line = await opened(ports.address, None, "x")
    kept = 0
    try:
        await line.write(wire.Part("large", 0, 1 << 40, b"0123456789"))
        kept += not isinstance(await line.read(), wire.Refused)
        for k in range(bounds.SESSION_FILES + 50):
            await line.write(wire.Part(f"f{k}", 0, 10, b"0123456789"))
            kept += isinstance(await line.read(), wire.Stored)
    finally:
        line.abort()
    return max(kept - bounds.SESSION_FILES, 0)


async def names(ports: Ports, rng: random.Random) -> None:
    """What looks like a line of somebody else's in a log or a table."""
    forged = "x\nINFO:RPCTracker:bind to 1.2.3.4:1"
    said: list[wire.Message] = [wire.Want(forged, 1), wire.Release(forged), wire.Want("k" * 500, 1)]
    for user, message in ((forged, wire.Ask()), ("x", rng.choice(said))):
        line = await opened(f"tcp://127.0.0.1:{ports.tracker}", None, user)
        with suppress(OSError):
            await line.write(message)
            await line.read()
        line.abort()


async def _raw(port: int, data: bytes, seconds: float = 1.0) -> None:
    """Send it, and wait so long for the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    end = time.monotonic() + seconds
    try:
        with suppress(OSError):
            writer.write(data)
            await writer.drain()
            async with asyncio.timeout(max(end - time.monotonic(), 0.1)):
                while await reader.read(1 << 16):
                    pass
    finally:
        writer.transport.abort()


async def _asked(port: int, message: dict[str, Any], seconds: float = 0.2) -> None:
    comm = await plain_comm.connect(f"tcp://127.0.0.1:{port}", None, 2)
    try:
        with suppress(OSError):
            await comm.write(message)
            async with asyncio.timeout(seconds):
                await comm.read()
    finally:
        comm.abort()


def framed(data: bytes) -> bytes:
    """As Dask frames a message of one part."""
    return struct.pack("QQQ", 16 + len(data), 1, len(data)) + data


ATTACKS: dict[str, Attack] = {
    "idle": idle, "frames": frames, "sizes": sizes, "noise": noise, "operations": operations,
    "posing": posing, "beats": beats, "keys": keys, "hellos": hellos, "deaf": deaf,
    "files": files, "names": names,
}  # fmt: skip
