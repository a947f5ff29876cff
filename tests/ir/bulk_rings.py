"""A kernel whose tiles come by bulk copies through a ring of slots, and ways to make it wrong.

Each of the threads that read adds, of each tile, the elements of a column as far apart as there are
such threads.  The first of them begins the copies, or a thread of a warp of its own.  What lies
outside the matrix is zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.base.dtype import DType
from tilewright.ir import expr as E
from tilewright.ir.bulk import GATE_TYPE, Arrive, Await, Box, BulkCopy, Expect, Fence, MakeGates
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    Allocate,
    Barrier,
    Buffer,
    For,
    If,
    Kernel,
    Program,
    Region,
    Show,
    Stmt,
    Store,
    Thread,
    load,
    seq,
)

WARP = 32


@dataclass(frozen=True)
class BulkRing:
    """warps: that read; box: rows and columns of a tile; tiles: one below the other
    first:  row and column of the first tile, at a multiple of 16 bytes
    shape:  of the matrix
    again:  how often the ring is gone through
    loader: whether a warp of its own begins the copies
    fault:  one of FAULTS, or ""
    """

    warps: int = 2
    box: tuple[int, int] = (8, 16)
    slots: int = 3
    tiles: int = 5
    first: tuple[int, int] = (-1, -8)
    shape: tuple[int, int] = (33, 24)
    again: int = 1
    loader: bool = False
    dtype: str = "float32"
    fault: str = ""

    @property
    def readers(self) -> int:
        return self.warps * WARP

    @property
    def tile(self) -> int:
        return self.box[0] * self.box[1]


_UNKNOWN = "in a phase that this thread does not know of|under way|was never written"
_EARLY = "does not know that all have read|under way|more than 1 arrivals"
FAULTS = {
    "missing await": _UNKNOWN,
    "parity of the phase before": f"{_UNKNOWN}|waits for ever|more than",
    "slot refilled too early": _EARLY,
    "nobody says that it has read": "waits for ever",
    "says so before it has read": _EARLY,
    "reads not shown": "has not shown it to the copy engine",
    "shown before it has read": "has not shown it to the copy engine",
    "one warp does not say so": "waits for ever",
    "more bytes expected": "bytes are expected, and copies bring",
    "fewer bytes expected": "bytes are expected, and copies bring",
    "no bytes expected": _UNKNOWN,
    "missing fence": "no fence stands behind",
    "missing barrier": "the gate was never made|no barrier lies between its making",
    "gates for too few": "more than|does not know that all have read|under way",
    "copies never awaited": "this memory is given back",
}


def program(ring: BulkRing) -> Program:
    kind, fault, n = DType(ring.dtype), ring.fault, ring.slots
    rows, columns = ring.shape
    a, b = Buffer("a", kind, rows * columns), Buffer("b", kind, ring.readers)
    slot = -(-ring.tile * kind.bytes // 128) * 128 // kind.bytes
    s = Buffer("s", kind, n * slot, "shared")
    gates = Buffer("gates", GATE_TYPE, 2 * n, "shared")
    total = Buffer("sum", kind, 1, "local")
    t, w, o, k, j = (E.var(name) for name in ("t", "w", "o", "k", "j"))
    zero = E.const(0)
    per = tuple(-(-(ring.tiles - i) // n) for i in range(n))  # uses of each slot in one round

    def use(tile: Expr) -> Expr:
        """How often the slot of a tile was filled before."""
        slot_uses = sum((E.cast("int32", (tile % n).equal(i)) * per[i] for i in range(n)), zero)
        return o * slot_uses + tile // n

    full = lambda tile: Region(gates, tile % n, 1)  # noqa: E731
    empty = lambda tile: Region(gates, tile % n + n, 1)  # noqa: E731
    box = Box((rows, columns), (columns, 1), ring.box, (1, 1))
    nbytes = ring.tile * kind.bytes
    expected = {"more bytes expected": 2, "fewer bytes expected": 0.5}.get(fault, 1) * nbytes

    def filling(tile: Expr) -> Stmt:
        at = (tile * ring.box[0] + ring.first[0], E.const(ring.first[1]))
        to = Region(s, tile % n * slot, ring.tile)
        copied = BulkCopy(to, Region(a, zero, a.size), box, at, full(tile))
        free = Await(empty(tile), (use(tile) + 1) % 2)
        if fault == "slot refilled too early":
            free = seq()
        if fault == "no bytes expected":
            return seq(free, If(t.equal(0), copied))
        return seq(free, If(t.equal(0), seq(Expect(full(tile), int(expected)), copied)))

    place = k % n * slot + (t + w * WARP + j * ring.readers)
    there = t + w * WARP + j * ring.readers < ring.tile
    adding = Store(total, zero, load(total, zero) + load(s, place))
    turn = 1 if fault == "parity of the phase before" else 0
    arrived: Stmt = Await(full(k), (use(k) + turn) % 2)
    if fault == "missing await":
        arrived = seq()
    read: Stmt = Arrive(empty(k))
    if fault == "nobody says that it has read":
        read = seq()
    if fault == "one warp does not say so":
        read = If(w > 0, read)
    reading = For(j, -(-ring.tile // ring.readers), If(there, adding))
    body = [arrived, reading, Show(), read]
    if fault == "reads not shown":
        body = [arrived, reading, read]
    if fault == "shown before it has read":
        body = [arrived, Show(), reading, read]
    if fault == "says so before it has read":
        body = [arrived, read, reading, Show()]
    arrivals = ring.warps - (fault == "gates for too few")
    making = seq(
        MakeGates(Region(gates, zero, n), 1),
        MakeGates(Region(gates, E.const(n), n), arrivals),
        seq() if fault == "missing fence" else Fence(),
    )
    begins = w.equal(ring.warps if ring.loader else 0)
    start = [
        If(E.all_of(t.equal(0), begins), making),
        *([] if fault == "missing barrier" else [Barrier()]),
    ]
    if ring.loader:
        k2 = E.var("k2")
        loading = For(k2, ring.tiles, filling(k2))
        if fault == "copies never awaited":
            loading = seq(
                loading,
                For(E.var("k3"), 1, If(o.equal(ring.again - 1), filling(E.const(ring.tiles)))),
            )
        turns = [If(w < ring.warps, For(k, ring.tiles, seq(*body)), If(begins, loading))]
    else:
        p, ahead = E.var("p"), n - 1
        later = k + ahead
        inside = E.const(True) if fault == "copies never awaited" else later < ring.tiles
        refill = If(E.all_of(begins, inside), filling(later))
        turns = [
            For(p, ahead, If(E.all_of(begins, p < ring.tiles), filling(p))) if ahead else seq(),
            For(k, ring.tiles, seq(refill, *body)),
        ]
    whole = seq(
        *start, Store(total, zero, E.const(0, kind)), For(o, ring.again, seq(*turns)),
        If(w < ring.warps, Store(b, t + w * WARP, load(total, zero))),
    )  # fmt: skip
    threads = (
        Thread("threadIdx.x", t, WARP), Thread("threadIdx.y", w, ring.warps + ring.loader)
    )  # fmt: skip
    nest = Allocate(gates, Allocate(s, Allocate(total, whole)))
    kernel = Kernel("bulk_ring", (a, b), nest, threads)
    return Program("bulk_ring", (a, b), ("input", "output"), (kernel,))


def arrays(ring: BulkRing) -> list[np.ndarray]:
    storage = DType(ring.dtype).storage
    given = (np.arange(ring.shape[0] * ring.shape[1]) % 13 - 6).astype(storage)
    return [given, np.zeros(ring.readers, storage)]


def expected(ring: BulkRing) -> np.ndarray:
    """b, exactly: small whole numbers."""
    matrix = arrays(ring)[0].reshape(ring.shape)
    wide = np.pad(matrix, 512)
    result = np.zeros(ring.readers)
    for tile in range(ring.tiles):
        row, column = 512 + ring.first[0] + tile * ring.box[0], 512 + ring.first[1]
        flat = wide[row : row + ring.box[0], column : column + ring.box[1]].reshape(-1)
        spread = np.zeros(-(-flat.size // ring.readers) * ring.readers)
        spread[: flat.size] = flat
        result += spread.reshape(-1, ring.readers).sum(0)
    return (result * ring.again).astype(DType(ring.dtype).storage)
