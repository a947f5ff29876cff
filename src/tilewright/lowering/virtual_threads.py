"""Virtual threads.

In: kernels from `nest.py`.  Out: kernels without vthread loops.  Read next: `ir/barriers.py` (which
barriers shared memory needs), `loops.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilewright.base.errors import InternalError
from tilewright.ir import expr as E
from tilewright.ir.bulk import GATED
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
    Region,
    Rules,
    Seq,
    Show,
    Stmt,
    Store,
    Wait,
    While,
    children,
    expressions,
    load,
    map_children,
    map_regions,
    read_buffers,
    read_regions,
    statements,
    written_buffers,
    written_regions,
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

    def _spread_if(self, stmt: If | While, inside: bool) -> bool:
        return self._spread_parts(stmt, inside or self._depends(stmt.condition))

    def _spread_store(self, stmt: Store, inside: bool) -> bool:
        differs = inside or self._depends(stmt.index) or self._depends(stmt.value)
        return differs and self._replicate(stmt.buffer)

    def _spread_regions(self, stmt: AsyncCopy | Mma | LoadRows | Exchange, inside: bool) -> bool:
        differs = inside or any(self._depends(e) for e in expressions(stmt))
        differs = differs or any(r.buffer in self.replicated for r in read_regions(stmt))
        return differs and any([self._replicate(r.buffer) for r in written_regions(stmt)])

    def _replicate(self, b: Buffer) -> bool:
        """Whether that was news."""
        extent = self.loop.extent
        if b not in self.allocated or b.scope != "local" or b in self.replicated:
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

    def _visit_if(self, stmt: If | While) -> Stmt:
        return self._visit_leaf(stmt) if self._depends(stmt.condition) else self._visit_parts(stmt)

    def _visit_leaf(self, stmt: Stmt) -> Stmt:
        """What is repeated for every virtual thread, if it differs between them."""
        if not self._touches(stmt):
            return stmt
        fresh = E.var(str(self.var.attr))
        return For(fresh, self.loop.extent, self._copy(stmt, fresh), "unrolled")

    def _visit_once(self, stmt: Stmt) -> Stmt:
        """What the threads of a block do together."""
        if self._touches(stmt):
            raise InternalError("virtual threads", f"{self.var} has a part in {stmt}")
        return stmt

    def _touches(self, stmt: Stmt) -> bool:
        if any(self._depends(e) for e in expressions(stmt)):
            return True
        return any(b in self.replicated for b in written_buffers(stmt) | read_buffers(stmt))

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
            return map_regions(map_children(s, on_stmt, on_expr), on_region)

        def on_region(region: Region) -> Region:
            buffer = region.buffer
            if buffer not in self.replicated:
                return region
            return Region(self.replicated[buffer], region.index + v * buffer.size, region.count)

        return on_stmt(stmt)


_SPREAD: Rules[Callable[..., bool]] = Rules(
    "virtual threads",
    {
        Store: _VirtualThread._spread_store,
        **dict.fromkeys((AsyncCopy, Mma, LoadRows, Exchange), _VirtualThread._spread_regions),
        **dict.fromkeys((If, While), _VirtualThread._spread_if),
        **dict.fromkeys(
            (For, Seq, Allocate, Barrier, Commit, Wait, Show, MmaBegin, MmaEnd, Join),
            _VirtualThread._spread_parts,
        ),
        **dict.fromkeys(GATED, _VirtualThread._spread_parts),
    },
)
_VISIT: Rules[Callable[..., Stmt]] = Rules(
    "virtual threads",
    {
        **dict.fromkeys(
            (Store, AsyncCopy, Mma, LoadRows, Exchange, MmaBegin, MmaEnd),
            _VirtualThread._visit_leaf,
        ),
        **dict.fromkeys((If, While), _VirtualThread._visit_if),
        Allocate: _VirtualThread._visit_allocate,
        **dict.fromkeys((For, Seq, Barrier, Commit, Wait, Show, Join), _VirtualThread._visit_parts),
        **dict.fromkeys(GATED, _VirtualThread._visit_once),
    },
)
