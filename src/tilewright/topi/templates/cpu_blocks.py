"""Convolutions over blocks of channels (NCHWc) for CPUs: a vector is part of a block.

Data, weights and result have the channels of a block side by side, so vectors are loaded and stored
as they lie, whatever the size of the image; nothing is packed.  Read next: `cpu_tile.py`,
`cpu_conv2d.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.te.tensor import ComputeOp
from tilewright.topi.templates.cpu_conv2d import COLUMNS, ROWS, VECTORS
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

CHUNK, ROW, COLUMN, BLOCK = 1, 2, 3, 4  # output dimensions
CHUNKS = (1, 2, 3, 4)
PLACES = {"f": (CHUNK, BLOCK), "y": (ROW,), "x": (COLUMN,)}


def schedule_blocks(cfg: Any, at: Anchored) -> None:
    op = at.anchor.op
    assert isinstance(op, ComputeOp)
    shape, channels = op.shape, len(op.reduce_axis) > 2  # a depthwise one sums over its window only
    lanes = lanes_for(shape[BLOCK], accumulator_of(at), at.target)
    if lanes < 2 or shape[BLOCK] % lanes:
        raise ScheduleError(
            f"template for {at.anchor.name}", f"blocks of {shape[BLOCK]} channels fill no vectors",
            "It compiles with its default schedule.",
        )  # fmt: skip
    ops = operands(at)
    cfg.define_knob("tile_f", [v for v in VECTORS if shape[BLOCK] % (v * lanes) == 0])
    cfg.define_knob("chunks", [c for c in CHUNKS if shape[CHUNK] % c == 0] if channels else [1])
    cfg.define_knob("tile_y", tile_sizes(shape[ROW], ROWS))
    cfg.define_knob("tile_x", tile_sizes(shape[COLUMN], COLUMNS))
    cfg.define_knob("reduction", ("window", "channels") if channels else ("window",))
    orders = ("fyx", "yfx")
    cfg.define_knob("order", (*orders, "y|fx", "fy|x", "f|yx") if ops.movable else orders)
    cfg.define_knob("unroll", UNROLL)
    sizes = {
        CHUNK: cfg["chunks"].val, ROW: cfg["tile_y"].val, COLUMN: cfg["tile_x"].val,
        BLOCK: cfg["tile_f"].val,
    }  # fmt: skip
    before, bar, behind = cfg["order"].val.partition("|")
    outer = [0, *(d for letter in before + behind for d in PLACES[letter])]
    parallel = 1 + sum(len(PLACES[letter]) for letter in before) if bar else len(outer)
    tiled = register_tile(at, Tile(BLOCK, lanes, sizes, outer, parallel))
    axes = list(tiled.local.op.reduce_axis)
    if cfg["reduction"].val == "channels":
        axes.insert(1, axes.pop())
    reduction_loops(tiled, axes, cfg["unroll"].val)
    if bar and ops.stored is not None:
        store_at(ops.stored, tiled, at.target)
    finish(at, tiled)


def fallback(sketch: Sketch, _: Anchored) -> int:
    """The tile that the model likes best."""
    return fastest(sketch, {"reduction": "window", "order": "fyx", "unroll": 0})


for _name in ("conv2d_NCHWc", "depthwise_conv2d_NCHWc"):
    anchor_template(f"{_name}.llvm", kinds=("llvm",), tags=(_name,), fallback=fallback)(
        schedule_blocks
    )
