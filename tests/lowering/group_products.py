"""Products that groups of warps multiply, with their schedules.

In: sizes and tiles.  Out: a schedule and its arguments.  Read next: `test_groups.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright import te
from tilewright.ir.atoms import GROUP, GROUP_ATOMS, Atom
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.schedule.thread_loops import fetch, lanes
from tilewright.te.tensor import ComputeOp, Tensor


@dataclass(frozen=True)
class Product:
    """d[i, j] = max(sum(a[i, k] * b[j, k]) + bias[j], 0), in tiles.

    block:  along i and j; groups: along i and j
    slots:  of the rings; swizzle: bytes, and those of a slice of k
    padded: whether extents are rounded up to whole atoms
    bulk:   whether a copy engine brings the tiles; loaders: warps that ask for them
    """

    m: int = 128
    n: int = 32
    k: int = 256
    atom: str = "m64n16k16.float16"
    block: tuple[int, int] = (64, 16)
    groups: tuple[int, int] = (1, 1)
    slots: int = 3
    swizzle: int = 128
    padded: bool = False
    bulk: bool = False
    loaders: int = 0
    again: int = 1  # tiles along j that one block goes through
    wide: bool = False  # d[i, j] = 2 * sum(..) in float32 instead

    @property
    def of(self) -> Atom:
        return GROUP_ATOMS[self.atom]


def product(p: Product) -> tuple[Schedule, list[Tensor]]:
    kind = str(p.of.a.dtype)
    a = te.placeholder((p.m, p.k), kind, name="A")
    b = te.placeholder((p.n, p.k), kind, name="B")
    bias = te.placeholder((p.n,), kind, name="bias")
    r = te.reduce_axis((0, p.k), "r")

    def term(i, j):
        return a[i, r].astype("float32") * b[j, r].astype("float32")

    c = te.compute((p.m, p.n), lambda i, j: te.sum(term(i, j), axis=r), name="C")

    def result(i, j):
        if p.wide:
            return c[i, j] * 2.0
        return te.maximum(c[i, j] + bias[j].astype("float32"), 0.0).astype(kind)

    d = te.compute((p.m, p.n), result, name="D")
    return scheduled(p, c, d), [a, b, bias, d]


def scheduled(p: Product, c: Tensor, d: Tensor) -> Schedule:
    s = create_schedule(d.op)
    size = p.of.extents
    if p.padded:
        (i, j), (r,) = s[c].op.axis, s[c].op.reduce_axis
        whole = s.pad(c, {i: size["m"], j: size["n"], r: size["k"]})
        s[c].compute_inline()
        c = whole
    operands = s[c].op.input_tensors
    s[c].set_scope("fragment")
    tiles = [s.cache_read(t, "shared", [c]) for t in operands]
    for t in operands:
        if isinstance(t.op, ComputeOp):
            s[t].compute_inline()
    i, j = s[d].op.axis
    bi, i = s[d].split(i, factor=p.block[0])
    bj, j = s[d].split(j, factor=p.block[1])
    gi, i = s[d].split(i, factor=p.block[0] // p.groups[0])
    gj, j = s[d].split(j, factor=p.block[1] // p.groups[1])
    if p.again > 1:
        bj, turn = s[d].split(bj, factor=p.again)
        s[d].reorder(bi, bj, turn, gi, gj, i, j)
    else:
        s[d].reorder(bi, bj, gi, gj, i, j)
    s[d].bind(bi, "blockIdx.y")
    s[d].bind(bj, "blockIdx.x")
    s[d].bind(s[d].fuse(gi, gj), "threadIdx.y")
    lane, *_, pair = lanes(s[d], i, j, p.atom)
    s[d].vectorize(pair)
    s[c].compute_at(s[d], lane)
    (m, n), (k,) = s[c].op.axis, s[c].op.reduce_axis
    ko, k = s[c].split(k, factor=p.swizzle // p.of.a.dtype.bytes)
    km, ki = s[c].split(k, factor=size["k"])
    mo, mi = s[c].split(m, factor=size["m"])
    no, ni = s[c].split(n, factor=size["n"])
    s[c].reorder(ko, km, mo, no, mi, ni, ki)
    s[c].tensorize(mi, p.atom)
    for t in tiles:
        s[t].compute_at(s[c], ko)
        s[t].swizzle(p.swizzle)
        if p.bulk:
            s[t].bulk_copy()
            s[t].pipeline(p.slots, p.loaders)
            continue
        width = 16 // t.dtype.bytes
        fetch(s[t], p.groups[0] * p.groups[1] * GROUP, width, lanes=GROUP, slots=p.slots)
    return s
