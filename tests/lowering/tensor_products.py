"""Products and convolutions that warps multiply by matrix instructions, with their schedules.

In: sizes and tiles.  Out: a schedule and its arguments.  Read next: `test_fragments.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright import te
from tilewright.ir.atoms import ATOMS, Atom
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.schedule.thread_loops import fetch, lanes
from tilewright.te.tensor import Tensor


@dataclass(frozen=True)
class Product:
    """d[i, j] = max(sum(a[i, k] * b[k, j]) + bias[j], 0), in tiles.

    block:  along i, j and k, of a block; copied to shared memory
    warps:  along i and j
    order:  of the dimensions of b: "kn" or "nk"
    staged: whether operands come by way of shared memory
    halved: whether the sums have the type of the operands, which readers get
    """

    m: int = 64
    n: int = 64
    k: int = 64
    atom: str = "m16n8k16.float16"
    block: tuple[int, int, int] = (64, 64, 32)
    warps: tuple[int, int] = (2, 2)
    order: str = "kn"
    staged: bool = True
    halved: bool = False

    @property
    def of(self) -> Atom:
        return ATOMS[self.atom]


def product(p: Product) -> tuple[Schedule, list[Tensor]]:
    kind = str(p.of.a.dtype)
    a = te.placeholder((p.m, p.k), kind, name="A")
    b = te.placeholder((p.k, p.n) if p.order == "kn" else (p.n, p.k), kind, name="B")
    bias = te.placeholder((p.n,), kind, name="bias")
    r = te.reduce_axis((0, p.k), "r")

    def term(i, j):
        x, y = a[i, r], b[r, j] if p.order == "kn" else b[j, r]
        return x * y if p.halved else x.astype("float32") * y.astype("float32")

    c = te.compute((p.m, p.n), lambda i, j: te.sum(term(i, j), axis=r), name="C")

    def result(i, j):
        return te.maximum(c[i, j].astype("float32") + bias[j].astype("float32"), 0.0).astype(kind)

    d = te.compute((p.m, p.n), result, name="D")
    return scheduled(p, a, b, c, d), [a, b, bias, d]


def scheduled(p: Product, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Schedule:
    s = create_schedule(d.op)
    s[c].set_scope("fragment")
    tiles = [s.cache_read(t, "shared", [c]) for t in (a, b)] if p.staged else []
    held = [s.cache_read(t, "fragment", [c]) for t in (tiles or (a, b))]
    i, j = s[d].op.axis
    bi, i = s[d].split(i, factor=p.block[0])
    bj, j = s[d].split(j, factor=p.block[1])
    wi, i = s[d].split(i, factor=p.block[0] // p.warps[0])
    wj, j = s[d].split(j, factor=p.block[1] // p.warps[1])
    s[d].reorder(bi, bj, wi, wj, i, j)
    s[d].bind(bi, "blockIdx.y")
    s[d].bind(bj, "blockIdx.x")
    s[d].bind(s[d].fuse(wi, wj), "threadIdx.y")
    lane, _, _, pair = lanes(s[d], i, j, p.atom)
    s[d].vectorize(pair)
    s[c].compute_at(s[d], lane)
    slices, steps = multiply(s, c, p.atom, p.block[2])
    for t in held:
        s[t].compute_at(s[c], steps)
    for t in tiles:
        s[t].compute_at(s[c], slices)
        width = 16 // t.dtype.bytes
        fetch(s[t], p.warps[0] * p.warps[1] * 32, width, lanes=32)
    return s


def multiply(s: Schedule, c: Tensor, atom: str, slices: int):
    """Tensorize a product of two axes and a sum; give its two outer loops along the sum."""
    size = ATOMS[atom].extents
    (m, n), (k,) = s[c].op.axis[-2:], s[c].op.reduce_axis[:1]
    ko, k = s[c].split(k, factor=slices)
    km, ki = s[c].split(k, factor=size["k"])
    mo, mi = s[c].split(m, factor=size["m"])
    no, ni = s[c].split(n, factor=size["n"])
    s[c].reorder(ko, km, mo, no, mi, ni, ki)
    s[c].tensorize(mi, atom)
    return ko, km
