"""Templates of TVM for Mali by its names: no shared memory, tiles in registers, vectors.

In: anchors of `topi.nn`.  Out: tiles of blocks, threads and elements; loops of an element's tile
ordered, unrolled and vectorised by knobs.  Read next: `arm.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.template import Anchored
from tilewright.te.tensor import IterVar, Tensor
from tilewright.topi.templates.gpu import accumulator, op_of
from tilewright.topi.templates.gpu_epilogue import inline_around
from tilewright_tvm.topi.templates import workloads
from tilewright_tvm.topi.templates.naming import GPU, by_name
from tilewright_tvm.topi.templates.spatial import (
    STRUCTURES,
    UNTUNED,
    annotate_reduction,
    annotate_tile,
    define,
    layout_of,
    order_tile,
    packed,
)
from tilewright_tvm.topi.templates.tiles import Tiles, factors, spread

UNROLLED, LANES = 16, (1, 2, 4, 8, 16)
DENSE_UNROLLED = 32


def schedule_spatial_pack(cfg: Any, a: Anchored) -> None:
    """A thread has a tile of channels, rows and columns; weights lie as it reads them."""
    s, last = a.schedule, inline_around(a)
    op = op_of(s, a.anchor)
    layout, first = layout_of(op), layout_of(op) == "nchw"
    define(cfg, op.shape, layout, 3)
    factors(a)
    packed(s, op_of(s, a.anchor), cfg["tile_co"].size[-1])
    local = accumulator(s, a.anchor, last)
    batch, *own = s[last].op.axis
    knobs = ("tile_co", "tile_oh", "tile_ow") if first else ("tile_oh", "tile_ow", "tile_co")
    tiles = grid(cfg, s, last, dict(zip(knobs, own, strict=True)), batch)
    s[local].compute_at(s[last], tiles.thread)
    order_tile(cfg, s, local, layout)
    annotate_reduction(cfg, s, local, layout, UNROLLED)
    annotate_tile(cfg, s, local, layout, UNROLLED, LANES)


def grid(cfg: Any, s: Schedule, last: Tensor, axes: Mapping[str, IterVar], batch: IterVar) -> Tiles:
    names = [(name,) for name in axes]
    return spread(cfg, s, last, axes, names, names, [batch])


def schedule_depthwise(cfg: Any, a: Anchored) -> None:
    s, last = a.schedule, inline_around(a)
    op = op_of(s, a.anchor)
    first = layout_of(op) == "nchw"
    _, *dims = op.axis
    channel, row, column = dims if first else (dims[2], dims[0], dims[1])
    cfg.define_split("tile_c", channel.size, num_outputs=3)
    cfg.define_split("tile_y", row.size, num_outputs=3)
    cfg.define_split("tile_x", column.size, num_outputs=3)
    cfg.define_annotate("ann_spatial", [channel, row, column], policy="try_unroll_vec")
    factors(a)
    local = accumulator(s, a.anchor, last)
    batch, *own = s[last].op.axis
    knobs = ("tile_c", "tile_y", "tile_x") if first else ("tile_y", "tile_x", "tile_c")
    tiles = grid(cfg, s, last, dict(zip(knobs, own, strict=True)), batch)
    s[local].compute_at(s[last], tiles.thread)
    window = op_of(s, local).reduce_axis
    s[local].reorder(*window, *s[local].op.axis)
    for loop in window:
        s[local].unroll(loop)
    at = dict(zip(knobs, s[local].op.axis[1:], strict=True))
    names = ("tile_c", "tile_y", "tile_x")
    cfg["ann_spatial"].apply(
        s, local, [at[name] for name in names], axis_lens=[cfg[name].size[2] for name in names],
        max_unroll=UNROLLED, vec_size=LANES, cfg=cfg,
    )  # fmt: skip


def schedule_dense(cfg: Any, a: Anchored) -> None:
    s, last = a.schedule, inline_around(a)
    y, x = s[last].op.axis
    cfg.define_split("tile_y", y.size, num_outputs=3)
    cfg.define_split("tile_x", x.size, num_outputs=3)
    depth = op_of(s, a.anchor).reduce_axis[0].size
    cfg.define_split("c_unroll", depth, num_outputs=2, max_factor=64)
    factors(a)
    local = accumulator(s, a.anchor, last)
    names = (("tile_y",), ("tile_x",))
    tiles = spread(cfg, s, last, {"tile_y": y, "tile_x": x}, names, names)
    s[local].compute_at(s[last], tiles.thread)
    outer, inner = cfg["c_unroll"].apply(s, local, op_of(s, local).reduce_axis[0])
    rows, columns = s[local].op.axis
    s[local].reorder(outer, inner, rows, columns)
    s[local].unroll(inner)
    mark_tile(cfg, s[last], tiles.inner)
    mark_tile(cfg, s[local], [rows, columns])


def mark_tile(cfg: Any, stage: Stage, loops: Sequence[IterVar]) -> None:
    """Rows unrolled, where they are not too many, columns in a vector where they fill one."""
    rows, columns = loops
    if cfg["tile_y"].size[-1] < DENSE_UNROLLED:
        stage.unroll(rows)
    if any(cfg["tile_x"].size[-1] == n for n in LANES):
        stage.vectorize(columns)


for _layout, _compute, _depthwise in (
    ("nchw", workloads.CONV["NCHW"], workloads.DEPTHWISE["NCHW"]),
    ("nhwc", workloads.CONV["NHWC"], workloads.DEPTHWISE["NHWC"]),
):
    by_name(
        f"conv2d_{_layout}_spatial_pack.mali", GPU, [f"conv2d_{_layout}"], _compute,
        schedule_spatial_pack, STRUCTURES, UNTUNED[_layout],
    )  # fmt: skip
    by_name(
        f"depthwise_conv2d_{_layout}.mali", GPU, [f"depthwise_conv2d_{_layout}"], _depthwise,
        schedule_depthwise, STRUCTURES,
    )  # fmt: skip
by_name("dense.mali", GPU, ["dense"], workloads.dense, schedule_dense)
