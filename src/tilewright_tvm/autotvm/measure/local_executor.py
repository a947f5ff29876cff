"""`LocalExecutor`: calls functions in processes of their own, which are ended at a deadline.

In: functions of this process, closures, too.  Out: futures.  Each call is a fork, so nothing needs
to be imported there; of this process's threads none goes on in it.
Read next: `executor.py`; `measure/pool.py`, whose workers last and import what they call.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import DeviceError, absent
from tilewright_tvm.autotvm.measure.executor import (
    ExecutionError,
    Executor,
    Future,
    TimeoutError,
)

__all__ = ["LocalExecutor", "LocalFuture", "LocalFutureNoFork"]

_FORK = multiprocessing.get_context("fork")


class LocalFuture(Future):
    """What a process gives; an exception that it raised, and `TimeoutError` or `ExecutionError`
    where it gives nothing, are its result, not raised."""

    def __init__(self, process: Any, answers: Connection, timeout: float | None) -> None:
        self._process, self._answers = process, answers
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._given: tuple[Any] | None = None

    def done(self) -> bool:
        return self._look(0.0)

    def get(self, timeout: float | None = None) -> Any:
        if not self._look(timeout):
            raise TimeoutError(f"there is no result after {timeout:g} s")
        assert self._given is not None
        return self._given[0]

    def _look(self, wait: float | None) -> bool:
        """Whether there is a result, after so many seconds at most."""
        if self._given is not None:
            return True
        until = None if wait is None else time.monotonic() + wait
        first = min((t for t in (until, self._deadline) if t is not None), default=None)
        left = None if first is None else max(0.0, first - time.monotonic())
        if self._answers.poll(left):
            self._finish(self._received())
        elif self._deadline is not None and time.monotonic() >= self._deadline:
            self._finish(TimeoutError("the call took longer than its time"))
        return self._given is not None

    def _received(self) -> Any:
        try:
            return self._answers.recv()
        except EOFError:
            self._process.join()
            return ExecutionError(f"the process ended with code {self._process.exitcode}")
        except Exception as error:  # it gave something that cannot be made here
            return ExecutionError(f"the result cannot be read: {error}")

    def _finish(self, result: Any) -> None:
        self._given = (result,)
        with suppress(ProcessLookupError, PermissionError):  # it has ended, or not yet begun
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.join()
        self._answers.close()


class LocalFutureNoFork(Future):
    """A result that is there."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def done(self) -> bool:
        return True

    def get(self, timeout: float | None = None) -> Any:
        return self._result


class LocalExecutor(Executor):
    """timeout: seconds of a call, after which its process and those that it started are ended and
    its result is a `TimeoutError`; None: no limit
    do_fork: False: calls are made here and at once, without a limit
    """

    def __init__(self, timeout: float | None = None, do_fork: bool = True) -> None:
        if timeout is not None and not timeout > 0:
            raise DeviceError(f"LocalExecutor(timeout={timeout})", "it must be positive", "Try 10.")
        self.timeout, self.do_fork = timeout, do_fork

    def submit(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
        if not self.do_fork:
            return LocalFutureNoFork(func(*args, **kwargs))
        answers, end = _FORK.Pipe(duplex=False)
        process = _FORK.Process(target=_call, args=(end, func, args, kwargs), daemon=False)
        process.start()
        end.close()
        return LocalFuture(process, answers, self.timeout)


def _call(end: Any, func: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """In the new process: a group of its own, so that what it starts ends with it."""
    os.setpgrp()
    try:
        result = func(*args, **kwargs)
    except Exception as error:
        result = error
    try:
        end.send(result)
    except Exception as error:  # it cannot be pickled
        end.send(ExecutionError(f"the result cannot be sent: {error}"))


open_doors(globals(), ("LocalExecutor",), DeviceError)


def __getattr__(name: str) -> Any:
    raise absent("autotvm.measure.local_executor", name, {})
