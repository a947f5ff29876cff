"""Steady arguments are asked for before what must wait for another kernel, if threads load them to
registers.

In: a program of a chain.  Out: the same, with prefetches in front: of what each thread will load
first.  The loads themselves cannot come first: the assembler puts them behind the wait again; but
the memory need not stand still until then.  Read next: `steady_first.py`, which moves copies to
shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    Allocate,
    Buffer,
    For,
    If,
    Kernel,
    Prefetch,
    Program,
    Region,
    Seq,
    Stmt,
    Store,
    read_buffers,
    seq,
)
from tilewright.lowering.overhang import fresh_loops

MOST = 16  # accesses of a thread: of all that run together, about what a device has under way
LEAST_BYTES = 8  # of an access: smaller ones are not what a kernel waits for


def asked_first(program: Program) -> Program:
    """`program` with such prefetches; without `Program.steady` it stays as it is."""
    if program.steady is None:
        return program
    kernels = (_Kernel(k, program.steady).asking() for k in program.kernels)
    return replace(program, kernels=tuple(kernels))


@dataclass(frozen=True)
class _Kernel:
    kernel: Kernel
    steady: frozenset[Buffer]

    def asking(self) -> Kernel:
        """The kernel itself where it waits for nothing, or asks for nothing of the kind."""
        body = self.kernel.body
        if not (set(self.kernel.params) - self.steady) & read_buffers(body):
            return self.kernel
        asked, count = self._asked(body, MOST)
        if asked is None or not count:
            return self.kernel
        return replace(self.kernel, body=seq(fresh_loops(asked, {}), body))

    def _asked(self, stmt: Stmt, most: int) -> tuple[Stmt | None, int]:
        """The first accesses of `stmt` as prefetches, and how many: `most`, or all of them."""
        if isinstance(stmt, Store):
            return self._accesses(stmt, most)
        if isinstance(stmt, Seq):
            found: list[Stmt] = []
            left = most
            for s in stmt.body:
                asked, count = self._asked(s, left)
                found += [asked] if asked is not None else []
                left -= count
            return (seq(*found), most - left) if found else (None, 0)
        if isinstance(stmt, Allocate):
            return self._asked(stmt.body, most)
        if isinstance(stmt, For) and isinstance(stmt.extent, int) and stmt.extent > 0:
            asked, count = self._asked(stmt.body, most)
            if asked is None:
                return None, 0
            extent = min(stmt.extent, most // count)
            return replace(stmt, extent=extent, body=asked), extent * count
        if isinstance(stmt, If) and stmt.orelse is None and not _reads(stmt.condition):
            asked, count = self._asked(stmt.then, most)
            return (None, 0) if asked is None else (replace(stmt, then=asked), count)
        return None, 0

    def _accesses(self, stmt: Store, most: int) -> tuple[Stmt | None, int]:
        """Vectors that go to registers."""
        if stmt.buffer.scope != "local":
            return None, 0
        loads = dict.fromkeys(n for n in E.walk(stmt.value) if n.op == "load" and self._counts(n))
        first = list(loads)[: max(most, 0)]
        asked = [Prefetch(Region(n.attr, n.args[0].args[0], n.lanes)) for n in first]
        return (seq(*asked), len(asked)) if asked else (None, 0)

    def _counts(self, node: Expr) -> bool:
        index = node.args[0]
        together = index.op == "ramp" and index.args[1].op == "const" and index.args[1].attr == 1
        large = node.lanes * node.dtype.bytes >= LEAST_BYTES
        return node.attr in self.steady and large and together and not _reads(index)


def _reads(node: Expr) -> bool:
    return any(n.op == "load" for n in E.walk(node))
