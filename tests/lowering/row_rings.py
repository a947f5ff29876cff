"""A sum whose operands come through rings that a schedule asks for, and ways to make it wrong.

Each row of a padded matrix is multiplied by one vector that slides along it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tilewright import te
from tilewright.ir.stmt import (
    AsyncCopy,
    Barrier,
    Commit,
    If,
    Program,
    Region,
    Stmt,
    Wait,
    map_children,
    seq,
    statements,
)
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.targets.target import Target

CUDA = Target("cuda")


@dataclass(frozen=True)
class Rows:
    """y[i, j] = sum(k, x[i, j + k] * w[k]), with zeros beyond both ends of the rows of x.

    n, m, k:      extents of i, j and k; step: of k in a tile; pad: zeros before each row
    slots:        of x and of w; None: plain copies
    threads:      (along i, along j) of a block; lanes: of a copy
    again:        blocks of j that one thread block goes through, so that the ring turns again
    """

    n: int = 6
    m: int = 8
    k: int = 16
    step: int = 4
    pad: int = 2
    slots: tuple[int | None, int | None] = (3, 3)
    threads: tuple[int, int] = (3, 4)
    lanes: tuple[int, int] = (1, 1)
    again: int = 1
    dtype: str = "float32"


def schedule(r: Rows) -> Schedule:
    x = te.placeholder((r.n, r.m + r.k - 1 - r.pad), r.dtype, name="x")
    w = te.placeholder((r.k,), r.dtype, name="w")
    width = r.m + r.k - 1
    inside = lambda j: te.all(j >= r.pad, j < width)  # noqa: E731
    zero = te.const(0, r.dtype)
    p = te.compute(
        (r.n, width), lambda i, j: te.if_then_else(inside(j), x[i, j - r.pad], zero), name="p"
    )
    k = te.reduce_axis((0, r.k), "k")
    y = te.compute(
        (r.n, r.m),
        lambda i, j: te.sum(p[i, j + k].astype("float32") * w[k].astype("float32"), axis=k),
        name="y",
    )
    s = create_schedule(y.op)
    s[p].compute_inline()
    own = s.cache_write(y, "local")
    i, j = s[y].op.axis
    block, row = s[y].split(i, factor=r.threads[0])
    part, column = s[y].split(j, factor=r.threads[1])
    outer, part = s[y].split(part, factor=r.again)
    s[y].reorder(block, outer, row, column, part)
    for axis, tag in (block, "blockIdx.y"), (outer, "blockIdx.x"), (row, "threadIdx.y"):
        s[y].bind(axis, tag)
    s[y].bind(column, "threadIdx.x")
    s[own].compute_at(s[y], part)
    tile, inner = s[own].split(s[own].op.reduce_axis[0], factor=r.step)
    s[own].reorder(tile, inner, *s[own].op.axis)
    for tensor, slots, lanes in zip((p, w), r.slots, r.lanes, strict=True):
        shared = s[s.cache_read(tensor, "shared", [own])]
        shared.compute_at(s[own], tile)
        fused = shared.fuse(*shared.op.axis)
        fused, lane = shared.split(fused, factor=lanes)
        fused, along_x = shared.split(fused, factor=r.threads[1])
        _, along_y = shared.split(fused, factor=r.threads[0])
        shared.bind(along_x, "threadIdx.x")
        shared.bind(along_y, "threadIdx.y")
        shared.vectorize(lane)
        if slots is not None:
            shared.pipeline(slots)
    return s


def arrays(r: Rows) -> tuple[list[np.ndarray], np.ndarray]:
    """(arguments in order, what y must be): small whole numbers."""
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, (r.n, r.m + r.k - 1 - r.pad)).astype(r.dtype)
    w = rng.integers(-4, 5, r.k).astype(r.dtype)
    rows = np.pad(x, ((0, 0), (r.pad, 0))).astype("float32")
    whole = w.astype("float32")
    y = sum(rows[:, k : k + r.m] * whole[k] for k in range(r.k))
    return [x, w, np.zeros((r.n, r.m), "float32")], y


def without(kind: type[Stmt]) -> Callable[[Stmt], Stmt]:
    def visit(stmt: Stmt) -> Stmt:
        return seq() if isinstance(stmt, kind) else map_children(stmt, visit)

    return visit


def early(stmt: Stmt) -> Stmt:
    """Copies take the slot before theirs, which may still be read."""
    if isinstance(stmt, If) and any(isinstance(s, AsyncCopy) for s in statements(stmt)):
        return map_children(stmt, early)
    if isinstance(stmt, AsyncCopy):
        slot = stmt.to.buffer.size // stmt.to.buffer.slots
        at = (stmt.to.index + slot) % stmt.to.buffer.size
        return replace(stmt, to=Region(stmt.to.buffer, at, stmt.to.count))
    return map_children(stmt, early)


FAULTS = {
    "no wait": (without(Wait), "under way"),
    "no barrier": (without(Barrier), "another thread|never written"),
    "no commit": (without(Commit), "under way"),
    "a slot too early": (early, "another thread|never written|under way"),
}


def wrong(r: Rows, fault: str) -> Program:
    """The lowered program with one of FAULTS."""
    program = lower_schedule(schedule(r), CUDA)
    (kernel,) = program.kernels
    change, _ = FAULTS[fault]
    return replace(program, kernels=(replace(kernel, body=change(kernel.body)),))
