"""Where the shared buffers of a kernel lie, and which barriers their reuse needs.

In: the body of a lowered kernel.  Out: `SharedPlan`, before a line of text is printed.
Read next: `c_family.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tilewright.base.errors import InternalError
from tilewright.ir.barriers import starts_with_barrier
from tilewright.ir.stmt import (
    SHARED_ALIGNMENT,
    Allocate,
    AsyncCopy,
    Barrier,
    Buffer,
    Commit,
    Exchange,
    For,
    If,
    Join,
    LoadRows,
    Mma,
    Prefetch,
    Seq,
    Stmt,
    Store,
    Wait,
    While,
    statements,
)


@dataclass
class SharedPlan:
    """Where the shared buffers of one kernel lie.

    offsets: buffer -> first byte, a multiple of SHARED_ALIGNMENT; total: bytes of them all
    reused:  whether some bytes belong to several buffers
    fenced:  identities of the statements that need a barrier before them, because their buffers
             take the place of others that some thread may still read
    """

    offsets: dict[Buffer, int] = field(default_factory=dict)
    total: int = 0
    reused: bool = False
    fenced: set[int] = field(default_factory=set)


def plan_shared(body: Stmt) -> SharedPlan:
    """Lay shared buffers out as a stack.

    Memory is given back only outside loops and branches, where every thread passes once: what
    follows takes it again, behind a barrier.
    """
    allocated = Counter(
        s.buffer for s in statements(body) if isinstance(s, Allocate) and s.buffer.scope == "shared"
    )
    planner = _Planner()
    for buffer, count in allocated.items():
        if count > 1:  # copies of a loop nest: one place that nothing else takes
            planner.place(buffer)
    if allocated:
        planner.visit(body, inside=False)
    return planner.plan


class _Planner:
    def __init__(self) -> None:
        self.plan = SharedPlan()
        self.top = 0
        self.freed_to = 0  # end of the bytes that were given back since the last barrier

    def place(self, buffer: Buffer) -> None:
        if buffer in self.plan.offsets:
            return
        offset = -(-self.top // SHARED_ALIGNMENT) * SHARED_ALIGNMENT
        self.top = offset + buffer.size * buffer.dtype.bytes
        self.plan.reused |= offset < self.plan.total
        self.plan.total = max(self.plan.total, self.top)
        self.plan.offsets[buffer] = offset

    def visit(self, stmt: Stmt, inside: bool) -> None:
        if isinstance(stmt, Allocate):
            before = self.top
            if stmt.buffer.scope == "shared":
                self.place(stmt.buffer)
            self.visit(stmt.body, inside)
            if not inside:
                self._give_back(before)
        elif isinstance(stmt, Seq):
            for s in stmt.body:
                self._fence(s, inside)
                self.visit(s, inside)
        elif isinstance(stmt, (For, While, Join)):
            self._enter((stmt.body,), inside)
        elif isinstance(stmt, If):
            self._enter((stmt.then,) if stmt.orelse is None else (stmt.then, stmt.orelse), inside)
        elif isinstance(stmt, Barrier):
            self.freed_to = self.freed_to if inside else 0
        elif not isinstance(
            stmt, (Store, AsyncCopy, Prefetch, Commit, Wait, Mma, LoadRows, Exchange)
        ):
            kind = type(stmt).__name__
            raise InternalError("shared memory", f"a {kind} statement has no place in the plan")

    def _enter(self, bodies: tuple[Stmt, ...], inside: bool) -> None:
        before = self.top
        for body in bodies:
            self.visit(body, inside=True)
        if not inside:
            self._give_back(before)

    def _give_back(self, top: int) -> None:
        if self.top > top:
            self.freed_to = max(self.freed_to, self.top)
        self.top = top

    def _fence(self, stmt: Stmt, inside: bool) -> None:
        if inside or self.freed_to <= self.top or not _allocates_shared(stmt):
            return
        if not starts_with_barrier(stmt):
            self.plan.fenced.add(id(stmt))
        self.freed_to = 0


def _allocates_shared(stmt: Stmt) -> bool:
    return any(isinstance(s, Allocate) and s.buffer.scope == "shared" for s in statements(stmt))
