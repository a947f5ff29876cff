"""Connections of this side: reaching a tracker or a device, and a thread that runs them all.

In: addresses, certificates, coroutines.  Out: connections; results of coroutines in other threads.
All of asyncio on the tuner's side lives in the one thread that `background` starts.
Read next: `address.py`, `plain_comm.py`, `client.py`.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from tilewright.base.concurrency import in_forked_child, once
from tilewright.base.errors import DeviceError
from tilewright.base.extras import install
from tilewright.farm import address, bounds, wire
from tilewright.farm.address import Place
from tilewright.farm.certificates import CLIENT, Credentials, distrust
from tilewright.farm.versions import VERSION

T = TypeVar("T")
_HANGS_UP = 3  # attempts, until who hangs up is believed to mean it
_PAUSE = 0.3
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
    for left in reversed(range(_HANGS_UP)):
        failures: list[OSError] = []
        for place, context in address.ways(host, port, certificates, role):
            try:
                (await _connected(str(place), context, bounds.CONNECT_SECONDS)).abort()
            except OSError as error:
                failures.append(error)
                continue
            return place, context
        if not any(_was_answered(failure) for failure in failures):
            break
        if not left:
            raise DeviceError(
                f"{host}:{port}",
                "it closes the connection: it wants TLS, or is no farm of Tilewright",
                "Copy its certificates here (see `tilewright farm certificates`), or check the "
                "port.",
            ) from None
        await asyncio.sleep(_PAUSE)  # a tracker that ends hangs up as well
    raise failures[-1]


async def _connected(place: str, context: ssl.SSLContext | None, seconds: float) -> Any:
    """Raises OSError, and DeviceError where certificates do not do: another attempt would not."""
    from tilewright.farm import plain_comm

    try:
        return await plain_comm.connect(place, context, seconds)
    except OSError as error:
        refused = _refused(place, error)
        if refused is None:
            raise
        raise refused from None


def _refused(place: str, error: BaseException) -> DeviceError | None:
    """What TLS says of the certificates of the two sides; None: nothing is wrong with them."""
    found = next((e for e in _causes(error) if isinstance(e, (ssl.SSLError, ValueError))), None)
    if isinstance(found, ssl.SSLCertVerificationError):
        why, way_out = distrust(found)
        return DeviceError(place, f"its certificate is not accepted: {why}", way_out)
    said = str(getattr(found, "reason", None) or found)
    if "not idle" in said or said == "WRONG_VERSION_NUMBER":
        return DeviceError(
            place, "it does not speak TLS",
            "Start it with certificates, or say --certificates none here where everybody in the "
            "network may run code.",
        )  # fmt: skip
    if "ALERT" not in said:
        return None
    alert = said.partition("ALERT_")[2].replace("_", " ").lower()
    return DeviceError(
        place, f"it does not accept the certificate of this machine ({alert})",
        "Use certificates of its own authority: copy them from where `tilewright farm "
        "certificates` ran.  Where they are of it, set the clock there.",
    )  # fmt: skip


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _was_answered(error: BaseException) -> bool:
    """Whether something listens there, though it hung up."""
    if any(isinstance(e, (ConnectionRefusedError, TimeoutError)) for e in _causes(error)):
        return False
    text = str(error)
    return "refused" not in text and "unreachable" not in text and "Timed out" not in text


async def opened(
    place: str, context: ssl.SSLContext | None, user: str, seconds: float = bounds.CONNECT_SECONDS
) -> Line:
    """A connection after both sides said hello.  Raises OSError, DeviceError."""
    comm = await _connected(place, context, seconds)
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


async def joined(
    host: str, port: int, certificates: str | None, user: str
) -> tuple[Line, ssl.SSLContext | None]:
    """A connection to the tracker there, after both sides said hello, and how it was made.

    Who hangs up before is tried again: it may have ended, or have had to make room.
    Raises OSError, DeviceError.
    """
    left = _HANGS_UP
    while True:
        place, context = await reach(host, port, certificates)
        try:
            return await opened(str(place), context, user), context
        except OSError:
            left -= 1
            if not left:
                raise
        await asyncio.sleep(_PAUSE)


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
            "farm", "the package distributed is not installed", f"Try {install('farm')}."
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
