"""Matrix products on CPUs: dense, matmul, batch_matmul.

Lanes over the columns of the result where neighbours lie side by side in the second operand, or
where it is packed so (at build time if it is a constant); else lanes over the reduction, added up
at the end.
Read next: `cpu_tile.py`.
"""

from __future__ import annotations

from math import ceil, prod
from typing import Any

from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.schedule.vectors import MIN_PARALLEL_WORK
from tilewright.topi.templates.cpu_products import (
    PACK_ROWS,
    ROWS,
    Product,
    product_of,
    stored_plainly,
)
from tilewright.topi.templates.cpu_tile import (
    UNROLL,
    Tile,
    Tiled,
    accumulator_of,
    finish,
    lanes_for,
    operands,
    powers,
    reduction_loops,
    register_tile,
    tile_sizes,
)
from tilewright.topi.templates.untuned import fastest

VECTORS = (1, 2, 3, 4, 6, 8)
MAX_BLOCK = 16
SHORT = 4  # lanes that are added up one by one


def schedule_dense(cfg: Any, at: Anchored) -> None:
    p = product_of(at)
    ops = operands(at)
    lanes = lanes_for(p.columns, accumulator_of(at), at.target)
    packed = stored_plainly(at, ops) and (ops.constant or (p.transposed and p.rows >= PACK_ROWS))
    if lanes < 2 or (p.transposed and not packed):
        _schedule_dot(cfg, at, p)
        return
    cfg.define_knob("tile_i", tile_sizes(p.rows, ROWS))
    cfg.define_knob("tile_j", [v for v in VECTORS if v <= ceil(p.columns / lanes)])
    cfg.define_knob("block_k", powers(p.inner, MAX_BLOCK))
    cfg.define_knob("order", ("ij", "ji"))
    cfg.define_knob("unroll", UNROLL)
    n = len(at.anchor.shape)
    if packed:
        block = int(cfg["tile_j"].val) * lanes
        blocks = [1] * n
        column = n - 2 if p.transposed else n - 1
        inner = n - 1 if p.transposed else n - 2
        blocks[column] = block
        at.schedule.pack(ops.weight, blocks, [*range(n - 2), column, inner, n + column])
    place = {"i": n - 2, "j": n - 1}
    sizes = {place[k]: cfg[f"tile_{k}"].val for k in "ij"}
    outer = [*range(n - 2), *(place[k] for k in cfg["order"].val)]
    tiled = register_tile(at, Tile(n - 1, lanes, sizes, outer, len(outer)))
    loops = tiled.local.split(tiled.local.op.reduce_axis[0], factor=cfg["block_k"].val)
    reduction_loops(tiled, loops, cfg["unroll"].val)
    finish(at, tiled)


def _schedule_dot(cfg: Any, at: Anchored, p: Product) -> None:
    """rewrite: for k: C[i, j] += a[i, k] * b[j, k]
    ->    for k.o: vector P[i, j] += a[i, k.o] * b[j, k.o]
          for quarter: short vector Q[i, j] += P[i, j, quarter]; for lane: C[i, j] += Q[i, j, lane]
    """
    s = at.schedule
    lanes = lanes_for(p.inner, accumulator_of(at), at.target)
    cfg.define_knob("tile_i", tile_sizes(p.rows, (1, 2, 3, 4)))
    cfg.define_knob("tile_j", tile_sizes(p.columns, (1, 2, 3, 4, 5, 6, 8)))
    cfg.define_knob("order", ("ij", "ji"))
    cfg.define_knob("unroll", UNROLL)
    local = s[at.anchor] if at.has_epilogue else s[s.cache_write(at.anchor, "local")]
    local.set_scope("local")
    _, lane = local.split(local.op.reduce_axis[0], factor=lanes)
    n = len(at.anchor.shape)
    partial = s[s.rfactor(local.tensor, lane, n)]
    partial.set_scope("local")
    if lanes > SHORT:  # lane by lane sums take longer than what they add up
        _, lane = local.split(local.op.reduce_axis[0], factor=SHORT)
        short = s[s.rfactor(local.tensor, lane, n)]
        short.set_scope("local")
    else:
        short = None
    out = s[at.output]
    axes = list(out.op.axis)
    work = prod(at.anchor.shape) * p.inner
    axes[-2], row = out.split(axes[-2], factor=cfg["tile_i"].val)
    axes[-1], column = out.split(axes[-1], factor=cfg["tile_j"].val)
    place = {"i": n - 2, "j": n - 1}
    tiles = [*axes[:-2], *(axes[place[k]] for k in cfg["order"].val)]
    out.reorder(*tiles, row, column)
    task = out.fuse(*tiles)
    if work >= MIN_PARALLEL_WORK and at.target.limits.cores > 1:
        out.parallel(task)
    local.compute_at(out, task)
    for ax in local.op.axis[-2:]:
        local.unroll(ax)
    local.unroll(local.op.reduce_axis[0])
    if short is not None:
        short.compute_at(out, task)
        *rest, row, column, lane = short.op.axis
        short.reorder(*rest, row, column, *short.op.reduce_axis, lane)
        short.vectorize(lane)
        for ax in (row, column, *short.op.reduce_axis):
            short.unroll(ax)
    partial.compute_at(out, task)
    *rest, row, column, lane = partial.op.axis
    partial.reorder(*rest, *partial.op.reduce_axis, row, column, lane)
    partial.vectorize(lane)
    partial.unroll(row)
    partial.unroll(column)
    partial.pragma(partial.op.reduce_axis[0], "auto_unroll_max_step", cfg["unroll"].val)
    finish(at, Tiled(out, local, task, task))


def fallback_dense(sketch: Sketch, _: Anchored) -> int:
    """The tile that the model likes best."""
    block = {"block_k": 1} if "block_k" in sketch.space else {}
    return fastest(sketch, {"order": "ij", "unroll": 0, **block})


anchor_template(
    "dense.llvm", kinds=("llvm",), tags=("dense", "matmul", "batch_matmul"), fallback=fallback_dense
)(schedule_dense)
