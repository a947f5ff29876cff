"""The interpreter: run a `Program` by Python source generated for each kernel.

What it means is defined by `tests/interpreter.py`, which is written to be read and a hundred times
as slow: both give the same results and faults, which the tests compare.
In: a program and one array per argument; outputs are written in place.  Out: `InterpreterError`.
Read next: `fast_source.py`, which makes the Python source of a kernel.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

import numpy as np

from tilewright.base.dtype import DType
from tilewright.ir.bulk import has_gates
from tilewright.ir.fast_bulk import filled, gates_in
from tilewright.ir.fast_kernel import PythonKernel
from tilewright.ir.fast_scalars import Failure
from tilewright.ir.fast_source import python_kernel
from tilewright.ir.gates import Gates, run_block
from tilewright.ir.interpreter_memory import (
    Array,
    InterpreterError,
    Memory,
    bind,
    fault,
    write_back,
)
from tilewright.ir.stmt import BLOCK_TAGS, THREAD_TAGS, Buffer, Join, Kernel, Program
from tilewright.ir.warps import run_warp, unit_of


def run_fast(program: Program, arrays: Sequence[Array], *, check: bool = True) -> None:
    """Execute `program`; `arrays` correspond to `program.args`, outputs are written in place.

    A constant that the program wants packed may be given as users know it.
    check: whether to look for accesses out of bounds, unwritten elements and races
    Raises InterpreterError.
    """
    memory = bind(program, arrays, check, _scalars)
    with np.errstate(all="ignore"):
        for kernel in program.kernels:
            _run_kernel(kernel, memory, check)
    write_back(program, memory, arrays, check)


def _scalars(flat: Array) -> list[Any]:
    return flat.tolist() if flat.dtype.kind in "biu" else list(flat)  # numpy scalars round


Course = Generator[Any, Any, None]  # of a thread: see `interpreter.py`


# -- one kernel ------------------------------------------------------------------------------------


def _run_kernel(kernel: Kernel, memory: Memory, check: bool) -> None:
    code = python_kernel(kernel, check)
    lists: list[list[Any]] = []
    for buffer in code.parameters:
        if buffer not in memory:
            place = f"{kernel.name}: {buffer.name}"
            raise InterpreterError(place, "the program has no such buffer")
        lists += [memory[buffer], *_stamps(buffer, code.trackers[buffer])]
    try:
        if kernel.threads:
            _run_grid(kernel, code, lists, memory)
        elif code.has_barrier:
            _in_turn(kernel, [code.function(1, 1, 1, 0, 1, *lists)], 1, 1, _Blocks((), memory))
        else:
            code.function(1, 1, 1, 0, 1, *lists)
    except Failure as failure:
        raise _explain(kernel, code, failure) from None
    except (ZeroDivisionError, OverflowError, TypeError, ValueError, MemoryError) as error:
        statement = code.statement_at(error)
        if statement is None:
            raise
        raise InterpreterError(f"{kernel.name}: {statement}", f"{error}") from error


class _Blocks:
    """The blocks of a launch as they come to `joins`.

    seen: of each join and place the stamps that are before its body, as `_join` of `fast_warps.py`
    takes them, of the blocks that came since it was counted out
    """

    def __init__(self, joins: Sequence[Join], memory: Memory) -> None:
        self.joins, self.memory = joins, memory
        self.seen: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def count(self, join: int, at: int, start: int, epoch: int) -> list[tuple[int, int]] | None:
        """What is before the body, for the last block; None for others.

        start, epoch: the first stamp of the block, and that of its first thread now
        """
        stmt = self.joins[join]
        counts, seen = self.memory[stmt.counters], self.seen.setdefault((join, at), [])
        seen.append((start, epoch))
        counts[at] += 1
        if counts[at] != stmt.blocks:
            return None
        counts[at] = 0
        return self.seen.pop((join, at))


def _run_grid(kernel: Kernel, code: PythonKernel, lists: list[list[Any]], memory: Memory) -> None:
    by_tag = {t.tag: t for t in kernel.threads}
    order = [by_tag[tag] for tag in (*BLOCK_TAGS, *THREAD_TAGS) if tag in by_tag]
    place = [order.index(t) for t in kernel.threads]  # of each parameter in (blocks, threads)
    blocks = [range(by_tag[t].extent) for t in reversed(BLOCK_TAGS) if t in by_tag]
    threads = [range(by_tag[t].extent) for t in reversed(THREAD_TAGS) if t in by_tag]
    lanes = [lane[::-1] for lane in itertools.product(*threads)]  # x fastest
    count = len(lanes)
    gated, brought, words = has_gates(kernel), filled(kernel), gates_in(kernel)
    epoch = 1
    met = _Blocks(code.joins, memory)
    for at in itertools.product(*blocks):
        start = epoch
        shared: list[Any] = []
        gates = Gates(kernel, count)
        for buffer in code.shared:
            if buffer in words:
                shared.append(gates)
                continue
            first: list[Any] = [None if code.check else _zero(buffer.dtype)] * buffer.size
            stamps = [gates] if buffer in brought else []
            shared += [first, *(stamps or _stamps(buffer, code.trackers[buffer]))]
        running = []
        for tid, lane in enumerate(lanes):
            position = (*at[::-1], *lane)
            bound = [position[p] for p in place]
            result = code.function(1, start, epoch, tid, count, *bound, *lists, *shared)
            running.append(result)
        if gated:
            epoch = _gated(kernel, gates, running, epoch, count, met)
        elif code.has_barrier:
            epoch = _in_turn(kernel, running, epoch, count, met)
        epoch += count + 1


def _stamps(buffer: Buffer, lists: int) -> list[list[int]]:
    return [[0] * buffer.size for _ in range(lists)]


def _gated(
    kernel: Kernel, gates: Gates, threads: Sequence[Course], epoch: int, count: int, met: _Blocks
) -> int:
    """As `_in_turn`, for threads that wait for gates, too."""
    start = epoch

    def told(stop: Any) -> Any:
        nonlocal epoch
        now, epoch = epoch, epoch + count + 1
        return _told(stop, epoch, met, start, now)

    run_block(gates, lambda k, told: _advance(threads[k], told), told, partial(_diverged, kernel))
    return epoch


def _told(stop: Any, epoch: int, met: _Blocks, start: int, now: int) -> Any:
    """What all threads are told that have come to a barrier, or to where blocks are counted.

    epoch: of what they do next; start, now: as of `_Blocks.count`
    """
    if not isinstance(stop, tuple):
        return epoch
    _, join, at = stop
    return epoch, met.count(join, at, start, now)


def _in_turn(
    kernel: Kernel, threads: Sequence[Course], epoch: int, count: int, met: _Blocks
) -> int:
    """Run `threads` from barrier to barrier until all end; returns the last epoch."""
    start = epoch
    told: Any = None

    def go_on(k: int, told: Any) -> Any:
        return _advance(threads[k], told)

    waiting: list[Any] = []
    unit = unit_of(kernel)
    while True:
        waiting = []
        for warp in range(0, len(threads), unit):
            lanes = min(unit, len(threads) - warp)
            waiting += run_warp(kernel, warp, lanes, go_on, told)
        reached = set(waiting)
        if reached == {None}:
            return epoch
        if len(reached) > 1:
            raise _diverged(kernel, waiting)
        now, stop = epoch, waiting[0]
        epoch += count + 1
        told = _told(stop, epoch, met, start, now)


def _advance(thread: Course, told: Any) -> Any:
    try:
        return thread.send(told)
    except StopIteration:
        return None


def _diverged(kernel: Kernel, waiting: Sequence[Any]) -> InterpreterError:
    sites = [stop[0] if isinstance(stop, tuple) else stop for stop in waiting]
    places = {site: sites.index(site) for site in sites}
    told = [
        f"thread {thread} " + ("has ended" if site is None else f"waits at barrier {site}")
        for site, thread in places.items()
    ]
    return InterpreterError(
        kernel.name, f"barrier divergence: {', '.join(told)}",
        "Move the barrier out of the condition, or give all threads the same trip counts.",
    )  # fmt: skip


def _zero(dtype: DType) -> Any:
    return dtype.storage.type(0) if dtype.is_float else 0


def _explain(kernel: Kernel, code: PythonKernel, failure: Failure) -> InterpreterError:
    site = code.sites[failure.site]
    where = ", ".join(
        f"{var.attr}={failure.variables[name]}"
        for name, var in code.variables.items()
        if name in failure.variables
    )
    return fault(site.kind, kernel, site.buffer, failure.index, site.statement, where, site.unit)
