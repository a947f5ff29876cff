"""`LocalBuilder` and `LocalRunner`: build and try candidates in worker processes of this machine.

In: `Job`s and `RunJob`s.  Out: futures of `Built` and `RunResult`, in which every fault of a
candidate (crash, endless loop, wrong result) is told, and what may have caused it.
Read next: `calls.py`, run by the workers; `flow.py`, where it is decided who is to blame.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from tilewright.base.artifact import Source
from tilewright.base.errors import DeviceError, TargetError
from tilewright.measure import calls
from tilewright.measure.flow import blamed
from tilewright.measure.jobs import Built, Cause, Job, RunJob, RunResult
from tilewright.measure.pool import (
    Options,
    WorkerCrash,
    WorkerFailure,
    WorkerMissing,
    WorkerPool,
    WorkerTimeout,
)
from tilewright.targets.kind import kind as device_kind
from tilewright.targets.kind import resolve
from tilewright.targets.processors import elsewhere
from tilewright.targets.spec import DeviceSpec
from tilewright.targets.target import Target

T = TypeVar("T")
BuildFunction = Callable[[Any, Target], Any] | str
LOG_SECONDS = 10.0  # to build what a log proposes, and again to try it: what a search allows
_OPEN_SECONDS = 60.0
_FLUSH_BYTES = 64 << 20  # larger than the caches of most CPUs


class LocalBuilder:
    """Builds candidates in `n_parallel` processes (default: one per core).

    timeout:      seconds for one build; a build that takes longer is a "timeout"
    build_func:   a function (payload, target) -> Artifact of an importable module, or its name as
                  "module:function"; "default", or TVM's "ndk": lower, print and compile
                  `driver.build.payload_of`'s
    memory_bytes: address space of a build process; default: the memory of this machine
    limits:       of its processes, see `pool.Options`
    """

    def __init__(
        self,
        timeout: float = 10.0,
        n_parallel: int | None = None,
        build_func: BuildFunction = "default",
        memory_bytes: int | None = None,
        *,
        limits: tuple[tuple[str, int], ...] = (),
    ) -> None:
        _check(timeout > 0, f"LocalBuilder(timeout={timeout})", "it must be positive", "Try 10.")
        cores = len(os.sched_getaffinity(0))
        self.n_parallel = cores if n_parallel is None else n_parallel
        _check(
            self.n_parallel > 0, f"LocalBuilder(n_parallel={n_parallel})",
            "it must be at least 1", f"Try {cores}, the number of cores.",
        )  # fmt: skip
        self.timeout = timeout
        self._function = _name(build_func)
        self._memory_bytes = memory_bytes or _machine_bytes()
        self._limits = limits
        self._pools: dict[str, WorkerPool] = {}

    def sharing(self, timeout: float) -> LocalBuilder:
        """Another builder, with a deadline of its own, over the processes of this one."""
        other = LocalBuilder(
            timeout, self.n_parallel, self._function, self._memory_bytes, limits=self._limits
        )
        other._pools = self._pools
        return other

    def submit(self, job: Job) -> Future[Built]:
        target = job.full_target
        inner = self._pool(target.kind).submit(
            calls.build, self._function, dict(job.payload), target, timeout=self.timeout
        )
        return _then(inner, partial(_built, timeout=self.timeout))

    def compile(self, source: Source, target: Target) -> Future[Built]:
        """Compile text that is there already."""
        name, payload = "tilewright.measure.calls:build_source", {"source": source}
        call = self._pool(target.kind).submit(
            calls.build, name, payload, target, timeout=self.timeout
        )
        return _then(call, partial(_built, timeout=self.timeout))

    def call(
        self, target: Target, function: Callable[..., T], *args: Any, timeout: float
    ) -> Future[T]:
        """Other work for the processes that build for the target's kind, behind what they build:
        `WorkerPool.submit`."""
        return self._pool(target.kind).submit(function, *args, timeout=timeout, can_wait=True)

    def start(self, target: Target, jobs: int | None = None) -> None:
        """Start the processes that so many jobs want, which they need not wait for then."""
        pool = self._pool(target.kind)
        for _ in range(self.n_parallel if jobs is None else min(self.n_parallel, jobs)):
            pool.submit(calls.warm_build, target.kind, timeout=self.timeout)

    def probe(self, target: Target) -> None:
        """Build a small kernel.  Raises DeviceError where that fails, too."""
        kind = target.kind
        ask = partial(self._pool(kind).submit, calls.probe_build, kind, timeout=self.timeout)
        _answer(ask, f"builds for {kind}", "a small kernel cannot be built")

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

    def __enter__(self) -> LocalBuilder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pool(self, kind: str) -> WorkerPool:
        if kind not in self._pools:
            memory = self._memory_bytes if "build" in device_kind(kind).bounded else None
            options = Options(partial(calls.warm_build, kind), memory, limits=self._limits)
            self._pools[kind] = WorkerPool(self.n_parallel, options)
        return self._pools[kind]


class LocalRunner:
    """Tries candidates on one device of this machine, in a process of its own.

    timeout:          seconds for one trial
    number, repeat:   `repeat` times the mean of `number` runs back to back
    min_repeat_ms:    `number` grows until a repeat lasts that long
    cooldown_interval: seconds to wait after each trial
    enable_cpu_cache_flush: write 64 MiB of other memory before each run, so that all runs are cold
    cold_bytes:       constants come from memory, as in a network: runs take turns among copies of
                      them, so many bytes of them together; 0: all runs read the same
    race:             five runs are enough for a candidate clearly slower than the best one
    index:            which device of the target's kind
    limits:           of its processes, see `pool.Options`
    """

    n_parallel = 1

    def __init__(
        self,
        timeout: float = 10.0,
        number: int = 4,
        repeat: int = 3,
        min_repeat_ms: float = 0,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        *,
        race: bool = True,
        index: int = 0,
        cold_bytes: int = 0,
        limits: tuple[tuple[str, int], ...] = (),
    ) -> None:
        _check(timeout > 0, f"LocalRunner(timeout={timeout})", "it must be positive", "Try 10.")
        _check(
            number > 0 and repeat > 0, f"LocalRunner(number={number}, repeat={repeat})",
            "both must be at least 1", "Try number=4, repeat=3.",
        )  # fmt: skip
        self.timeout, self.race, self.index = timeout, race, index
        flush_bytes = _FLUSH_BYTES if enable_cpu_cache_flush else 0
        _check(
            cold_bytes >= 0, f"LocalRunner(cold_bytes={cold_bytes})", "it must not be negative",
            "Try twice the size of the last cache.",
        )  # fmt: skip
        repeats = (number, repeat, min_repeat_ms)
        self._options = (index, *repeats, flush_bytes, cooldown_interval, cold_bytes)
        self._deadline = timeout + cooldown_interval
        self._limits = limits
        self._pools: dict[tuple[str, int], WorkerPool] = {}
        self._devices: dict[tuple[str, int], DeviceSpec] = {}
        self._opening: dict[tuple[str, int], Future[DeviceSpec]] = {}
        self._fit: set[Target] = set()

    @property
    def ref_input(self) -> None:
        """Inputs of the user's; there are none: the verifier draws them."""
        return None

    @ref_input.setter
    def ref_input(self, arrays: Any) -> None:
        if arrays is not None:
            raise DeviceError(
                "LocalRunner.ref_input", "inputs are drawn, as the reference needs them, too",
                "Leave it out, or use auto_scheduler.SearchTask(task_inputs={name: array}).",
            )  # fmt: skip

    def sharing(self, **options: Any) -> LocalRunner:
        """Another runner, with options of its own, over the processes of this one."""
        other = LocalRunner(**options, limits=self._limits)
        other._pools, other._devices = self._pools, self._devices
        other._opening = self._opening
        return other

    def start(self, target: Target) -> None:
        """Begin to open the device, for which `describe` need not wait then."""
        device = target.kind, self.index
        if device not in self._devices and device not in self._opening:
            self._opening[device] = self._ask(target.kind)

    def describe(self, target: Target) -> DeviceSpec:
        """The device that runs `target`.  Raises TargetError or DeviceError when there is none, and
        for code of another processor."""
        if target not in self._fit:
            _check_here(target)
            self._fit.add(target)
        device = target.kind, self.index
        if device not in self._devices:
            self._devices[device] = self._open(target.kind)
        return self._devices[device]

    def submit(self, run: RunJob) -> Future[RunResult]:
        """Try one candidate.

        What fails in a process that tried others before may be their late effect: it is unclear.
        """
        pool = self._pool(run.job.full_target.kind)
        slim = Job(run.job.task, {}, run.job.reference)  # the rest need not travel
        run = replace(run, job=slim, race=run.race and self.race)
        inner = pool.submit(calls.run, run, *self._options, timeout=self._deadline)
        return _then(inner, partial(_tried, timeout=self.timeout))

    def probe(self, target: Target) -> None:
        """Run a small kernel in a new process, which the next trial gets, too.

        Raises DeviceError or TargetError when the device is gone.
        """
        kind, pool = target.kind, self.renew(target)
        ask = partial(pool.submit, calls.probe_device, kind, self.index, timeout=_OPEN_SECONDS)
        _answer(ask, f"device {kind} {self.index}", "it cannot be opened")

    def renew(self, target: Target) -> WorkerPool:
        """The next trial gets a new process."""
        pool = self._pool(target.kind)
        pool.replace_workers(spares=True)  # a spare may be as lost as the others
        return pool

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, kind: str) -> DeviceSpec:
        place = f"device {kind} {self.index}"
        spec: DeviceSpec = _answer(partial(self._asked, kind), place, "it cannot be opened")
        return spec

    def _asked(self, kind: str) -> Future[DeviceSpec]:
        """What `start` asked, once; else asked now."""
        return self._opening.pop((kind, self.index), None) or self._ask(kind)

    def _ask(self, kind: str) -> Future[DeviceSpec]:
        return self._pool(kind).submit(calls.describe, kind, self.index, timeout=_OPEN_SECONDS)

    def _pool(self, kind: str) -> WorkerPool:
        device = kind, self.index
        if device not in self._pools:
            known = device_kind(kind)
            memory = _machine_bytes() if "run" in known.bounded else None
            spares = 0 if known.shares_host else 1  # one would start while the CPU is timed
            options = Options(
                partial(calls.warm_device, kind, self.index), memory, max_calls=2000,
                spares=spares, limits=self._limits,
            )  # fmt: skip
            self._pools[device] = WorkerPool(self.n_parallel, options)
        return self._pools[device]


@contextmanager
def started(
    target: Target, timeout: float = 10.0, parallel: int | None = None
) -> Iterator[tuple[LocalBuilder, LocalRunner]]:
    """Begin to open the device of a target and to start the processes that build for it; give both,
    which end with the block."""
    with LocalBuilder(timeout, parallel) as builder, LocalRunner() as runner:
        runner.start(target)
        if not target.device_kind.shares_host:  # there they would compete with what is timed
            builder.start(target)
        yield builder, runner


def _check_here(target: Target) -> None:
    """Raises TargetError where code for it cannot run on this machine, whatever the device."""
    ask, reason = device_kind(target.kind).host_lacks, ""
    if elsewhere(target.option("mtriple")):
        reason = "it is for machines of another kind than this one"
    elif ask is not None and (lacks := resolve(ask)(dict(target.options))):
        reason = f"this processor lacks {', '.join(lacks)}"
    if reason:
        raise TargetError(
            f"measure for {target}", reason,
            "Name what this machine has, or measure on a machine of that kind.",
        )  # fmt: skip


def _answer(ask: Callable[[], Future[Any]], place: str, reason: str) -> Any:
    """What a call gives, made again where somebody killed its process.

    Raises DeviceError where the worker fails, and what the call raises.
    """
    for tries in itertools.count(1):
        try:
            return ask().result()
        except (WorkerFailure, WorkerMissing) as failure:
            if _cause(failure) == "killed" and not blamed("killed", tries):
                continue
            often = f", {tries} times in a row" if tries > 1 else ""
            raise DeviceError(
                place, f"{reason}: {failure}{often}", "Run `tilewright doctor`."
            ) from None
    raise AssertionError


def _built(inner: Future[Any], timeout: float) -> Built:
    try:
        built: Built = inner.result()
        return built
    except WorkerTimeout as failure:
        message = f"the build took more than {timeout:g} s"
        cause: Cause = "candidate" if failure.computing else "unclear"
        return Built(None, "timeout", message, timeout, cause)
    except WorkerMissing as failure:
        return Built(None, "compile", str(failure), cause="machine")
    except WorkerFailure as failure:
        return Built(None, "compile", f"the build failed: {failure}", cause=_cause(failure))


def _tried(inner: Future[Any], timeout: float) -> RunResult:
    try:
        result: RunResult = inner.result()
        return result
    except WorkerTimeout:
        message = f"the trial took more than {timeout:g} s"
        return RunResult(error="timeout", message=message, seconds=timeout, cause="unclear")
    except WorkerMissing as failure:
        return RunResult(error="run", message=str(failure), cause="machine", fatal=True)
    except WorkerFailure as failure:
        crashed = isinstance(failure, WorkerCrash)
        return RunResult(error="run", message=str(failure), cause=_cause(failure), fatal=crashed)


def _cause(failure: WorkerFailure | WorkerMissing) -> Cause:
    return "killed" if isinstance(failure, WorkerCrash) and failure.killed else "unclear"


def _then(inner: Future[Any], convert: Callable[[Future[Any]], T]) -> Future[T]:
    outer: Future[T] = Future()

    def finish(done: Future[Any]) -> None:
        try:
            value = convert(done)
        except CancelledError:
            outer.cancel()
            outer.set_running_or_notify_cancel()
        except BaseException as error:
            outer.set_exception(error)
        else:
            outer.set_result(value)

    inner.add_done_callback(finish)
    return outer


def _name(function: BuildFunction) -> str:
    """The function as build processes import it: "module:function"."""
    if function in ("default", "ndk"):  # what to compile for is the target's to say
        return "tilewright.driver.build:build_payload"
    place = f"LocalBuilder(build_func={function!r})"
    if isinstance(function, str):
        module, _, name = function.partition(":")
        try:
            found = getattr(import_module(module), name, None) if module and name else None
        except ImportError:
            found = None
        _check(
            callable(found), place, "there is no such function",
            'Use "default", a function of a module, or its name as "module:function".',
        )  # fmt: skip
        return function
    home, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    _check(
        bool(home and name) and home != "__main__" and "." not in name, place,
        "build processes cannot import it",
        "Define it at the top of a module, not in the main script.",
    )  # fmt: skip
    return f"{home}:{name}"


def _machine_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _check(good: bool, place: str, reason: str, way_out: str) -> None:
    if not good:
        raise DeviceError(place, reason, way_out)
