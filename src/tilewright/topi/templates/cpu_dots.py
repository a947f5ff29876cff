"""Products of unsigned by signed bytes on CPUs that add up four of them at once.

In: a configuration and an anchor of `topi.nn.dense`.  Out: its schedule.  A vector has 32-bit sums
of neighbouring columns; an instruction adds to each the products of four numbers of a row with four
of its column (`vpdpbusd`).  The weight lies so that these are one load: at build time if it is a
constant, else each call packs it.  Read next: `cpu_dense.py`, which has all other types.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.ir.atoms import THREAD_ATOMS, Atom, Fragment
from tilewright.schedule.fragment_order import fragment_order
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.schedule.vectors import MIN_PARALLEL_WORK
from tilewright.te.tensor import ComputeOp
from tilewright.topi.templates.cpu_products import PACK_ROWS, ROWS, product_of, stored_plainly
from tilewright.topi.templates.cpu_tile import Tiled, finish, operands, tile_sizes
from tilewright.topi.templates.untuned import fastest

VECTORS = (1, 2, 3, 4)
LEAST = 4  # rows of a tile that read a column often enough
STEPS = (1, 2, 4, 8)  # instructions along the depth that are written out


def dot_for(at: Anchored) -> Atom:
    """The widest instruction for the factors of a product.

    Raises ScheduleError where the processor has none for them.
    """
    op, target = at.anchor.op, at.target
    assert isinstance(op, ComputeOp)
    kinds = [t.dtype for t in op.input_tensors]
    found = [
        atom for name, atom in THREAD_ATOMS.items()
        if [atom.a.dtype, atom.b.dtype] == kinds and atom.sum.dtype is op.accumulator
        and "llvm" in atom.texts and target.has(name)
    ]  # fmt: skip
    if not found:
        raise ScheduleError(
            f"template for {op.name}",
            f"{target} adds up no products of {' and '.join(map(str, kinds))} four at a time",
            "Other templates compute it.",
        )  # fmt: skip
    columns, depth = op.shape[-1], op.reduce_axis[0].size
    fit = [a for a in found if columns % a.extents["n"] == 0 and depth % a.extents["k"] == 0]
    if not fit:
        raise ScheduleError(
            f"template for {op.name}", f"{columns} columns of {depth} numbers are no whole vectors",
            "Other templates compute it.",
        )  # fmt: skip
    return max(fit, key=lambda atom: atom.extents["n"])


def schedule_dots(cfg: Any, at: Anchored) -> None:
    atom, p, s = dot_for(at), product_of(at), at.schedule
    ops = operands(at)
    packs = stored_plainly(at, ops) and (ops.constant or p.rows >= PACK_ROWS)
    if not packs:
        raise ScheduleError(
            f"template for {at.anchor.name}", "its weight cannot be packed, or is used too seldom",
            "Other templates compute it.",
        )  # fmt: skip
    lanes, words = atom.extents["n"], atom.extents["k"]
    whole = [n for n in ROWS if p.rows % n == 0]  # a tile that overhangs asks for each row
    cfg.define_knob("tile_i", whole if whole[-1] >= LEAST else tile_sizes(p.rows, ROWS))
    cfg.define_knob("tile_j", [v for v in VECTORS if p.columns % (v * lanes) == 0])
    cfg.define_knob("block_k", [n for n in STEPS if n == 1 or p.inner % (n * words) == 0])
    cfg.define_knob("order", ("ij", "ji"))
    n = len(at.anchor.shape)
    if at.has_epilogue:
        local = s[at.anchor]
        local.set_scope("local")
    else:
        local = s[s.cache_write(at.anchor, "local")]
    out = s[at.output]
    axes = list(out.op.axis)
    axes[-2], row = out.split(axes[-2], factor=cfg["tile_i"].val)
    axes[-1], rest = out.split(axes[-1], factor=cfg["tile_j"].val * lanes)
    vector, lane = out.split(rest, factor=lanes)
    tiles = axes if cfg["order"].val == "ij" else [*axes[:-2], axes[-1], axes[-2]]
    out.reorder(*tiles, row, vector, lane)
    task = out.fuse(*tiles)
    if prod(at.anchor.shape) * p.inner >= MIN_PARALLEL_WORK and at.target.limits.cores > 1:
        out.parallel(task)
    out.vectorize(lane)
    local.compute_at(out, task)
    *batch, i, j = local.op.axis
    (k,) = local.op.reduce_axis
    k, word = local.split(k, factor=words)
    block, k = local.split(k, factor=cfg["block_k"].val)
    i, one = local.split(i, factor=1)
    j, lane = local.split(j, factor=lanes)
    local.reorder(*batch, block, k, i, j, one, lane, word)
    local.tensorize(one, atom.name)
    for ax in (k, i, j):
        local.unroll(ax)
    op = local.op
    assert isinstance(op, ComputeOp)
    for tensor in op.input_tensors:
        held = s[s.cache_read(tensor, "local", [local.tensor])]
        held.compute_at(local, k)
        for ax in held.op.axis:
            held.unroll(ax)
    column, depth = (n - 2, n - 1) if p.transposed else (n - 1, n - 2)
    assert isinstance(atom.b, Fragment)
    s.pack(ops.weight, *fragment_order(atom.b, n, (depth, column)))
    finish(at, Tiled(out, local, task, task))


def fallback(sketch: Sketch, _: Anchored) -> int:
    """The tile that the model likes best."""
    return fastest(sketch, {"order": "ij"})


anchor_template(
    "dense.dots.llvm", kinds=("llvm",), tags=("dense", "matmul", "batch_matmul"), fallback=fallback
)(schedule_dots)
