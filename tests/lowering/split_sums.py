"""Sums of rows whose terms several blocks share, finished by the last of them; ways to break that.

In: sizes that divide nothing.  Out: a schedule that joins its partial sums, arrays, programs with a
fault, and the same program with its blocks in the opposite order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tilewright import te
from tilewright.ir import expr as E
from tilewright.ir.stmt import (
    BLOCK_TAGS,
    Barrier,
    If,
    Join,
    Kernel,
    Program,
    Seq,
    Stmt,
    map_children,
    seq,
    statements,
)
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.targets.target import Target

CUDA = Target("cuda -arch=sm_90")


@dataclass(frozen=True)
class Sums:
    """C[b, i] = 2 * sum(A[b, i, k]) + 1 over `k` terms, of `batch` times `n` rows.

    blocks: that share a row; tile: rows of a block; threads: of a block; lanes: of a vector of the
    sum over blocks
    """

    n: int = 37
    k: int = 50
    batch: int = 2
    blocks: int = 4
    tile: int = 8
    threads: int = 4
    lanes: int = 1


def schedule(r: Sums) -> Schedule:
    a = te.placeholder((r.batch, r.n, r.k), name="A")
    k = te.reduce_axis((0, r.k), "k")
    sums = te.compute((r.batch, r.n), lambda b, i: te.sum(a[b, i, k], axis=k), name="S")
    c = te.compute((r.batch, r.n), lambda b, i: sums[b, i] * 2.0 + 1.0, name="C")
    s = create_schedule([c.op])
    share, _ = s[sums].split(k, nparts=r.blocks)
    part = s.rfactor(sums, share)
    batch, i = s[c].op.axis
    outer, inner = s[c].split(i, factor=r.tile)
    s[c].bind(batch, "blockIdx.y")
    s[c].bind(outer, "blockIdx.x")
    rest, lane = s[c].split(inner, factor=r.lanes)
    _, thread = s[c].split(rest, factor=r.threads)
    s[c].bind(thread, "threadIdx.x")
    s[sums].set_scope("local")
    s[sums].compute_at(s[c], thread)
    if r.lanes > 1:
        s[c].vectorize(lane)
        s[sums].reorder(*s[sums].op.reduce_axis, *s[sums].op.axis)
        s[sums].vectorize(s[sums].op.axis[-1])
    s[part].join(s[c], outer)
    share, _, i = s[part].op.axis
    s[part].bind(share, "blockIdx.z")
    _, thread = s[part].split(i, factor=r.threads)
    s[part].bind(thread, "threadIdx.x")
    return s


def program(r: Sums) -> Program:
    return lower_schedule(schedule(r), CUDA)


def arrays(r: Sums, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """Whole numbers: exact in any order.  The output is last, and not written yet."""
    a = np.random.default_rng(seed).integers(-8, 9, (r.batch, r.n, r.k)).astype(np.float32)
    out = np.full((r.batch, r.n), np.nan, np.float32)
    return [a, out], a.sum(axis=2) * 2 + 1


def ordered(program: Program) -> Program:
    """`program` with the arguments in the order of `arrays`: inputs before outputs."""
    order = sorted(range(len(program.args)), key=lambda k: program.roles[k] == "output")
    args, roles = (tuple(given[k] for k in order) for given in (program.args, program.roles))
    return replace(program, args=args, roles=roles)


def edited(program: Program, edit: Callable[[Stmt], Stmt]) -> Program:
    """`program` with each statement changed, inner ones first."""

    def visit(stmt: Stmt) -> Stmt:
        return edit(map_children(stmt, visit))

    return replace(program, kernels=tuple(replace(k, body=visit(k.body)) for k in program.kernels))


def backwards(program: Program) -> Program:
    """The same with all blocks in the opposite order."""

    def turned(kernel: Kernel) -> Kernel:
        mapping = {
            t.var: E.const(t.extent - 1) - t.var for t in kernel.threads if t.tag in BLOCK_TAGS
        }

        def visit(stmt: Stmt) -> Stmt:
            return map_children(stmt, visit, lambda e: E.substitute(e, mapping))

        return replace(kernel, body=visit(kernel.body))

    return replace(program, kernels=tuple(map(turned, program.kernels)))


def _no_barrier(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, Seq) or not any(isinstance(s, Join) for s in stmt.body):
        return stmt
    return seq(*(s for s in stmt.body if not isinstance(s, Barrier)))


def _joined(change: Callable[[Join], Stmt]) -> Callable[[Stmt], Stmt]:
    return lambda stmt: change(stmt) if isinstance(stmt, Join) else stmt


_LEFT = "blocks have come here, and not the last"
_EARLY = "was never written|another thread"
FAULTS: dict[str, tuple[str, Callable[[Stmt], Stmt]]] = {
    "no barrier before a block is counted": (_EARLY, _no_barrier),
    "one block too few is waited for": (
        f"{_EARLY}|{_LEFT}", _joined(lambda j: replace(j, blocks=j.blocks - 1))
    ),
    "one block too many is waited for": (
        f"{_LEFT}|no kernel writes", _joined(lambda j: replace(j, blocks=j.blocks + 1))
    ),
    "one counter for all tiles": (
        f"{_EARLY}|{_LEFT}", _joined(lambda j: replace(j, index=E.const(0)))
    ),
    "the counter of the next tile": (
        "outside the", _joined(lambda j: replace(j, index=j.index + 1))
    ),
    "nobody is waited for": (_EARLY, _joined(lambda j: j.body)),
}  # fmt: skip


def wrong(r: Sums, fault: str) -> Program:
    return edited(program(r), FAULTS[fault][1])


def share_of(program: Program) -> E.Expr:
    """The index by which the blocks of a tile differ."""
    return next(t.var for k in program.kernels for t in k.threads if t.tag == "blockIdx.z")


def only_first(program: Program) -> Program:
    """What is left is done by the last block only if it has the first share."""
    test = share_of(program).equal(0)
    return edited(program, _joined(lambda j: replace(j, body=If(test, j.body))))


def joins(program: Program) -> list[Join]:
    found = (s for k in program.kernels for s in statements(k.body))
    return [s for s in found if isinstance(s, Join)]
