"""Virtual threads and barriers.

In: kernels from `nest.py`.  Out: kernels without vthread loops, with every barrier that shared
memory needs.  Read next: `loops.py`.

Copies that run beside the threads (asynchronous ones) would be waited for here: what they write
counts as written at the wait, which stands where a barrier would.  Warps would need a second kind
of barrier, for memory that only the lanes of one warp share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    Allocate,
    Barrier,
    Buffer,
    For,
    If,
    Kernel,
    Rules,
    Seq,
    Stmt,
    Store,
    children,
    expressions,
    load,
    map_children,
    seq,
    statements,
    written_buffers,
)


def inject_virtual_threads(kernel: Kernel) -> Kernel:
    """Virtual threads advance in lockstep: their loop sinks to the statements that depend on it.

    rewrite:  vthread v: {S; for i: {T; L[i] = f(v)}}   ->   S; for i: {T; for v: L[v, i] = f(v)}
    What does not depend on v runs once; a local buffer that does gets one copy per v.
    """
    body = _sink(kernel.body)
    return kernel if body is kernel.body else replace(kernel, body=body)


def _sink(stmt: Stmt) -> Stmt:
    stmt = map_children(stmt, _sink)
    if isinstance(stmt, For) and stmt.kind == "vthread":
        return _VirtualThread(stmt).run()
    return stmt


class _VirtualThread:
    def __init__(self, loop: For) -> None:
        self.loop, self.var = loop, loop.var
        self.allocated = {s.buffer for s in statements(loop.body) if isinstance(s, Allocate)}
        self.replicated: dict[Buffer, Buffer] = {}
        changed = True
        while changed:
            changed = self._spread(loop.body, False)

    def _spread(self, stmt: Stmt, inside: bool) -> bool:
        """Find local buffers whose contents depend on the virtual thread; True if one was new."""
        return _SPREAD[type(stmt)](self, stmt, inside)

    def _spread_parts(self, stmt: Stmt, inside: bool) -> bool:
        return any([self._spread(part, inside) for part in children(stmt)])

    def _spread_if(self, stmt: If, inside: bool) -> bool:
        return self._spread_parts(stmt, inside or self._depends(stmt.condition))

    def _spread_store(self, stmt: Store, inside: bool) -> bool:
        b, extent = stmt.buffer, self.loop.extent
        if b not in self.allocated or b.scope != "local" or b in self.replicated:
            return False
        if not (inside or self._depends(stmt.index) or self._depends(stmt.value)):
            return False
        shape = (extent, *b.shape)
        self.replicated[b] = Buffer(b.name, b.dtype, b.size * extent, b.scope, shape)
        return True

    def _depends(self, node: Expr) -> bool:
        return any(
            n is self.var or (n.op == "load" and n.attr in self.replicated) for n in E.walk(node)
        )

    def run(self) -> Stmt:
        return self._visit(self.loop.body)

    def _visit(self, stmt: Stmt) -> Stmt:
        return _VISIT[type(stmt)](self, stmt)

    def _visit_parts(self, stmt: Stmt) -> Stmt:
        return map_children(stmt, self._visit)

    def _visit_allocate(self, stmt: Allocate) -> Stmt:
        return Allocate(self.replicated.get(stmt.buffer, stmt.buffer), self._visit(stmt.body))

    def _visit_if(self, stmt: If) -> Stmt:
        return self._visit_leaf(stmt) if self._depends(stmt.condition) else self._visit_parts(stmt)

    def _visit_leaf(self, stmt: Stmt) -> Stmt:
        """What is repeated for every virtual thread, if it differs between them."""
        if not self._touches(stmt):
            return stmt
        fresh = E.var(str(self.var.attr))
        return For(fresh, self.loop.extent, self._copy(stmt, fresh), "unrolled")

    def _touches(self, stmt: Stmt) -> bool:
        if any(self._depends(e) for e in expressions(stmt)):
            return True
        return any(b in self.replicated for b in written_buffers(stmt))

    def _copy(self, stmt: Stmt, v: Expr) -> Stmt:
        """`stmt` for virtual thread v, on v's copies of replicated buffers."""

        def on_expr(e: Expr) -> Expr:
            def rule(n: Expr) -> Expr | None:
                if n.op == "load" and n.attr in self.replicated:
                    return load(self.replicated[n.attr], n.args[0] + v * n.attr.size)
                return v if n is self.var else None

            return E.transform(e, rule)

        def on_stmt(s: Stmt) -> Stmt:
            if isinstance(s, Store) and s.buffer in self.replicated:
                index = on_expr(s.index) + v * s.buffer.size
                return Store(self.replicated[s.buffer], index, on_expr(s.value))
            if isinstance(s, Allocate) and s.buffer in self.replicated:
                return Allocate(self.replicated[s.buffer], on_stmt(s.body))
            return map_children(s, on_stmt, on_expr)

        return on_stmt(stmt)


_SPREAD: Rules[Callable[..., bool]] = Rules(
    "virtual threads",
    {
        Store: _VirtualThread._spread_store,
        If: _VirtualThread._spread_if,
        **dict.fromkeys((For, Seq, Allocate, Barrier), _VirtualThread._spread_parts),
    },
)
_VISIT: Rules[Callable[..., Stmt]] = Rules(
    "virtual threads",
    {
        Store: _VirtualThread._visit_leaf,
        If: _VirtualThread._visit_if,
        Allocate: _VirtualThread._visit_allocate,
        **dict.fromkeys((For, Seq, Barrier), _VirtualThread._visit_parts),
    },
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
    return replace(kernel, body=_Sync().run(kernel.body))


State = tuple[frozenset[Buffer], frozenset[Buffer]]  # written and read since the last barrier
_CLEAN: State = (frozenset(), frozenset())


class _Sync:
    def __init__(self) -> None:
        self._known: dict[int, tuple[Stmt, State]] = {}  # by identity, the statement kept alive

    def run(self, body: Stmt) -> Stmt:
        return self._visit(body, _CLEAN)[0]

    def _of(self, stmt: Stmt) -> State:
        found = self._known.get(id(stmt))
        if found is None:
            found = self._known[id(stmt)] = stmt, _accesses(stmt)
        return found[1]

    def _visit(self, stmt: Stmt, state: State) -> tuple[Stmt, State]:
        return _SYNC[type(stmt)](self, stmt, state)

    def _barrier(self, stmt: Barrier, state: State) -> tuple[Stmt, State]:
        return stmt, _CLEAN

    def _seq(self, stmt: Seq, state: State) -> tuple[Stmt, State]:
        parts = []
        for s in stmt.body:
            new, state = self._visit(s, state)
            parts.append(new)
        return seq(*parts), state

    def _allocate(self, stmt: Allocate, state: State) -> tuple[Stmt, State]:
        body, state = self._visit(stmt.body, state)
        return Allocate(stmt.buffer, body), state

    def _for(self, stmt: For, state: State) -> tuple[Stmt, State]:
        writes, reads = self._of(stmt)
        if not (writes and reads):
            return self._whole(stmt, state)
        conflict = bool(reads & state[0] or writes & state[1])
        start = _CLEAN if conflict else state
        _, after = self._visit(stmt.body, start)  # what the next iteration meets
        body, after = self._visit(stmt.body, after)
        loop = replace(stmt, body=body)
        early = conflict and not _starts_with_barrier(body)
        union = start[0] | after[0], start[1] | after[1]
        return (seq(Barrier(), loop) if early else loop), union

    def _whole(self, stmt: Stmt, state: State) -> tuple[Stmt, State]:
        """A statement that gets a barrier before it or none."""
        writes, reads = self._of(stmt)
        if reads & state[0] or writes & state[1]:
            return seq(Barrier(), stmt), (writes, reads)
        return stmt, (state[0] | writes, state[1] | reads)


_SYNC: Rules[Callable[..., tuple[Stmt, State]]] = Rules(
    "barriers",
    {
        Barrier: _Sync._barrier,
        Seq: _Sync._seq,
        Allocate: _Sync._allocate,
        For: _Sync._for,
        If: _Sync._whole,
        Store: _Sync._whole,
    },
)


def _starts_with_barrier(stmt: Stmt) -> bool:
    if isinstance(stmt, Seq):
        return bool(stmt.body) and _starts_with_barrier(stmt.body[0])
    if isinstance(stmt, (For, Allocate)):
        return _starts_with_barrier(stmt.body)
    return isinstance(stmt, Barrier)


def _accesses(stmt: Stmt) -> State:
    """Shared buffers written and read anywhere under `stmt`, own accumulations aside."""
    writes: set[Buffer] = set()
    reads: set[Buffer] = set()
    for s in statements(stmt):
        own, roots = _TOUCHES[type(s)](s)
        if own is not None and own.scope == "shared":
            writes.add(own)
        loads = (n.attr for n in E.walk(*roots) if n.op == "load")
        reads |= {b for b in loads if b.scope == "shared" and b is not own}
    return frozenset(writes), frozenset(reads)


# what a statement itself stores to, and the expressions it evaluates
_TOUCHES: Rules[Callable[[Any], tuple[Buffer | None, tuple[Expr, ...]]]] = Rules(
    "barriers",
    {
        Store: lambda s: (s.buffer, (s.index, s.value)),
        If: lambda s: (None, (s.condition,)),
        **dict.fromkeys((For, Seq, Allocate, Barrier), lambda s: (None, ())),
    },
)
