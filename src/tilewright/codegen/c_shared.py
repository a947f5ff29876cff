"""Where the shared buffers of a kernel lie, and which barriers their reuse needs.

In: the body of a lowered kernel.  Out: `SharedPlan`, before a line of text is printed.
Read next: `c_family.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tilewright.base.errors import InternalError
from tilewright.ir.barriers import starts_with_barrier
from tilewright.ir.bulk import BULK_ALIGNMENT, GATED, BulkCopy
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
    MmaBegin,
    MmaEnd,
    Prefetch,
    Seq,
    Show,
    Stmt,
    Store,
    Wait,
    While,
    statements,
)


@dataclass
class SharedPlan:
    """Where the shared buffers of one kernel lie.

    offsets: buffer -> first byte, a multiple of its alignment; total: bytes of them all
    alignment: of the memory that they lie in, in bytes
    reused:  whether some bytes belong to several buffers
    fenced:  identities of the statements that need a barrier before them, because their buffers
             take the place of others that some thread may still read
    """

    offsets: dict[Buffer, int] = field(default_factory=dict)
    total: int = 0
    alignment: int = SHARED_ALIGNMENT
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
    copies = (s for s in statements(body) if isinstance(s, BulkCopy))
    planner = _Planner({b for s in copies for b in (s.to.buffer, s.gate.buffer)})
    for buffer, count in allocated.items():
        # One place that nothing else takes: of copies of a loop nest, of what no barrier guards.
        if count > 1 or buffer in planner.alone:
            planner.place(buffer)
    if allocated:
        planner.visit(body, inside=False)
    return planner.plan


_OTHERS = (
    Store, AsyncCopy, Prefetch, Commit, Wait, Mma, LoadRows, Exchange, Show, MmaBegin, MmaEnd,
    *GATED,
)  # fmt: skip


class _Planner:
    def __init__(self, alone: set[Buffer]) -> None:
        self.plan = SharedPlan()
        self.alone = alone  # buffers that bulk copies fill, and gates
        self.top = 0
        self.freed_to = 0  # end of the bytes that were given back since the last barrier

    def place(self, buffer: Buffer) -> None:
        if buffer in self.plan.offsets:
            return
        unit = max(buffer.alignment, BULK_ALIGNMENT if buffer in self.alone else 1)
        offset = -(-self.top // unit) * unit
        self.top = offset + buffer.size * buffer.dtype.bytes
        self.plan.reused |= offset < self.plan.total
        self.plan.total = max(self.plan.total, self.top)
        self.plan.alignment = max(self.plan.alignment, unit)
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
        elif not isinstance(stmt, _OTHERS):
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
