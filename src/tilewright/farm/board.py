"""`Board`: what a device does for those who were lent it: describe itself, try artefacts, sessions.

In: messages of one connection at a time or of several, which take turns.  Out: answers.  Artefacts
run in worker processes with limits on time, memory, files and processes; whoever goes away takes
the process that works for him along.  Nothing else is accepted; who builds does only that.
Read next: `server.py` (Dask's part), `file_store.py`, `measure/local.py`, `session_calls.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from tilewright.base.artifact import Artifact
from tilewright.base.errors import DeviceError, TilewrightError
from tilewright.farm import bounds, builds, session_calls, wire
from tilewright.farm.admission import VISITOR, Guest
from tilewright.farm.file_store import Arrivals, Incoming, Store
from tilewright.farm.versions import VERSION
from tilewright.measure.jobs import Job, RunJob, RunResult
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.measure.pool import Options, WorkerFailure, WorkerMissing, WorkerPool
from tilewright.measure.record import TaskId
from tilewright.measure.reference import Reference
from tilewright.runtime import artifact_file
from tilewright.targets.target import Target

_LOG = logging.getLogger("tilewright.farm")

Read = Callable[[], Awaitable[wire.Message]]
Write = Callable[[wire.Message], Awaitable[None]]


class Board:
    """One device of this machine and whatever runs on it.  builds: it builds, one at a time, and
    runs nothing."""

    def __init__(self, builds: bool = False) -> None:
        limits = (("RLIMIT_FSIZE", bounds.WRITTEN_BYTES), ("RLIMIT_CORE", 0), *_process_limit())
        self._limits = limits
        self._runner = LocalRunner(limits=limits)
        self._builder = LocalBuilder(n_parallel=1, limits=limits) if builds else None
        self._store = Store()
        self._turn = asyncio.Lock()
        self._arrivals = Arrivals(self._store.path)

    @property
    def folder(self) -> Path:
        """For files of its process, removed with it, or by the next one after it was killed."""
        return self._store.path

    async def serve(self, read: Read, write: Write, peer: str, guest: Guest) -> None:
        """Answer one tuner until it goes; `read` raises OSError then."""
        try:
            hello = wire.check_hello(await read(), peer)  # a stranger's guest ends in time
            if not guest.admit(VISITOR):
                raise DeviceError("device", "it works for as many as it can", "Try again later.")
        except DeviceError as error:
            _LOG.warning("refused %s: %s", peer, error)
            await write(_refused(error))
            return
        await write(wire.Hello(wire.PROTOCOL, VERSION))
        visitor = _Visitor(self, _Inbox(read), write, hello, peer, guest)
        try:
            await visitor.stay()
        finally:
            await visitor.leave()

    def close(self) -> None:
        self._runner.close()
        if self._builder is not None:
            self._builder.close()
        self._store.close()


class _Gone(Exception):
    """The other side has closed the connection."""


class _Inbox:
    """Messages of one connection, read ahead so that its end is noticed while something runs."""

    def __init__(self, read: Read) -> None:
        self._queue: asyncio.Queue[wire.Message | Exception] = asyncio.Queue(4)
        self._read = read
        self._heard = time.monotonic()
        self._task = asyncio.ensure_future(self._listen())
        self._watch: asyncio.Task[None] | None = None
        self.gone = asyncio.Event()

    async def get(self) -> wire.Message:
        """Raises _Gone, also after a long silence, or DeviceError for what is no message."""
        while True:
            silent = time.monotonic() - self._heard
            try:
                async with asyncio.timeout(max(bounds.VISITOR_SECONDS - silent, 0)):
                    item = await self._queue.get()
            except TimeoutError:
                if time.monotonic() - self._heard < bounds.VISITOR_SECONDS:
                    continue  # it said that it lives
                raise _Gone from None
            self._heard = time.monotonic()
            if isinstance(item, Exception):
                raise item
            return item

    def worked(self) -> None:
        """Something ran until now, and its owner had nothing to say."""
        self._heard = time.monotonic()

    async def _listen(self) -> None:
        while True:
            try:
                message = await self._read()
                self._heard = time.monotonic()
                if not isinstance(message, wire.Ping):
                    await self._queue.put(message)
            except OSError:
                self.gone.set()
                await self._queue.put(_Gone())
                return
            except DeviceError as error:
                self.gone.set()
                await self._queue.put(error)
                return

    def end_when_silent(self, name: str) -> None:
        """From now on its owner has to say now and then that it lives: it may be frozen."""

        async def watch() -> None:
            while time.monotonic() - self._heard < bounds.OWNER_SECONDS:
                await asyncio.sleep(bounds.OWNER_SECONDS / 15)
            _LOG.warning("%s says nothing any more", name)
            self._task.cancel()
            self.gone.set()
            await self._queue.put(_Gone())

        self._watch = asyncio.ensure_future(watch())

    def close(self) -> None:
        self._task.cancel()
        if self._watch is not None:
            self._watch.cancel()


class _Visitor:
    """A tuner or a session on the device, from its first message to its last."""

    def __init__(
        self, board: Board, inbox: _Inbox, write: Write, hello: wire.Hello, peer: str, guest: Guest
    ) -> None:
        self._board, self._inbox, self._write, self._guest = board, inbox, write, guest
        self.name, self._version = f"{hello.user} at {peer}", hello.version
        self._incoming: dict[str, Incoming] = {}
        self._folder: Path | None = None  # of a session
        self._pool: WorkerPool | None = None  # of a session, which has the device until it ends
        self._has_turn = False

    async def stay(self) -> None:
        while True:
            try:
                message = await self._inbox.get()
            except _Gone:
                return
            except DeviceError as error:
                _LOG.warning("refused %s: %s", self.name, error)
                await self._write(_refused(error))
                return
            self._guest.busy = True
            try:
                await self._answer(message)
            except _Gone:
                return
            except TilewrightError as error:
                _LOG.warning("refused %s of %s: %s", type(message).__name__, self.name, error)
                await self._write(_refused(error))
            except OSError as error:
                if error.errno is None or isinstance(error, ConnectionError):
                    return  # it went away before the answer
                full = DeviceError(
                    "device's disk", f"a file cannot be kept there ({error.strerror or error})",
                    "Free some space on it, or set TMPDIR of its server to a larger directory.",
                )  # fmt: skip
                _LOG.warning("%s", full)
                await self._write(_refused(full))
            self._guest.busy = self._pool is not None
            self._inbox.worked()

    async def leave(self) -> None:
        self._inbox.close()
        for name in list(self._incoming):
            self._drop(name)
        if self._pool is not None:
            self._pool.close()
        if self._has_turn:
            self._board._turn.release()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _answer(self, message: wire.Message) -> None:
        if isinstance(message, wire.Build):
            await self._build(message)
        elif self._board._builder is not None:
            raise DeviceError(
                "builder", f"it builds and does nothing else ({type(message).__name__})",
                "Start a server without --builders for the device, under a key of its own.",
            )  # fmt: skip
        elif isinstance(message, wire.Part):
            await self._take_part(message)
        elif isinstance(message, wire.Describe):
            await self._write(await self._described(message))
        elif isinstance(message, wire.Run):
            await self._run(message)
        elif isinstance(message, wire.Call):
            await self._call(message)
        else:
            raise wire.malformed(self.name, f"{type(message).__name__} is not for a device")

    # -- files -------------------------------------------------------------------------------------
    async def _take_part(self, part: wire.Part) -> None:
        by_hash = len(part.name) == 64 and set(part.name) <= set("0123456789abcdef")
        if part.at == 0:
            self._drop(part.name)
        if part.name not in self._incoming:
            if len(self._incoming) >= bounds.INCOMING:
                raise DeviceError(
                    "device", f"{bounds.INCOMING} files are on their way", "Send one by one."
                )
            folder = self._board._store.path if by_hash else self._session_folder()
            self._incoming[part.name] = self._board._arrivals.begin(folder, part)
        incoming = self._incoming[part.name]
        try:
            incoming.write(part)
        except (OSError, DeviceError):
            self._drop(part.name)
            raise
        if not incoming.is_complete:
            return
        del self._incoming[part.name]
        self._board._arrivals.end(incoming)
        if by_hash:
            self._board._store.add(part.name, incoming)
        else:
            incoming.move(self._session_folder() / part.name)
        await self._write(wire.Stored(part.name))

    def _drop(self, name: str) -> None:
        """A file on its way is not kept."""
        incoming = self._incoming.pop(name, None)
        if incoming is not None:
            self._board._arrivals.end(incoming)
            incoming.drop()

    def _session_folder(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="session-", dir=self._board._store.path))
        return self._folder

    # -- builds ------------------------------------------------------------------------------------
    async def _build(self, asked: wire.Build) -> None:
        builder = self._board._builder
        if builder is None:
            raise DeviceError(
                "device", "it does not build", "Start its server with --builders, or build here."
            )
        if self._version != VERSION:
            raise DeviceError(
                "builder", f"it is Tilewright {VERSION}, and whoever asks {self._version}",
                "Install the same version of Tilewright on both.",
            )  # fmt: skip
        job = builds.job_of(asked)
        builder = builder.sharing(asked.timeout)
        async with self._turn():
            await self._write(wire.Started())
            if not asked.payload:
                await asyncio.to_thread(builder.probe, job.full_target)
                await self._write(wire.Made())
                return
            built = await self._watched(builder.submit(job), builder.close)
        await self._write(builds.made(built))

    # -- trials ------------------------------------------------------------------------------------
    async def _described(self, asked: wire.Describe) -> wire.Spec:
        runner = self._board._runner.sharing(index=asked.index)
        spec = await asyncio.to_thread(runner.describe, Target(asked.kind))
        fields = asdict(spec)
        del fields["shares_host"]
        return wire.Spec(**fields, has_llvm=_has_llvm())

    async def _run(self, asked: wire.Run) -> None:
        store = self._board._store
        data = asked.data
        needed = [asked.artifact, *([name for _, name in data.files] if data else ())]
        missing = tuple(dict.fromkeys(name for name in needed if name not in store))
        if missing:
            await self._write(wire.Missing(missing))
            return
        artifact = artifact_file.from_bytes(store.get(asked.artifact).read_bytes(), "artefact")
        target = Target(artifact.source.target)  # refuses kinds that are not known here
        reference = None
        if data is not None:
            folder = store.folder(data.files)
            reference = Reference(
                str(folder), data.inputs, data.outputs, data.also, data.constants, data.given
            )
        run = _run_job(asked, artifact, target, reference)
        t = asked.timing
        runner = self._board._runner.sharing(
            timeout=t.timeout, number=t.number, repeat=t.repeat, min_repeat_ms=t.min_repeat_ms,
            cooldown_interval=t.cooldown, enable_cpu_cache_flush=t.flush, index=t.index,
            cold_bytes=t.cold_bytes,
        )  # fmt: skip
        async with self._turn():
            await self._write(wire.Started())
            if asked.fresh:
                runner.renew(target)
            result = await self._watched(runner.submit(run), runner.close)
        await self._write(_ran(result))

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        await self._take_turn()
        try:
            yield
        finally:
            self._board._turn.release()

    async def _take_turn(self) -> None:
        """Wait for the device.  Raises _Gone where its owner does not wait any more."""
        turn = asyncio.ensure_future(self._board._turn.acquire())
        gone = asyncio.ensure_future(self._inbox.gone.wait())
        try:
            await asyncio.wait({turn, gone}, return_when=asyncio.FIRST_COMPLETED)
            if self._inbox.gone.is_set():
                raise _Gone
        except BaseException:
            if not turn.cancel():  # it was there
                self._board._turn.release()
            raise
        finally:
            gone.cancel()

    async def _watched(self, future: Future[Any], kill: Callable[[], object]) -> Any:
        """The result of a call in a process, which is killed when its owner goes."""
        call = asyncio.wrap_future(future)
        gone = asyncio.ensure_future(self._inbox.gone.wait())
        try:
            await asyncio.wait({call, gone}, return_when=asyncio.FIRST_COMPLETED)
            if call.done():
                return call.result()
            _LOG.info("%s is gone in the middle of a trial", self.name)
            await asyncio.to_thread(kill)
            with contextlib.suppress(BaseException):
                await call
            raise _Gone
        finally:
            gone.cancel()

    # -- sessions ----------------------------------------------------------------------------------
    async def _call(self, asked: wire.Call) -> None:
        function = session_calls.CALLS.get(asked.function)
        if function is None:
            raise wire.malformed(self.name, f"no call is named {asked.function[:40]!r}")
        folder = self._session_folder()
        if self._pool is None:
            if not self._has_turn:
                await self._take_turn()
            self._has_turn = True
            await asyncio.to_thread(self._board._runner.close)  # its processes hold the device
            self._pool = WorkerPool(1, Options(max_calls=1 << 30, limits=self._board._limits))
            self._inbox.end_when_silent(self.name)
        future = self._pool.submit(
            session_calls.call, asked.function, str(folder), asked.arguments, timeout=asked.timeout
        )
        try:
            value = await self._watched(future, self._pool.close)
        except (WorkerFailure, WorkerMissing) as failure:
            raise DeviceError(
                f"{asked.function} on the device", str(failure),
                "What was loaded in this session is lost: load it again.",
            ) from None  # fmt: skip
        await self._write(wire.Answer(value))


def _run_job(
    asked: wire.Run, artifact: Artifact, target: Target, reference: Reference | None
) -> RunJob:
    task = TaskId(artifact.source.entry_name, [], asked.dag, artifact.source.target)
    job = Job(task, {}, reference, target=target)
    return RunJob(
        job, artifact, asked.best_seconds, verify=asked.verify, race=asked.race,
        control=asked.control,
    )  # fmt: skip


def _ran(result: RunResult) -> wire.Ran:
    return wire.Ran(
        costs=result.costs, raced=result.raced, verified=result.verified, error=result.error,
        message=result.message[:10_000], seconds=result.seconds, device=result.device[:200],
        cause=result.cause, fatal=result.fatal, first=result.first, order=result.order[:1000],
        cold=result.cold,
    )  # fmt: skip


def _refused(error: TilewrightError) -> wire.Refused:
    return wire.Refused(error.place[:10_000], error.reason[:10_000], error.way_out[:10_000])


def _has_llvm() -> bool:
    try:
        import_module("llvmlite")
    except ImportError:
        return False
    return True


def _process_limit() -> tuple[tuple[str, int], ...]:
    """Processes and threads of this user may become so many, where the system counts them."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == os.getuid():
                count += len(list((folder / "task").iterdir()))
    return (("RLIMIT_NPROC", count + bounds.PROCESSES),) if count else ()
