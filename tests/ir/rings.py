"""A kernel whose tiles come through a ring of slots in shared memory, and ways to make it wrong.

Each of T threads copies WIDE elements of a tile, waits, and adds what other threads copied.  What
lies behind the end of the input is zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.base.dtype import DType
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    Allocate,
    AsyncCopy,
    Barrier,
    Buffer,
    Commit,
    For,
    If,
    Kernel,
    Program,
    Region,
    Stmt,
    Store,
    Thread,
    Wait,
    load,
    seq,
)


@dataclass(frozen=True)
class Ring:
    """threads: of a block, of which there are two; tiles: of threads * wide elements each.

    missing: of the input's elements at its end
    fault:   one of FAULTS, or ""
    """

    threads: int = 8
    wide: int = 4
    slots: int = 3
    tiles: int = 5
    missing: int = 4
    dtype: str = "float32"
    fault: str = ""

    @property
    def tile(self) -> int:
        return self.threads * self.wide

    @property
    def size(self) -> int:
        return self.tile * self.tiles - self.missing


_FLYING = "a copy into this element is under way"
_EARLY = f"{_FLYING}|another thread wrote|was never written"
FAULTS = {
    "missing wait": _FLYING,
    "wait with a count that is too high": _FLYING,
    "missing commit": _FLYING,
    "missing barrier after wait": _EARLY,
    "barrier before wait": _EARLY,
    "slot refilled too early": f"{_FLYING}|another thread read this element",
    "own slot refilled": _FLYING,
    "copies never waited for": "this memory is given back",
}


def program(ring: Ring) -> Program:
    kind = DType(ring.dtype)
    a, b = Buffer("a", kind, ring.size), Buffer("b", kind, 2 * ring.threads)
    s = Buffer("s", kind, ring.slots * ring.tile, "shared")
    total = Buffer("sum", kind, 1, "local")
    t, u, p, k, j = (E.var(n) for n in "tupkj")
    zero, ahead, fault = E.const(0), ring.slots - 1, ring.fault

    def copied(tile: Expr) -> Stmt:
        at = tile * ring.tile + t * ring.wide
        slot = tile % (ahead if fault == "slot refilled too early" else ring.slots)
        to = Region(s, slot * ring.tile + t * ring.wide, ring.wide)
        return AsyncCopy(to, Region(a, at, ring.wide), at < ring.size)

    commit = None if fault == "missing commit" else Commit()
    pending = ahead - 1 + (fault == "wait with a count that is too high")
    wait = None if fault == "missing wait" else Wait(pending)
    arrive = [wait, Barrier()]
    if fault == "barrier before wait":
        arrive.reverse()
    if fault == "missing barrier after wait":
        arrive.pop()
    held = ahead if fault == "slot refilled too early" else ring.slots
    place = (k % held) * ring.tile + (ring.tile - 1 - t * ring.wide - j)
    added = load(total, zero) + load(s, place)
    refill: Stmt = If(k + ahead < ring.tiles, copied(k + ahead))
    if fault == "copies never waited for":  # zeros, which nobody reads
        refill = copied(k + ahead)
    again = copied(k) if fault == "own slot refilled" else None
    body = seq(
        Store(total, zero, E.const(0, kind)),
        For(p, ahead, seq(If(p < ring.tiles, copied(p)), commit)),
        For(k, ring.tiles, seq(
            *arrive, For(j, ring.wide, Store(total, zero, added)), refill, commit, again,
        )),
        Store(b, u * ring.threads + t, load(total, zero)),
    )  # fmt: skip
    threads = (Thread("blockIdx.x", u, 2), Thread("threadIdx.x", t, ring.threads))
    kernel = Kernel("ring", (a, b), Allocate(s, Allocate(total, body)), threads)
    return Program("ring", (a, b), ("input", "output"), (kernel,))


def arrays(ring: Ring) -> list[np.ndarray]:
    storage = DType(ring.dtype).storage
    return [(np.arange(ring.size) % 13 - 6).astype(storage), np.zeros(2 * ring.threads, storage)]


def expected(ring: Ring) -> np.ndarray:
    """b, exactly: small whole numbers."""
    given, result = arrays(ring)
    tiles = np.zeros(ring.tile * ring.tiles, given.dtype)
    tiles[: ring.size] = given
    sums = tiles.reshape(ring.tiles, ring.tile).sum(0).reshape(ring.threads, ring.wide).sum(1)
    return np.tile(sums[::-1], 2).astype(result.dtype)
