"""Winograd's convolution for GPUs by TVM's names: the tiles of its batched product are the space.

In: the product of `topi.nn.winograd`, channels before tiles.  Out: as `conv2d_nchw.cuda` tiles an
output, or in registers alone for Mali; the transforms as in `topi/templates/winograd.py`, with
blocks of fixed size.
Read next: `tiles.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.schedule.template import Anchored
from tilewright.topi.templates.by_name import workloads
from tilewright.topi.templates.by_name.naming import GPU, by_name
from tilewright.topi.templates.by_name.tiles import (
    define_unroll,
    factors,
    spread,
    through_shared,
    unroll,
)
from tilewright.topi.templates.gpu import accumulator, op_of
from tilewright.topi.templates.winograd import around_product

THREADS = 128  # of a block that transforms
LANES = (1, 2, 4, 8, 16)  # of a tile in registers, Mali's
BLOCKS = (("tile_b",), ("tile_y",), ("tile_x",))


def schedule(cfg: Any, a: Anchored) -> None:
    s, op = a.schedule, op_of(a.schedule, a.anchor)

    def blocks_only(tile: Any) -> bool:
        return bool(list(tile.size[1:]) == [1, 1, 1])

    first, second, *rest = op.shape
    cfg.define_split("tile_b", first * second, num_outputs=4, filter=blocks_only)
    for name, extent in zip(("tile_y", "tile_x"), rest, strict=True):
        cfg.define_split(name, extent, num_outputs=4)
    cfg.define_split("tile_rc", op.reduce_axis[0].size, num_outputs=2)
    define_unroll(cfg, (0, 128, 1500))
    around_product(a, THREADS, THREADS)
    tensors = factors(a)
    local = accumulator(s, a.anchor, a.anchor)
    eps, nu, y, x = s[a.anchor].op.axis
    axes = {"tile_b": s[a.anchor].fuse(eps, nu), "tile_y": y, "tile_x": x}
    tiles = spread(cfg, s, a.anchor, axes, BLOCKS, BLOCKS)
    s[local].compute_at(s[a.anchor], tiles.thread)
    outer, inner = cfg["tile_rc"].apply(s, local, op_of(s, local).reduce_axis[0])
    s[local].reorder(outer, inner, *s[local].op.axis)
    through_shared(s, tensors, local, s[local], outer, tiles.counts, in_turn=False)
    unroll(cfg, s[a.anchor])


def schedule_mali(cfg: Any, a: Anchored) -> None:
    """A thread has a tile of channels and tiles of the image in registers."""
    s, op = a.schedule, op_of(a.schedule, a.anchor)
    channels, depth = op.shape[2], op.reduce_axis[0].size
    cfg.define_knob("tile_bna", [n for n in LANES if channels % n == 0])
    cfg.define_knob("tile_bnb", list(LANES))
    cfg.define_split("tile_t1", depth, num_outputs=2, max_factor=THREADS)
    cfg.define_split("tile_t2", channels, num_outputs=2, max_factor=THREADS)
    cfg.define_split("c_unroll", depth, num_outputs=2, max_factor=8)
    cfg.define_knob("yt", [*LANES, 32])
    around_product(a, cfg["tile_t1"].size[1], cfg["tile_t2"].size[1])
    factors(a)
    local = accumulator(s, a.anchor, a.anchor)
    stage = s[a.anchor]
    eps, nu, channel, point = stage.op.axis
    channel, down = stage.split(channel, factor=cfg["tile_bna"].val)
    point, along = stage.split(point, factor=cfg["tile_bnb"].val)
    block, thread = stage.split(channel, factor=cfg["yt"].val)
    plane = stage.fuse(eps, nu)
    stage.reorder(plane, block, point, thread, down, along)
    for loop, tag in (
        (plane, "blockIdx.z"), (block, "blockIdx.y"), (point, "blockIdx.x"),
        (thread, "threadIdx.y"),
    ):  # fmt: skip
        stage.bind(loop, tag)
    s[local].compute_at(stage, thread)
    outer, inner = cfg["c_unroll"].apply(s, local, op_of(s, local).reduce_axis[0])
    *_, down, along = s[local].op.axis
    s[local].reorder(outer, inner, down, along)
    s[local].unroll(inner)
    s[local].unroll(down)
    s[local].vectorize(along)


by_name(
    "conv2d_nchw_winograd.cuda", GPU, ["winograd_cp"], workloads.conv2d_nchw_winograd, schedule
)  # fmt: skip
by_name(
    "conv2d_nchw_winograd_without_weight_transform.cuda", GPU, ["winograd_cp"],
    workloads.conv2d_nchw_winograd_packed, schedule,
)  # fmt: skip
by_name(
    "conv2d_nchw_winograd.mali", GPU, ["winograd_cp"], workloads.conv2d_nchw_winograd_mali,
    schedule_mali,
)  # fmt: skip
