"""A kernel whose groups of warps multiply tiles in shared memory, and ways to make it wrong.

c[m, n] = a[m, k] * b[n, k], with as many groups along m as there are values of threadIdx.y.  Slices
of k, each a row of 128 bytes, come into a ring of three slots by asynchronous copies of 16 bytes;
while one is multiplied, the batch before may still be under way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.ir import expr as E
from tilewright.ir.atoms import GROUP, GROUP_ATOMS, GROUP_ROWS, Atom, Tile
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
    Mma,
    MmaBegin,
    MmaEnd,
    Program,
    Region,
    Show,
    Stmt,
    Store,
    Thread,
    Wait,
    load,
    seq,
)

SLOTS = 3


@dataclass(frozen=True)
class Product:
    """
    atom:   a name; groups: of the one block, along m; slices: of k
    nbytes: of a row, and of the swizzle
    fault:  one of FAULTS, or ""
    """

    atom: str = "m64n8k16.float16"
    groups: int = 1
    slices: int = 4
    nbytes: int = 128
    fault: str = ""

    @property
    def of(self) -> Atom:
        return GROUP_ATOMS[self.atom]

    @property
    def row(self) -> int:
        """Elements of k in a slice."""
        return self.nbytes // self.of.a.dtype.bytes

    @property
    def shape(self) -> tuple[int, int, int]:
        return GROUP_ROWS * self.groups, self.of.extents["n"], self.row * self.slices


_RACE = "another thread wrote this element and no barrier"
FAULTS = {
    "not shown": "its writer has not shown it",
    "shown before the wait": "its writer has not shown it",
    "shown behind the barrier": "its writer has not shown it",
    "missing barrier": f"{_RACE}|has not shown it|was never written|a copy into this element",
    "no begin": "no MmaBegin lies between",
    "sums cleared behind the begin": "no MmaBegin lies between",
    "sums read too early": "an Mma may add to this element",
    "slot refilled too early": "an Mma may add to this element, or read it",
    "batches never waited for": "an Mma may add to this element",
    "tile in the middle of eight rows": "a tile begins in the first of eight rows",
    "tile between the columns": "a tile begins in the first of eight rows",
    "a lane is missing": "group divergence: .*thread 127 has ended|differs between lanes",
    "a warp at another place": "group divergence|differs between lanes",
    "sum read by the wrong lane": "",
    "sum of registers exchanged": "",
    "tile of the slot before": "was never written|a copy into this element",
}


def program(product: Product) -> Program:
    atom, fault = product.of, product.fault
    rows, columns, depth = product.shape
    row, kind = product.row, atom.a.dtype
    sums, size = atom.sum.elements, atom.extents["k"]
    assert isinstance(atom.a, Tile) and isinstance(atom.b, Tile)
    a, b = Buffer("a", kind, rows * depth), Buffer("b", kind, columns * depth)
    c = Buffer("c", atom.sum.dtype, rows * columns)
    period = product.nbytes * 8 // kind.bytes
    slots = [-(-n * row // period) * period for n in (rows + 8, columns + 8)]
    sa, sb = (
        Buffer(name, kind, SLOTS * n, "shared", slots=SLOTS, swizzle=product.nbytes)
        for name, n in (("sa", slots[0]), ("sb", slots[1]))
    )
    fc = Buffer("fc", atom.sum.dtype, sums, "local")
    x, y, p, s, k = (E.var(name) for name in "xypsk")
    thread, zero = y * GROUP + x, E.const(0)
    all_sums = Region(fc, zero, sums)
    width = 16 // kind.bytes
    threads = GROUP * product.groups

    def copied(to: Buffer, slot: int, source: Buffer, count: int, tile: Expr, name: str) -> Stmt:
        """Rows of a slice, in pieces that the threads take in turn."""
        j, pieces = E.var(name), count * row // width
        piece = j * threads + thread
        line, column = piece // (row // width), piece % (row // width) * width
        own = AsyncCopy(
            Region(to, tile % SLOTS * slot + line * row + column, width),
            Region(source, line * depth + tile * row + column, width), E.const(True),
        )  # fmt: skip
        return For(j, -(-pieces // threads), If(piece < pieces, own))

    def slice_of(tile: Expr, name: str) -> Stmt:
        return seq(
            copied(sa, slots[0], a, rows, tile, f"{name}.a"),
            copied(sb, slots[1], b, columns, tile, f"{name}.b"),
        )

    def multiplied(which: Expr) -> Stmt:
        shift = {"tile in the middle of eight rows": row, "tile between the columns": size // 2}
        at = s % SLOTS
        left = at * slots[0] + y * GROUP_ROWS * row + which * size + shift.get(fault, 0)
        right = at * slots[1] + which * size
        spans = atom.a.span(product.nbytes), atom.b.span(product.nbytes)
        held = [Region(sa, left, spans[0]), Region(sb, right, spans[1])]
        if fault == "tile of the slot before":
            before = left + ((s + 2) % SLOTS - at) * slots[0]
            held[0] = Region(sa, before, spans[0])
        one, two = (Mma(atom, all_sums, held[0], held[1]) for _ in range(2))
        if fault == "a lane is missing":
            return If(x < GROUP - 1, one)
        if fault == "a warp at another place":
            return If(x < 32, one, two)
        return one

    cleared = seq(*(Store(fc, E.const(e), E.const(0, fc.dtype)) for e in range(sums)))
    begin: Stmt | None = MmaBegin(all_sums)
    if fault == "no begin":
        begin = None
    elif fault == "sums cleared behind the begin":
        begin = seq(begin, Store(fc, zero, load(fc, zero)))
    shown: list[Stmt] = [Wait(0), Show(), Barrier()]
    if fault == "not shown":
        shown = [Wait(0), Barrier()]
    elif fault == "shown before the wait":
        shown = [Show(), Wait(0), Barrier()]
    elif fault == "shown behind the barrier":
        shown = [Wait(0), Barrier(), Show()]
    elif fault == "missing barrier":
        shown = [Wait(0), Show()]
    later = s + (2 if fault == "slot refilled too early" else 1)
    pending = 9 if fault == "batches never waited for" else 1
    ahead = 2 if fault == "slot refilled too early" else 1
    body: Stmt = seq(
        cleared,
        For(p, ahead, seq(slice_of(p, "first"), Commit())),
        For(s, product.slices, seq(
            *shown,
            If(later < product.slices, slice_of(later, "later")), Commit(),
            begin,
            For(k, row // size, multiplied(k)),
            MmaEnd(pending, all_sums),
        )),
        None if fault in ("sums read too early", "batches never waited for")
        else MmaEnd(0, all_sums),
        *_stored(product, fc, c, x, y),
    )  # fmt: skip
    for buffer in (fc, sa, sb):
        body = Allocate(buffer, body)
    launch = (Thread("threadIdx.x", x, GROUP), Thread("threadIdx.y", y, product.groups))
    params = (a, b, c)
    kernel = Kernel("groups", params, body, launch)
    return Program("groups", params, ("input", "input", "output"), (kernel,))


def _stored(product: Product, fc: Buffer, c: Buffer, x: Expr, y: Expr) -> list[Stmt]:
    stores: list[Stmt] = []
    fragment = product.of.sum
    lane = (x + 32) % GROUP if product.fault == "sum read by the wrong lane" else x
    for e in range(fragment.elements):
        row, column = fragment.place(lane, e)
        held = e ^ 1 if product.fault == "sum of registers exchanged" else e
        at = (y * GROUP_ROWS + row) * product.shape[1] + column
        stores.append(Store(c, at, load(fc, E.const(held))))
    return stores


def arrays(product: Product, seed: int = 0) -> list[np.ndarray]:
    """Small whole numbers, whose sums are exact, and an output."""
    rows, columns, depth = product.shape
    rng = np.random.default_rng(seed)
    kind = product.of.a.dtype.storage
    given = [rng.integers(-8, 9, n).astype(kind) for n in (rows * depth, columns * depth)]
    return [*given, np.zeros(rows * columns, np.float32)]


def expected(product: Product, given: list[np.ndarray]) -> np.ndarray:
    rows, columns, depth = product.shape
    a, b = (x.astype(np.float64) for x in given[:2])
    whole = a.reshape(rows, depth) @ b.reshape(columns, depth).T
    return whole.astype(np.float32).reshape(-1)
