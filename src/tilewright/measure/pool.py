"""`WorkerPool`: worker processes that may crash, hang or run out of memory without harm.

In: importable functions with arguments that can be pickled, each with a deadline.  Out: futures.
Workers are fresh interpreters that never import the user's script, so a script needs no main guard;
of the user's modules they import those that registered a device kind here (`targets/kind.py`).
Read next: `worker.py` (the other side), `local.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import selectors
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from tilewright.base import environment
from tilewright.base.errors import DeviceError, InternalError
from tilewright.measure.worker import HEADER, Raised, Start, with_atoms
from tilewright.targets.atoms import ADDED
from tilewright.targets.kind import origins

_BOOT_SECONDS = 60.0
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from tilewright.measure.worker import main; main()"
)
_STDERR_TAIL = 4000
_PATIENCE = 4.0  # times the deadline, for a process that computes but gets too little of a core
_ASLEEP = 0.1  # of the time: a process that computes less waits for something else than a core
_AWAKE = 0.9  # of the time: a process that computes so much waits for nothing
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


class WorkerFailure(Exception):
    """A call that did not give a result; the message tells what became of it."""


class WorkerTimeout(WorkerFailure):
    """The deadline passed, and the worker was killed.

    computing: it had had a core for so long, of its own or in its share, and waited for nothing
    """

    def __init__(self, message: str, computing: bool = False) -> None:
        super().__init__(message)
        self.computing = computing


class WorkerCrash(WorkerFailure):
    """The worker died: a segmentation fault, an abort, killed for memory.

    killed: by a signal that programs do not send themselves
    """

    def __init__(self, message: str, killed: bool = False) -> None:
        super().__init__(message)
        self.killed = killed


class WorkerRaised(WorkerFailure):
    """The function raised an exception."""


class WorkerMissing(InternalError):
    """No worker process starts."""


@dataclass(frozen=True)
class Options:
    """How workers are run.

    warm:         called in a new worker before it takes calls, to import modules and open devices
    memory_bytes: address space of a worker, or None
    limits:       names and values of more limits, as the module `resource` has them
    max_calls:    a worker is replaced after so many calls, so that leaks of compilers stay small
    spares:       idle workers kept warm, which make a replacement immediate
    """

    warm: Callable[[], object] | None = None
    memory_bytes: int | None = None
    max_calls: int = 500
    spares: int = 0
    limits: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class _Call:
    future: Future[Any]
    function: Callable[..., Any]
    args: tuple[Any, ...]
    timeout: float


class WorkerPool:
    """`workers` processes; each runs one call at a time, calls start in the order of `submit`,
    those that can wait behind all others.

    Processes start at the first call.  They end when the pool is closed, when it is no longer
    referred to, and when this process ends in whatever way.
    """

    def __init__(self, workers: int, options: Options | None = None) -> None:
        self.workers = workers
        self._calls = _Calls()
        self._stock = _Stock(options or Options())
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._finalizer = weakref.finalize(
            self, _shut, self._calls, self._stock, workers, self._owner
        )

    def submit(
        self, function: Callable[..., Any], *args: Any, timeout: float, can_wait: bool = False
    ) -> Future[Any]:
        """Call `function(*args)` in a worker.

        The future raises `WorkerFailure`, or the `TilewrightError` that the function raised, or
        WorkerMissing; that of a closed pool is cancelled.

        timeout: seconds from the moment that a worker which is ready gets the call, see `_Deadline`
        can_wait: until no other call waits for a worker
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
        self._calls.put(_Call(future, function, args, timeout), can_wait)
        with self._lock:
            if len(self._threads) < self.workers:
                thread = threading.Thread(
                    target=_serve, args=(self._calls, self._stock), daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:  # no more threads: those that run will do
                    if not self._threads:
                        raise _no_worker("no thread can be started for it") from None
                else:
                    self._threads.append(thread)
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


class _Calls:
    """Calls that wait for a worker.

    A simple queue counts them: it may be put into while it is, as a finaliser does.
    """

    def __init__(self) -> None:
        self._tokens: queue.SimpleQueue[bool] = queue.SimpleQueue()  # False: the thread ends
        self._first: deque[_Call] = deque()
        self._behind: deque[_Call] = deque()

    def put(self, call: _Call, can_wait: bool) -> None:
        (self._behind if can_wait else self._first).append(call)
        self._tokens.put(True)

    def get(self) -> _Call | None:
        """Waits for the next one; None: there will be none."""
        return self._next() if self._tokens.get() else None

    def cancel(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                if self._tokens.get_nowait():
                    self._next().future.cancel()

    def end(self, threads: int) -> None:
        for _ in range(threads):
            self._tokens.put(False)

    def _next(self) -> _Call:
        try:
            return self._first.popleft()
        except IndexError:
            return self._behind.popleft()


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
            with contextlib.suppress(WorkerMissing):  # a spare can wait
                while len(spares) < self.options.spares:
                    spares.append(self._new())
            self._spares = spares
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
        try:
            worker = _Worker(self.options)
        except OSError as error:  # no memory, no process, no file descriptor left
            raise _no_worker(error.strerror or str(error)) from None
        self._living.add(worker)
        return worker


class _Worker:
    """One process and the pipes to it.

    Of what it writes to its standard error the end is kept, in memory: no disk can be full for it,
    and none is filled.
    """

    def __init__(self, options: Options) -> None:
        self.generation = 0
        self.calls = self._atoms = 0
        self._ready = False
        self._said = b""
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, json.dumps([p for p in sys.path if isinstance(p, str)])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=None if environment.debug_level() else subprocess.PIPE,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C reaches the parent only
            bufsize=0,
        )  # fmt: skip
        assert self._process.stdin and self._process.stdout
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._out, False)
        os.set_blocking(self._in, False)
        self._selector = selectors.DefaultSelector()
        self._errors = self._process.stderr
        if self._errors is not None:
            os.set_blocking(self._errors.fileno(), False)
            self._selector.register(self._errors, selectors.EVENT_READ)
        self._deadline = _Deadline(_BOOT_SECONDS, self._process.pid)
        self._lock = threading.Lock()
        start = pickle.dumps(Start(options.memory_bytes, options.warm, origins(), options.limits))
        with contextlib.suppress(WorkerFailure, TimeoutError):  # `wait_ready` tells
            self._send(start, self._deadline)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self) -> None:
        if self._ready:
            return
        try:
            self._receive(self._deadline)
        except WorkerFailure as error:
            raise _no_worker(str(error)) from None
        except TimeoutError:
            raise _no_worker(f"it is not ready after {_BOOT_SECONDS:g} s{self._words()}") from None
        self._ready = True

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], timeout: float) -> Any:
        if len(ADDED) > self._atoms:  # instructions that users added since
            function, args = with_atoms, ([*ADDED.values()][self._atoms :], function, args)
            self._atoms = len(ADDED)
        body = pickle.dumps((function, args), protocol=pickle.HIGHEST_PROTOCOL)
        self.calls += 1
        self._listen()
        self._said = b""
        deadline = _Deadline(timeout, self._process.pid)
        try:
            self._send(body, deadline)
            answer = self._receive(deadline)
        except TimeoutError:
            computing = deadline.computing
            self.kill()
            raise WorkerTimeout(f"no result within {timeout:g} s", computing) from None
        if isinstance(answer, Raised):
            raise answer.error or WorkerRaised(answer.message)
        return answer

    def kill(self) -> None:
        with self._lock:
            if self._process.returncode is None:
                self._process.kill()
                self._process.wait()

    def close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        self._selector.close()

    def _send(self, body: bytes, deadline: _Deadline) -> None:
        data = memoryview(HEADER.pack(len(body)) + body)
        while data:
            try:
                data = data[os.write(self._in, data) :]
            except BlockingIOError:
                self._wait(self._in, selectors.EVENT_WRITE, deadline)
            except (BrokenPipeError, OSError):
                raise self._crash() from None

    def _receive(self, deadline: _Deadline) -> Any:
        (size,) = HEADER.unpack(self._exactly(HEADER.size, deadline))
        return pickle.loads(self._exactly(size, deadline))

    def _exactly(self, size: int, deadline: _Deadline) -> bytes:
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

    def _wait(self, fd: int, event: int, deadline: _Deadline) -> None:
        """Until the pipe is ready.  Raises TimeoutError when the deadline has passed."""
        self._selector.register(fd, event)
        try:
            while (left := deadline.left()) > 0:
                ready = {key.fd for key, _ in self._selector.select(left)}
                if ready - {fd}:
                    self._listen()
                if fd in ready:
                    return
            raise TimeoutError
        finally:
            self._selector.unregister(fd)

    def _listen(self) -> None:
        """Take what the process has written to its standard error; keep the end of it."""
        if self._errors is None or self._errors.closed:
            return
        for _ in range(16):  # enough for a pipe that is full; more comes later
            try:
                part = os.read(self._errors.fileno(), 1 << 16)
            except OSError:
                return
            if not part:
                self._selector.unregister(self._errors)
                self._errors.close()
                return
            self._said = (self._said + part)[-_STDERR_TAIL:]

    def _crash(self) -> WorkerCrash:
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(1.0)
        self.kill()
        killed = code is not None and -code in _FROM_OUTSIDE
        return WorkerCrash(f"the process {_ending(code)}{self._words()}", killed)

    def _words(self) -> str:
        """What the process wrote to its standard error during the call."""
        self._listen()
        text = self._said.decode(errors="replace").strip()
        return f"; it said:\n{text}" if text else ""


class _Deadline:
    """`seconds` of the clock.  A process that computes but has to share its core with others may
    have so many seconds of its own time, in at most `_PATIENCE` times as many of the clock.

    pid: of that process, where it shall be asked
    """

    def __init__(self, seconds: float, pid: int | None = None) -> None:
        self._seconds, self._pid = seconds, pid
        self._began, self._used = time.monotonic(), _processor_seconds(pid)

    def left(self) -> float:
        """Seconds of the clock until it has passed, or should be looked at again."""
        spent = time.monotonic() - self._began
        if spent < self._seconds:
            return self._seconds - spent
        used = self._computed()
        starved = _ASLEEP * spent < used < _AWAKE * self._seconds
        if not starved or spent >= _PATIENCE * self._seconds:
            return 0.0
        return min(max(self._seconds - used, 0.01), _PATIENCE * self._seconds - spent)

    @property
    def computing(self) -> bool:
        """Whether the process has had that time for itself."""
        return self._computed() >= _AWAKE * self._seconds

    def _computed(self) -> float:
        return _processor_seconds(self._pid) - self._used


def _serve(calls: _Calls, stock: _Stock) -> None:
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
        try:
            worker = worker or stock.take()
            worker.wait_ready()
            return worker
        except WorkerMissing:
            if worker is not None:
                stock.retire(worker)
                worker = None
            if attempt == 2:
                raise
    raise AssertionError


def _usable(worker: _Worker, stock: _Stock) -> bool:
    fresh = worker.generation == stock.generation and worker.calls < stock.options.max_calls
    return fresh and worker.alive


def _shut(calls: _Calls, stock: _Stock, workers: int, owner: int) -> None:
    if os.getpid() != owner:  # a forked child ends, or forgets its parent's pool
        return
    calls.cancel()
    calls.end(workers)
    stock.close()


def _no_worker(reason: str) -> WorkerMissing:
    return WorkerMissing(
        "worker", f"a worker process does not start: {reason}",
        "Run `tilewright doctor`, which says what is missing.",
    )  # fmt: skip


def _processor_seconds(pid: int | None) -> float:
    """What a process has computed, all its threads together; 0 where nobody tells."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            fields = f.read().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


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
