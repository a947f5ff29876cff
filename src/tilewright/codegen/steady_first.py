"""Copies of steady arguments to shared memory before what must wait for another kernel.

In: a program of a chain.  Out: the same, where copies of weights that stood behind the first access
to other arguments stand before it, as far as nothing depends on the order.  Barriers stand in no
copy's way to a buffer that nothing between touches: who reads it has one of its own.  Copies that
pass through registers come last, since threads wait for them.  Copies to registers stay where they
are: the assembler puts loads of constants behind the wait again.  Read next: `waiting.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tilewright.base.concurrency import cached_property
from tilewright.codegen.c_shared import plan_shared
from tilewright.ir.bulk import GATED
from tilewright.ir.expr import walk
from tilewright.ir.stmt import (
    Allocate,
    AsyncCopy,
    Barrier,
    Buffer,
    Commit,
    For,
    If,
    Kernel,
    Program,
    Seq,
    Stmt,
    Store,
    Wait,
    While,
    read_buffers,
    seq,
    statements,
    written_buffers,
)

_COPIES = (Store, AsyncCopy, Commit, For, If, Seq)  # what a copy may consist of
_GROUPED = (AsyncCopy, Commit)  # no commit is moved across these
_ORDERED = (Barrier, Wait, While, *GATED)  # nothing is moved out of a loop with these
_STOPS = _ORDERED[1:]  # nor across these
MORE = 1 / 16  # that a kernel's shared memory may grow by: no fewer blocks fit on a core for that
Parts = tuple[Stmt | None, Stmt | None]  # what comes first, what is left


def steady_first(program: Program, most: int = 0) -> Program:
    """`program` with such copies first; without `Program.steady` it stays as it is.

    most: bytes of shared memory that a block may have
    """
    if program.steady is None:
        return program
    kernels = (_Kernel(k, program.steady, most).arranged() for k in program.kernels)
    return replace(program, kernels=tuple(kernels))


@dataclass(frozen=True)
class _Kernel:
    """widens: whether shared memory may be filled before the statement that it is allocated in
    wider:  what is
    """

    kernel: Kernel
    steady: frozenset[Buffer]
    most: int
    widens: bool = True
    wider: list[Buffer] = field(default_factory=list)

    def arranged(self) -> Kernel:
        old = self.kernel.body
        body = self._arranged(old)
        if body is old:
            return self.kernel
        for buffer in self.wider:
            body = Allocate(buffer, body)
        taken = plan_shared(old).total  # as limits know
        room = max(min(int(taken * (1 + MORE)), self.most), taken)
        if self.wider and plan_shared(body).total > room:
            return _Kernel(self.kernel, self.steady, self.most, widens=False).arranged()
        return replace(self.kernel, body=body)

    def _arranged(self, stmt: Stmt) -> Stmt:
        """Down to where the kernel will wait, as `waiting` goes."""
        if not self._touches(stmt):
            return stmt
        if isinstance(stmt, Allocate) or (isinstance(stmt, For) and stmt.extent == 1):
            body = self._arranged(stmt.body)
            return stmt if body is stmt.body else replace(stmt, body=body)
        if isinstance(stmt, Seq):
            at = next(k for k, s in enumerate(stmt.body) if self._touches(s))
            before, behind = stmt.body[:at], stmt.body[at:]
            if len(behind) == 1:
                last = self._arranged(behind[0])
                return stmt if last is behind[0] else seq(*before, last)
            first, rest = self._parts(Seq(behind))
            return stmt if first is None else seq(*before, first, rest)
        first, rest = self._parts(stmt)
        return stmt if first is None else seq(first, rest)

    def _parts(self, stmt: Stmt) -> Parts:
        if self._moves(stmt):
            return stmt, None
        if isinstance(stmt, Seq):
            return self._parts_of_all(stmt.body)
        if isinstance(stmt, For) and stmt.kind in ("serial", "unrolled"):
            first, rest = self._parts(stmt.body)
            # Of all iterations the one is moved before the other.
            if first is None or rest is None or _has(rest, _ORDERED) or _clash(first, [rest]):
                return None, stmt
            return replace(stmt, body=first), replace(stmt, body=rest)
        if isinstance(stmt, Allocate):
            return self._parts_inside(stmt)
        if isinstance(stmt, If) and stmt.orelse is None and not _loads(stmt):
            first, rest = self._parts(stmt.then)
            if first is None or rest is None:
                return None, stmt
            return replace(stmt, then=first), replace(stmt, then=rest)
        return None, stmt

    def _parts_inside(self, stmt: Allocate) -> Parts:
        """What is copied to the buffer itself takes its allocation along, if there is one only."""
        buffer = stmt.buffer
        first, rest = self._parts(stmt.body)
        if first is None or rest is None:
            return None, stmt
        if buffer not in written_buffers(first) | read_buffers(first):
            return first, replace(stmt, body=rest)
        if not self.widens or self._allocated[buffer] > 1:
            return None, stmt
        self.wider.append(buffer)
        return first, rest

    @cached_property
    def _allocated(self) -> Counter[Buffer]:
        """How often: copies of a loop nest allocate the same buffer."""
        every = statements(self.kernel.body)
        return Counter(s.buffer for s in every if isinstance(s, Allocate))

    def _parts_of_all(self, stmts: Iterable[Stmt]) -> Parts:
        moved: list[Stmt] = []
        left: list[Stmt] = []
        for s in stmts:
            first, rest = (None, s) if any(_has(part, _STOPS) for part in left) else self._parts(s)
            if first is not None and _clash(first, left):
                first, rest = None, s
            moved += [first] if first is not None else []
            left += [rest] if rest is not None else []
        if sum(map(len, map(written_buffers, moved))) == len(written_buffers(seq(*moved))):
            moved.sort(key=lambda s: not _has(s, (AsyncCopy,)))  # each writes to its own
        return (seq(*moved) if moved else None), (seq(*left) if left else None)

    def _moves(self, stmt: Stmt) -> bool:
        written = written_buffers(stmt)
        return (
            all(isinstance(s, _COPIES) for s in statements(stmt))
            and not self._touches(stmt)
            and not self.steady.isdisjoint(read_buffers(stmt))
            and all(buffer.scope == "shared" for buffer in written)
        )

    def _touches(self, stmt: Stmt) -> bool:
        others = set(self.kernel.params) - self.steady
        return not others.isdisjoint(read_buffers(stmt) | written_buffers(stmt))


def _has(stmt: Stmt, kinds: tuple[type[Stmt], ...]) -> bool:
    return any(isinstance(s, kinds) for s in statements(stmt))


def _loads(stmt: If) -> bool:
    return any(n.op == "load" for n in walk(stmt.condition))


def _clash(first: Stmt, passed: Iterable[Stmt]) -> bool:
    """Whether moving `first` before them changes what is read."""
    written, read = written_buffers(first), read_buffers(first)
    passed = list(passed)
    if _has(first, (Commit,)) and any(_has(s, _GROUPED) for s in passed):
        return True
    return any(
        not written.isdisjoint(read_buffers(s) | written_buffers(s))
        or not read.isdisjoint(written_buffers(s))
        for s in passed
    )
