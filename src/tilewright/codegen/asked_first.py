"""Steady arguments are asked for before what must wait for another kernel, where they pass once.

In: a program of a chain.  Out: the same, with prefetches in front: of what each thread will copy
behind its wait, to registers or to shared memory, of weights that no two threads read.  Copies to
registers cannot come first themselves, the assembler puts them behind the wait again; but the
memory need not stand still until then.  So it is with what else goes to shared memory and a few
blocks share, such as a cache of which the kernel before writes one row: who asks for a line does
not read it, nor does who asks for more than a condition will let it copy, if that reads what the
kernel before may write.  What a ring has no slot for yet is left alone: asked for so soon, it takes
memory's time from kernels before (2.5 us of a decoder's layer of 36).
Read next: `steady_first.py`, which moves copies to shared memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.loops import loop_ranges
from tilewright.ir.renaming import fresh_loops
from tilewright.ir.stmt import (
    Allocate,
    AsyncCopy,
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
    Wait,
    children,
    read_buffers,
    seq,
    statements,
    written_buffers,
)

MOST = 16  # accesses of a thread: of all that run together, about what a device has under way
LEAST_BYTES = 8  # of an access: smaller ones are not what a kernel waits for
OFTEN = 1.5  # times that the bytes of a buffer are read in all, where most pass once
SHARED = 8  # times that those of another buffer are, where few blocks copy the same

Asked = tuple[Stmt | None, int]  # prefetches, and how many a thread makes


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
        """The kernel itself where it waits for nothing, or nothing passes once."""
        behind = self._behind(self.kernel.body)
        if not all(isinstance(t.extent, int) for t in self.kernel.threads):
            return self.kernel
        read = Counter[Buffer]()
        for s in behind:
            self._count(s, float(prod(t.extent for t in self.kernel.threads)), {}, read)
        once = {
            b for b, nbytes in read.items()
            if isinstance(b.size, int)
            if nbytes <= (OFTEN if b in self.steady else SHARED) * b.size * b.dtype.bytes
        }  # fmt: skip
        asked, _ = self._all(behind, MOST, once)
        if asked is None:
            return self.kernel
        return replace(self.kernel, body=self._with(self.kernel.body, fresh_loops(asked, {})))

    def _behind(self, stmt: Stmt) -> list[Stmt]:
        """What comes from the first access to other arguments on."""
        if not self._touches(stmt):
            return []
        if isinstance(stmt, Allocate):
            return self._behind(stmt.body)
        if isinstance(stmt, Seq):
            at = next(k for k, s in enumerate(stmt.body) if self._touches(s))
            return [*self._behind(stmt.body[at]), *stmt.body[at + 1 :]]
        return [stmt]

    def _with(self, stmt: Stmt, asked: Stmt) -> Stmt:
        """`asked` right before the first access to other arguments: copies come before it."""
        if isinstance(stmt, Allocate):
            return replace(stmt, body=self._with(stmt.body, asked))
        if isinstance(stmt, Seq):
            at = next(k for k, s in enumerate(stmt.body) if self._touches(s))
            return seq(*stmt.body[:at], self._with(stmt.body[at], asked), *stmt.body[at + 1 :])
        return seq(asked, stmt)

    def _touches(self, stmt: Stmt) -> bool:
        others = set(self.kernel.params) - self.steady
        return not others.isdisjoint(read_buffers(stmt) | written_buffers(stmt))

    def _count(
        self, stmt: Stmt, times: float, loops: dict[Expr, int], read: Counter[Buffer]
    ) -> None:
        """Bytes that all threads together copy of each buffer.

        times: how often they come here; loops: around the statement, and their extents
        """
        for region in self._copied(stmt):
            read[region.buffer] += round(times * region.count * region.buffer.dtype.bytes)
        if isinstance(stmt, For) and isinstance(stmt.extent, int):
            times, loops = times * stmt.extent, {**loops, stmt.var: stmt.extent}
        if isinstance(stmt, If):
            times *= _share(stmt.condition, loops)
        for child in children(stmt):
            self._count(child, times, loops, read)

    def _copied(self, stmt: Stmt) -> list[Region]:
        """What a copy takes of steady arguments, or brings to shared memory, in accesses that are
        worth it."""
        if isinstance(stmt, AsyncCopy):
            own = stmt.source.buffer in self.kernel.params
            return [stmt.source] if own and self._is_worth(stmt.source) else []
        found: list[Region] = []
        if isinstance(stmt, Store) and stmt.buffer.scope == "local":
            loads = dict.fromkeys(n for n in E.walk(stmt.value) if n.op == "load")
            vectors = [n for n in loads if _together(n.args[0])]
            found = [Region(n.attr, n.args[0].args[0], n.lanes) for n in vectors]
        return [r for r in found if r.buffer in self.steady and self._is_worth(r)]

    def _is_worth(self, region: Region) -> bool:
        large = region.count * region.buffer.dtype.bytes >= LEAST_BYTES
        return large and not _reads(region.index)

    # -- the first accesses of a statement, `most` of a thread at most -----------------------------
    def _asked(self, stmt: Stmt, most: int, once: set[Buffer]) -> Asked:
        if isinstance(stmt, (Store, AsyncCopy)):
            first = [r for r in self._copied(stmt) if r.buffer in once][:most]
            asked: Stmt | None = seq(*map(Prefetch, first)) if first else None
            if asked is not None and isinstance(stmt, AsyncCopy) and stmt.condition.op != "const":
                asked = If(stmt.condition, asked)
            return asked, len(first)
        if isinstance(stmt, Seq):
            return self._all(stmt.body, most, once)
        if isinstance(stmt, Allocate):
            return self._asked(stmt.body, most, once)
        if isinstance(stmt, For) and isinstance(stmt.extent, int) and most > 0:
            if any(isinstance(s, Wait) for s in statements(stmt.body)):  # of a ring
                return None, 0
            asked, count = self._asked(stmt.body, most, once)
            extent = min(stmt.extent, most // count) if count else 0
            if asked is None or extent < 1:
                return None, 0
            return replace(stmt, extent=extent, body=asked), extent * count
        if isinstance(stmt, If) and stmt.orelse is None and not _reads(stmt.condition):
            asked, count = self._asked(stmt.then, most, once)
            return (None, 0) if asked is None else (replace(stmt, then=asked), count)
        if isinstance(stmt, If) and isinstance(stmt.then, AsyncCopy):
            # What the condition reads may be written by another kernel: all is asked for.
            asked, count = self._asked(stmt.then, most, once)
            return (asked, count) if asked and self._is_inside(asked) else (None, 0)
        return None, 0

    def _is_inside(self, asked: Stmt) -> bool:
        """Whether it asks for no more than what there is, whatever a condition says."""
        simple = Simplifier(loop_ranges(self.kernel))
        regions = [s.source for s in statements(asked) if isinstance(s, Prefetch)]
        ends = [(*simple.interval(r.index), r) for r in regions]
        return all(least >= 0 and most + r.count <= r.buffer.size for least, most, r in ends)

    def _all(self, stmts: tuple[Stmt, ...] | list[Stmt], most: int, once: set[Buffer]) -> Asked:
        found: list[Stmt] = []
        left = most
        for s in stmts:
            asked, count = self._asked(s, left, once)
            found += [asked] if asked is not None else []
            left -= count
        return (seq(*found), most - left) if found else (None, 0)


def _together(index: Expr) -> bool:
    return index.op == "ramp" and index.args[1].op == "const" and index.args[1].attr == 1


def _share(condition: Expr, loops: Mapping[Expr, int]) -> float:
    """Of the iterations of a loop, those that go on, where the loop alone says: the last of a ring
    copy nothing."""
    free = E.free_variables(condition)
    if len(free) != 1 or not free <= loops.keys():
        return 1.0
    (var,) = free
    held = (E.substitute(condition, {var: k}) for k in range(loops[var]))
    return sum(one.op != "const" or bool(one.attr) for one in held) / loops[var]


def _reads(node: Expr) -> bool:
    return any(n.op == "load" for n in E.walk(node))
