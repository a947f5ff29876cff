"""Depthwise convolution templates for CPUs: vectors over the contiguous dimension of the image.

NCHW: lanes over columns, weights broadcast; NHWC: lanes over channels.  There is nothing to pack: a
channel's window is read once per tile.  Read next: `cpu_tile.py`, `cpu_conv2d.py`.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.te.tensor import ComputeOp
from tilewright.topi.templates.cpu_tile import (
    UNROLL,
    Tile,
    accumulator_of,
    finish,
    lanes_for,
    operands,
    reduction_loops,
    register_tile,
    store_at,
    tile_sizes,
)
from tilewright.topi.templates.untuned import fastest

SIZES = (1, 2, 3, 4, 6, 7, 8)
PLACES = {"nchw": {"f": 1, "y": 2, "x": 3}, "nhwc": {"f": 3, "y": 1, "x": 2}}


def _places(at: Anchored) -> dict[str, int]:
    """Output dimension of channels (f), rows (y) and columns (x)."""
    assert isinstance(at.anchor.op, ComputeOp)
    return PLACES[at.anchor.op.tag.rpartition("_")[2]]


def _lanes(at: Anchored) -> int:
    lanes = lanes_for(at.anchor.shape[3], accumulator_of(at), at.target)
    if lanes < 2:
        raise ScheduleError(
            f"depthwise template for {at.anchor.name}",
            "its last dimension fills no vector",
            "It compiles with its default schedule.",
        )
    return lanes


def schedule_depthwise(cfg: Any, at: Anchored) -> None:
    places, full = _places(at), _lanes(at)
    ops = operands(at)
    cfg.define_knob("lanes", [full, full // 2] if full >= 8 else [full])
    for letter, d in places.items():
        extent = at.anchor.shape[d]
        sizes = tile_sizes(extent, SIZES)
        if d == 3:
            sizes = [v for v in SIZES if v <= ceil(extent / (full // 2 if full >= 8 else full))]
        cfg.define_knob(f"tile_{letter}", sizes)
    orders = ["fyx", "yfx"]
    cfg.define_knob("order", [*orders, "f|yx", "fy|x", "y|fx"] if ops.movable else orders)
    cfg.define_knob("unroll", UNROLL)
    lanes = cfg["lanes"].val
    loops, bar, rest = cfg["order"].val.partition("|")
    outer = [0, *(places[letter] for letter in loops + rest)]
    tile = {d: cfg[f"tile_{letter}"].val for letter, d in places.items()}
    tiled = register_tile(at, Tile(3, lanes, tile, outer, 1 + len(loops) if bar else len(outer)))
    reduction_loops(tiled, tiled.local.op.reduce_axis, cfg["unroll"].val)
    if bar and ops.stored is not None:
        store_at(ops.stored, tiled, at.target)
    finish(at, tiled)


def fallback_depthwise(sketch: Sketch, _: Anchored) -> int:
    """The tile that the model likes best."""
    return fastest(sketch, {"order": "fyx", "unroll": 0})


anchor_template(
    "depthwise_conv2d_nchw.llvm",
    kinds=("llvm",),
    tags=("depthwise_conv2d_nchw",),
    fallback=fallback_depthwise,
)(schedule_depthwise)
anchor_template(
    "depthwise_conv2d_nhwc.llvm",
    kinds=("llvm",),
    tags=("depthwise_conv2d_nhwc",),
    fallback=fallback_depthwise,
)(schedule_depthwise)
