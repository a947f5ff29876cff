"""Spatial packing, as TVM's templates for ARM and Mali have it: knobs, order and marks of a tile.

In: a convolution's anchor, knobs `tile_co`, `tile_oh`, `tile_ow` whose innermost sizes are the tile
of a thread or of a vector loop.  Out: the loops of a tile ordered and marked, weights packed.
Read next: `mali.py`, `arm.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.schedule.schedule import Schedule
from tilewright.schedule.space.decision import Size
from tilewright.te.tensor import ComputeOp, IterVar, Tensor
from tilewright.topi.templates.by_name.tiles import pack
from tilewright.topi.templates.gpu import op_of

STRUCTURES = 1 << 10  # orders, times marks of the window, times marks of the tile
# Of an untuned configuration: the first order, everything unrolled, channels in vectors.
_MARKS = {"ann_reduce": ["unroll"] * 2, "ann_spatial": ["unroll", "unroll", "vec"]}
UNTUNED = {
    "nchw": {"reorder_0": [*range(10)], **_MARKS}, "nhwc": {"reorder_conv": [*range(10)], **_MARKS},
}  # fmt: skip
# The axes of the orders by letter: reduction i, y, x; a tile h, w, c; "." are loops over tiles,
# which are outside here, all of them.
LETTERS = {"nchw": "....iyxhwc", "nhwc": "....yxihwc"}
ORDER = {"nchw": "reorder_0", "nhwc": "reorder_conv"}


def layout_of(op: ComputeOp) -> str:
    return op.tag.rpartition("_")[2]


def define_nchw(cfg: Any, op: ComputeOp, loops: int) -> None:
    batch, channel, row, column = (ax.size for ax in op.axis)
    depth, kh, kw = (cfg.reduce_axis(ax.size) for ax in op.reduce_axis)
    n, co, oh, ow = cfg.axis(batch), cfg.axis(channel), cfg.axis(row), cfg.axis(column)
    co, vc = _ends(cfg.define_split("tile_co", co, num_outputs=loops))
    oh, vh = _ends(cfg.define_split("tile_oh", oh, num_outputs=loops))
    ow, vw = _ends(cfg.define_split("tile_ow", ow, num_outputs=loops))
    outer = [n, co, oh, ow, depth, kh, kw]
    cfg.define_reorder(
        "reorder_0", [*outer, vh, vw, vc], policy="candidate",
        candidate=[[*outer, vh, vw, vc], [*outer, vc, vh, vw]],
    )  # fmt: skip
    cfg.define_annotate("ann_reduce", [kh, kw], policy="try_unroll")
    cfg.define_annotate("ann_spatial", [vh, vw, vc], policy="try_unroll_vec")


def define_nhwc(cfg: Any, op: ComputeOp, loops: int) -> None:
    batch, row, column, channel = (ax.size for ax in op.axis)
    kh, kw, depth = (cfg.reduce_axis(ax.size) for ax in op.reduce_axis)
    n, co, oh, ow = cfg.axis(batch), cfg.axis(channel), cfg.axis(row), cfg.axis(column)
    co, vc = _ends(cfg.define_split("tile_co", co, num_outputs=loops))
    oh, vh = _ends(cfg.define_split("tile_oh", oh, num_outputs=loops))
    ow, vw = _ends(cfg.define_split("tile_ow", ow, num_outputs=loops))
    cfg.define_reorder(
        "reorder_conv", [n, oh, ow, co, kh, kw, depth, vh, vw, vc], policy="candidate",
        candidate=[
            [n, oh, ow, co, kh, kw, depth, vh, vw, vc], [n, oh, ow, co, vh, kh, kw, depth, vw, vc],
            [n, oh, ow, co, vh, kh, kw, vw, depth, vc], [n, oh, ow, vh, co, kh, kw, vw, depth, vc],
        ],
    )  # fmt: skip
    cfg.define_annotate("ann_reduce", [kh, kw], policy="try_unroll")
    cfg.define_annotate("ann_spatial", [vh, vw, vc], policy="try_unroll_vec")


def _ends(axes: Sequence[Any]) -> tuple[Any, Any]:
    return axes[0], axes[-1]


def packed(s: Schedule, op: ComputeOp, channels: Size) -> None:
    """Constant weights as they are read: blocks of channels, innermost."""
    place = 0 if layout_of(op) == "nchw" else 3
    blocks = [channels if d == place else 1 for d in range(4)]
    rest = [d for d in range(4) if d != place]
    pack(s, op.input_tensors[1], blocks, [place, *rest, 4 + place])


def tile_loops(s: Schedule, local: Tensor, layout: str) -> dict[str, IterVar]:
    """The loops of what computes a tile, by letter."""
    op = op_of(s, local)
    _, *own = op.axis
    letters = LETTERS[layout].replace(".", "")[:3]
    found = dict(zip(layout[1:], own, strict=True))
    return found | dict(zip(letters, op.reduce_axis, strict=True))


def order_tile(cfg: Any, s: Schedule, local: Tensor, layout: str) -> None:
    loops, letters = tile_loops(s, local, layout), LETTERS[layout]
    order = [letters[p] for p in cfg[ORDER[layout]].perm if letters[p] in loops]
    s[local].reorder(*(loops[letter] for letter in order))


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
