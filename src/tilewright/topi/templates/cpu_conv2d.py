"""Convolution templates for CPUs: vectors over output channels, or over the columns of the image.

`conv2d_nchw.llvm` and `conv2d_nhwc.llvm` keep a tile of channels x rows x columns in registers,
lanes over channels, and read packed weights; every element of the data is broadcast.
`conv2d_nchw_columns.llvm` has its lanes over the columns and broadcasts weights where they lie: for
weights that are no constants, and for wide images.  Read next: `cpu_tile.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.te.tensor import ComputeOp
from tilewright.topi.templates.cpu_tile import (
    UNROLL,
    Operands,
    Tile,
    accumulator_of,
    finish,
    lanes_for,
    operands,
    powers,
    reduction_loops,
    register_tile,
    store_at,
    tile_sizes,
)
from tilewright.topi.templates.untuned import fastest

COLUMNS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 28)
ROWS = (1, 2, 3, 4, 5, 6, 7, 8)
VECTORS = (1, 2, 3, 4)
CHANNELS = (1, 2, 3, 4, 6, 8, 12)
MAX_BLOCK = 64


@dataclass(frozen=True)
class Conv:
    """Where the output's and the weight's dimensions lie, and sizes.

    group_out: output channels per group
    """

    channel: int
    row: int
    column: int
    weight: str
    out: tuple[int, ...]
    reduced: tuple[int, int, int]  # channels, window rows, window columns
    group_out: int

    @property
    def channels(self) -> int:
        return self.out[self.channel]

    @property
    def rows(self) -> int:
        return self.out[self.row]

    @property
    def columns(self) -> int:
        return self.out[self.column]

    @property
    def steps(self) -> int:
        return prod(self.reduced)


def conv_of(at: Anchored) -> Conv:
    """Read the convolution off its workload: name, data, kernel, ..., groups if more than one."""
    op = at.anchor.op
    assert isinstance(op, ComputeOp)
    name, _, _, *rest = op.attrs["workload"]
    groups = int(rest[3]) if name.startswith("group") else 1
    extents = [ax.size for ax in op.reduce_axis]
    if name.endswith("nchw"):
        channels, rows, columns = extents
        return Conv(1, 2, 3, "OIHW", op.shape, (channels, rows, columns), op.shape[1] // groups)
    rows, columns, channels = extents
    return Conv(3, 1, 2, "HWIO", op.shape, (channels, rows, columns), op.shape[3] // groups)


def loop_orders(conv: Conv) -> tuple[str, ...]:
    """Names of the orders of the reduction loops: channels outside, or the window outside."""
    return ("channels",) if conv.reduced[1:] == (1, 1) else ("channels", "window")


def tile_orders(ops: Operands) -> tuple[str, ...]:
    """Names of the orders of the loops over tiles, outermost first; "|" ends the parallel loop; the
    padded data is then computed inside it."""
    return ("fyx", "yfx", "y|fx") if ops.movable else ("fyx", "yfx")


# -- lanes over channels ---------------------------------------------------------------------------


def channel_lanes(at: Anchored, conv: Conv) -> int:
    """Lanes over the channels of one group."""
    lanes = lanes_for(conv.group_out, accumulator_of(at), at.target)
    while conv.group_out < conv.channels and conv.group_out % lanes:
        lanes //= 2
    if lanes < 2:
        raise ScheduleError(
            f"conv2d template for {at.anchor.name}",
            f"groups of {conv.group_out} output channels fill no vector",
            "Another template has its vectors over the columns.",
        )
    return lanes


def channel_vectors(conv: Conv, lanes: int) -> list[int]:
    if conv.group_out < conv.channels:  # a tile stays within its group
        return [v for v in VECTORS if conv.group_out % (v * lanes) == 0]
    return [v for v in VECTORS if v <= ceil(conv.channels / lanes)]


def schedule_channels(cfg: Any, at: Anchored) -> None:
    conv = conv_of(at)
    lanes = channel_lanes(at, conv)
    ops = operands(at)
    inplace = conv.weight == "HWIO" and conv.group_out == conv.channels
    if not (ops.constant or inplace):
        raise ScheduleError(
            f"conv2d template for {at.anchor.name}",
            "its weights are no constant that can be packed",
            "Another template has its vectors over the columns.",
        )
    cfg.define_knob("tile_f", channel_vectors(conv, lanes))
    cfg.define_knob("tile_y", tile_sizes(conv.rows, ROWS))
    cfg.define_knob("tile_x", tile_sizes(conv.columns, COLUMNS))
    cfg.define_knob("block_c", powers(conv.reduced[0], MAX_BLOCK))
    cfg.define_knob("reduction", loop_orders(conv))
    cfg.define_knob("order", tile_orders(ops))
    cfg.define_knob("unroll", UNROLL)
    order = cfg["reduction"].val
    if ops.constant:
        vectors = int(cfg["tile_f"].val)
        _pack(at, ops, conv, vectors * lanes, order)
    _schedule(cfg, at, ops, conv, lanes, conv.channel)


def _pack(at: Anchored, ops: Operands, conv: Conv, block: int, order: str) -> None:
    """Weights in the order they are read: O, the reduction loops, the channels of a tile."""
    letters = "OIHW" if order == "channels" else "OHWI"
    place = conv.weight.index
    blocks = [block if letter == "O" else 1 for letter in conv.weight]
    at.schedule.pack(ops.weight, blocks, [*map(place, letters), 4 + place("O")])


def _schedule(cfg: Any, at: Anchored, ops: Operands, conv: Conv, lanes: int, lane: int) -> None:
    by_letter = {"f": conv.channel, "y": conv.row, "x": conv.column}
    sizes = {by_letter[letter]: cfg[f"tile_{letter}"].val for letter in "fyx"}
    loops, bar, rest = cfg["order"].val.partition("|")
    outer = [0, *(by_letter[letter] for letter in loops + rest)]
    parallel = 1 + len(loops) if bar else len(outer)
    tiled = register_tile(at, Tile(lane, lanes, sizes, outer, parallel))
    axes = tiled.local.op.reduce_axis
    rc, ry, rx = axes if conv.weight == "OIHW" else (axes[2], axes[0], axes[1])
    block, rest_c = tiled.local.split(rc, factor=cfg["block_c"].val)
    window = cfg["reduction"].val == "window"
    reduction_loops(
        tiled, (block, ry, rx, rest_c) if window else (block, rest_c, ry, rx), cfg["unroll"].val
    )
    if bar and ops.stored is not None:
        store_at(ops.stored, tiled, lanes_for(ops.stored.op.shape[-1], ops.data.dtype, at.target))
    finish(at, tiled)


def fallback(sketch: Sketch, _: Anchored) -> int:
    """The tile that the model likes best; everything else as usual."""
    space = sketch.space
    usual = {name: space.space_map[name][0].val for name in ("reduction", "order")}
    return fastest(sketch, {"block_c": 1, "unroll": 0, **usual})


# -- lanes over columns ----------------------------------------------------------------------------


def schedule_columns(cfg: Any, at: Anchored) -> None:
    conv = conv_of(at)
    ops = operands(at)
    full = lanes_for(conv.columns, accumulator_of(at), at.target)
    if full < 2:
        raise ScheduleError(
            f"conv2d template for {at.anchor.name}",
            "an image one column wide fills no vector",
            "It compiles with its default schedule.",
        )
    choices = [full, full // 2] if full >= 8 else [full]
    groups = conv.group_out < conv.channels
    cfg.define_knob("lanes", choices)
    cfg.define_knob(
        "tile_f",
        [f for f in CHANNELS if f <= conv.group_out and not (groups and conv.group_out % f)],
    )
    cfg.define_knob("tile_y", tile_sizes(conv.rows, (1, 2, 3, 4)))
    cfg.define_knob("tile_x", [v for v in VECTORS if v <= ceil(conv.columns / choices[-1])])
    cfg.define_knob("block_c", powers(conv.reduced[0], MAX_BLOCK))
    cfg.define_knob("reduction", loop_orders(conv))
    cfg.define_knob("order", tile_orders(ops))
    cfg.define_knob("unroll", UNROLL)
    _schedule(cfg, at, ops, conv, cfg["lanes"].val, conv.column)


anchor_template(
    "conv2d_nchw.llvm",
    kinds=("llvm",),
    tags=("conv2d_nchw", "group_conv2d_nchw"),
    fallback=fallback,
)(schedule_channels)
anchor_template(
    "conv2d_nhwc.llvm",
    kinds=("llvm",),
    tags=("conv2d_nhwc", "group_conv2d_nhwc"),
    fallback=fallback,
)(schedule_channels)
anchor_template(
    "conv2d_nchw_columns.llvm",
    kinds=("llvm",),
    tags=("conv2d_nchw", "group_conv2d_nchw"),
    fallback=fallback,
)(schedule_columns)
