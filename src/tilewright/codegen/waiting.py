"""Where a kernel of a chain waits for the one before it: once, in all threads, as late as can be.

In: a kernel and the arguments that nothing writes as long as the chain runs.  Out: the statement
before which it waits, and the arguments that it reads after that.  Read next: `c_family.py`, which
prints both; `docs/devices.md` says why a chain of such kernels is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from tilewright.ir.stmt import (
    Allocate,
    Buffer,
    For,
    Kernel,
    Prefetch,
    Program,
    Seq,
    Stmt,
    children,
    map_children,
    read_buffers,
    seq,
    written_buffers,
)


def as_chain(program: Program) -> Program:
    """The program as a chain of its own, in which its kernels alone write, if it has several."""
    if len(program.kernels) < 2 or program.calls:
        return program
    written = set[Buffer]().union(*(written_buffers(k.body) for k in program.kernels))
    return replace(program, steady=frozenset(program.args) - written, begins=True)


@dataclass(frozen=True, eq=False)
class Waiting:
    """before: None: at the begin; fresh: arguments that are read after the wait, in order"""

    before: Stmt | None
    fresh: tuple[Buffer, ...]


def waiting(
    kernel: Kernel, steady: Collection[Buffer], runs_once: Callable[[For], bool]
) -> Waiting:
    """Find the first statement that touches other arguments than `steady` ones.

    runs_once: whether a loop is printed as its body alone
    What is not passed by every thread of every block is never entered: a thread that went around
    its wait could let its kernel end before the one before it has.
    """
    read = read_buffers(kernel.body)
    others = {p for p in kernel.params if p not in steady}
    fresh = tuple(p for p in kernel.params if p in others and p in read)
    if kernel.given:  # integers that are read first of all
        return Waiting(None, fresh)
    return Waiting(_first(kernel.body, others, runs_once), fresh)


def _first(stmt: Stmt, others: set[Buffer], runs_once: Callable[[For], bool]) -> Stmt | None:
    plain = _without_prefetches(stmt)
    if others.isdisjoint(read_buffers(plain) | written_buffers(plain)):
        return None
    if isinstance(stmt, (Seq, Allocate)) or (isinstance(stmt, For) and runs_once(stmt)):
        found = (_first(s, others, runs_once) for s in children(stmt))
        return next((s for s in found if s is not None), stmt)
    return stmt


def _without_prefetches(stmt: Stmt) -> Stmt:
    """Who asks for memory reads nothing that is there."""
    return seq() if isinstance(stmt, Prefetch) else map_children(stmt, _without_prefetches)
