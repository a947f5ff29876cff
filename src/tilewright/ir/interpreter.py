"""The definition of the lowered IR: run a `Program` on numpy arrays, in plain Python, checked.

In: a program and one array per argument; outputs are written in place.  Out: `InterpreterError` for
the first out-of-bounds access, use of an unwritten element, race or divergence.
Read next: `interpreter_source.py`, which makes the Python source of a kernel; `verifier.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.dtype import DType
from tilewright.ir.interpreter_scalars import Failure, InterpreterError
from tilewright.ir.interpreter_source import PythonKernel, python_kernel
from tilewright.ir.stmt import BLOCK_TAGS, THREAD_TAGS, Buffer, Kernel, Program, Store, statements

Memory = dict[Buffer, list[Any]]


def run(program: Program, arrays: Sequence[npt.NDArray[Any]], *, check: bool = True) -> None:
    """Execute `program`; `arrays` correspond to `program.args`, outputs are written in place.

    A constant that the program wants packed may be given as users know it.

    Semantics.  Kernels run in order, the blocks of a kernel one after another, the threads of a
    block in turn from barrier to barrier.  All loops run in order whatever their kind.  A vector
    statement reads all its lanes before it writes any.  float32 arithmetic rounds after every
    operation; integers are exact, `//` and `%` floor; min and max propagate NaN (see `expr.py`).
    if_then_else evaluates one side; `and`, `or` and select evaluate everything.

    check: raise InterpreterError for
    - an index outside its buffer; a vector access on a GPU that is not aligned (to its lanes, at
      most 16 bytes)
    - a load of an element that nothing has written (outputs and workspaces start unwritten),
      and outputs not written by the end
    - a race: an element that one thread writes and another reads, or writes with another value,
      with no barrier between; blocks, and iterations of a parallel loop, have none at all
    - a barrier that not all threads of the block reach together
    """
    memory = _bind(program, arrays, check)
    with np.errstate(all="ignore"):
        for kernel in program.kernels:
            _run_kernel(kernel, memory, check)
    for buffer, role, array in zip(program.args, program.roles, arrays, strict=True):
        if role == "output" or _is_stored(program, buffer):
            _write_back(program, buffer, memory[buffer], array, check)


def _bind(program: Program, arrays: Sequence[npt.NDArray[Any]], check: bool) -> Memory:
    if len(arrays) != len(program.args):
        raise InterpreterError(
            program.name, f"{len(arrays)} arrays for {len(program.args)} arguments",
            f"Give {', '.join(b.name for b in program.args)}, in this order.",
        )  # fmt: skip
    memory: Memory = {b: _unwritten(b) for b in program.workspaces}
    for buffer, role, given in zip(program.args, program.roles, arrays, strict=True):
        array = given
        if buffer.packing is not None and given.shape == buffer.packing.shape:
            array = buffer.packing.apply(given)
        if array.size != buffer.size or array.dtype != np.dtype(buffer.dtype):
            raise InterpreterError(
                f"{program.name}({buffer.name})",
                f"{array.dtype}[{array.size}] given for {buffer.dtype}[{buffer.size}]",
            )
        undefined = check and role == "output"
        memory[buffer] = [None] * buffer.size if undefined else _values(array, buffer.dtype)
    if not check:
        for buffer in program.workspaces:
            memory[buffer] = _values(np.zeros(buffer.size, buffer.dtype), buffer.dtype)
    return memory


def _unwritten(buffer: Buffer) -> list[Any]:
    """No element is written, except those behind the tensor: tiles that overhang may read them."""
    count = min(buffer.size, math.prod(buffer.shape)) if buffer.shape else buffer.size
    return [None] * count + _values(np.zeros(buffer.size - count, buffer.dtype), buffer.dtype)


def _values(array: npt.NDArray[Any], dtype: DType) -> list[Any]:
    flat = np.ascontiguousarray(array).reshape(-1)
    return list(flat) if dtype.is_float else flat.tolist()  # numpy scalars round, ints are exact


def _is_stored(program: Program, buffer: Buffer) -> bool:
    bodies = (s for kernel in program.kernels for s in statements(kernel.body))
    return any(isinstance(s, Store) and s.buffer is buffer for s in bodies)


def _write_back(
    program: Program, buffer: Buffer, values: list[Any], array: npt.NDArray[Any], check: bool
) -> None:
    if check and None in values:
        raise InterpreterError(
            f"{program.name}: {buffer.name}[{values.index(None)}]", "no kernel writes this element"
        )
    try:
        array[...] = np.array(values, dtype=buffer.dtype).reshape(array.shape)
    except OverflowError as error:
        raise InterpreterError(f"{program.name}: {buffer.name}", f"{error}") from None


__all__ = ["InterpreterError", "run"]

# -- one kernel ------------------------------------------------------------------------------------


def _run_kernel(kernel: Kernel, memory: Memory, check: bool) -> None:
    code = python_kernel(kernel, check)
    lists: list[list[Any]] = []
    for buffer in code.parameters:
        if buffer not in memory:
            place = f"{kernel.name}: {buffer.name}"
            raise InterpreterError(place, "the program has no such buffer")
        lists += [memory[buffer], *([0] * buffer.size for _ in range(code.trackers[buffer]))]
    try:
        if kernel.threads:
            _run_grid(kernel, code, lists)
        elif code.has_barrier:
            _in_turn(kernel, [code.function(1, 1, 1, 0, 1, *lists)], 1, 1)
        else:
            code.function(1, 1, 1, 0, 1, *lists)
    except Failure as failure:
        raise _explain(kernel, code, failure) from None
    except (ZeroDivisionError, OverflowError, TypeError, ValueError, MemoryError) as error:
        statement = code.statement_at(error)
        if statement is None:
            raise
        raise InterpreterError(f"{kernel.name}: {statement}", f"{error}") from error


def _run_grid(kernel: Kernel, code: PythonKernel, lists: list[list[Any]]) -> None:
    by_tag = {t.tag: t for t in kernel.threads}
    order = [by_tag[tag] for tag in (*BLOCK_TAGS, *THREAD_TAGS) if tag in by_tag]
    place = [order.index(t) for t in kernel.threads]  # of each parameter in (blocks, threads)
    blocks = [range(by_tag[t].extent) for t in reversed(BLOCK_TAGS) if t in by_tag]
    threads = [range(by_tag[t].extent) for t in reversed(THREAD_TAGS) if t in by_tag]
    lanes = [lane[::-1] for lane in itertools.product(*threads)]  # x fastest
    count = len(lanes)
    epoch = 1
    for at in itertools.product(*blocks):
        start = epoch
        shared: list[list[Any]] = []
        for buffer in code.shared:
            first: list[Any] = [None if code.check else _zero(buffer.dtype)] * buffer.size
            shared += [first, *([0] * buffer.size for _ in range(code.trackers[buffer]))]
        running = []
        for tid, lane in enumerate(lanes):
            position = (*at[::-1], *lane)
            bound = [position[p] for p in place]
            result = code.function(1, start, epoch, tid, count, *bound, *lists, *shared)
            running.append(result)
        if code.has_barrier:
            epoch = _in_turn(kernel, running, epoch, count)
        epoch += count + 1


def _in_turn(
    kernel: Kernel, threads: Sequence[Generator[int, int, None]], epoch: int, count: int
) -> int:
    """Run `threads` from barrier to barrier until all end; returns the last epoch."""
    waiting: list[int | None] = []
    first = True
    while True:
        waiting = [_advance(thread, None if first else epoch) for thread in threads]
        first = False
        reached = set(waiting)
        if reached == {None}:
            return epoch
        if len(reached) > 1:
            raise InterpreterError(
                kernel.name, _divergence(waiting),
                "Move the barrier out of the condition, or give all threads the same trip counts.",
            )  # fmt: skip
        epoch += count + 1


def _advance(thread: Generator[int, int, None], epoch: int | None) -> int | None:
    try:
        return next(thread) if epoch is None else thread.send(epoch)
    except StopIteration:
        return None


def _divergence(waiting: Sequence[int | None]) -> str:
    places = {site: waiting.index(site) for site in waiting}
    told = [
        f"thread {thread} " + ("has ended" if site is None else f"waits at barrier {site}")
        for site, thread in places.items()
    ]
    return "barrier divergence: " + ", ".join(told)


def _zero(dtype: DType) -> Any:
    return np.dtype(dtype).type(0) if dtype.is_float else 0


def _explain(kernel: Kernel, code: PythonKernel, failure: Failure) -> InterpreterError:
    site = code.sites[failure.site]
    where = ", ".join(
        f"{var.attr}={failure.variables[name]}"
        for name, var in code.variables.items()
        if name in failure.variables
    )
    reasons = {
        "bounds": f"outside the {site.buffer.size} elements of {site.buffer!r}",
        "aligned": f"this vector must start at a multiple of {site.unit} elements",
        "unwritten": "this element was never written",
        "load race": "another thread wrote this element and no barrier lies between",
        "store race": "another thread read this element and no barrier lies between",
        "store twice": "another thread wrote a different value and no barrier lies between",
    }
    statement = str(site.statement).splitlines()[0].strip()
    return InterpreterError(
        f"{kernel.name}: {site.buffer.name}[{failure.index}]",
        f"{reasons[site.kind]} (in {statement}{' at ' + where if where else ''})",
    )
