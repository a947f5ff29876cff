"""What threads and forks need: locks that survive `fork`, things made once a process, loops.

A fork copies one thread and every lock, so a lock that another thread held is never released in the
child.  Locks made here are free again there.  What is not whole between two lines of Python (a
library in the middle of a call, a module half imported) is left to finish first: `finish_first`.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

_TURN = 5e-4  # seconds
_MOST_THREADS = 16  # of one loop: between calls of numpy each asks for Python's lock

_LOCKS: weakref.WeakSet[Any] = weakref.WeakSet()
_FORGOTTEN: list[Any] = []


def lock() -> Any:
    """A reentrant lock that is free in a forked child, whoever held it."""
    made = threading.RLock()
    _LOCKS.add(made)
    return made


def in_threads(work: Callable[[S], T], items: Collection[S]) -> list[T]:
    """What `work` gives for each item, in order; loops of numpy run beside each other, those over
    element types that it does not know itself excepted."""
    if len(items) < 2:
        return [work(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor

    cores = os.cpu_count() or 1  # more threads would take caches from each other
    with ThreadPoolExecutor(min(cores, _MOST_THREADS)) as threads:
        return list(threads.map(work, items))


class once(Generic[P, T]):
    """`functools.cache` for what must be made once however many threads ask at the same time."""

    def __init__(self, function: Callable[P, T]) -> None:
        update_wrapper(self, function)
        self._function, self._making = function, lock()
        self._made: dict[Any, T] = {}

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        key = args, tuple(kwargs.items())
        try:
            return self._made[key]  # without a turn: calls of networks come here several times
        except KeyError:
            pass
        with self._making:
            if key not in self._made:
                self._made[key] = self._function(*args, **kwargs)
            return self._made[key]

    def forget(self) -> None:
        """Make everything anew when it is next asked for.

        What was made is not taken down: in a forked child that may take what the fork has broken.
        """
        _FORGOTTEN.append(self._made)
        self._made = {}


class cached_property(Generic[T]):
    """`functools.cached_property` without its lock, which Python 3.11 has one of for all instances
    and leaves locked in a child that was forked while a property was computed.

    Threads that ask at the same time may each compute the value; all get the one that was first.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function, self.__doc__ = function, function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        value: T = instance.__dict__.setdefault(self._name, self._function(instance))
        return value


@contextmanager
def short_turns() -> Iterator[None]:
    """Let a thread that computes give way to others sooner.

    Each wait for Python's lock takes 5 ms else, and there are several between a trial that ends and
    the next one that begins: of calls of a worker process 29 a second were answered beside a thread
    that computes, with this 364.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _TURN))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def in_forked_child(action: Callable[[], object]) -> None:
    """From now on do this first thing in every forked child."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=action)


def finish_first(guard: AbstractContextManager[Any]) -> None:
    """From now on a fork waits for `guard`, and child and parent go on without it.

    guard: a reentrant lock that is held whenever what it guards is not whole.  Who holds it may
    wait for guards that were named later, not for earlier ones
    """
    _GUARDS.append(guard)


def _enter_guards() -> None:
    for guard in tuple(_GUARDS):
        guard.__enter__()
        _ENTERED.append(guard)


def _leave_guards() -> None:
    while _ENTERED:
        _ENTERED.pop().__exit__(None, None, None)


def _free_locks() -> None:
    for held in _LOCKS:
        held._at_fork_reinit()


_GUARDS: list[AbstractContextManager[Any]] = []
_ENTERED: list[AbstractContextManager[Any]] = []  # by the thread that forks, which has them all
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_enter_guards, after_in_parent=_leave_guards, after_in_child=_leave_guards
    )
in_forked_child(_free_locks)
importing: AbstractContextManager[Any] = threading.RLock()  # held by imports that a build begins
finish_first(importing)
