"""Templates of TVM for ARM by its names: spatial packing, and depthwise convolutions.

In: anchors of `topi.nn`.  Out: tiles of the output that cores compute one by one, each with its
loops ordered, unrolled and vectorised by knobs.  Read next: `spatial.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.schedule.default import schedule_roots
from tilewright.schedule.schedule import Stage
from tilewright.schedule.template import Anchored
from tilewright.te.tensor import IterVar, Tensor
from tilewright.topi.templates.by_name import workloads
from tilewright.topi.templates.by_name.naming import CPU, by_name
from tilewright.topi.templates.by_name.spatial import (
    STRUCTURES,
    UNTUNED,
    annotate_loops,
    annotate_reduction,
    annotate_tile,
    define_nchw,
    define_nhwc,
    layout_of,
    order_tile,
    packed,
)
from tilewright.topi.templates.cpu_tile import operands
from tilewright.topi.templates.gpu import accumulator, op_of

UNROLLED = 16


@dataclass(frozen=True)
class Nest:
    """local: what computes a tile; outer: loops over tiles, the batch first; inner: of a tile"""

    layout: str
    local: Tensor
    outer: list[IterVar]
    inner: list[IterVar]


def schedule_nchw(cfg: Any, a: Anchored) -> None:
    """Tiles of one block of channels are a core's."""
    s = a.schedule
    define_nchw(cfg, op_of(s, a.anchor), 2)
    nest = tiled(cfg, a, ("tile_co", "tile_oh", "tile_ow"))
    s[a.output].parallel(s[a.output].fuse(*nest.outer[:2]))
    compute_tile(cfg, a, nest, nest.outer[-1], None)
    if a.has_epilogue:
        channel, row, column = nest.inner
        annotate_loops(cfg, s, a.output, [row, column, channel], UNROLLED)
    finish(a)


def schedule_nhwc(cfg: Any, a: Anchored) -> None:
    """Tiles of one block of rows are a core's.

    compat: whether all channels of a tile of the image are computed before the next step, one tile
    of channels is, or all tiles of the core
    """
    s = a.schedule
    define_nhwc(cfg, op_of(s, a.anchor), 2)
    cfg.define_knob("compat", [0, 1, 2])
    nest = tiled(cfg, a, ("tile_oh", "tile_ow", "tile_co"))
    annotate_loops(cfg, s, a.output, nest.inner, UNROLLED)
    task = s[a.output].fuse(*nest.outer[:2])
    s[a.output].parallel(task)
    place = (*nest.outer[2:], task)[int(cfg["compat"].val)]
    compute_tile(cfg, a, nest, place, UNROLLED)
    finish(a)


def tiled(cfg: Any, a: Anchored, knobs: Sequence[str]) -> Nest:
    s, layout = a.schedule, layout_of(op_of(a.schedule, a.anchor))
    operands(a)
    packed(s, op_of(s, a.anchor), cfg["tile_co"].size[-1])
    local = accumulator(s, a.anchor, a.output)
    batch, *own = s[a.output].op.axis
    split = [cfg[name].apply(s, a.output, axis) for name, axis in zip(knobs, own, strict=True)]
    outer, inner = [batch, *(o for o, _ in split)], [i for _, i in split]
    s[a.output].reorder(*outer, *inner)
    return Nest(layout, local, outer, inner)


def compute_tile(cfg: Any, a: Anchored, nest: Nest, place: IterVar, most: int | None) -> None:
    s, local, layout = a.schedule, nest.local, nest.layout
    s[local].set_scope("shared")  # of the core, it may be too much for its registers
    s[local].compute_at(s[a.output], place)
    order_tile(cfg, s, local, layout)
    annotate_reduction(cfg, s, local, layout, most)
    annotate_tile(cfg, s, local, layout, most)


def finish(a: Anchored) -> None:
    schedule_roots(a.schedule, a.target, done=[a.stage(a.output)])


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
    finish(a)


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
    finish(a)


for _layout, _compute, _schedule in (
    ("nchw", workloads.conv2d_nchw, schedule_nchw), ("nhwc", workloads.conv2d_nhwc, schedule_nhwc),
):  # fmt: skip
    by_name(
        f"conv2d_{_layout}_spatial_pack.arm_cpu", CPU, [f"conv2d_{_layout}"], _compute, _schedule,
        STRUCTURES, UNTUNED[_layout],
    )  # fmt: skip
by_name(
    "depthwise_conv2d_nchw.arm_cpu", CPU, ["depthwise_conv2d_nchw"],
    workloads.depthwise_conv2d_nchw, schedule_depthwise_nchw, STRUCTURES,
)  # fmt: skip
by_name(
    "depthwise_conv2d_nhwc.arm_cpu", CPU, ["depthwise_conv2d_nhwc"],
    workloads.depthwise_conv2d_nhwc, schedule_depthwise_nhwc,
)  # fmt: skip
