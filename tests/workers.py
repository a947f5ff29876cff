"""Worker processes that outlive their pools: each build of a network in a test would start its own.

A pool may begin with an idle process of an earlier one that was started in the same environment and
saw no failure; it is told to begin again.  What a pool asks for later is new.  Tests of the
processes themselves, in the folders of `OWN` and marked `own_workers`, get new ones always.
In: `keep` while a test runs.  Out: fewer processes.  Read next: `tilewright.measure.pool`.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import time
from collections.abc import Iterator
from typing import Any

from tilewright.base import environment
from tilewright.measure import calls, pool
from tilewright.measure.jobs import Built, RunResult
from tilewright.measure.worker import Start
from tilewright.targets.kind import origins

OWN = ("measure", "farm", "device", "boards", "drills")  # folders
TOLD = (environment.CACHE, environment.KNOWLEDGE)  # read anew at each use
_ANY = (*TOLD, "PYTEST_CURRENT_TEST")
_MOST = 3  # idle processes
_SECONDS = 0.2  # for the threads of a pool that closes
_idle: list[KeptWorker] = []


@contextlib.contextmanager
def keep() -> Iterator[None]:
    """Pools that are made meanwhile begin with idle processes, and leave theirs."""
    before = pool._Stock, pool._Worker
    pool._Stock, pool._Worker = KeepingStock, KeptWorker  # type: ignore[misc]
    try:
        yield
    finally:
        pool._Stock, pool._Worker = before  # type: ignore[misc]


def begin_again(told: dict[str, str]) -> None:
    """Runs in the process: what it tries next is its first trial, with these variables."""
    calls._trials = 0
    for name in TOLD:
        os.environ.pop(name, None)
    os.environ.update(told)


class KeptWorker(pool._Worker):
    def __init__(self, options: pool.Options) -> None:
        super().__init__(options)
        self.place, self.clean, self.busy = _place(options), True, False

    def call(self, function: Any, args: tuple[Any, ...], timeout: float) -> Any:
        self.busy = True
        try:
            answer = super().call(function, args, timeout)
        except BaseException:
            self.clean = False
            raise
        finally:
            self.busy = False
        if isinstance(answer, (Built, RunResult)) and answer.error is not None:
            self.clean = False
        return answer


class KeepingStock(pool._Stock):
    def __init__(self, options: pool.Options) -> None:
        super().__init__(options)
        self._fresh = False  # whether only new processes will do

    def _new(self) -> pool._Worker:
        if not self._fresh and self.generation == 0 and not self.closed:
            place = _place(self.options)
            told = {name: os.environ[name] for name in TOLD if name in os.environ}
            for worker in [w for w in _idle if w.place == place]:
                with contextlib.suppress(ValueError, pool.WorkerFailure):
                    _idle.remove(worker)  # ValueError: another thread has it
                    worker.call(begin_again, (told,), 5.0)
                    self._living.add(worker)
                    return worker
        return super()._new()

    def retire(self, worker: pool._Worker) -> None:
        """At the end of a pool a process that saw no failure waits for the next one."""
        self._fresh = self._fresh or not self.closed
        assert isinstance(worker, KeptWorker)
        if not (self.closed and worker.clean and worker.alive and worker._ready):
            super().retire(worker)
            return
        with self._lock:
            self._living.discard(worker)
        _idle.append(worker)
        for old in _idle[:-_MOST]:
            with contextlib.suppress(ValueError):
                _idle.remove(old)
                old.kill()
                old.close_pipes()

    def close(self) -> None:
        with self._lock:
            self.closed = True
            living = list(self._living)
        until = time.monotonic() + _SECONDS
        while any(_waits(w) and w in self._living for w in living) and time.monotonic() < until:
            time.sleep(0.0005)
        with self._lock:
            left = list(self._living)
            self._living.clear()
            self._spares.clear()
        for worker in left:
            worker.kill()


def _waits(worker: Any) -> bool:
    return worker._ready and not worker.busy and worker.clean and worker.alive


def _place(options: pool.Options) -> tuple[object, ...]:
    start = Start(options.memory_bytes, options.warm, origins(), options.limits)
    variables = {k: v for k, v in os.environ.items() if k not in _ANY}
    cores = tuple(sorted(os.sched_getaffinity(0)))
    return (
        pickle.dumps(start), os.getpid(), os.getcwd(), tuple(sys.path), cores,
        tuple(sorted(variables.items())),
    )  # fmt: skip
