"""Parallel loops run apart: two halves of the iterations, neither of which sees the other's writes.

In: what to run and the memory it writes.  Out: memory as threads that never meet would leave it.  A
loop whose iterations depend on each other, or write the same elements, then gives other results,
always; on threads it may do so once in a thousand runs.  Read next: `cpu.py`.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from tilewright.base.concurrency import lock

# `tilewright_parallel` is what kernels call: the pool, unless something is in its place.
DISPATCH_IR = """
@tilewright_instead = global ptr null

define void @tilewright_parallel(ptr %body, ptr %env, i64 %n) {
  %other = load ptr, ptr @tilewright_instead
  %none = icmp eq ptr %other, null
  br i1 %none, label %pool, label %instead
pool:
  tail call void @tilewright_pool_run(ptr %body, ptr %env, i64 %n)
  ret void
instead:
  call void %other(ptr %body, ptr %env, i64 %n)
  ret void
}
"""

_BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_PARALLEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_lock = lock()


def run_apart(
    instead: int, run: Callable[[], object], views: Sequence[np.ndarray], seconds: float
) -> bool:
    """Call `run`, on this thread, with parallel loops apart; other threads' loops just run.

    instead: the address of `tilewright_instead`.  views: the bytes of all that kernels write
    Returns False when it took this thread more than `seconds`: then loops were left, and what is in
    `views` means nothing.
    """
    apart = _Apart(views, seconds)
    pointer = ctypes.c_void_p.from_address(instead)
    callback = _PARALLEL(apart.parallel)
    with _lock:
        pointer.value = ctypes.cast(callback, ctypes.c_void_p).value
        try:
            run()
        finally:
            pointer.value = None
    return apart.in_time


class _Apart:
    def __init__(self, views: Sequence[np.ndarray], seconds: float) -> None:
        self.views = views
        self._thread, self._until = threading.get_ident(), time.thread_time() + seconds

    @property
    def in_time(self) -> bool:
        return time.thread_time() < self._until

    def parallel(self, body_at: int, env: int, n: int) -> None:
        body, half = _BODY(body_at), n // 2
        if threading.get_ident() != self._thread:
            body(env, 0, n)
            return
        if not self.in_time:
            return
        before = [view.copy() for view in self.views]
        self._run(body, env, 0, half)
        first = [view.copy() for view in self.views]
        for view, old in zip(self.views, before, strict=True):
            view[:] = old
        self._run(body, env, half, n)
        for view, old, new in zip(self.views, before, first, strict=True):
            np.copyto(view, new, where=new != old)

    def _run(self, body: Callable[..., None], env: int, begin: int, end: int) -> None:
        """In growing pieces, so that little is lost where the time does not suffice."""
        piece = 1
        while begin < end and self.in_time:
            body(env, begin, min(begin + piece, end))
            begin, piece = begin + piece, 2 * piece
