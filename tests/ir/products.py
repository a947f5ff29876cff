"""A kernel whose warps multiply by a matrix instruction, and ways to make it wrong.

c[m, n] = a[m, k] * b[k, n], with as many atoms along m as there are warps (threadIdx.y), two along
n and several along k.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.ir import expr as E
from tilewright.ir.atoms import ATOMS, Atom, Fragment
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    Allocate,
    Barrier,
    Buffer,
    For,
    If,
    Kernel,
    Mma,
    Program,
    Region,
    Stmt,
    Store,
    Thread,
    load,
    seq,
)

TILES = 2  # along n


@dataclass(frozen=True)
class Product:
    """
    atom:  a name
    warps: of the one block, along m
    steps: along k
    virtual: whether a virtual thread makes each atom along n
    fault: one of FAULTS, or ""
    """

    atom: str = "m16n8k16.float16"
    warps: int = 2
    steps: int = 3
    fault: str = ""
    virtual: bool = False

    @property
    def lanes(self) -> int:
        """Of threadIdx.x."""
        return 16 if self.fault == "half a warp" else 32

    @property
    def of(self) -> Atom:
        return ATOMS[self.atom]

    @property
    def shape(self) -> tuple[int, int, int]:
        """m, n, k of the whole."""
        depth = self.of.extents["k"]
        return 16 * self.warps, 8 * TILES, depth * self.steps


# What the interpreters say; "" where they cannot, as the result is just wrong.
FAULTS = {
    "a lane is missing": "warp divergence: .*thread 31 has ended",
    "lanes at two places": "warp divergence: thread 0 is at .* thread 16 is at",
    "a lane waits at a barrier": "warp divergence: .*waits at a barrier",
    "half a warp": "warp divergence: a warp of 16 lanes, of which all 32 are needed",
    "sum read by the wrong lane": "",
    "operand of the wrong lane": "",
    "sum of registers exchanged": "",
}


def program(product: Product) -> Program:
    atom, fault = product.of, product.fault
    rows, columns, depth = product.shape
    one = 16, 8, depth // product.steps  # of an atom
    sums = atom.sum.elements
    a, b = Buffer("a", atom.a.dtype, rows * depth), Buffer("b", atom.b.dtype, depth * columns)
    c = Buffer("c", atom.sum.dtype, rows * columns)
    fa = Buffer("fa", atom.a.dtype, atom.a.elements, "local")
    fb = Buffer("fb", atom.b.dtype, atom.b.elements, "local")
    fc = Buffer("fc", atom.sum.dtype, sums * TILES, "local")
    x, y, k, n0, n1, n2 = (E.var(name) for name in ("x", "y", "k", "n", "n", "n"))
    lane, zero = x % 32, E.const(0)

    def read(to: Buffer, f: Fragment, source: Buffer, width: int, row: Expr, column: Expr) -> Stmt:
        who = 31 - lane if fault == "operand of the wrong lane" and source is b else lane
        stores = []
        for e in range(f.elements):
            r, col = f.place(who, e)
            at = (row + r) * width + column + col
            stores.append(Store(to, E.const(e), load(source, at)))
        return seq(*stores)

    def cleared(n: Expr) -> Stmt:
        return seq(*(Store(fc, n * sums + e, E.const(0, fc.dtype)) for e in range(sums)))

    def written(n: Expr) -> Stmt:
        stores = []
        swapped = fault == "sum read by the wrong lane"
        for e in range(sums):
            row, col = atom.sum.place(lane % 4 * 8 + lane // 4 if swapped else lane, e)
            held = e ^ 1 if fault == "sum of registers exchanged" else e
            at = (y * one[0] + row) * columns + n * one[1] + col
            stores.append(Store(c, at, load(fc, n * sums + held)))
        return seq(*stores)

    def multiplied(n: Expr) -> Stmt:
        held = Region(fa, zero, atom.a.elements), Region(fb, zero, atom.b.elements)
        multiply, other = (Mma(atom, Region(fc, n * sums, sums), *held) for _ in range(2))
        if fault == "a lane is missing":
            return If(lane < 31, multiply)
        if fault == "lanes at two places":
            return If(lane < 16, multiply, other)
        if fault == "a lane waits at a barrier":
            return If(lane < 16, multiply, Barrier())
        return multiply

    def alone(var: Expr, body: Stmt) -> Stmt:
        return body if product.virtual else For(var, TILES, body)

    n = E.var("n")
    if product.virtual:
        n0 = n1 = n2 = n
    body = seq(
        alone(n0, cleared(n0)),
        For(k, product.steps, seq(
            read(fa, atom.a, a, depth, y * one[0], k * one[2]),
            alone(n1, seq(
                read(fb, atom.b, b, columns, k * one[2], n1 * one[1]), multiplied(n1),
            )),
        )),
        alone(n2, written(n2)),
    )  # fmt: skip
    for buffer in (fa, fb, fc):
        body = Allocate(buffer, body)
    body = For(n, TILES, body, "vthread") if product.virtual else body
    warps = 1 if fault == "half a warp" else product.warps
    threads = (Thread("threadIdx.x", x, product.lanes), Thread("threadIdx.y", y, warps))
    params = (a, b, c)
    kernel = Kernel("mm", params, body, threads)
    return Program("mm", params, ("input", "input", "output"), (kernel,))


def arrays(product: Product, seed: int = 0) -> list[np.ndarray]:
    """Small whole numbers, whose sums are exact, and an output."""
    rows, columns, depth = product.shape
    rng = np.random.default_rng(seed)
    kinds = product.of.a.dtype, product.of.b.dtype
    given = [
        rng.integers(0 if kind.kind == "uint" else -8, 9, n).astype(kind.storage)
        for n, kind in zip((rows * depth, depth * columns), kinds, strict=True)
    ]
    return [*given, np.zeros(rows * columns, product.of.sum.dtype.storage)]


def expected(product: Product, given: list[np.ndarray]) -> np.ndarray:
    rows, columns, depth = product.shape
    a, b = (x.astype(np.float64) for x in given[:2])
    whole = a.reshape(rows, depth) @ b.reshape(depth, columns)
    return whole.astype(product.of.sum.dtype.storage).reshape(-1)
