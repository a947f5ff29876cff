"""Which barriers shared memory needs.

In: a kernel.  Out: the same, with a barrier wherever what one thread has written may be read, or
written again, by another.  Read next: `lowering/pipeline.py`.

What asynchronous copies write counts as written where they begin, and again at each wait: a barrier
before the wait does not show it to other threads.  What is read of a ring (`Buffer.slots`) was
shown to all by the wait and the barrier that each iteration begins with (`lowering/ring.py`), and
what is written after that barrier is another slot: reads of a ring need none of their own.  Writes
to it do: the first copies of a ring whose loop runs again.  What bulk copies fill needs no barrier:
gates say when it is there, and when it was read (`bulk.py`).  Warps would need a
second kind of barrier, for memory that only the lanes of one warp share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilewright.ir import expr as E
from tilewright.ir.bulk import Arrive, Await, BulkCopy, Expect, Fence, MakeGates
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    Allocate,
    AsyncCopy,
    Barrier,
    Buffer,
    Commit,
    Exchange,
    For,
    If,
    Join,
    Kernel,
    LoadRows,
    Mma,
    MmaBegin,
    MmaEnd,
    Rules,
    Seq,
    Show,
    Stmt,
    Store,
    Wait,
    While,
    load,
    seq,
    statements,
)


def insert_barriers(kernel: Kernel) -> Kernel:
    """A barrier wherever shared memory written by one thread may be read, or reused, by another.

    A stage's own accumulation (a load inside a store to the same buffer) stays within one thread; a
    block of one thread needs none.
    """
    if kernel.block == (1, 1, 1) or not any(
        isinstance(s, Allocate) and s.buffer.scope == "shared" for s in statements(kernel.body)
    ):
        return kernel
    copied = {s.to.buffer for s in statements(kernel.body) if isinstance(s, AsyncCopy)}
    return replace(kernel, body=_Sync(frozenset(copied)).run(kernel.body))


Accesses = tuple[frozenset[Buffer], frozenset[Buffer]]  # written and read since the last barrier
_CLEAN: Accesses = (frozenset(), frozenset())


class _Sync:
    def __init__(self, copied: frozenset[Buffer]) -> None:
        self._copied = copied  # into these copies are begun
        self._known: dict[int, tuple[Stmt, Accesses]] = {}  # by identity, the statement kept alive

    def run(self, body: Stmt) -> Stmt:
        return self._visit(body, _CLEAN)[0]

    def _of(self, stmt: Stmt) -> Accesses:
        found = self._known.get(id(stmt))
        if found is None:
            found = self._known[id(stmt)] = stmt, _accesses(stmt, self._copied)
        return found[1]

    def _visit(self, stmt: Stmt, state: Accesses) -> tuple[Stmt, Accesses]:
        return _SYNC[type(stmt)](self, stmt, state)

    def _barrier(self, stmt: Barrier, state: Accesses) -> tuple[Stmt, Accesses]:
        return stmt, _CLEAN

    def _wait(self, stmt: Wait, state: Accesses) -> tuple[Stmt, Accesses]:
        return stmt, (state[0] | self._copied, state[1])

    def _seq(self, stmt: Seq, state: Accesses) -> tuple[Stmt, Accesses]:
        parts = []
        for s in stmt.body:
            new, state = self._visit(s, state)
            parts.append(new)
        return seq(*parts), state

    def _allocate(self, stmt: Allocate, state: Accesses) -> tuple[Stmt, Accesses]:
        body, state = self._visit(stmt.body, state)
        return Allocate(stmt.buffer, body), state

    def _for(self, stmt: For, state: Accesses) -> tuple[Stmt, Accesses]:
        writes, reads = self._of(stmt)
        if not (writes and reads):
            return self._whole(stmt, state)
        conflict = _meet(state, (writes, reads))
        start = _CLEAN if conflict else state
        _, after = self._visit(stmt.body, start)  # what the next iteration meets
        body, after = self._visit(stmt.body, after)
        loop = replace(stmt, body=body)
        early = conflict and not starts_with_barrier(loop)
        union = start[0] | after[0], start[1] | after[1]
        return (seq(Barrier(), loop) if early else loop), union

    def _join(self, stmt: Join, state: Accesses) -> tuple[Stmt, Accesses]:
        """It is a barrier itself, and its body begins behind it."""
        body, state = self._visit(stmt.body, _CLEAN)
        return replace(stmt, body=body), state

    def _whole(self, stmt: Stmt, state: Accesses) -> tuple[Stmt, Accesses]:
        """A statement that gets a barrier before it or none."""
        writes, reads = self._of(stmt)
        if _meet(state, (writes, reads)):
            return seq(Barrier(), stmt), (writes, reads)
        return stmt, (state[0] | writes, state[1] | reads)


_SYNC: Rules[Callable[..., tuple[Stmt, Accesses]]] = Rules(
    "barriers",
    {
        Barrier: _Sync._barrier,
        Seq: _Sync._seq,
        Allocate: _Sync._allocate,
        For: _Sync._for,
        If: _Sync._whole,
        While: _Sync._whole,
        **dict.fromkeys(
            (Store, AsyncCopy, Commit, Mma, LoadRows, Exchange, Show, MmaBegin, MmaEnd),
            _Sync._whole,
        ),
        **dict.fromkeys((BulkCopy, MakeGates, Fence, Expect, Arrive, Await), _Sync._whole),
        Wait: _Sync._wait,
        Join: _Sync._join,
    },
)


def starts_with_barrier(stmt: Stmt) -> bool:
    """Whether a barrier is surely the first thing that happens, waits for copies aside, which touch
    nothing themselves: a loop may also run not at all."""
    if isinstance(stmt, Seq):
        first = next((s for s in stmt.body if not isinstance(s, Wait)), None)
        return first is not None and starts_with_barrier(first)
    if isinstance(stmt, For):
        runs = not isinstance(stmt.extent, Expr) and stmt.extent > 0
        return runs and starts_with_barrier(stmt.body)
    if isinstance(stmt, Allocate):
        return starts_with_barrier(stmt.body)
    return isinstance(stmt, Barrier)


def _accesses(stmt: Stmt, copied: frozenset[Buffer]) -> Accesses:
    """Shared buffers written and read anywhere under `stmt`, own accumulations aside.

    copied: what waits are for
    """
    writes: set[Buffer] = set()
    reads: set[Buffer] = set()
    for s in statements(stmt):
        own, roots = _TOUCHES[type(s)](s)
        if isinstance(s, Wait):
            writes |= copied
        if own is not None and own.scope == "shared":
            writes.add(own)
        at = s.index if isinstance(s, Store) else None
        loads = (n for n in E.walk(*roots) if n.op == "load" and n.attr.scope == "shared")
        reads |= {n.attr for n in loads if n.attr is not own or n.args[0] is not at}
    return frozenset(writes), frozenset(reads)


def _meet(earlier: Accesses, later: Accesses) -> bool:
    """Whether a barrier must lie between two pieces of a kernel."""
    shown = any(b.slots == 1 for b in later[1] & earlier[0])
    return shown or bool(later[0] & earlier[1])


# what a statement itself stores to, and the expressions it evaluates
_TOUCHES: Rules[Callable[[Any], tuple[Buffer | None, tuple[Expr, ...]]]] = Rules(
    "barriers",
    {
        Store: lambda s: (s.buffer, (s.index, s.value)),
        **dict.fromkeys((If, While), lambda s: (None, (s.condition,))),
        AsyncCopy: lambda s: (s.to.buffer, (s.to.index, s.source.index, s.condition)),
        Join: lambda s: (None, (s.index,)),
        Mma: lambda s: (
            s.sum.buffer,
            (s.sum.index, *(load(r.buffer, r.index) for r in (s.a, s.b))),
        ),
        **dict.fromkeys((MmaBegin, MmaEnd), lambda s: (None, (s.sum.index,))),
        LoadRows: lambda s: (s.to.buffer, (s.to.index, load(s.source.buffer, s.source.index))),
        Exchange: lambda s: (s.to.buffer, (s.to.index, s.source.index)),
        **dict.fromkeys((For, Seq, Allocate, Barrier, Commit, Wait, Show), lambda s: (None, ())),
        **dict.fromkeys((BulkCopy, MakeGates, Fence, Expect, Arrive), lambda s: (None, ())),
        Await: lambda s: (None, (s.parity,)),
    },
)
