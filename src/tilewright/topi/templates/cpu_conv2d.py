"""Convolution templates for CPUs: vectors over output channels, or over the columns of the image.

`conv2d_nchw.llvm`, `conv2d_nhwc.llvm` and those of other ranks keep a tile of channels x rows x
columns in registers, lanes over channels, and read packed weights; every element of the data is
broadcast.  `conv2d_nchw_columns.llvm` has its lanes over the columns and broadcasts weights where
they lie: for weights that are no constants, and for wide images; so have transposed convolutions.
Read next: `cpu_tile.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.te.tensor import ComputeOp
from tilewright.topi.stage import groups_of
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

    row: None where the image has one axis; other axes of the image, and phases of a transposed
         convolution, are loops outside, as the batch is
    weight: its letters, of a convolution that is not transposed
    reduced: channels, then the window
    group_out: output channels per group
    """

    channel: int
    row: int | None
    column: int
    weight: str
    out: tuple[int, ...]
    reduced: tuple[int, ...]
    group_out: int

    @property
    def channels(self) -> int:
        return self.out[self.channel]

    @property
    def columns(self) -> int:
        return self.out[self.column]

    @property
    def places(self) -> dict[str, int]:
        """The dimensions that are tiled, by letter."""
        rows = {} if self.row is None else {"y": self.row}
        return {"f": self.channel, **rows, "x": self.column}

    @property
    def steps(self) -> int:
        return prod(self.reduced)


def conv_of(at: Anchored) -> Conv:
    """Read the convolution off its workload: name, data, kernel, ..., groups if more than one."""
    op = at.anchor.op
    assert isinstance(op, ComputeOp)
    layout = op.tag.rpartition("_")[2]
    first = layout.index("c") == 1
    ndim, image = len(op.shape), layout.replace("n", "").replace("c", "")
    last = ndim - 1 if first else ndim - 2
    channel, row = (1 if first else ndim - 1), (last - 1 if len(image) > 1 else None)
    groups = groups_of(op, op.shape[channel]) if op.tag.startswith("group") else 1
    extents = [ax.size for ax in op.reduce_axis]
    reduced = extents if first else [extents[-1], *extents[:-1]]
    letters = f"OI{image.upper()}" if first else f"{image.upper()}IO"
    return Conv(channel, row, last, letters, op.shape, tuple(reduced), op.shape[channel] // groups)


def loop_orders(conv: Conv) -> tuple[str, ...]:
    """Names of the orders of the reduction loops: channels outside, or the window outside."""
    return ("channels",) if set(conv.reduced[1:]) == {1} else ("channels", "window")


def tile_orders(ops: Operands, conv: Conv) -> tuple[str, ...]:
    """Names of the orders of the loops over tiles, outermost first; "|" ends the parallel loop; the
    padded data is then computed inside it."""
    if conv.row is None:
        return ("fx", "xf", "x|f") if ops.movable else ("fx", "xf")
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
    inplace = conv.weight.endswith("IO") and conv.group_out == conv.channels
    if not (ops.constant or inplace):
        raise ScheduleError(
            f"conv2d template for {at.anchor.name}",
            "its weights are no constant that can be packed",
            "Another template has its vectors over the columns.",
        )
    cfg.define_knob("tile_f", channel_vectors(conv, lanes))
    if conv.row is not None:
        cfg.define_knob("tile_y", tile_sizes(conv.out[conv.row], ROWS))
    cfg.define_knob("tile_x", tile_sizes(conv.columns, COLUMNS))
    cfg.define_knob("block_c", powers(conv.reduced[0], MAX_BLOCK))
    cfg.define_knob("reduction", loop_orders(conv))
    cfg.define_knob("order", tile_orders(ops, conv))
    cfg.define_knob("unroll", UNROLL)
    order = cfg["reduction"].val
    if ops.constant:
        vectors = int(cfg["tile_f"].val)
        _pack(at, ops, conv, vectors * lanes, order)
    _schedule(cfg, at, ops, conv, lanes, conv.channel)


def _pack(at: Anchored, ops: Operands, conv: Conv, block: int, order: str) -> None:
    """Weights in the order they are read: O, the reduction loops, the channels of a tile."""
    image = "".join(letter for letter in conv.weight if letter not in "OI")
    letters = f"OI{image}" if order == "channels" else f"O{image}I"
    place = conv.weight.index
    blocks = [block if letter == "O" else 1 for letter in conv.weight]
    at.schedule.pack(ops.weight, blocks, [*map(place, letters), len(blocks) + place("O")])


def _schedule(cfg: Any, at: Anchored, ops: Operands, conv: Conv, lanes: int, lane: int) -> None:
    places = conv.places
    sizes = {d: cfg[f"tile_{letter}"].val for letter, d in places.items()}
    loops, bar, rest = cfg["order"].val.partition("|")
    batch = [d for d in range(len(conv.out)) if d not in places.values()]
    outer = [*batch, *(places[letter] for letter in loops + rest)]
    parallel = len(batch) + len(loops) if bar else len(outer)
    tiled = register_tile(at, Tile(lane, lanes, sizes, outer, parallel))
    axes = list(tiled.local.op.reduce_axis)
    rc = axes.pop(0 if conv.channel == 1 else -1)
    block, rest_c = tiled.local.split(rc, factor=cfg["block_c"].val)
    window = cfg["reduction"].val == "window"
    reduction_loops(
        tiled, (block, *axes, rest_c) if window else (block, rest_c, *axes), cfg["unroll"].val
    )
    if bar and ops.stored is not None:
        store_at(ops.stored, tiled, at.target)
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
    if conv.row is not None:
        cfg.define_knob("tile_y", tile_sizes(conv.out[conv.row], (1, 2, 3, 4)))
    cfg.define_knob("tile_x", [v for v in VECTORS if v <= ceil(conv.columns / choices[-1])])
    cfg.define_knob("block_c", powers(conv.reduced[0], MAX_BLOCK))
    cfg.define_knob("reduction", loop_orders(conv))
    cfg.define_knob("order", tile_orders(ops, conv))
    cfg.define_knob("unroll", UNROLL)
    _schedule(cfg, at, ops, conv, cfg["lanes"].val, conv.column)


CHANNELS_FIRST, CHANNELS_LAST = ("ncw", "nchw", "ncdhw"), ("nwc", "nhwc", "ndhwc")

for _rank in (1, 2, 3):
    _first, _last = CHANNELS_FIRST[_rank - 1], CHANNELS_LAST[_rank - 1]
    for _layout in (_first, _last):
        anchor_template(
            f"conv{_rank}d_{_layout}.llvm", kinds=("llvm",), fallback=fallback,
            tags=(f"conv{_rank}d_{_layout}", f"group_conv{_rank}d_{_layout}"),
        )(schedule_channels)  # fmt: skip
    anchor_template(
        f"conv{_rank}d_{_first}_columns.llvm", kinds=("llvm",), fallback=fallback,
        tags=(f"conv{_rank}d_{_first}", f"group_conv{_rank}d_{_first}"),
    )(schedule_columns)  # fmt: skip
    anchor_template(
        f"conv{_rank}d_transpose_{_first}.llvm", kinds=("llvm",), fallback=fallback,
        tags=(f"conv{_rank}d_transpose_{_first}", f"group_conv{_rank}d_transpose_{_first}"),
    )(schedule_columns)  # fmt: skip
