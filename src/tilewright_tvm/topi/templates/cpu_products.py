"""Dense layers and batch_matmul for x86 by TVM's names.

In: anchors of `topi.nn`.  Out: `dense_pack` with weights in blocks of lanes, `dense_nopack` and
`batch_matmul` with lanes along the reduction.  Read next: `arm.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.schedule.default import schedule_roots
from tilewright.schedule.template import Anchored
from tilewright.te.tensor import IterVar
from tilewright.topi.templates.cpu_tile import operands
from tilewright.topi.templates.gpu import accumulator, op_of
from tilewright_tvm.topi.templates import workloads
from tilewright_tvm.topi.templates.naming import CPU, by_name
from tilewright_tvm.topi.templates.tiles import factors, pack

MOST_INNER = 16
BATCH_UNROLL = 16


def schedule_dense_pack(cfg: Any, a: Anchored) -> None:
    s, op = a.schedule, op_of(a.schedule, a.anchor)
    (rows, columns), (depth,) = op.shape, op.reduce_axis
    cfg.define_split("tile_y", rows, num_outputs=3)
    cfg.define_split("tile_x", columns, num_outputs=3)
    cfg.define_split("tile_k", depth.size, num_outputs=2)
    cfg.define_split(
        "tile_inner", rows, num_outputs=2, filter=lambda tile: tile.size[-1] <= MOST_INNER
    )
    ops = operands(a)
    pack(s, ops.weight, [cfg["tile_x"].size[-1], 1], [0, 1, 2])
    local = accumulator(s, a.anchor, a.output)
    stage = s[a.output]
    y, x = stage.op.axis
    yt, yo, yi = cfg["tile_y"].apply(s, a.output, y)
    xt, xo, xi = cfg["tile_x"].apply(s, a.output, x)
    stage.reorder(xt, yt, yo, xo, yi, xi)
    stage.parallel(stage.fuse(xt, yt))
    tile = stage.fuse(yo, xo)
    stage.unroll(yi)
    stage.vectorize(xi)
    s[local].set_scope("shared")
    s[local].compute_at(stage, tile)
    ko, ki = cfg["tile_k"].apply(s, local, op_of(s, local).reduce_axis[0])
    y, x = s[local].op.axis
    s[local].vectorize(x)
    inner = cfg["tile_inner"].size[-1]
    if inner > 1:
        outside, inside = s[local].split(y, factor=inner)
        s[local].reorder(ko, outside, ki, inside, x)
        loops = [outside, ki, inside]
    else:
        s[local].reorder(ko, ki, y, x)
        loops = [ki, y]
    for loop in loops:
        s[local].unroll(loop)
    finish(a)


def schedule_dense_nopack(cfg: Any, a: Anchored) -> None:
    s, op = a.schedule, op_of(a.schedule, a.anchor)
    (rows, columns), (depth,) = op.shape, op.reduce_axis
    cfg.define_split("tile_y", rows, num_outputs=2)
    cfg.define_split("tile_x", columns, num_outputs=2)
    cfg.define_split("tile_k", depth.size, num_outputs=2)
    partial, adder, task = sum_lanes(cfg, a, ())
    s[adder].unroll(op_of(s, adder).reduce_axis[0])
    lane, *own = s[partial].op.axis
    s[partial].reorder(op_of(s, partial).reduce_axis[0], *own, lane)
    for loop in own:
        s[partial].unroll(loop)
    s[partial].vectorize(lane)
    s[partial].compute_at(s[a.output], task)
    finish(a)


def schedule_batch_matmul(cfg: Any, a: Anchored) -> None:
    s, op = a.schedule, op_of(a.schedule, a.anchor)
    (_, rows, columns), (depth,) = op.shape, op.reduce_axis
    cfg.define_split("tile_y", rows, num_outputs=2)
    cfg.define_split("tile_x", columns, num_outputs=2)
    cfg.define_split("tile_k", depth.size, num_outputs=2)
    partial, _, task = sum_lanes(cfg, a, (s[a.output].op.axis[0],))
    lane, *own = s[partial].op.axis
    s[partial].reorder(op_of(s, partial).reduce_axis[0], *own, lane)
    s[partial].vectorize(lane)
    s[partial].compute_at(s[a.output], task)
    s[a.output].pragma(task, "auto_unroll_max_step", BATCH_UNROLL)
    finish(a)


def sum_lanes(cfg: Any, a: Anchored, lead: tuple[IterVar, ...]) -> tuple[Any, Any, IterVar]:
    """Sums of each lane of the reduction, what adds them, and the loop over tiles that both are
    computed in."""
    s = a.schedule
    operands(a)
    factors(a)
    _, lane = cfg["tile_k"].apply(s, a.anchor, op_of(s, a.anchor).reduce_axis[0])
    partial = s.rfactor(a.anchor, lane)
    adder = accumulator(s, a.anchor, a.output)
    stage = s[a.output]
    y, x = stage.op.axis[-2:]
    yo, yi = cfg["tile_y"].apply(s, a.output, y)
    xo, xi = cfg["tile_x"].apply(s, a.output, x)
    stage.reorder(*lead, yo, xo, yi, xi)
    task = stage.fuse(*lead, yo, xo)
    stage.parallel(task)
    for tensor in (partial, adder):
        s[tensor].set_scope("shared")
    s[adder].compute_at(stage, task)
    return partial, adder, task


def finish(a: Anchored) -> None:
    schedule_roots(a.schedule, a.target, done=[a.stage(a.output)])


by_name("dense_pack.x86", CPU, ["dense"], workloads.dense, schedule_dense_pack)
by_name("dense_nopack.x86", CPU, ["dense"], workloads.dense, schedule_dense_nopack)
by_name("batch_matmul.x86", CPU, ["batch_matmul"], workloads.batch_matmul, schedule_batch_matmul)
