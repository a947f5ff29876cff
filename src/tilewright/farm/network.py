"""Connections of this side: reaching a tracker or a device, and a thread that runs them all.

In: addresses, certificates, coroutines.  Out: connections; results of coroutines in other threads.
All of asyncio on the tuner's side lives in the one thread that `background` starts.
Read next: `address.py`, `plain_comm.py`, `client.py`.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from tilewright.base.concurrency import in_forked_child, once
from tilewright.base.errors import DeviceError
from tilewright.farm import address, wire
from tilewright.farm.address import Place
from tilewright.farm.certificates import CLIENT, Credentials
from tilewright.farm.versions import VERSION

T = TypeVar("T")
CONNECT_SECONDS = 5.0
OPERATION = "tilewright"  # the handler of Dask's servers that speaks our protocol


class Line:
    """A connection that speaks `wire`.  Reading raises OSError when it is closed."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self._writing = asyncio.Lock()

    @property
    def closed(self) -> bool:
        return bool(self._comm.closed())

    async def read(self) -> wire.Message:
        return wire.decoded(await self._comm.read(), self._comm.peer_address)

    async def write(self, message: wire.Message) -> None:
        async with self._writing:
            await self._comm.write(wire.encoded(message))

    async def ask(self, message: wire.Message) -> wire.Message:
        """The next message after `message`.  Raises DeviceError for one that refuses it."""
        await self.write(message)
        return refusal_raised(await self.read())

    def abort(self) -> None:
        self._comm.abort()


def reason(error: BaseException) -> str:
    """Why a connection failed, in words: Dask's texts name objects, what lies beneath does not."""
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def refusal_raised(message: wire.Message) -> wire.Message:
    if isinstance(message, wire.Refused):
        raise DeviceError(message.place, message.reason, message.way_out)
    return message


async def reach(
    host: str, port: int, certificates: str | None, role: str = CLIENT
) -> tuple[Place, ssl.SSLContext | None]:
    """The way in which something listens there.  Raises OSError where nothing does, and
    DeviceError where it does not speak to us."""
    from tilewright.farm import plain_comm

    failures: list[OSError] = []
    for place, context in address.ways(host, port, certificates, role):
        try:
            comm = await plain_comm.connect(str(place), context, CONNECT_SECONDS)
        except OSError as error:
            failures.append(error)
            continue
        comm.abort()
        return place, context
    if any(_is_refused_certificate(failure) for failure in failures):
        raise DeviceError(
            f"{host}:{port}", f"it does not accept the certificate ({reason(failures[-1])})",
            "Use certificates of its own authority: copy them from where `tilewright farm "
            "certificates` ran.",
        ) from None  # fmt: skip
    if any(_was_answered(failure) for failure in failures):
        raise DeviceError(
            f"{host}:{port}", "it closes the connection: it wants TLS, or is no farm of Tilewright",
            "Copy its certificates here (see `tilewright farm certificates`), or check the port.",
        ) from None  # fmt: skip
    raise failures[-1]


def _is_refused_certificate(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError) or "certificate" in str(error).lower():
            return True
        error = error.__cause__ or error.__context__
    return False


def _was_answered(error: BaseException) -> bool:
    """Whether something listens there, though it hung up."""
    refused: BaseException | None = error
    while refused is not None:
        if isinstance(refused, (ConnectionRefusedError, TimeoutError)):
            return False
        refused = refused.__cause__ or refused.__context__
    text = str(error)
    return "refused" not in text and "unreachable" not in text and "Timed out" not in text


async def opened(
    place: str, context: ssl.SSLContext | None, user: str, seconds: float = CONNECT_SECONDS
) -> Line:
    """A connection after both sides said hello.  Raises OSError, DeviceError."""
    from tilewright.farm import plain_comm

    comm = await plain_comm.connect(place, context, seconds)
    line = Line(comm)
    try:
        async with asyncio.timeout(seconds):
            await comm.write({"op": OPERATION, "reply": False})
            answer = await line.ask(wire.Hello(wire.PROTOCOL, VERSION, user))
            wire.check_hello(answer, place)
    except BaseException:
        line.abort()
        raise
    return line


def dask_security(found: Credentials) -> Any:
    """What Dask's servers need to show these, and to ask for others of the same authority.

    Raises DeviceError where the files do not do.
    """
    found.context(listening=True)
    from distributed.security import Security

    names = {"cert": str(found.certificate), "key": str(found.key)}
    roles = {f"tls_{role}_{k}": v for role in ("scheduler", "worker") for k, v in names.items()}
    return Security(tls_ca_file=str(found.authority), require_encryption=True, **roles)


def check_installed() -> None:
    """Raises DeviceError without Dask."""
    try:
        import distributed  # noqa: F401
    except ImportError:
        raise DeviceError(
            "farm", "the package distributed is not installed", "Install 'tilewright[farm]'."
        ) from None


@once
def background() -> asyncio.AbstractEventLoop:
    """The loop of a thread of this process that ends with it."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="tilewright farm", daemon=True).start()
    return loop


in_forked_child(background.forget)


def soon(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    return asyncio.run_coroutine_threadsafe(coroutine, background())
