"""Products whose operands come by bulk copies, on cores or matrix units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright import te
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.schedule.space.decision import same
from tilewright.schedule.thread_loops import fetch, lanes
from tilewright.targets.target import Target

H100 = Target("cuda -arch=sm_90")
ATOM = "m16n8k16.float16"


@dataclass(frozen=True)
class Bulk:
    """C[i, j] = sum(k, A[i, k] * B[j, k]) in tiles of a block.

    rows, columns, step: of a tile; threads: (along i, along j) of cores; warps: (along m, along n)
             of matrix units, of (1, 1) no loop
    slots:   of the ring of A and of B; loaders: warps that load
    pad:     zeros before and behind the rows of A
    again:   tiles of columns that one block goes through
    bulk:    or asynchronous copies of all threads; unroll: auto_unroll_max_step
    """

    m: int = 24
    n: int = 40
    k: int = 36
    rows: int = 8
    columns: int = 16
    step: int = 8
    threads: tuple[int, int] = (4, 8)
    slots: int = 3
    loaders: int = 0
    swizzle: int = 0
    pad: int = 0
    again: int = 1
    atoms: bool = False
    bulk: bool = True
    unroll: int = 0
    dtype: str = "float32"


def schedule(b: Bulk) -> Schedule:
    x = te.placeholder((b.m, b.k - 2 * b.pad), b.dtype, name="x")
    w = te.placeholder((b.n, b.k), b.dtype, name="w")
    zero = te.const(0, b.dtype)
    inside = lambda j: te.all(j >= b.pad, j < b.k - b.pad)  # noqa: E731
    p = te.compute(
        (b.m, b.k), lambda i, j: te.if_then_else(inside(j), x[i, j - b.pad], zero), name="p"
    )
    k = te.reduce_axis((0, b.k), "k")
    source = p if b.pad else x
    y = te.compute(
        (b.m, b.n),
        lambda i, j: te.sum(source[i, k].astype("float32") * w[j, k].astype("float32"), axis=k),
        name="y",
    )
    s = create_schedule(y.op)
    if b.pad:
        s[p].compute_inline()
    own = s.cache_write(y, "fragment" if b.atoms else "local")
    i, j = s[y].op.axis
    row, i = s[y].split(i, factor=b.rows)
    column, j = s[y].split(j, factor=b.columns)
    turn = column
    if b.again > 1:
        column, turn = s[y].split(column, factor=b.again)
        s[y].reorder(row, column, turn, i, j)
    else:
        s[y].reorder(row, column, i, j)
    s[y].bind(row, "blockIdx.y")
    s[y].bind(column, "blockIdx.x")
    if b.atoms:
        if b.threads != (1, 1):
            wi, i = s[y].split(i, nparts=b.threads[0])
            wj, j = s[y].split(j, nparts=b.threads[1])
            s[y].reorder(wi, wj, i, j)
            s[y].bind(s[y].fuse(wi, wj), "threadIdx.y")
        lane, *_ = lanes(s[y], i, j, ATOM)
        s[own].compute_at(s[y], lane)
    else:
        ti, i = s[y].split(i, nparts=b.threads[0])
        tj, j = s[y].split(j, nparts=b.threads[1])
        s[y].reorder(ti, tj, i, j)
        s[y].bind(ti, "threadIdx.y")
        s[y].bind(tj, "threadIdx.x")
        s[own].compute_at(s[y], tj)
    s[y].pragma(s[y].leaf_iter_vars[0], "auto_unroll_max_step", b.unroll)
    stage = s[own]
    tile, inner = stage.split(stage.op.reduce_axis[0], factor=b.step)
    im, jn = stage.op.axis
    if b.atoms:
        step, atom = stage.split(inner, factor=16)
        mo, mi = stage.split(im, factor=16)
        no, ni = stage.split(jn, factor=8)
        stage.reorder(tile, step, mo, no, mi, ni, atom)
        stage.tensorize(mi, ATOM)
    else:
        stage.reorder(tile, inner, im, jn)
    for tensor in (source, w):
        shared = s.cache_read(tensor, "shared", [own])
        s[shared].compute_at(stage, tile)
        if b.atoms:
            held = s.cache_read(shared, "fragment", [own])
            s[held].compute_at(stage, step)
        if b.bulk:
            s[shared].bulk_copy()
            s[shared].pipeline(b.slots, b.loaders)
        else:
            size = s[shared].tensor.dtype.bytes
            width = 32 if b.atoms else b.threads[1]
            rows = b.threads[0] * b.threads[1] if b.atoms else b.threads[0]
            fetch(s[shared], width * rows, 16 // size, lanes=width, slots=b.slots)
        if not same(b.swizzle, 0):
            s[shared].swizzle(b.swizzle)
    return s


def arrays(b: Bulk) -> tuple[list[np.ndarray], np.ndarray]:
    """(arguments in order, what y must be): small whole numbers."""
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, (b.m, b.k - 2 * b.pad)).astype(b.dtype)
    w = rng.integers(-4, 5, (b.n, b.k)).astype(b.dtype)
    wide = np.pad(x, ((0, 0), (b.pad, b.pad))).astype("float32")
    return [x, w, np.zeros((b.m, b.n), "float32")], wide @ w.astype("float32").T
