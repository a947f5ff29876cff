"""Dask's connections without pickle: bytes of bounded size, msgpack, nothing that becomes code.

In: an address, certificates.  Out: connections (`connect`), and, after `use_plain_connections`,
listeners of this process.  They cut off whoever does not say soon who he is, sends what is too
large or would have to be unpickled, or asks for what a `House` does not do: Dask itself would serve
anybody.  Read next: `admission.py`, `certificates.py`, `tracker.py`, `server.py`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgpack
from distributed.comm import registry
from distributed.comm.addressing import parse_address
from distributed.comm.core import CommClosedError
from distributed.comm.tcp import (
    TCP,
    TLS,
    StreamClosedError,
    TCPBackend,
    TCPConnector,
    TCPListener,
    TLSBackend,
    TLSConnector,
    TLSListener,
    convert_stream_closed_error,
    read_bytes_rw,
)
from distributed.core import Status
from distributed.protocol.utils import unpack_frames

from tilewright.base.text import printable
from tilewright.farm import bounds
from tilewright.farm.admission import STRANGER, Gate, Guest
from tilewright.farm.certificates import may_serve

_LOG = logging.getLogger("tilewright.farm")
_SIZE = struct.Struct("Q")
_ODD = "__Serialized__", "__Pickled__"
# What follows an operation on its connection: other operations, messages of ours, Dask's notes.
OPERATIONS, OURS, NOTES = "operations", "ours", "notes"
_SILENCE = {OPERATIONS: bounds.BEAT_SECONDS, OURS: None, NOTES: bounds.STREAM_SECONDS}


@dataclass(frozen=True)
class House:
    """What a process does for others, by any of its listeners.

    gate:         who of them may stay
    operations:   by name, what follows each on its connection
    notes:        that may be sent after those which Dask's notes follow
    most_bytes:   of a message
    unread_bytes: of answers that the other side does not take
    """

    gate: Gate
    operations: Mapping[str, str]
    notes: frozenset[str]
    most_bytes: int
    unread_bytes: int


class _Plain:
    """How a message is read; mixed into Dask's connections."""

    stream: Any
    _closed: bool
    _peer_addr: str
    most_bytes = bounds.MESSAGE_BYTES

    async def read(self, deserializers: Any = None) -> Any:
        if self.stream is None:
            raise CommClosedError()
        try:
            frames = await self._frames()
            return msgpack.loads(
                frames[0], object_hook=_plain_object, use_list=False, strict_map_key=False
            )
        except (StreamClosedError, ssl.SSLError) as error:
            self.stream = None
            self._closed = True
            convert_stream_closed_error(self, error)
        except asyncio.CancelledError:
            self.abort()  # type: ignore[attr-defined]  # of the class it is mixed into
            raise
        except Exception as error:
            raise self._cut_off(str(error) or type(error).__name__) from None

    def _cut_off(self, why: str) -> CommClosedError:
        why = printable(why).replace("\n", " ")[:300]
        _LOG.warning("%s is cut off: %s", self._peer_addr, why)
        self.abort()  # type: ignore[attr-defined]
        return CommClosedError(f"{self._peer_addr}: {why}")

    async def _frames(self) -> list[Any]:
        stream = self.stream  # which `close` takes away
        async with asyncio.timeout(self._silence()):
            (size,) = _SIZE.unpack(await stream.read_bytes(_SIZE.size))
        self._check_size(size)
        async with asyncio.timeout(_seconds(size)):
            body = await read_bytes_rw(stream, size)
        (count,) = _SIZE.unpack_from(body) if size >= _SIZE.size else (0,)
        if not 0 < count <= bounds.FRAMES:
            raise ValueError(f"a message of {count} parts; {bounds.FRAMES} are the most")
        frames, missing = unpack_frames(body, partial=True)
        self._check_size(size + sum(missing))
        frames = list(frames)
        async with asyncio.timeout(_seconds(sum(missing))):
            for length in missing:
                frames.append(await read_bytes_rw(stream, length))
        if len(frames) > 1:  # large ones are cut where they are sent
            frames = [b"".join(frames)]
        return frames

    def _silence(self) -> float | None:
        """Seconds until a message has to begin."""
        return None

    def _check_size(self, size: int) -> None:
        if size > self.most_bytes:
            raise ValueError(f"a message of {size} bytes; {self.most_bytes} is the most")


def _seconds(size: int) -> float:
    return bounds.MESSAGE_SECONDS + size / bounds.MESSAGE_BYTES_A_SECOND


def _plain_object(value: dict[Any, Any]) -> Any:
    """What Dask's scheduler and workers say beyond plain values: sets and states."""
    if any(name in value for name in _ODD):
        raise ValueError("a message that has to be unpickled")
    if "__Set__" in value:
        return set(value["as-tuple"])
    if "__Enum__" in value:
        if value.get("__name__") != "Status":
            raise ValueError("a message that names a class")
        return Status[value["name"]]
    return value


class _PlainTCP(_Plain, TCP):
    pass


class _PlainTLS(_Plain, TLS):
    pass


class _TCPConnector(TCPConnector):
    comm_class = _PlainTCP


class _TLSConnector(TLSConnector):
    comm_class = _PlainTLS


# -- connections that others opened ---------------------------------------------------------------


class _Accepted(_Plain):
    """Reads nothing but what its house does for who it is.

    guest:     whose place it has
    may_serve: its certificate, if it showed one, is that of a device
    """

    guest: Guest
    house: House
    may_serve = True
    _follows: str | None = None  # nothing before the two have shaken hands

    def __init__(self, stream: Any, *arguments: Any) -> None:
        super().__init__(stream, *arguments)  # type: ignore[call-arg]
        self.guest, self.house, left = stream.stays
        known = weakref.ref(self)

        def closed() -> None:
            comm = known()
            if comm is not None:
                comm._closed = True
            left()

        stream.set_close_callback(closed)

    @property
    def most_bytes(self) -> int:  # type: ignore[override]
        if self.guest.role == STRANGER:
            return min(bounds.STRANGER_BYTES, self.house.most_bytes)
        return self.house.most_bytes

    async def read(self, deserializers: Any = None) -> Any:
        message = await super().read(deserializers)
        await asyncio.sleep(0)  # who sends much does not keep others waiting
        self.guest.spoke()
        try:
            self._check(message)
        except ValueError as error:
            raise self._cut_off(str(error)) from None
        return message

    async def write(self, message: Any, *args: Any, **options: Any) -> Any:
        stream = self.stream
        unread = None if stream is None else stream._write_buffer
        if unread is not None and len(unread) > self.house.unread_bytes:
            raise self._cut_off("it does not take what it is told")
        return await super().write(message, *args, **options)  # type: ignore[misc]

    def _silence(self) -> float | None:
        return None if self.guest.role == STRANGER else _SILENCE[self._follows or OPERATIONS]

    def _check(self, message: Any) -> None:
        """Raises ValueError for what is not for this house, or not now."""
        if self._follows is None:
            if not isinstance(message, dict) or len(message) > 16:
                raise ValueError("it does not shake hands")
            self._follows = OPERATIONS
        elif self._follows == OURS:
            if not isinstance(message, bytes):
                raise ValueError("it sent no message of this protocol")
        elif self._follows == NOTES:
            notes = message if isinstance(message, tuple) else (message,)
            if len(notes) > bounds.BATCH:
                raise ValueError(f"{len(notes)} notes at once")
            for note in notes:
                if note != "OK" and self._name(note) not in self.house.notes:
                    raise ValueError(f"{self._name(note)!r} is not noted here")
        else:
            name = self._name(message)
            if name != "close":
                if name not in self.house.operations:
                    raise ValueError(f"{name!r} is not done here")
                self._follows = self.house.operations[name]

    @staticmethod
    def _name(message: Any) -> str:
        name = message.get("op") if isinstance(message, dict) else None
        if not isinstance(name, str):
            raise ValueError("it asks for nothing")
        return name


class _AcceptedTCP(_Accepted, TCP):
    pass


class _AcceptedTLS(_Accepted, TLS):
    def _read_extra(self) -> None:
        super()._read_extra()
        self.may_serve = may_serve(self.stream.socket.getpeercert(True) or b"")


class _Guarded:
    """A listener that lets in whom the gate has a place for; mixed into Dask's."""

    async def _handle_stream(self, stream: Any, address: Any) -> None:
        house = _houses[-1]
        guest = house.gate.enter(str(address[0]), stream.close)
        expires = asyncio.get_running_loop().call_later(bounds.STRANGER_SECONDS, _expire, guest)

        def left() -> None:
            expires.cancel()
            house.gate.leave(guest)

        stream.set_close_callback(left)
        stream.stays = guest, house, left  # for the connection that is made of it
        try:
            await super()._handle_stream(stream, address)  # type: ignore[misc]
        except Exception as error:
            _LOG.warning("%s is cut off: %s", address[0], printable(str(error))[:300])
            stream.close()
        if stream.closed():  # perhaps before somebody could be told
            left()


def _expire(guest: Guest) -> None:
    if guest.role == STRANGER:
        guest.cut()


class _TCPListener(_Guarded, TCPListener):
    comm_class = _AcceptedTCP


class _TLSListener(_Guarded, TLSListener):
    comm_class = _AcceptedTLS


class _TCP(TCPBackend):
    _connector_class = _TCPConnector
    _listener_class = _TCPListener


class _TLS(TLSBackend):
    _connector_class = _TLSConnector
    _listener_class = _TLSListener


_houses: list[House] = []


def use_plain_connections(house: House) -> None:
    """In this process, which is a tracker or a device, all of Dask's connections are plain."""
    _houses.append(house)
    registry.backends.update(tcp=_TCP(), tls=_TLS())


def admitted(comm: Any, role: str) -> bool:
    """Whether a connection has a place of `role`; in a site's own Dask there are no places."""
    guest = getattr(comm, "guest", None)
    return guest is None or guest.admit(role)


async def connect(address: str, context: ssl.SSLContext | None, seconds: float) -> Any:
    """A connection to a tracker or a device.  Raises OSError, also where it takes longer."""
    scheme, place = parse_address(address)
    if scheme == "tls":
        opened = _TLSConnector().connect(place, deserialize=False, ssl_context=context)
    else:
        opened = _TCPConnector().connect(place, deserialize=False)
    async with asyncio.timeout(seconds):
        try:
            comm = await opened
        except ValueError as error:  # what was sent before TLS began is in the way
            raise ConnectionError("it speaks plainly") from error
        try:
            if scheme == "tls":  # of TLS 1.3 a refusal comes only now, and is lost to who writes
                comm.remote_info = await comm.read()
                await comm.write(comm.handshake_info())
            else:  # who waits for TLS says nothing before
                await comm.write(comm.handshake_info())
                comm.remote_info = await comm.read()
            comm.local_info = comm.handshake_info()
            comm.handshake_options = comm.handshake_configuration(comm.local_info, comm.remote_info)
        except BaseException:
            comm.abort()
            raise
    return comm
