"""Winograd's convolution by TVM's names: the tiles of its batched product are the space.

In: the product of `topi.nn.winograd`, channels before tiles.  Out: as `conv2d_nchw.cuda` tiles an
output, in registers alone for Mali, in vectors of tiles for ARM.  On GPUs transforms are those of
`tilewright/topi/templates/winograd.py`.
Read next: `tiles.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.schedule.default import schedule_roots
from tilewright.schedule.template import Anchored
from tilewright.topi.templates.gpu import accumulator, op_of
from tilewright.topi.templates.winograd import (
    Transform,
    around_product,
    held,
    in_lanes,
    inline_others,
    parts_of,
    tiles_of,
    unrolled,
)
from tilewright_tvm.topi.templates import workloads
from tilewright_tvm.topi.templates.naming import CPU, GPU, by_name
from tilewright_tvm.topi.templates.tiles import (
    define_unroll,
    factors,
    spread,
    through_shared,
    unroll,
)

THREADS = 128  # of a block that transforms
LANES = (1, 2, 4, 8, 16)  # of a tile in registers, Mali's
BLOCKS = (("tile_b",), ("tile_y",), ("tile_x",))
MOST_INNER, UNROLLED = 16, 16  # ARM: elements of a tile along one axis, steps of an unrolled loop


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


def schedule_arm(cfg: Any, a: Anchored) -> None:
    """A core has a block of channels of the output: their products, and then tile after tile."""
    s, op, parts = a.schedule, op_of(a.schedule, a.anchor), parts_of(a)
    (depth,) = op.reduce_axis

    def few(tile: Any) -> bool:
        return bool(tile.size[-1] <= MOST_INNER)

    sizes = {"tile_p": op.shape[3], "tile_k": op.shape[2], "tile_c": depth.size}
    inner = {
        name: cfg.define_split(name, extent, num_outputs=2, filter=few)[1]
        for name, extent in sizes.items()
    }
    cfg.define_annotate("ann_reduce", [inner["tile_c"]], policy="try_unroll")
    cfg.define_annotate("ann_spatial", [inner["tile_k"], inner["tile_p"]], policy="try_unroll_vec")
    inline_others(a, parts)
    for transform, knob in zip(parts.inputs, ("tile_p", "tile_k"), strict=True):
        _transform_arm(cfg, a, transform, knob)
    out, product = s[parts.output], s[a.anchor]
    (batch, channel, *image), (row, column) = tiles_of(out, parts)
    channel, each = cfg["tile_k"].apply(s, parts.output, channel)
    out.reorder(batch, channel, each, *image, row, column)
    task = out.fuse(batch, channel)
    out.parallel(task)
    product.set_scope("shared")
    product.compute_at(out, task)
    inverse = s[parts.back.last]
    inverse.set_scope("local")
    inverse.compute_at(out, image[-1])
    unrolled(inverse)
    held(s, parts.back, out, image[-1], unrolled)
    eps, nu, channel, point = product.op.axis
    points, point = cfg["tile_p"].apply(s, a.anchor, point)
    steps, step = cfg["tile_c"].apply(s, a.anchor, product.op.reduce_axis[0])
    product.reorder(eps, nu, points, steps, channel, step, point)
    cfg["ann_reduce"].apply(
        s, a.anchor, [step], axis_lens=[cfg["tile_c"].size[-1]], max_unroll=UNROLLED, cfg=cfg
    )
    cfg["ann_spatial"].apply(s, a.anchor, [channel, point])
    schedule_roots(s, a.target, [out, *(s[t.last] for t in parts.inputs)])


def _transform_arm(cfg: Any, a: Anchored, transform: Transform, knob: str) -> None:
    """A vector of the knob's innermost size at a time; its blocks are spread over the cores."""
    last = a.stage(transform.last)
    eps, nu, channel, lane = last.op.axis
    block, lane = cfg[knob].apply(a.schedule, transform.last, lane)
    last.reorder(block, channel, eps, nu, lane)
    last.parallel(block)
    unrolled(last, (eps, nu))
    last.vectorize(lane)
    held(a.schedule, transform, last, channel, in_lanes)


def _tile_of_mali(data: tuple[int, ...], _: tuple[int, ...]) -> int:
    return 4 if data[2] % 4 == 0 else 2


for _name, _kinds, _schedule, _compute in (
    ("conv2d_nchw_winograd.cuda", GPU, schedule, workloads.winograd(lambda *_: None)),
    ("conv2d_nchw_winograd_without_weight_transform.cuda", GPU, schedule,
     workloads.winograd(lambda _, kernel: kernel[0] - 2, transformed=True)),
    ("conv2d_nchw_winograd.mali", GPU, schedule_mali, workloads.winograd(_tile_of_mali)),
    ("conv2d_nchw_winograd.arm_cpu", CPU, schedule_arm, workloads.winograd(lambda *_: 4)),
):  # fmt: skip
    by_name(_name, _kinds, ["winograd_cp"], _compute, _schedule)
