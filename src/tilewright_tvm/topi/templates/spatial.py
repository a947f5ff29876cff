"""Spatial packing, as TVM's templates for ARM and Mali have it: knobs, order and marks of a tile.

In: a convolution's anchor, knobs `tile_co`, `tile_oh`, `tile_ow` whose innermost sizes are the tile
of a thread or of a vector loop.  Out: the loops of a tile ordered and marked, weights packed.
Read next: `mali.py`, `arm.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.schedule.schedule import Schedule
from tilewright.schedule.space.decision import Size
from tilewright.te.tensor import ComputeOp, IterVar, Tensor
from tilewright.topi.templates.gpu import op_of
from tilewright_tvm.topi.templates.tiles import pack

STRUCTURES = 1 << 10  # orders, times marks of the window, times marks of the tile
# Of an untuned configuration: the first order, everything unrolled, channels in vectors.
_MARKS: dict[str, Any] = {"ann_reduce": ["unroll"] * 2, "ann_spatial": ["unroll", "unroll", "vec"]}
UNTUNED: dict[str, dict[str, Any]] = {
    "nchw": {"reorder_0": [*range(10)], **_MARKS}, "nhwc": {"reorder_conv": [*range(10)], **_MARKS},
    "depthwise": {
        "reorder_0": [*range(9)], "reorder_1": [*range(7)], **_MARKS,
        "data_pad_inline": 1, "data_vec_inline": 2, "conv_inline": 1,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Form:
    """Loops by letter: reduction i, y, x; a tile h, w, c.

    own, window: axes of the anchor behind the batch, and those that it sums over
    order: knob of the order; letters: what it permutes, "." being loops over tiles, which are
           outside here, all of them
    """

    own: str
    window: str
    order: str
    letters: str


FORMS = {
    "nchw": Form("chw", "iyx", "reorder_0", "....iyxhwc"),
    "nhwc": Form("hwc", "yxi", "reorder_conv", "....yxihwc"),
    "depthwise": Form("chw", "yx", "reorder_0", "....yxhwc"),
}


def layout_of(op: ComputeOp) -> str:
    return op.tag.rpartition("_")[2]


def define(cfg: Any, shape: Sequence[int], layout: str, loops: int) -> None:
    """shape: of the output; layout: a key of `FORMS`; loops: of each tiled axis"""
    form = FORMS[layout]
    batch, *own = (cfg.axis(n) for n in shape)
    taps = {letter: cfg.reduce_axis(1) for letter in form.window}  # their lengths play no part
    axes = dict(zip(form.own, own, strict=True))
    ends = {
        letter: cfg.define_split(knob, axes[letter], num_outputs=loops)
        for letter, knob in (("c", "tile_co"), ("h", "tile_oh"), ("w", "tile_ow"))
    }
    n, co, oh, ow = batch, ends["c"][0], ends["h"][0], ends["w"][0]
    vc, vh, vw = ends["c"][-1], ends["h"][-1], ends["w"][-1]
    kh, kw = taps["y"], taps["x"]
    if layout == "nhwc":
        outer, window = [n, oh, ow], [kh, kw, taps["i"]]
        orders = [
            [*outer, co, *window, vh, vw, vc], [*outer, co, vh, *window, vw, vc],
            [*outer, co, vh, kh, kw, vw, taps["i"], vc],
            [*outer, vh, co, kh, kw, vw, taps["i"], vc],
        ]  # fmt: skip
    else:
        outer = [n, co, oh, ow, *taps.values()]
        orders = [[*outer, vh, vw, vc], [*outer, vc, vh, vw]]
    cfg.define_reorder(form.order, orders[0], policy="candidate", candidate=orders)
    if layout == "depthwise":
        outer = [n, co, oh, ow]
        orders = [[*outer, vh, vw, vc], [*outer, vc, vh, vw], [*outer, vh, vc, vw]]
        cfg.define_reorder("reorder_1", orders[0], policy="candidate", candidate=orders)
    cfg.define_annotate("ann_reduce", [kh, kw], policy="try_unroll")
    cfg.define_annotate("ann_spatial", [vh, vw, vc], policy="try_unroll_vec")


def packed(s: Schedule, op: ComputeOp, channels: Size) -> None:
    """Constant weights as they are read: blocks of channels, innermost."""
    place = 3 if layout_of(op) == "nhwc" else int("transpose" in op.tag)
    blocks = [channels if d == place else 1 for d in range(4)]
    rest = [d for d in range(4) if d != place]
    pack(s, op.input_tensors[1], blocks, [place, *rest, 4 + place])


def tile_loops(s: Schedule, local: Tensor, layout: str) -> dict[str, IterVar]:
    """The loops of what computes a tile, by letter; not those over phases of a transposed one."""
    op, form = op_of(s, local), FORMS[layout]
    own = op.axis[1:]
    if len(own) > len(form.own):
        own = (own[0], *own[-2:])
    found = dict(zip(form.own, own, strict=True))
    return found | dict(zip(form.window, op.reduce_axis, strict=True))


def order_tile(cfg: Any, s: Schedule, local: Tensor, layout: str) -> None:
    loops, form = tile_loops(s, local, layout), FORMS[layout]
    order = [form.letters[p] for p in cfg[form.order].perm if form.letters[p] in loops]
    phases = [ax for ax in op_of(s, local).axis[1:] if ax not in loops.values()]
    s[local].reorder(*phases, *(loops[letter] for letter in order))


def annotate_reduction(cfg: Any, s: Schedule, local: Tensor, layout: str, most: int | None) -> None:
    axes = tile_loops(s, local, layout)
    loops = [axes["y"], axes["x"]]
    cfg["ann_reduce"].apply(
        s, local, loops, axis_lens=[ax.size for ax in loops], max_unroll=most, cfg=cfg
    )


def annotate_tile(
    cfg: Any, s: Schedule, local: Tensor, layout: str, most: int | None,
    lanes: Sequence[int] | None = None,
) -> None:  # fmt: skip
    axes = tile_loops(s, local, layout)
    annotate_loops(cfg, s, local, [axes[letter] for letter in "hwc"], most, lanes)


def annotate_loops(
    cfg: Any, s: Schedule, tensor: Tensor, loops: Sequence[IterVar], most: int | None,
    lanes: Sequence[int] | None = None,
) -> None:  # fmt: skip
    """loops: over rows, columns and channels of a tile"""
    sizes = [cfg[name].size[-1] for name in ("tile_oh", "tile_ow", "tile_co")]
    cfg["ann_spatial"].apply(
        s, tensor, loops, axis_lens=sizes, max_unroll=most, vec_size=lanes, cfg=cfg
    )
