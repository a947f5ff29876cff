"""`WorkerPool`: worker processes that may crash, hang or run out of memory without harm.

In: importable functions with arguments that can be pickled, each with a deadline.  Out: futures.
Workers are fresh interpreters that never import the user's script, so a script needs no main guard;
of the user's modules they import those that registered a device kind here (`targets/kind.py`).
Read next: `worker.py` (the other side), `local.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pickle
import queue
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import IO, Any

from tilewright.base import environment
from tilewright.base.errors import DeviceError, InternalError
from tilewright.measure.worker import HEADER, Raised, Start
from tilewright.targets.kind import origins

_BOOT_SECONDS = 60.0
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from tilewright.measure.worker import main; main()"
)
_STDERR_TAIL = 4000


class WorkerFailure(Exception):
    """A call that did not give a result; the message tells what became of it.

    first: it was the first call of its worker, so no earlier one can be to blame
    """

    first = False


class WorkerTimeout(WorkerFailure):
    """The deadline passed, and the worker was killed."""


class WorkerCrash(WorkerFailure):
    """The worker died: a segmentation fault, an abort, killed for memory."""


class WorkerRaised(WorkerFailure):
    """The function raised an exception."""


class WorkerMissing(InternalError):
    """No worker process starts."""


@dataclass(frozen=True)
class Options:
    """How workers are run.

    warm:         called in a new worker before it takes calls, to import modules and open devices
    memory_bytes: address space of a worker, or None
    max_calls:    a worker is replaced after so many calls, so that leaks of compilers stay small
    spares:       idle workers kept warm, which make a replacement immediate
    """

    warm: Callable[[], object] | None = None
    memory_bytes: int | None = None
    max_calls: int = 500
    spares: int = 0


@dataclass(frozen=True)
class _Call:
    future: Future[Any]
    function: Callable[..., Any]
    args: tuple[Any, ...]
    timeout: float


class WorkerPool:
    """`workers` processes; each runs one call at a time, calls start in the order of `submit`.

    Processes start at the first call.  They end when the pool is closed, when it is no longer
    referred to, and when this process ends in whatever way.
    """

    def __init__(self, workers: int, options: Options | None = None) -> None:
        self.workers = workers
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._stock = _Stock(options or Options())
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._finalizer = weakref.finalize(
            self, _shut, self._calls, self._stock, workers, self._owner
        )

    def submit(self, function: Callable[..., Any], *args: Any, timeout: float) -> Future[Any]:
        """Call `function(*args)` in a worker.

        The future raises `WorkerFailure`, or the `TilewrightError` that the function raised; that
        of a closed pool is cancelled.

        timeout: seconds from the moment that a worker which is ready gets the call
        """
        if getattr(function, "__module__", None) == "__main__":
            raise InternalError(
                f"WorkerPool.submit({function!r})", "workers cannot import the main script",
                "Move the function into a module.",
            )  # fmt: skip
        if os.getpid() != self._owner:
            raise DeviceError(
                "WorkerPool.submit", "its workers belong to the process that this one was forked "
                "from", "Make a builder, runner or pool of your own after the fork.",
            )  # fmt: skip
        future: Future[Any] = Future()
        if not self._finalizer.alive:
            future.cancel()
            future.set_running_or_notify_cancel()
            return future
        self._calls.put(_Call(future, function, args, timeout))
        with self._lock:
            if len(self._threads) < self.workers:
                thread = threading.Thread(
                    target=_serve, args=(self._calls, self._stock), daemon=True
                )
                self._threads.append(thread)
                thread.start()
        return future

    def replace_workers(self, *, spares: bool = False) -> None:
        """Let each worker that has been used be replaced before its next call.

        spares: by one that starts after this call, not by a spare
        """
        self._stock.generation += 1
        if spares:
            self._stock.drop_spares()

    def close(self) -> None:
        """Kill all workers; calls that have not finished are cancelled or fail."""
        self._finalizer()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Stock:
    """Makes workers, keeps spare ones, and knows all that live."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.generation = 0
        self.closed = False
        self._spares: list[_Worker] = []
        self._living: set[_Worker] = set()
        self._lock = threading.Lock()

    def take(self) -> _Worker:
        """A worker, perhaps still starting; an equal spare is started in its place."""
        with self._lock:
            spares = [w for w in self._spares if w.alive]
            worker = spares.pop(0) if spares else self._new()
            worker.generation = self.generation
            missing = self.options.spares - len(spares)
            self._spares = spares + [self._new() for _ in range(missing)]
            self._living = {w for w in self._living if w.alive}
        return worker

    def retire(self, worker: _Worker) -> None:
        worker.kill()
        worker.close_pipes()
        with self._lock:
            self._living.discard(worker)

    def drop_spares(self) -> None:
        with self._lock:
            dropped, self._spares = self._spares, []
        for worker in dropped:
            self.retire(worker)

    def close(self) -> None:
        with self._lock:
            self.closed = True
            living = list(self._living)
            self._living.clear()
            self._spares.clear()
        for worker in living:
            worker.kill()  # its thread closes the pipes

    def _new(self) -> _Worker:
        if self.closed:
            raise WorkerCrash("the pool is closed")
        worker = _Worker(self.options)
        self._living.add(worker)
        return worker


class _Worker:
    """One process and the pipes to it."""

    def __init__(self, options: Options) -> None:
        self.generation = 0
        self.calls = 0
        self._ready = False
        self._errors = _appended_file()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, json.dumps([p for p in sys.path if isinstance(p, str)])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=None if environment.debug_level() else self._errors,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C reaches the parent only
            bufsize=0,
        )  # fmt: skip
        assert self._process.stdin and self._process.stdout
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._out, False)
        os.set_blocking(self._in, False)
        self._selector = selectors.DefaultSelector()
        self._deadline = time.monotonic() + _BOOT_SECONDS
        self._lock = threading.Lock()
        self._send(
            pickle.dumps(Start(options.memory_bytes, options.warm, origins())), self._deadline
        )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self) -> None:
        if self._ready:
            return
        try:
            self._receive(self._deadline)
        except WorkerFailure as error:
            raise WorkerMissing(
                "worker", f"a worker process does not start: {error}",
                "Run `tilewright doctor`, which says what is missing.",
            ) from None  # fmt: skip
        self._ready = True

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], timeout: float) -> Any:
        body = pickle.dumps((function, args), protocol=pickle.HIGHEST_PROTOCOL)
        self.calls += 1
        if os.fstat(self._errors.fileno()).st_size:
            self._errors.truncate(0)
        deadline = time.monotonic() + timeout
        try:
            self._send(body, deadline)
            answer = self._receive(deadline)
        except TimeoutError:
            self.kill()
            raise WorkerTimeout(f"no result within {timeout:g} s") from None
        if isinstance(answer, Raised):
            raise answer.error or WorkerRaised(answer.message)
        return answer

    def kill(self) -> None:
        with self._lock:
            if self._process.returncode is None:
                self._process.kill()
                self._process.wait()

    def close_pipes(self) -> None:
        assert self._process.stdin and self._process.stdout
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(OSError):
                pipe.close()
        self._selector.close()

    def _send(self, body: bytes, deadline: float) -> None:
        data = memoryview(HEADER.pack(len(body)) + body)
        while data:
            try:
                data = data[os.write(self._in, data) :]
            except BlockingIOError:
                self._wait(self._in, selectors.EVENT_WRITE, deadline)
            except (BrokenPipeError, OSError):
                raise self._crash() from None

    def _receive(self, deadline: float) -> Any:
        (size,) = HEADER.unpack(self._exactly(HEADER.size, deadline))
        return pickle.loads(self._exactly(size, deadline))

    def _exactly(self, size: int, deadline: float) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                part = os.read(self._out, min(size - len(parts), 1 << 20))
            except BlockingIOError:
                self._wait(self._out, selectors.EVENT_READ, deadline)
                continue
            except OSError:
                part = b""
            if not part:
                raise self._crash()
            parts += part
        return bytes(parts)

    def _wait(self, fd: int, event: int, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._selector.register(fd, event)
        try:
            if not self._selector.select(left):
                raise TimeoutError
        finally:
            self._selector.unregister(fd)

    def _crash(self) -> WorkerCrash:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self.kill()
        return WorkerCrash(f"the process {_ending(self._process.returncode)}{self._said()}")

    def _said(self) -> str:
        """What the process wrote to its standard error during the call."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(size - _STDERR_TAIL, 0))
        text = self._errors.read().decode(errors="replace").strip()
        return f"; it said:\n{text}" if text else ""


def _serve(calls: queue.SimpleQueue[_Call | None], stock: _Stock) -> None:
    """What a thread of the pool does: one worker, one call after another."""
    worker: _Worker | None = None
    while (call := calls.get()) is not None:
        if not call.future.set_running_or_notify_cancel():
            continue
        try:
            worker = _fit(worker, stock)
            result = worker.call(call.function, call.args, call.timeout)
        except BaseException as error:
            failure = error
            if isinstance(failure, WorkerFailure) and worker is not None:
                failure.first = worker.calls == 1
            if worker is not None and not worker.alive:
                stock.retire(worker)
                worker = None
            call.future.set_exception(failure)
            del failure
        else:
            call.future.set_result(result)
        del call
    if worker is not None:
        stock.retire(worker)


def _fit(worker: _Worker | None, stock: _Stock) -> _Worker:
    """`worker`, or a new one where it is missing, dead, used up or of an old generation."""
    for attempt in (1, 2):
        if worker is not None and not _usable(worker, stock):
            stock.retire(worker)
            worker = None
        worker = worker or stock.take()
        try:
            worker.wait_ready()
            return worker
        except WorkerMissing:
            stock.retire(worker)
            worker = None
            if attempt == 2:
                raise
    raise AssertionError


def _usable(worker: _Worker, stock: _Stock) -> bool:
    fresh = worker.generation == stock.generation and worker.calls < stock.options.max_calls
    return fresh and worker.alive


def _shut(calls: queue.SimpleQueue[_Call | None], stock: _Stock, workers: int, owner: int) -> None:
    if os.getpid() != owner:  # a forked child ends, or forgets its parent's pool
        return
    with contextlib.suppress(queue.Empty):
        while True:
            call = calls.get_nowait()
            if call is not None:
                call.future.cancel()
    for _ in range(workers):
        calls.put(None)
    stock.close()


def _appended_file() -> IO[bytes]:
    """A nameless file for standard error; appending, so that it may be emptied at any time."""
    file = tempfile.TemporaryFile("w+b", buffering=0)  # noqa: SIM115 - the worker keeps it open
    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    fcntl.fcntl(file, fcntl.F_SETFL, flags | os.O_APPEND)
    return file


def _ending(code: int | None) -> str:
    if code is None:
        return "closed its pipe"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}"
