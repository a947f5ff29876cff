"""Templates of TVM for ARM by its names: spatial packing, and depthwise convolutions.

In: anchors of `topi.nn`.  Out: tiles of the output that cores compute one by one, each with its
loops ordered, unrolled and vectorised by knobs.  Read next: `spatial.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tilewright.schedule.default import schedule_roots
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.template import Anchored
from tilewright.te.tensor import IterVar, Tensor
from tilewright.topi.stage import workload_of
from tilewright.topi.templates.cpu_tile import operands
from tilewright.topi.templates.gpu import accumulator, op_of
from tilewright_tvm.topi.templates import workloads
from tilewright_tvm.topi.templates.naming import CPU, by_name
from tilewright_tvm.topi.templates.spatial import (
    STRUCTURES,
    UNTUNED,
    annotate_loops,
    annotate_reduction,
    annotate_tile,
    define,
    order_tile,
    packed,
)
from tilewright_tvm.topi.templates.tiles import last_of

UNROLLED = 16
PLACES = {"data_pad_inline": 5, "data_vec_inline": 4, "conv_inline": 4}


@dataclass(frozen=True)
class Nest:
    """local: what computes a tile of `last`
    outer: loops over tiles, the batch first; inner: of a tile
    """

    layout: str
    last: Tensor
    local: Tensor
    outer: list[IterVar]
    inner: list[IterVar]


def schedule_nchw(cfg: Any, a: Anchored) -> None:
    """Tiles of one block of channels are a core's.

    Of a transposed convolution the tiles are of what puts its phases side by side: all phases that
    a tile needs are summed in it.
    """
    op = op_of(a.schedule, a.anchor)
    last = last_of(a, op)
    define(cfg, op_of(a.schedule, last).shape, "nchw", 2)
    nest = tiled(cfg, a, last, "nchw", ("tile_co", "tile_oh", "tile_ow"))
    stage = a.schedule[last]
    stage.parallel(stage.fuse(*nest.outer[:2]))
    compute_tile(cfg, a, nest, nest.outer[-1], None)
    if last is not a.anchor:
        channel, row, column = nest.inner
        annotate_loops(cfg, a.schedule, last, [row, column, channel], UNROLLED)
    finish(a, last)


def schedule_nhwc(cfg: Any, a: Anchored) -> None:
    """Tiles of one block of rows are a core's.

    compat: whether all channels of a tile of the image are computed before the next step, one tile
    of channels is, or all tiles of the core
    """
    stage = a.stage(a.output)
    define(cfg, op_of(a.schedule, a.anchor).shape, "nhwc", 2)
    cfg.define_knob("compat", [0, 1, 2])
    nest = tiled(cfg, a, a.output, "nhwc", ("tile_oh", "tile_ow", "tile_co"))
    annotate_loops(cfg, a.schedule, a.output, nest.inner, UNROLLED)
    task = stage.fuse(*nest.outer[:2])
    stage.parallel(task)
    place = (*nest.outer[2:], task)[int(cfg["compat"].val)]
    compute_tile(cfg, a, nest, place, UNROLLED)
    finish(a, a.output)


def tiled(cfg: Any, a: Anchored, last: Tensor, layout: str, knobs: Sequence[str]) -> Nest:
    s = a.schedule
    operands(a)
    packed(s, op_of(s, a.anchor), cfg["tile_co"].size[-1])
    local = accumulator(s, a.anchor, last)
    batch, *own = s[last].op.axis
    split = [cfg[name].apply(s, last, axis) for name, axis in zip(knobs, own, strict=True)]
    outer, inner = [batch, *(o for o, _ in split)], [i for _, i in split]
    s[last].reorder(*outer, *inner)
    return Nest(layout, last, local, outer, inner)


def compute_tile(cfg: Any, a: Anchored, nest: Nest, place: IterVar, most: int | None) -> None:
    s, local, layout = a.schedule, nest.local, nest.layout
    s[local].set_scope("shared")  # of the core, it may be too much for its registers
    s[local].compute_at(s[nest.last], place)
    order_tile(cfg, s, local, layout)
    annotate_reduction(cfg, s, local, layout, most)
    annotate_tile(cfg, s, local, layout, most)


def finish(a: Anchored, *done: Tensor) -> None:
    schedule_roots(a.schedule, a.target, done=[a.stage(tensor) for tensor in done])


def schedule_depthwise_nchw(cfg: Any, a: Anchored) -> None:
    s = a.schedule
    _, channel, row, column = op_of(s, a.anchor).axis
    knobs = ("tile_c", "tile_h", "tile_w")
    ends = [
        cfg.define_split(name, axis.size, num_outputs=2)[1]
        for name, axis in zip(knobs, (channel, row, column), strict=True)
    ]
    cfg.define_annotate("ann", [ends[1], ends[2], ends[0]], policy="try_unroll_vec")
    operands(a)
    local = accumulator(s, a.anchor, a.output)
    batch, *own = s[a.output].op.axis
    split = [cfg[name].apply(s, a.output, axis) for name, axis in zip(knobs, own, strict=True)]
    outer = [o for o, _ in split]
    s[a.output].reorder(batch, *outer, *(i for _, i in split))
    s[local].set_scope("shared")
    s[local].compute_at(s[a.output], outer[-1])
    s[a.output].parallel(s[a.output].fuse(batch, outer[0]))
    _, c, h, w = s[local].op.axis
    s[local].reorder(*op_of(s, local).reduce_axis, h, w, c)
    sizes = [cfg[name].size[-1] for name in ("tile_h", "tile_w", "tile_c")]
    cfg["ann"].apply(s, local, [h, w, c], axis_lens=sizes, max_unroll=UNROLLED, cfg=cfg)
    finish(a, a.output)


def schedule_depthwise_packed(cfg: Any, a: Anchored) -> None:
    """Data are copied for the tiles that read them; where, and where they are padded, is chosen.

    data_pad_inline: where data are padded: before all else (0, 2), by the copy (1), for each of its
                     rows (3), for each of its elements (4)
    data_vec_inline: where data are copied: before all else, for a row of tiles, a tile, a block of
                     channels
    conv_inline:     where the convolution is computed: by itself, for a tile of the output, a row
                     of tiles, a block of channels
    """
    s, op = a.schedule, op_of(a.schedule, a.anchor)
    _, (_, data, _), *_ = workload_of(op, 1)
    define(cfg, (op.shape[0], data[1], *op.shape[2:]), "depthwise", 2)
    for name, count in PLACES.items():
        cfg.define_knob(name, list(range(count)))
    padding, copying, computing = (int(cfg[name].val) for name in PLACES)
    ops = operands(a)
    packed(s, op, cfg["tile_co"].size[-1])
    local = accumulator(s, a.anchor, a.output)
    out, conv = s[a.output], s[local]
    outer, inner = tiles_of(cfg, s, a.output)
    cfg["reorder_1"].apply(s, a.output, [*outer, *inner])
    _, channels, row, column = outer
    task = out.fuse(*outer[:2])
    out.parallel(task)
    if a.has_epilogue:
        annotate_loops(cfg, s, a.output, inner, UNROLLED)
    else:
        out.vectorize(inner[1])
    tiles, tile = tiles_of(cfg, s, local)
    cfg["reorder_0"].apply(s, local, [*tiles, *conv.op.reduce_axis, *tile])
    annotate_reduction(cfg, s, local, "depthwise", UNROLLED)
    annotate_loops(cfg, s, local, tile, UNROLLED)
    batch, channels, *image = tiles
    if computing:
        conv.set_scope("shared")
        conv.compute_at(out, (column, row, task)[computing - 1])
    else:
        conv.set_scope("global")
        channels = conv.fuse(batch, channels)
        conv.parallel(channels)
    copy = s[s.cache_read(ops.data, "shared" if copying else "global", [local])]
    if copying:
        copy.compute_at(conv, (*image, channels)[copying - 1])
    else:
        copy.parallel(copy.fuse(*copy.op.axis[:2]))
    if ops.stored is not None and ops.movable:
        if padding == 1:
            ops.stored.compute_inline()
        elif padding > 2:
            ops.stored.set_scope("shared")
            ops.stored.compute_at(copy, copy.op.axis[padding - 1])
    finish(a, copy.tensor, local, a.output)


def tiles_of(
    cfg: Any, s: Schedule, tensor: Tensor
) -> tuple[list[IterVar], list[IterVar]]:  # fmt: skip
    """Loops over batch, blocks of channels, rows and columns of tiles; of a tile rows, columns,
    channels."""
    batch, *own = s[tensor].op.axis
    knobs = ("tile_co", "tile_oh", "tile_ow")
    split = [cfg[name].apply(s, tensor, axis) for name, axis in zip(knobs, own, strict=True)]
    (co, ci), (ho, hi), (wo, wi) = split
    return [batch, co, ho, wo], [hi, wi, ci]


def schedule_depthwise_nhwc(cfg: Any, a: Anchored) -> None:
    """The convolution is computed for a tile of the output, at its rows or its columns."""
    s = a.schedule
    _, row, column, channel = op_of(s, a.anchor).axis
    cfg.define_split("tile_c", channel.size, num_outputs=2)
    _, inner_h = cfg.define_split("tile_h", row.size, num_outputs=2)
    _, inner_w = cfg.define_split("tile_w", column.size, num_outputs=2)
    cfg.define_annotate("locate_output", [inner_h, inner_w], "locate_cache", num_anchor=1)
    operands(a)
    stage: Stage = s[a.output]
    local = accumulator(s, a.anchor, a.output)
    batch, row, column, channel = stage.op.axis
    ho, hi = cfg["tile_h"].apply(s, a.output, row)
    wo, wi = cfg["tile_w"].apply(s, a.output, column)
    co, ci = cfg["tile_c"].apply(s, a.output, channel)
    stage.reorder(batch, ho, wo, co, hi, wi, ci)
    s[local].set_scope("shared")
    cfg["locate_output"].apply(s, a.output, [hi, wi], source=[[local]])
    stage.parallel(stage.fuse(batch, ho))
    _, h, w, c = s[local].op.axis
    s[local].reorder(h, w, *op_of(s, local).reduce_axis, c)
    s[local].vectorize(c)
    finish(a, a.output)


for _layout, _compute, _schedule in (
    ("nchw", workloads.CONV["NCHW"], schedule_nchw),
    ("nhwc", workloads.CONV["NHWC"], schedule_nhwc),
):
    by_name(
        f"conv2d_{_layout}_spatial_pack.arm_cpu", CPU, [f"conv2d_{_layout}"], _compute, _schedule,
        STRUCTURES, UNTUNED[_layout],
    )  # fmt: skip
by_name(
    "conv2d_transpose_nchw.arm_cpu", CPU, ["conv2d_transpose_nchw"],
    workloads.TRANSPOSED["NCHW"], schedule_nchw, STRUCTURES, UNTUNED["nchw"],
)  # fmt: skip
by_name(
    "depthwise_conv2d_nchw.arm_cpu", CPU, ["depthwise_conv2d_nchw"],
    workloads.DEPTHWISE["NCHW"], schedule_depthwise_nchw, STRUCTURES,
)  # fmt: skip
by_name(
    "depthwise_conv2d_nchw_spatial_pack.arm_cpu", CPU, ["depthwise_conv2d_nchw"],
    workloads.DEPTHWISE["NCHW"], schedule_depthwise_packed,
    STRUCTURES * prod(PLACES.values()), UNTUNED["depthwise"],
)  # fmt: skip
by_name(
    "depthwise_conv2d_nhwc.arm_cpu", CPU, ["depthwise_conv2d_nhwc"],
    workloads.DEPTHWISE["NHWC"], schedule_depthwise_nhwc,
)  # fmt: skip
