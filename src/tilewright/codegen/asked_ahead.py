"""Weights that pass once are asked for some way ahead, where processors would not by themselves.

In: a kernel of a CPU.  Out: the same, with prefetches in the loops that read packed constants once:
each iteration asks for what one reads that comes some way behind it.  What a core has under way is
what its window holds, and instructions that unpack weights leave little room there for loads.
Beyond the end of a buffer nothing is read, and asking is no access.
Read next: `llvm.py`, which prints them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from math import prod

from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.loops import loop_ranges
from tilewright.ir.stmt import (
    Buffer,
    For,
    If,
    Kernel,
    Prefetch,
    Region,
    Stmt,
    Store,
    children,
    map_children,
    seq,
)

DISTANCE = 8192  # bytes: some microseconds of what one core reads from memory
LINE = 64  # bytes that come at once
MOST = 16  # lines that an iteration asks for: more at a time wait for each other
LEAST = 1 << 20  # bytes of a constant; smaller ones stay in caches
OFTEN = 1.5  # times that its elements are read, where most are once


def asked_ahead(kernel: Kernel) -> Kernel:
    """`kernel` with such prefetches; where nothing large passes once it stays as it is."""
    large = {b for b in kernel.params if _is_large(b)}
    if not large:
        return kernel
    found = _Blocks(Simplifier(loop_ranges(kernel)), large)
    read = found.read(kernel.body, ())
    once = {b for b in large if read[b] <= OFTEN * b.size}
    return replace(kernel, body=found.asking(kernel.body, once)) if once else kernel


def _is_large(buffer: Buffer) -> bool:
    known = buffer.packing is not None and isinstance(buffer.size, int)
    return known and buffer.size * buffer.dtype.bytes >= LEAST


class _Blocks:
    """What iterations read of `large` buffers.

    found: loop -> buffers of which each iteration reads neighbours, those behind what the one
           before reads: where these begin, how many they are
    """

    def __init__(self, simplify: Simplifier, large: Collection[Buffer]) -> None:
        self.simplify, self.large = simplify, large
        self.found: dict[Expr, dict[Buffer, tuple[Expr, int]]] = {}

    def read(self, stmt: Stmt, loops: tuple[For, ...]) -> Counter[Buffer]:
        """Count the elements that come from memory, by all iterations of the loops around."""
        if isinstance(stmt, Store):
            return self._stored(stmt, loops)
        if isinstance(stmt, If) and stmt.orelse is not None:  # one of them runs
            return self.read(stmt.then, loops) | self.read(stmt.orelse, loops)
        inside = (*loops, stmt) if isinstance(stmt, For) else loops
        return sum((self.read(child, inside) for child in children(stmt)), Counter[Buffer]())

    def _stored(self, stmt: Store, loops: tuple[For, ...]) -> Counter[Buffer]:
        total = Counter[Buffer]()
        for load in {n for n in E.walk(stmt.value) if n.op == "load" and n.attr in self.large}:
            first, lanes = load.args[0], load.lanes
            if first.op == "ramp" and first.args[1].op == "const" and first.args[1].attr == 1:
                first = first.args[0]
            if first.lanes > 1 or not all(isinstance(loop.extent, int) for loop in loops):
                total[load.attr] += 2 * load.attr.size  # anywhere, or nobody knows how often
            else:
                total[load.attr] = max(total[load.attr], self._block(load, first, lanes, loops))
        return total

    def _block(self, load: Expr, first: Expr, lanes: int, loops: tuple[For, ...]) -> int:
        """Find the innermost loop with whole lines, of which the loops inside read the elements
        once or more; tell how many come from memory."""
        form = self.simplify.linear(first)
        span = lanes
        for k in reversed(range(len(loops))):
            step, nbytes = form.terms.get(loops[k].var, 0), span * load.attr.dtype.bytes
            if step == span and LINE <= nbytes <= MOST * LINE:
                inside = {loop.var: E.const(0) for loop in loops[k + 1 :]}
                begin = E.substitute(first, inside)
                self.found.setdefault(loops[k].var, {})[load.attr] = begin, span
                return span * int(prod(loop.extent for loop in loops[: k + 1]))
            span += abs(step) * (loops[k].extent - 1)
        return lanes * int(prod(loop.extent for loop in loops))

    def asking(self, stmt: Stmt, once: Collection[Buffer]) -> Stmt:
        """`stmt` with prefetches where iterations begin that read of buffers `once`."""
        made = map_children(stmt, lambda child: self.asking(child, once))
        if not isinstance(made, For) or made.var not in self.found:
            return made
        blocks = self.found[made.var].items()
        asked = [Prefetch(Region(b, first, n)) for b, (first, n) in blocks if b in once]
        return replace(made, body=seq(*asked, made.body))
