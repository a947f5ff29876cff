"""Asynchronous copies of tiles: when each begins, when threads wait for it.

In: what each stage computed at one loop copies in an iteration, and how many slots it has.  Out:
what stands in front of the loop, and what each of its iterations begins with.

rewrite:  for k: {S[k % 3] = A[k]; use S[k % 3]}
          ->   for p in 2: {begin S[p] = A[p]; commit}
               for k: {wait(1); barrier; if (k + 2 < n) begin S[(k + 2) % 3] = A[k + 2]; commit
                       use S[k % 3]}
A group of copies is committed in each iteration, also where nothing is left to copy, so that the
number of groups that may be pending is always the same.  The barrier stands behind the wait, where
it shows each thread what others have copied, and before the copies, which take the slot that was
read last: one is enough.  Stages of one loop share it, and their groups.

A stage of one slot is copied and waited for in the same place.  The barriers around that are, like
those in front of the first copies of a ring, those of `ir/barriers.py`, which knows what the
barrier here is for.  Read next: `emission.py`, which puts both around a loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    ASYNC_BYTES,
    AsyncCopy,
    Barrier,
    Buffer,
    Commit,
    For,
    If,
    Region,
    Stmt,
    Store,
    Wait,
    load,
    map_children,
    seq,
)
from tilewright.lowering.overhang import fresh_loops
from tilewright.schedule.copies import source_of


@dataclass(frozen=True, eq=False)
class Tiles:
    """What one stage does in an iteration; slots: of its ring, 0 where it is no copy."""

    copy: Stmt
    slots: int


def turned(
    tiles: Sequence[Tiles], var: Expr, extent: Any, limits: dict[Expr, int], lag: int = 0,
    shown: Sequence[Stmt] = (),
) -> tuple[Stmt, Stmt]:  # fmt: skip
    """(what stands in front of the loop, what each iteration begins with).

    var, extent: of the loop; limits: per loop variable, as of `fresh_loops`
    lag:   of reading, in iterations: see `tree/rings.py`
    shown: what follows each wait, for who reads beside the threads
    """
    front: list[Stmt] = []
    begin: list[Stmt] = []
    rings = [t for t in tiles if t.slots > 1]
    if rings:
        most, least = max(t.slots for t in rings), min(t.slots for t in rings)
        first = E.var(f"{var.attr}.first")
        ahead = [
            _when(
                (first < t.slots - 1 - lag, first < extent),
                fresh_loops(t.copy, limits, {var: first}),
            )
            for t in rings
        ]
        front.append(For(first, most - 1 - lag, seq(*ahead, Commit())))
        begin += [Wait(least - 2 - lag), *shown, Barrier()]
        for t in rings:
            later = var + (t.slots - 1 - lag)
            begin.append(_when((later < extent,), fresh_loops(t.copy, limits, {var: later})))
        begin.append(Commit())
    if alone := [t.copy for t in tiles if t.slots == 1]:
        begin += [*alone, Commit(), Wait(0), *shown]
    return seq(*front), seq(*begin)


def _when(tests: Sequence[Expr], body: Stmt) -> Stmt:
    return If(E.all_of(*tests), body)


def begun(to: Buffer, index: Expr, value: Expr, inside: Expr) -> Stmt | None:
    """`to[index] = value` as an asynchronous copy; None where the value is no element of memory.

    inside: where it does not hold, zero takes the place of the value
    """
    found = source_of(value)
    if found is None:
        return None
    condition, read = found
    source = Region(read.attr, read.args[0], 1)
    return AsyncCopy(Region(to, index, 1), source, E.binary("and", inside, condition))


def settled(stmt: Stmt) -> Stmt:
    """`stmt` with loads and stores in place of copies that are too small to be asynchronous."""
    if not isinstance(stmt, AsyncCopy):
        return map_children(stmt, settled)
    to, source = stmt.to, stmt.source
    if to.count * to.buffer.dtype.bytes in ASYNC_BYTES:
        return stmt
    zero = E.const(0, to.buffer.dtype)
    value = E.if_then_else(stmt.condition, load(source.buffer, source.index), zero)
    return Store(to.buffer, to.index, value)
