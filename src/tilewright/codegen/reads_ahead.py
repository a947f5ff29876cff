"""Reads of what other kernels wrote, in front of what a kernel is there for.

In: a program of a chain.  Out: the same, where the end of a kernel reads what it adds to its sums,
such as a residual, as soon as the kernel has waited for the one before it: in front of the loop of
the sums, not behind it, where its threads would wait for the memory once more.  What has to be held
meanwhile is a register or two of a thread; ends that read more stay as they are.
Read next: `reads_first.py`, which brings reads in front of the stores of an end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tilewright.codegen.reads_first import Nest, is_nest
from tilewright.ir.renaming import fresh_loops
from tilewright.ir.stmt import (
    Allocate,
    AsyncCopy,
    Barrier,
    Buffer,
    Kernel,
    Program,
    Seq,
    Stmt,
    Store,
    read_buffers,
    seq,
    statements,
    written_buffers,
)

MOST = 8  # bytes that a thread holds: two registers


def reads_ahead(program: Program) -> Program:
    """`program` with such reads ahead; without `Program.steady` it stays as it is."""
    if program.steady is None:
        return program
    steady = program.steady
    return replace(program, kernels=tuple(_arranged(k, steady) for k in program.kernels))


def _arranged(kernel: Kernel, steady: frozenset[Buffer]) -> Kernel:
    written = written_buffers(kernel.body)
    found = _Ends({p for p in kernel.params if p not in steady and p not in written})
    body = _along(kernel.body, found.without_reads)
    if not found.reads:
        return kernel
    first = next(s for s in _parts(body) if found.touches(s))
    body = _along(body, lambda s: seq(*found.reads, s) if s is first else s)
    for buffer in found.held:
        body = Allocate(buffer, body)
    return replace(kernel, body=body)


def _parts(stmt: Stmt) -> list[Stmt]:
    """What a kernel does, one after the other."""
    if isinstance(stmt, Allocate):
        return _parts(stmt.body)
    return [p for s in stmt.body for p in _parts(s)] if isinstance(stmt, Seq) else [stmt]


def _along(stmt: Stmt, change: Callable[[Stmt], Stmt]) -> Stmt:
    """The statement with each of its parts changed."""
    if isinstance(stmt, Allocate):
        return replace(stmt, body=_along(stmt.body, change))
    if isinstance(stmt, Seq):
        return seq(*(_along(s, change) for s in stmt.body))
    return change(stmt)


@dataclass
class _Ends:
    """others: what may be read ahead

    begun: whether a part has touched these; busy: whether one has had barriers since
    reads: what is read ahead; held: where it is kept
    """

    others: set[Buffer]
    begun: bool = False
    busy: bool = False
    reads: list[Stmt] = field(default_factory=list)
    held: list[Buffer] = field(default_factory=list)

    def touches(self, stmt: Stmt) -> bool:
        """Whether it reads others' results; who asks for memory reads nothing that is there."""
        real = (s for s in statements(stmt) if isinstance(s, (Store, AsyncCopy)))
        return not all(self.others.isdisjoint(read_buffers(s)) for s in real)

    def without_reads(self, stmt: Stmt) -> Stmt:
        busy, self.begun = self.busy, self.begun or self.touches(stmt)
        barriers = any(isinstance(s, Barrier) for s in statements(stmt))
        self.busy = busy or (self.begun and barriers)
        if not busy or not is_nest(stmt):
            return stmt
        nest = Nest(self.others)
        first, then = nest.parts(stmt, ())
        size = sum(b.size * b.dtype.bytes for b in (*self.held, *nest.held))
        if first is None or size > MOST:
            return stmt
        self.reads.append(fresh_loops(first, {}))
        self.held += nest.held
        return then

