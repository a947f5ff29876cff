"""What a device says to Dask's scheduler, reduced to what a tracker needs, and bounded.

In: the arguments of Dask's `register-worker` and `heartbeat_worker`, from whoever sent them.  Out:
the same, made anew: nothing of the sender but an address, a name, a key and a few numbers gets to
Dask, which would keep whatever it is told.  Read next: `tracker.py`, `server.py`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from distributed.comm.addressing import parse_address, parse_host_port, unparse_host_port
from distributed.versions import get_versions
from msgspec import Meta

from tilewright.base.errors import DeviceError
from tilewright.base.text import printable
from tilewright.farm import wire

KEY = "tilewright-key"  # what a device registers with
TOKEN = "tilewright-token"  # among its figures: the same in all that one process says
_RESOLVE_SECONDS = 3.0
_DEEP, _MANY = 3, 64  # figures within figures, and of one of them
_NEEDED: dict[str, Any] = {  # by Dask and its pages
    "memory": 0, "managed_bytes": 0, "cpu": 0, "time": 0, "event_loop_interval": 0,
    "spilled_bytes": {"memory": 0, "disk": 0}, "host_net_io": {"read_bps": 0, "write_bps": 0},
    "transfer": {"incoming_bytes": 0, "outgoing_bytes": 0},
    "bandwidth": {"total": 0, "workers": {}, "types": {}}, "digests_total_since_heartbeat": {},
}  # fmt: skip
_MOST = 1e18


class _Extra(msgspec.Struct):
    key: wire.Key = msgspec.field(name=KEY)


class _Registration(msgspec.Struct):
    address: wire.Name
    server_id: wire.Name
    extra: _Extra


Token = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]


@dataclass(frozen=True)
class Registration:
    """A device that wants to be known.  said: for Dask."""

    address: str
    key: str
    token: str
    said: dict[str, Any]


async def registration(said: dict[str, Any], encrypted: bool) -> Registration:
    """Raises DeviceError for what is no device, or has a key that cannot be."""
    try:
        given = msgspec.convert(said, _Registration)
        token = token_of(said)
    except (msgspec.ValidationError, ValueError) as error:
        raise DeviceError(
            "device", f"it does not register as one ({error})",
            "A key has 1 to 200 characters, all in one line. Install the same version of "
            "Tilewright there.",
        ) from None  # fmt: skip
    address = await _resolved(given.address, "tls" if encrypted else "tcp")
    made = {
        "address": address, "resolve_address": False, "name": address, "status": "running",
        "server_id": given.server_id, "nthreads": 1, "now": time.time(), "resources": {},
        "memory_limit": None, "metrics": figures(said), "pid": 0, "services": {},
        "local_directory": "", "versions": get_versions(), "nanny": None,
        "extra": {KEY: given.extra.key}, "stimulus_id": "registration",
    }  # fmt: skip
    return Registration(address, given.extra.key, token, made)


def token_of(said: dict[str, Any]) -> str:
    """Raises ValueError where there is none."""
    metrics = said.get("metrics")
    token = metrics.get(TOKEN) if isinstance(metrics, dict) else None
    try:
        return str(msgspec.convert(token, Token))
    except msgspec.ValidationError as error:
        raise ValueError(f"a token: {error}") from None


def figures(said: dict[str, Any]) -> dict[str, Any]:
    """What Dask's pages show of a device: numbers."""
    metrics = said.get("metrics")
    found = _numbers(metrics, _DEEP)
    return found | {name: _like(none, found.get(name)) for name, none in _NEEDED.items()}


def _numbers(value: Any, deep: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if isinstance(value, dict) and deep and len(value) <= _MANY:
        for name, one in value.items():
            if isinstance(name, str) and len(name) <= 40:
                if isinstance(one, dict):
                    made[name] = _numbers(one, deep - 1)
                elif isinstance(one, (int, float)) and abs(one) <= _MOST:
                    made[name] = one
    return made


def _like(none: Any, given: Any) -> Any:
    """`given` where it is of the form of `none`."""
    if isinstance(none, dict):
        inner = given if isinstance(given, dict) else {}
        return {name: _like(one, inner.get(name)) for name, one in none.items()}
    return given if isinstance(given, (int, float)) else none


async def _resolved(address: str, scheme: str) -> str:
    """With numbers for the host, which Dask would look up itself, while everybody waits."""
    try:
        said, place = parse_address(address)
        host, port = parse_host_port(place)
        if said != scheme or not 0 < port < 65536:
            raise ValueError(f"not {scheme}://HOST:PORT")
        return f"{scheme}://{unparse_host_port(await _number_of(host, port), port)}"
    except (ValueError, TypeError, OSError, UnicodeError) as error:
        raise DeviceError(
            f"device {printable(address)}", f"nobody can find it there ({error})",
            "Give its server another --custom-addr.",
        ) from None  # fmt: skip


async def _number_of(host: str, port: int) -> str:
    with suppress(ValueError):
        return str(ipaddress.ip_address(host))
    async with asyncio.timeout(_RESOLVE_SECONDS):
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    found.sort(key=lambda one: one[0] != socket.AF_INET)  # what more machines can reach
    return str(found[0][4][0])
