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
read last: one is enough.  Stages of one loop share it, and their groups.  A ring with a slot for
each tile is filled in front of the loop, all of it.

A stage of one slot is copied and waited for in the same place: what else the iteration computes
before the first stage that reads it stands between.  The barriers around that are, like those in
front of the first copies of a ring, those of `ir/barriers.py`, which knows what the barrier here is
for.  Read next: `emission.py`, which puts both around a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.atoms import ROUNDED
from tilewright.ir.expr import Expr
from tilewright.ir.renaming import fresh_loops
from tilewright.ir.stmt import (
    ASYNC_BYTES,
    AsyncCopy,
    Barrier,
    Buffer,
    Commit,
    For,
    If,
    Region,
    Show,
    Stmt,
    Store,
    Wait,
    load,
    map_children,
    seq,
)
from tilewright.schedule.copies import source_of


@dataclass(frozen=True, eq=False)
class Tiles:
    """What one stage does in an iteration; slots: of its ring, 0 where it is no copy.

    ahead:   copies that are made before the loop, as many as there are slots: no others
    beside:  whether groups of warps read it, beside their threads
    rounded: whether they look at the first digits only
    second:  the buffer of the smaller parts of numbers of two
    """

    copy: Stmt
    slots: int
    ahead: int = 0
    beside: bool = False
    rounded: bool = False
    second: Buffer | None = None


def turned(
    tiles: Sequence[Tiles], var: Expr, extent: Any, limits: dict[Expr, int], simple: Simplifier,
) -> tuple[Stmt, Stmt, Stmt]:  # fmt: skip
    """(what stands in front of the loop, what each iteration begins with, what it waits for before
    stages of one slot are read).

    var, extent: of the loop; limits: per loop variable, as of `fresh_loops`
    simple: knows the ranges of variables
    """
    front: list[Stmt] = []
    begin: list[Stmt] = []
    rings = [t for t in tiles if t.slots > 1]
    if rings:
        first = E.var(f"{var.attr}.first")
        early = [
            _when((first < t.ahead, first < extent), fresh_loops(t.copy, limits, {var: first}))
            for t in rings
        ]
        front.append(For(first, max(t.ahead for t in rings), seq(*early, Commit())))
        least = min(t.ahead for t in rings)
        begin += [Wait(least - 1), *_arrived(rings, limits, simple), Barrier()]
        for t in (t for t in rings if t.ahead < t.slots):
            later = var + t.ahead
            begin.append(_when((later < extent,), fresh_loops(t.copy, limits, {var: later})))
        begin.append(Commit())
    wait: list[Stmt] = []
    if alone := [t for t in tiles if t.slots == 1]:
        begin += [*(t.copy for t in alone), Commit()]
        wait += [Wait(0), *_arrived(alone, limits, simple)]
    return seq(*front), seq(*begin), seq(*wait)


def _arrived(tiles: Sequence[Tiles], limits: dict[Expr, int], simple: Simplifier) -> list[Stmt]:
    """What a thread does with what it has copied, before others read it.

    All smaller parts come first: one barrier lies between them and what takes the place of numbers.
    """

    def parts(of: Sequence[Tiles], part: Callable[[Tiles, Buffer, Expr], Stmt]) -> list[Stmt]:
        made = [_in_place(t.copy, lambda *at, t=t: part(t, *at)) for t in of]
        return [_sure_first(fresh_loops(stmt, limits), limits, simple) for stmt in made]

    def small(t: Tiles, to: Buffer, index: Expr) -> Stmt:
        assert t.second is not None
        whole = load(to, index)
        return Store(t.second, index, whole - E.call(ROUNDED, whole))

    def large(_: Tiles, to: Buffer, index: Expr) -> Stmt:
        return Store(to, index, E.call(ROUNDED, load(to, index)))

    rounded = [t for t in tiles if t.rounded]
    shown = [Show()] if any(t.beside for t in tiles) else []
    return [
        *parts([t for t in rounded if t.second is not None], small), *parts(rounded, large), *shown
    ]  # fmt: skip


def _sure_first(stmt: Stmt, limits: dict[Expr, int], simple: Simplifier) -> Stmt:
    """`stmt` with loops in two, of which the first has no test: what a thread loads there it asks
    for together.

    rewrite:  for i in 21: if (i * 128 + x < 2592) S[i * 128 + x] = tf32(S[i * 128 + x])
              ->   for i in 20: S[i * 128 + x] = tf32(S[i * 128 + x])
                   if (20 * 128 + x < 2592) S[20 * 128 + x] = tf32(S[20 * 128 + x])
    """
    inner = stmt.body if isinstance(stmt, For) else stmt
    ranges = dict(simple.ranges)
    while isinstance(inner, For) and isinstance(inner.extent, int):
        ranges[inner.var] = 0, inner.extent - 1
        inner = inner.body
    if not (isinstance(stmt, For) and isinstance(stmt.extent, int) and isinstance(inner, If)):
        return stmt
    tested = inner

    def sure(count: int) -> bool:
        test = Simplifier({**ranges, stmt.var: (0, count - 1)})(tested.condition)
        return test.op == "const" and bool(test.attr)

    def without(s: Stmt) -> Stmt:
        return tested.then if s is tested else map_children(s, without)

    least = next((n for n in range(stmt.extent, 0, -1) if sure(n)), 0)
    if not least:
        return stmt
    rest = fresh_loops(replace(stmt, extent=stmt.extent - least), limits)
    assert isinstance(rest, For)
    behind = fresh_loops(rest.body, limits, {rest.var: rest.var + least})
    first = replace(stmt, extent=least, body=without(stmt.body))
    return seq(first, replace(rest, body=behind) if rest.extent else None)


def _in_place(copy: Stmt, made: Callable[[Buffer, Expr], Stmt]) -> Stmt:
    """`copy` with what is made of each element's place."""
    if isinstance(copy, AsyncCopy):
        return made(copy.to.buffer, copy.to.index)
    if isinstance(copy, Store):
        return made(copy.buffer, copy.index)
    return map_children(copy, lambda s: _in_place(s, made))


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
