"""Where a kernel of a chain waits for the one before it: once, in all threads, as late as can be.

In: a kernel and the arguments that nothing writes as long as the chain runs.  Out: the statement
before which it waits, and the arguments that it reads after that.  Read next: `c_family.py`, which
prints both; `docs/devices.md` says why a chain of such kernels is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from math import prod

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
from tilewright.targets.limits import Limits

SMALL = 4096  # bytes of shared memory of a kernel that adds up, and holds some sums there


def as_chain(program: Program) -> Program:
    """The program as a chain of its own, in which its kernels alone write, if it has several."""
    if len(program.kernels) < 2 or program.calls:
        return program
    written = set[Buffer]().union(*(written_buffers(k.body) for k in program.kernels))
    return replace(program, steady=frozenset(program.args) - written, begins=True)


def is_dealt_evenly(kernel: Kernel, shared: int, behind: int, limits: Limits) -> bool:
    """Whether blocks of the kernel behind may come while all of this one's run.

    shared, behind: bytes of shared memory that a block of either holds.  Blocks that come early are
    dealt to the cores with room: large ones, several to a core, and small ones, most of them to the
    cores that have no block, where the others are full.
    """
    blocks = prod(kernel.grid)
    if behind > SMALL or not isinstance(blocks, int):
        return False
    return blocks >= limits.cores or 2 * shared <= limits.shared_bytes_per_core


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
