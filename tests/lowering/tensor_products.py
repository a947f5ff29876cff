"""Products and convolutions that warps multiply by matrix instructions, with their schedules.

In: sizes and tiles.  Out: a schedule and its arguments.  Read next: `test_fragments.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright import te
from tilewright.ir.atoms import ATOMS, Atom
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.schedule.thread_loops import fetch, lanes
from tilewright.te.tensor import IterVar, Tensor


@dataclass(frozen=True)
class Product:
    """d[i, j] = max(sum(a[i, k] * b[k, j]) + bias[j], 0), in tiles.

    block:  along i, j and k, of a block; copied to shared memory
    warps:  along i and j
    order:  of the dimensions of b: "kn" or "nk"
    staged: whether operands come by way of shared memory
    halved: whether the sums have the type of the operands, which readers get
    skew:   elements by which rows in shared memory are longer
    swizzle, slots: of what is in shared memory
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
    skew: int = 0
    swizzle: int = 0
    slots: int = 0

    @property
    def of(self) -> Atom:
        return ATOMS[self.atom]


def product(p: Product) -> tuple[Schedule, list[Tensor]]:
    left, right, sums = (str(of.dtype) for of in (p.of.a, p.of.b, p.of.sum))
    kind = left if sums == "float32" else sums  # of what goes in besides, and comes out
    a = te.placeholder((p.m, p.k), left, name="A")
    b = te.placeholder((p.k, p.n) if p.order == "kn" else (p.n, p.k), right, name="B")
    bias = te.placeholder((p.n,), kind, name="bias")
    r = te.reduce_axis((0, p.k), "r")

    def term(i, j):
        x, y = a[i, r], b[r, j] if p.order == "kn" else b[j, r]
        return x * y if p.halved else x.astype(sums) * y.astype(sums)

    c = te.compute((p.m, p.n), lambda i, j: te.sum(term(i, j), axis=r), name="C")

    def result(i, j):
        return te.maximum(c[i, j].astype(sums) + bias[j].astype(sums), 0).astype(kind)

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
    slices, steps = multiply(s, c, p.atom, *s[c].op.axis, s[c].op.reduce_axis[0], p.block[2])
    for t in held:
        s[t].compute_at(s[c], steps)
    for t in tiles:
        s[t].compute_at(s[c], slices)
        if p.skew:
            s[t].storage_align(s[t].op.axis[0], 64, p.skew)
        width = 16 // t.dtype.bytes
        if p.swizzle:
            s[t].swizzle(p.swizzle)
        fetch(s[t], p.warps[0] * p.warps[1] * 32, width, lanes=32, slots=p.slots)
    return s


def multiply(
    s: Schedule, c: Tensor, atom: str, m: IterVar, n: IterVar, k: IterVar, slices: int,
    outside: Sequence[IterVar] = (),
) -> tuple[IterVar, IterVar]:  # fmt: skip
    """Tensorize a sum of products along three axes; give its two outer loops along k.

    outside: further reduction loops, inside that of slices
    """
    size = ATOMS[atom].extents
    ko, k = s[c].split(k, factor=slices)
    km, ki = s[c].split(k, factor=size["k"])
    mo, mi = s[c].split(m, factor=size["m"])
    no, ni = s[c].split(n, factor=size["n"])
    rest = [ax for ax in s[c].leaf_iter_vars if ax.kind == "spatial" and ax not in (mo, mi, no, ni)]
    s[c].reorder(*rest, ko, *outside, km, mo, no, mi, ni, ki)
    s[c].tensorize(mi, atom)
    return ko, km


@dataclass(frozen=True)
class Convolution:
    """Windows of 3 x 3 over an image with a border of zeros: channels along m, columns along n.

    rows:    of a block, one of each warp; columns: of a tile, in whole atoms
    slices:  channels that are copied at once; staged: whether they are, to shared memory
    """

    batch: int = 2
    channels: int = 32
    outputs: int = 16
    size: int = 7
    rows: int = 4
    columns: int = 8
    slices: int = 16
    staged: bool = True


def convolution(p: Convolution) -> tuple[Schedule, list[Tensor]]:
    atom, size = "m16n8k16.float16", p.size
    a = te.placeholder((p.batch, p.channels, size, size), "float16", name="A")
    w = te.placeholder((p.outputs, p.channels, 3, 3), "float16", name="W")

    def inside(b, c, y, x):
        test = te.all(y >= 1, y < size + 1, x >= 1, x < size + 1)
        return te.if_then_else(test, a[b, c, y - 1, x - 1], te.const(0, "float16"))

    padded = te.compute((p.batch, p.channels, size + 2, size + 2), inside, name="P")
    c, ky, kx = (
        te.reduce_axis((0, n), name) for n, name in ((p.channels, "c"), (3, "ky"), (3, "kx"))
    )
    sums = te.compute(
        (p.batch, p.outputs, size, size),
        lambda b, o, y, x: te.sum(
            w[o, c, ky, kx].astype("float32") * padded[b, c, y + ky, x + kx].astype("float32"),
            axis=[c, ky, kx],
        ),
        name="C",
    )
    d = te.compute(sums.shape, lambda *i: te.maximum(sums[i], 0.0).astype("float16"), name="D")
    s = create_schedule(d.op)
    s[sums].set_scope("fragment")
    if p.staged:
        image = s.cache_read(padded, "shared", [sums])
        weights = s.cache_read(w, "shared", [sums])
        s[padded].compute_inline()
        left = s.cache_read(weights, "fragment", [sums])
        right = s.cache_read(image, "fragment", [sums])
    else:
        s[padded].set_scope("fragment")
        left, right = s.cache_read(w, "fragment", [sums]), padded
    b, o, y, x = s[d].op.axis
    yo, y = s[d].split(y, factor=p.rows)
    xo, x = s[d].split(x, factor=p.columns)
    s[d].reorder(b, yo, xo, y, o, x)
    s[d].bind(s[d].fuse(b, yo, xo), "blockIdx.x")
    s[d].bind(y, "threadIdx.y")
    lane, _, _, _ = lanes(s[d], o, x, atom)
    s[sums].compute_at(s[d], lane)
    b, o, y, x = s[sums].op.axis
    c, ky, kx = s[sums].op.reduce_axis
    slices, steps = multiply(s, sums, atom, o, x, c, p.slices, (ky, kx))
    for t in (left, right):
        s[t].compute_at(s[sums], steps)
    for t in (image, weights) if p.staged else ():
        s[t].compute_at(s[sums], slices)
        fetch(s[t], p.rows * 32, lanes=32)
    return s, [a, w, d]
