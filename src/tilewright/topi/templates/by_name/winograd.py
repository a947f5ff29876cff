"""Winograd's convolution for CUDA by TVM's names: the tiles of its batched product are the space.

In: the product of `topi.nn.winograd`, channels before tiles.  Out: as `conv2d_nchw.cuda` tiles an
output; the transforms as in `topi/templates/winograd.py`, with blocks of fixed size.
Read next: `tiles.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.schedule.template import Anchored, anchor_template
from tilewright.topi.templates.by_name import workloads
from tilewright.topi.templates.by_name.tiles import (
    define_unroll,
    factors,
    spread,
    through_shared,
    unroll,
)
from tilewright.topi.templates.gpu import KINDS, accumulator, op_of
from tilewright.topi.templates.winograd import around_product

THREADS = 128  # of a block that transforms
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


NAMES = {
    "conv2d_nchw_winograd.cuda": workloads.conv2d_nchw_winograd,
    "conv2d_nchw_winograd_without_weight_transform.cuda": workloads.conv2d_nchw_winograd_packed,
}
for _name, _compute in NAMES.items():
    anchor_template(
        _name, kinds=KINDS, tags=["winograd_cp"], compute=_compute, offered=False
    )(schedule)  # fmt: skip
