"""Depthwise convolution templates for CPUs: vectors over the contiguous dimension of the image.

NCHW: lanes over columns, weights broadcast; NHWC: lanes over channels.  There is nothing to pack: a
channel's window is read once per tile.  Read next: `cpu_tile.py`, `cpu_conv2d.py`.
"""

from __future__ import annotations

from itertools import product
from math import ceil, prod
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.te.tensor import ComputeOp
from tilewright.topi.templates.cpu_tile import (
    UNROLL,
    Tile,
    Work,
    cycles,
    finish,
    lanes_for,
    operands,
    reduction_loops,
    register_tile,
    store_at,
    tile_sizes,
)

SIZES = (1, 2, 3, 4, 6, 7, 8)
PLACES = {"nchw": {"f": 1, "y": 2, "x": 3}, "nhwc": {"f": 3, "y": 1, "x": 2}}


def _places(at: Anchored) -> dict[str, int]:
    """Output dimension of channels (f), rows (y) and columns (x)."""
    assert isinstance(at.anchor.op, ComputeOp)
    return PLACES[at.anchor.op.attrs["workload"][0].rpartition("_")[2]]


def _lanes(at: Anchored) -> int:
    lanes = lanes_for(at.anchor.shape[3], at.anchor.dtype, at.target)
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
        store_at(ops.stored, tiled, lanes_for(ops.stored.op.shape[-1], at.anchor.dtype, at.target))
    finish(at, tiled)


def fallback_depthwise(space: Any, at: Anchored) -> dict[str, Any]:
    """The tile that the model likes best."""
    op = at.anchor.op
    assert isinstance(op, ComputeOp)
    steps = prod(ax.size for ax in op.reduce_axis)
    names = ("lanes", "tile_f", "tile_y", "tile_x")
    best: tuple[float, dict[str, int]] = (float("inf"), {})
    places = _places(at)
    for chosen in product(*(space.space_map[k] for k in names)):
        value = {k: e.val for k, e in zip(names, chosen, strict=True)}
        per_tile = {d: value[f"tile_{k}"] for k, d in places.items()}
        vectors = prod(per_tile.values())
        per_tile[3] *= value["lanes"]
        tiles = op.shape[0] * prod(ceil(op.shape[d] / n) for d, n in per_tile.items())
        cost = cycles(Work(vectors, vectors, value["tile_f"], steps, tiles, 2, 0), at.target)
        best = min(best, (cost, value), key=lambda item: item[0])
    return {**best[1], "order": "fyx", "unroll": 0}


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
