"""Products that threads add up by instructions of their own, with their schedules.

In: sizes and an atom.  Out: a schedule and its arguments.  Read next: `test_thread_atoms.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright import te
from tilewright.ir.atoms import ALL_ATOMS, Atom
from tilewright.schedule.fragment_order import fragment_order
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.te.tensor import Tensor

THREADS = 4, 8  # of a block, along y and x


@dataclass(frozen=True)
class Dots:
    """d[i, j] = sum(a[i, k] * b[j, k]) + 1

    each:   atoms of a thread along i and j
    packed: whether b lies in the order in which a thread holds it
    shared: whether slices of this length along k, a multiple of the atom's, come by shared memory
    """

    m: int = 17
    n: int = 33
    k: int = 19
    atom: str = "m1n1k4.int8"
    each: tuple[int, int] = (2, 2)
    packed: bool = False
    shared: int = 0

    @property
    def of(self) -> Atom:
        return ALL_ATOMS[self.atom]


def dots(p: Dots, gpu: bool) -> tuple[Schedule, list[Tensor]]:
    left, right, total = (str(of.dtype) for of in (p.of.a, p.of.b, p.of.sum))
    rows, columns, depth = p.of.extents.values()
    a = te.placeholder((p.m, p.k), left, "A")
    b = te.placeholder((p.n, p.k), right, "B")
    r = te.reduce_axis((0, p.k), "r")
    c = te.compute(
        (p.m, p.n), lambda i, j: te.sum(a[i, r].astype(total) * b[j, r].astype(total), axis=r), "C"
    )
    d = te.compute((p.m, p.n), lambda i, j: c[i, j] + 1, "D")
    s = create_schedule(d.op)
    s[c].set_scope("local")
    tiles = [s.cache_read(t, "shared", [c]) for t in (a, b)] if p.shared else []
    held = [s.cache_read(t, "local", [c]) for t in (tiles or (a, b))]
    i, j = s[d].op.axis
    ti, i = s[d].split(i, factor=p.each[0] * rows)
    tj, j = s[d].split(j, factor=p.each[1] * columns)
    s[d].reorder(ti, tj, i, j)
    at = tj
    if gpu:
        (by, ty), (bx, at) = (
            s[d].split(x, factor=n) for x, n in ((ti, THREADS[0]), (tj, THREADS[1]))
        )
        s[d].reorder(by, bx, ty, at, i, j)
        tags = ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x")
        for ax, tag in zip((by, bx, ty, at), tags, strict=True):
            s[d].bind(ax, tag)
    s[c].compute_at(s[d], at)
    i, j = s[c].op.axis
    k, ki = s[c].split(s[c].op.reduce_axis[0], factor=depth)
    i, im = s[c].split(i, factor=rows)
    j, jn = s[c].split(j, factor=columns)
    outer = []
    if p.shared:
        ko, k = s[c].split(k, factor=p.shared // depth)
        outer = [ko]
    s[c].reorder(*outer, k, i, j, im, jn, ki)
    s[c].tensorize(im, p.atom)
    for t in held:
        s[t].compute_at(s[c], k)
    for t in tiles:
        s[t].compute_at(s[c], outer[0])
        fused = s[t].fuse(*s[t].op.axis)
        fused, tx = s[t].split(fused, factor=THREADS[1])
        _, ty = s[t].split(fused, factor=THREADS[0])
        s[t].bind(ty, "threadIdx.y")
        s[t].bind(tx, "threadIdx.x")
    if p.packed:
        s.pack(b, *fragment_order(p.of.b, dims=(1, 0)))
    return s, [a, b, d]
