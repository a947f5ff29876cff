"""Reads of what other kernels wrote, before writes behind which compilers would have to leave them.

In: a program of a chain.  Out: the same, where a nest that is written out, such as the end of a
product, first reads all that it takes of arguments which others write (a residual), and stores
after that.  In a kernel that waits for another one these are known only behind the wait, so that
they may be what is stored, for all that compilers know: each would be read behind the store before
it, the memory's latency apart.  Read next: `waiting.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.renaming import fresh_loops
from tilewright.ir.stmt import (
    Allocate,
    Buffer,
    For,
    If,
    Kernel,
    Program,
    Seq,
    Stmt,
    Store,
    load,
    map_children,
    seq,
    statements,
    written_buffers,
)

MOST = 128  # bytes that a thread holds: 32 registers
_CHOICES = ("if_then_else", "and", "or")  # of which the first operand decides what is evaluated
_PARTS = (For, If, Seq, Store, Allocate)  # what such a nest consists of


def reads_first(program: Program) -> Program:
    """`program` with such reads first; without `Program.steady` it stays as it is."""
    if program.steady is None:
        return program
    steady = program.steady
    return replace(program, kernels=tuple(_arranged(k, steady) for k in program.kernels))


def _arranged(kernel: Kernel, steady: frozenset[Buffer]) -> Kernel:
    written = written_buffers(kernel.body)
    others = {p for p in kernel.params if p not in steady and p not in written}
    stored = written & set(kernel.params)

    def visit(stmt: Stmt) -> Stmt:
        if written_buffers(stmt).isdisjoint(stored):
            return stmt
        if is_nest(stmt):
            return Nest(others).arranged(stmt)
        return map_children(stmt, visit, lambda e: e)

    return replace(kernel, body=visit(kernel.body)) if others else kernel


def is_nest(stmt: Stmt) -> bool:
    """Whether all of it is written out."""
    return all(isinstance(s, _PARTS) and _is_written_out(s) for s in statements(stmt))


def _is_written_out(stmt: Stmt) -> bool:
    return not isinstance(stmt, For) or (stmt.kind == "unrolled" and isinstance(stmt.extent, int))


@dataclass
class Nest:
    """One nest.  others: what may be read first; held: where it is kept"""

    others: set[Buffer]
    held: list[Buffer] = field(default_factory=list)
    loads: int = 0  # that a thread makes

    def arranged(self, stmt: Stmt) -> Stmt:
        first, then = self.parts(stmt, ())
        size = sum(b.size * b.dtype.bytes for b in self.held)
        if first is None or self.loads < 2 or size > MOST:
            return stmt
        body = seq(fresh_loops(first, {}), then)
        for buffer in self.held:
            body = Allocate(buffer, body)
        return body

    def parts(self, stmt: Stmt, loops: tuple[For, ...]) -> tuple[Stmt | None, Stmt]:
        """What is read first, and the rest."""
        if isinstance(stmt, For):
            first, body = self.parts(stmt.body, (*loops, stmt))
            return _with(first, lambda s: replace(stmt, body=s)), replace(stmt, body=body)
        if isinstance(stmt, If) and stmt.orelse is None and not _reads(stmt.condition):
            first, body = self.parts(stmt.then, loops)
            return _with(first, lambda s: replace(stmt, then=s)), replace(stmt, then=body)
        if isinstance(stmt, If) and stmt.orelse is None and not _reads(stmt.condition, "global"):
            return None, replace(stmt, then=Nest(self.others).arranged(stmt.then))
        if isinstance(stmt, Allocate):
            first, body = self.parts(stmt.body, loops)
            return first, replace(stmt, body=body)
        if isinstance(stmt, Seq):
            parts = [self.parts(s, loops) for s in stmt.body]
            firsts = [first for first, _ in parts if first is not None]
            return (seq(*firsts) if firsts else None), seq(*(rest for _, rest in parts))
        if isinstance(stmt, Store):
            return self._store(stmt, loops)
        return None, stmt

    def _store(self, stmt: Store, loops: Sequence[For]) -> tuple[Stmt | None, Stmt]:
        taken = [
            n for n in _certain(stmt.value)
            if n.op == "load" and n.attr in self.others and not _reads(n.args[0])
        ]  # fmt: skip
        if not taken:
            return None, stmt
        at: Expr = E.const(0)
        turns = 1
        for loop in loops:
            at = at * loop.extent + loop.var
            turns *= loop.extent
        firsts, values = [], {}
        for n in taken:
            name = f"{n.attr.name}_first"
            own = Buffer(name, n.attr.dtype, turns * n.lanes, "local")
            place = E.ramp(at * n.lanes, 1, n.lanes)
            firsts.append(Store(own, place, n))
            values[n] = load(own, place)
            self.held.append(own)
            self.loads += turns
        return seq(*firsts), replace(stmt, value=E.substitute(stmt.value, values))


def _certain(value: Expr) -> list[Expr]:
    """The nodes that are evaluated in any case, not only where a choice falls on them."""
    found: dict[Expr, None] = {}
    todo = [value]
    while todo:
        node = todo.pop()
        if node not in found:
            found[node] = None
            todo += reversed(node.args[:1] if node.op in _CHOICES else node.args)
    return list(found)


def _with(first: Stmt | None, around: Callable[[Stmt], Stmt]) -> Stmt | None:
    return None if first is None else around(first)


def _reads(node: Expr, scope: str | None = None) -> bool:
    return any(n.op == "load" and scope in (None, n.attr.scope) for n in E.walk(node))
