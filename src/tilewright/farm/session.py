"""`request_remote`: a device of the farm for as long as one likes, with files, arrays and networks.

In: a key, a tracker.  Out: a `RemoteSession`: what is uploaded and loaded lives on the device, in a
process of the session's own, until the session ends.  Arrays there are ordinary `NDArray`s: their
device is a `RemoteDevice`, whose driver asks the other side.
Read next: `session_calls.py` (the other side), `remote_graph.py`, `client.py`.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from tilewright.base.artifact import Artifact
from tilewright.base.concurrency import cached_property
from tilewright.base.doors import door
from tilewright.base.errors import DeviceError, TilewrightError
from tilewright.farm import address, idle, wire
from tilewright.farm.client import TrackerClient, summary, user_name
from tilewright.farm.device_link import described, send_file
from tilewright.farm.network import Line, check_installed, opened, reason, soon
from tilewright.farm.remote_graph import RemoteLibrary, RemoteMemory, RemoteModule
from tilewright.runtime.device import Device, device
from tilewright.runtime.drivers import Driver, Fenced, Kernel, Launch, Memory, Plan
from tilewright.targets.spec import DeviceSpec

_BEAT_SECONDS = 2.0  # between signs of life
_PATIENCE = 0.5  # seconds without a device, until own sessions that are idle are asked for theirs


@door(DeviceError)
def request_remote(
    device_key: str,
    host: str | None = None,
    port: int | None = None,
    priority: int = 1,
    timeout: float = 60,
    *,
    certificates: str | None = None,
) -> RemoteSession:
    """A session on a device that the tracker at host:port has for `device_key`.

    host, port: default: TVM_TRACKER_HOST and TVM_TRACKER_PORT
    priority:   who has a higher one gets devices first
    timeout:    seconds for one call, and to wait for a device that is free
    Raises DeviceError where there is none.
    """
    check_installed()
    wire.check_wish(device_key, priority)
    place = address.tracker_address(host, port)
    return RemoteSession(device_key, place, priority, timeout, certificates)


class RemoteSession:
    """Use it in a `with`, or `close` it: the device is others' again then, or when nothing refers
    to the session any more.  While nothing is on the device (arrays, modules, files), it gives way
    to what else in this process waits for one of the key; its next call requests one again.
    Raises DeviceError, from any method, once the device or the connection is lost."""

    def __init__(
        self, key: str, place: tuple[str, int], priority: int, timeout: float,
        certificates: str | None,
    ) -> None:  # fmt: skip
        self.key, self.timeout = key, timeout
        self._asked = place, priority, certificates
        self.holds: set[int] = set()  # numbers of what is there
        self._files: set[str] = set()
        self._turn = threading.Lock()
        self._request()
        idle.note(self)

    def _request(self) -> None:
        """Get a device; also once more, after it was given back."""
        place, priority, certificates = self._asked
        self._lease = _Lease(self.key, priority)
        self._client = self._lease.client = TrackerClient(*place, certificates, self._lease)
        try:
            self._line, self.address = soon(self._open(self.timeout)).result()
        except BaseException:
            soon(self._shut())
            raise
        self._rests = False
        self._finalizer = weakref.finalize(self, _end, self._client, self._line)

    def give_way(self) -> None:
        """Let others have the device, if nothing is there and no call is under way."""
        if not self._turn.acquire(blocking=False):
            return
        try:
            if not self.holds and not self._files and self._finalizer.alive:
                self._finalizer()
                self._rests = True
        finally:
            self._turn.release()

    # -- devices -----------------------------------------------------------------------------------
    def cpu(self, index: int = 0) -> RemoteDevice:
        return self.device("cpu", index)

    def cl(self, index: int = 0) -> RemoteDevice:
        return self.device("opencl", index)

    opencl = cl

    def cuda(self, index: int = 0) -> RemoteDevice:
        return self.device("cuda", index)

    def device(self, kind: str, index: int = 0) -> RemoteDevice:
        """Asks the other side when it is used, not before."""
        return RemoteDevice(device(kind, index).kind, index, self)

    context = device  # its name before TVM 0.8

    # -- files -------------------------------------------------------------------------------------
    def upload(self, data: str | os.PathLike[str] | bytes, target: str | None = None) -> None:
        """Send a file, or bytes under the name `target`; default: the file's own name."""
        if isinstance(data, (bytes, bytearray)):
            content, name = bytes(data), target
        else:
            path = Path(data)
            try:
                content, name = path.read_bytes(), target or path.name
            except OSError as error:
                raise DeviceError(
                    f"upload({os.fspath(path)!r})", f"it cannot be read ({error.strerror})",
                    "Name a file that lib.export_library wrote.",
                ) from None  # fmt: skip
        if not name or Path(name).name != name or len(name) == 64:
            raise DeviceError(
                f"upload(target={target!r})", "it is no plain name", 'Use one such as "lib.so".'
            )
        self._files.add(name)
        self._ask(lambda line: send_file(line, name, content))

    def listdir(self) -> list[str]:
        """Names of the session's files."""
        return cast(list[str], self.call("files"))

    def remove(self, path: str) -> None:
        self.call("remove", name=path)
        self._files.discard(path)

    def load_module(self, path: str) -> RemoteLibrary | RemoteModule:
        """What an uploaded file holds: a network or one computation, loaded there."""
        about = self.call("load", name=path)
        loaded = (self, about["held"], about["kind"], about["about"])
        return RemoteLibrary(*loaded) if about["network"] else RemoteModule(*loaded, about["entry"])

    # -- below -------------------------------------------------------------------------------------
    def call(self, function: str, *, seconds: float | None = None, **arguments: Any) -> Any:
        """One of `session_calls.CALLS`, with plain arguments."""
        asked = wire.Call(function, arguments, seconds or self.timeout)
        answer = self._ask(lambda line: line.ask(asked))
        if not isinstance(answer, wire.Answer):
            raise wire.malformed(self.address, type(answer).__name__)
        return answer.value

    def describe(self, kind: str, index: int) -> DeviceSpec:
        return described(self._ask(lambda line: line.ask(wire.Describe(kind, index))))

    def close(self) -> None:
        self._rests = False
        self._finalizer()

    def __enter__(self) -> RemoteSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RemoteSession({self.key} at {self.address})"

    def _ask(self, question: Callable[[Line], Coroutine[Any, Any, Any]]) -> Any:
        with self._turn:
            if self._rests:
                self._request()
            try:
                return soon(question(self._line)).result()
            except OSError as error:
                why = self._lease.why or reason(error)
                raise DeviceError(
                    f"session with {self.address}", f"the device is lost ({why})",
                    "Request a device again, and upload and load again.",
                ) from None  # fmt: skip

    async def _open(self, timeout: float) -> tuple[Line, str]:
        await self._client.start()
        found = asyncio.ensure_future(self._lease.device)
        try:
            async with asyncio.timeout(max(timeout, 1.0)):
                while not (await asyncio.wait([found], timeout=_PATIENCE))[0]:
                    idle.give_way(self.key, but=self)
                at = await found
        except TimeoutError:
            raise await self._none_free(timeout) from None
        try:
            self._lease.line = await opened(at, self._client.context, user_name())
        except OSError as error:
            raise DeviceError(f"device {at}", f"it cannot be reached ({reason(error)})") from None
        self._lease.live()
        return self._lease.line, at

    async def _none_free(self, timeout: float) -> DeviceError:
        known, held, way_out = self._lease.total, "", ""
        with suppress(TilewrightError):
            place, _, certificates = self._asked
            held, way_out = idle.holders((await summary(*place, certificates)).members, self.key)
        reason = f"all {known} devices of the key are in use after {timeout:g} s"
        return DeviceError(
            f"request_remote({self.key!r})",
            f"{reason}{held and ', '}{held}" if known else "the tracker has no device of this key",
            way_out or "`tilewright farm status` shows which there are.",
        )

    async def _shut(self) -> None:
        self._client.close()


def _end(client: TrackerClient, line: Line) -> None:
    async def end() -> None:
        client.close()
        line.abort()  # which ends what says that we live

    soon(end())


class _Lease:
    """What the tracker says to a session.  why: the device was lost, or ""."""

    def __init__(self, key: str, priority: int) -> None:
        self.key, self.priority = key, priority
        self.total = 0
        self.why = ""
        self.line: Line | None = None
        self.client: TrackerClient | None = None
        self._loop_future: asyncio.Future[str] | None = None
        self._living: asyncio.Task[None] | None = None

    @property
    def device(self) -> asyncio.Future[str]:
        if self._loop_future is None:
            self._loop_future = asyncio.get_running_loop().create_future()
        return self._loop_future

    def live(self) -> None:
        """Tell the device so now and then, as long as there is a connection to it."""

        async def beat(line: Line) -> None:
            with suppress(OSError):
                while not line.closed:
                    await line.write(wire.Ping())
                    await asyncio.sleep(_BEAT_SECONDS)

        assert self.line is not None
        self._living = asyncio.ensure_future(beat(self.line))

    def connected(self) -> None:
        if not self.device.done() and self.client is not None:
            self.client.send(wire.Want(self.key, 1, self.priority))

    def disconnected(self, why: str) -> None:
        """The device goes on, and others may get it too: whoever is lent it then has to wait."""

    def granted(self, key: str, device: str) -> None:
        if not self.device.done():
            self.device.set_result(device)

    def lost(self, device: str, why: str) -> None:
        self.why = why
        if self.line is not None:
            self.line.abort()

    def counted(self, key: str, total: int) -> None:
        self.total = total


@dataclass(frozen=True)
class RemoteDevice(Device):
    """A device of a session: `nd.array(x, remote.cl())` is an array there."""

    session: RemoteSession = field(kw_only=True, repr=False)

    def __init__(self, kind: str, index: int, session: RemoteSession) -> None:
        for name, value in (("kind", kind), ("index", index), ("session", session)):
            object.__setattr__(self, name, value)

    def why_not(self) -> TilewrightError | None:
        try:
            _ = self.spec
        except TilewrightError as error:
            return error
        return None

    @property
    def driver(self) -> Driver:
        return self._driver

    @cached_property
    def _driver(self) -> RemoteDriver:
        return RemoteDriver(self.session, self.kind, self.device_kind.name, self.index)

    def __str__(self) -> str:
        return f"{self.kind}({self.index}) of {self.session.key} at {self.session.address}"


class RemoteDriver:
    """What arrays of a `RemoteDevice` need of a driver; code is loaded by `load_module`."""

    def __init__(self, session: RemoteSession, kind: str, target: str, index: int) -> None:
        self._session = session  # not the device, which has this: nobody would let go of the other
        self._where: dict[str, Any] = {"kind": kind, "index": index}
        self._spec = session.describe(target, index)
        self.name, self.arch = self._spec.name, self._spec.arch

    def describe(self) -> DeviceSpec:
        return self._spec

    def sync(self) -> None:
        self._session.call("sync", **self._where)

    def allocate(self, nbytes: int) -> Memory:
        held = self._session.call("allocate", nbytes=nbytes, **self._where)
        return RemoteMemory(self._session, held, nbytes)

    def write(self, memory: Memory, data: np.ndarray, offset: int = 0) -> None:
        held = cast(RemoteMemory, memory).held
        view = np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
        for at in range(0, len(view), wire.PART_BYTES):
            part = bytes(view[at : at + wire.PART_BYTES])
            self._session.call("write", held=held, data=part, offset=offset + at)

    def read(self, memory: Memory, out: np.ndarray, offset: int = 0) -> None:
        held = cast(RemoteMemory, memory).held
        for at in range(0, out.size, wire.PART_BYTES):
            size = min(wire.PART_BYTES, out.size - at)
            data = self._session.call("read", held=held, offset=offset + at, nbytes=size)
            out[at : at + size] = np.frombuffer(data, np.uint8)

    def copy(self, source: Memory, target: Memory, nbytes: int) -> None:
        one, two = cast(RemoteMemory, source), cast(RemoteMemory, target)
        self._session.call("copy", source=one.held, target=two.held, nbytes=nbytes)

    def fenced(self, nbytes: int) -> Fenced:
        raise self._elsewhere("fenced memory")

    def part(self, memory: Memory, offset: int, nbytes: int) -> Memory:
        raise self._elsewhere("a part of memory")

    def borrow(self, pointer: int, nbytes: int, owner: object) -> Memory:
        raise self._elsewhere("memory of others")

    def load(self, artifact: Artifact) -> tuple[Kernel, ...]:
        raise self._elsewhere("code")

    def plan(self, launches: tuple[Launch, ...], capture: bool = False) -> Plan:
        raise self._elsewhere("code")

    def _elsewhere(self, what: str) -> DeviceError:
        return DeviceError(
            f"{RemoteDevice(**self._where, session=self._session)}",
            f"{what} of this machine cannot be used there",
            "Write it to a file with save or export_library, then remote.upload(file) and "
            "remote.load_module(file).",
        )  # fmt: skip
