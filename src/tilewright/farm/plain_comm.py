"""Dask's connections without pickle: bytes of bounded size, msgpack, nothing that becomes code.

In: an address, certificates.  Out: connections (`connect`), and, after `use_plain_connections`,
listeners of this process that refuse whatever is too large or would have to be unpickled.
Dask's own reader unpickles what any peer sends; a tracker and a device never need that.
Read next: `certificates.py`, `tracker.py`, `server.py`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
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

from tilewright.farm import wire

_LOG = logging.getLogger("tilewright.farm")
_SIZE = struct.Struct("Q")
_ODD = "__Serialized__", "__Pickled__"


class _Plain:
    """How a message is read; mixed into Dask's connections."""

    stream: Any
    _closed: bool
    _peer_addr: str

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
            _LOG.warning("%s is cut off: %s", self._peer_addr, error)
            self.abort()  # type: ignore[attr-defined]
            raise CommClosedError(f"{self._peer_addr}: {error}") from None

    async def _frames(self) -> list[Any]:
        stream = self.stream  # which `close` takes away
        (size,) = _SIZE.unpack(await stream.read_bytes(_SIZE.size))
        _check_size(size)
        frames, missing = unpack_frames(await read_bytes_rw(stream, size), partial=True)
        _check_size(size + sum(missing))
        frames = list(frames)
        for count in missing:
            frames.append(await read_bytes_rw(stream, count))
        if not frames:
            raise ValueError("a message without content")
        if len(frames) > 1:  # large ones are cut where they are sent
            frames = [b"".join(frames)]
        return frames


def _check_size(size: int) -> None:
    if size > 2 * wire.MOST_BYTES:
        raise ValueError(f"a message of {size} bytes; {wire.MOST_BYTES} is the most")


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


class _TCPListener(TCPListener):
    comm_class = _PlainTCP


class _TLSListener(TLSListener):
    comm_class = _PlainTLS


class _TCP(TCPBackend):
    _connector_class = _TCPConnector
    _listener_class = _TCPListener


class _TLS(TLSBackend):
    _connector_class = _TLSConnector
    _listener_class = _TLSListener


def use_plain_connections() -> None:
    """In this process, which is a tracker or a device, all of Dask's connections are plain."""
    registry.backends.update(tcp=_TCP(), tls=_TLS())


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
