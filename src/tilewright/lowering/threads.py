"""Virtual threads and barriers.

In: kernels from `nest.py`.  Out: kernels without vthread loops, with every barrier that shared
memory needs.  Read next: `loops.py`.

Copies that run beside the threads (asynchronous ones) would be waited for here: what they write
counts as written at the wait, which stands where a barrier would.  Warps would need a second kind
of barrier, for memory that only the lanes of one warp share.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    Allocate,
    Barrier,
    Buffer,
    For,
    If,
    Kernel,
    Seq,
    Stmt,
    Store,
    expressions,
    load,
    map_children,
    seq,
    statements,
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
        changed = False
        if isinstance(stmt, If):
            inside = inside or self._depends(stmt.condition)
            parts = [stmt.then] + ([stmt.orelse] if stmt.orelse is not None else [])
        elif isinstance(stmt, Seq):
            parts = list(stmt.body)
        elif isinstance(stmt, (For, Allocate)):
            parts = [stmt.body]
        else:
            parts = []
        for part in parts:
            changed |= self._spread(part, inside)
        if (
            isinstance(stmt, Store)
            and stmt.buffer in self.allocated
            and stmt.buffer.scope == "local"
        ):
            new = stmt.buffer not in self.replicated
            if new and (inside or self._depends(stmt.index) or self._depends(stmt.value)):
                b = stmt.buffer
                self.replicated[b] = Buffer(
                    b.name,
                    b.dtype,
                    b.size * self.loop.extent,
                    b.scope,
                    (self.loop.extent, *b.shape),
                )
                changed = True
        return changed

    def _depends(self, node: Expr) -> bool:
        return any(
            n is self.var or (n.op == "load" and n.attr in self.replicated) for n in E.walk(node)
        )

    def run(self) -> Stmt:
        return self._visit(self.loop.body)

    def _visit(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Seq):
            return seq(*map(self._visit, stmt.body))
        if isinstance(stmt, For):
            return replace(stmt, body=self._visit(stmt.body))
        if isinstance(stmt, Allocate):
            return Allocate(self.replicated.get(stmt.buffer, stmt.buffer), self._visit(stmt.body))
        if isinstance(stmt, If) and not self._depends(stmt.condition):
            orelse = self._visit(stmt.orelse) if stmt.orelse is not None else None
            return If(stmt.condition, self._visit(stmt.then), orelse)
        if isinstance(stmt, Barrier) or not self._touches(stmt):
            return stmt
        fresh = E.var(str(self.var.attr))
        return For(fresh, self.loop.extent, self._copy(stmt, fresh), "unrolled")

    def _touches(self, stmt: Stmt) -> bool:
        if any(self._depends(e) for e in expressions(stmt)):
            return True
        return any(isinstance(s, Store) and s.buffer in self.replicated for s in statements(stmt))

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
            return map_children(s, on_stmt, on_expr)

        return on_stmt(stmt)


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
        if isinstance(stmt, Barrier):
            return stmt, _CLEAN
        if isinstance(stmt, Seq):
            parts = []
            for s in stmt.body:
                new, state = self._visit(s, state)
                parts.append(new)
            return seq(*parts), state
        if isinstance(stmt, Allocate):
            body, state = self._visit(stmt.body, state)
            return Allocate(stmt.buffer, body), state
        writes, reads = self._of(stmt)
        if isinstance(stmt, For) and writes and reads:
            conflict = bool(reads & state[0] or writes & state[1])
            start = _CLEAN if conflict else state
            _, after = self._visit(stmt.body, start)  # what the next iteration meets
            body, after = self._visit(stmt.body, after)
            loop = replace(stmt, body=body)
            early = conflict and not _starts_with_barrier(body)
            return (seq(Barrier(), loop) if early else loop), (
                start[0] | after[0],
                start[1] | after[1],
            )
        if reads & state[0] or writes & state[1]:
            return seq(Barrier(), stmt), (writes, reads)
        return stmt, (state[0] | writes, state[1] | reads)


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
        roots: tuple[Expr, ...] = ()
        own = None
        if isinstance(s, Store):
            roots, own = (s.index, s.value), s.buffer
            if s.buffer.scope == "shared":
                writes.add(s.buffer)
        elif isinstance(s, If):
            roots = (s.condition,)
        reads |= {
            n.attr
            for n in E.walk(*roots)
            if n.op == "load" and n.attr.scope == "shared" and n.attr is not own
        }
    return frozenset(writes), frozenset(reads)
