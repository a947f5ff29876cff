"""Depthwise convolutions on GPUs: `depthwise_conv2d_nchw.gpu`, and so for each rank and layout.

In: anchors of `topi.nn.depthwise_conv2d` and of `topi.nn.conv`.  Out: schedules in which a thread
owns a small tile of one channel (channels last: of a few), along the last two axes of the image,
and keeps its inputs in registers.  Read next: `gpu.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.schedule.thread_loops import fetch
from tilewright.targets.target import Target
from tilewright.te.tensor import ComputeOp, IterVar, Tensor
from tilewright.topi.templates.gpu import (
    KINDS,
    Operands,
    Roles,
    accumulator,
    op_of,
    operands,
    pixel_tiles,
    vector_widths,
)
from tilewright.topi.templates.gpu_epilogue import inline_around
from tilewright.topi.templates.untuned import fastest

LAYOUTS = ("ncw", "nwc", "nchw", "nhwc", "ncdhw", "ndhwc")
CHANNEL_THREADS = (1, 2, 4, 8, 16, 32, 64)
UNROLLS = (0, 64, 512)
WORD = 4  # bytes


@dataclass(frozen=True)
class Dim:
    """A tiled dimension: its knob and its position in the output."""

    knob: str
    position: int


@dataclass(frozen=True)
class Loops:
    """Where inputs are read: the innermost block loop, the thread loop and its extent."""

    block: IterVar
    thread: IterVar
    threads: Any
    channels_last: bool


def roles_of(layout: str) -> Roles:
    channel, columns = layout.index("c"), layout.index("w")
    rows = columns - 1 if "h" in layout else None
    return Roles(channel=channel, rows=rows, columns=columns, depth=0)


def dims(roles: Roles) -> list[Dim]:
    found = [Dim("tile_c", roles.channel), Dim("tile_x", roles.columns)]
    if roles.rows is not None:
        found.append(Dim("tile_y", roles.rows))
    return sorted(found, key=lambda d: d.position)


def define_knobs(cfg: Any, op: ComputeOp, roles: Roles, target: Target) -> None:
    channels = op.axis[roles.channel].size
    last = roles.channel == len(op.axis) - 1
    each = channels_of_a_thread(op, target) if last else [1]
    cfg.define_split(
        "tile_c", channels, policy="candidate",
        candidate=[
            [-1, t, e] for t in CHANNEL_THREADS for e in each
            if t * e == 1 or (t * e <= channels and channels % e == 0)
        ],
    )  # fmt: skip
    for knob, position in (("tile_y", roles.rows), ("tile_x", roles.columns)):
        if position is not None:
            size = op.axis[position].size
            cfg.define_split(knob, size, policy="candidate", candidate=pixel_tiles(size, 8))
    cfg.define_knob("shared_data", [0] if target.is_mali else [0, 1])
    cfg.define_knob("auto_unroll_max_step", list(UNROLLS))


def channels_of_a_thread(op: ComputeOp, target: Target) -> list[int]:
    """Vectors of neighbouring channels, ascending; of narrow types also a word of them, which is
    what a warp reads of a whole line at once."""
    dtype = op.output_tensor.dtype
    return sorted({*vector_widths(dtype, target), max(WORD // dtype.bytes, 1)})


def schedule_depthwise(cfg: Any, a: Anchored) -> None:
    op = op_of(a.schedule, a.anchor)
    roles = roles_of(op.tag.rpartition("_")[2])
    define_knobs(cfg, op, roles, a.target)
    last = inline_around(a)
    s = a.schedule
    factors = operands(op_of(s, a.anchor), roles)
    local = accumulator(s, a.anchor, last)
    stage = s[last]
    tiles = {d: cfg[d.knob].apply(s, stage, stage.op.axis[d.position]) for d in dims(roles)}
    outer = [stage.op.axis[d] for d in roles.batch(len(op.axis))]
    blocks, threads, each = ([tile[k] for tile in tiles.values()] for k in range(3))
    channel = next(tile for d, tile in tiles.items() if d.position == roles.channel)
    pixels = [axis for axis in blocks if axis is not channel[0]]
    stage.reorder(*outer, channel[0], *pixels, *threads, *each)
    grid = [stage.fuse(*pixels), channel[0], stage.fuse(*outer)]
    for axis, dim in zip(grid, "xyz", strict=True):
        stage.bind(axis, f"blockIdx.{dim}")
    thread = stage.fuse(*threads)
    stage.bind(thread, "threadIdx.x")
    stage.pragma(grid[2], "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    s[local].compute_at(stage, thread)
    s[local].reorder(*s[local].op.reduce_axis, *s[local].op.axis)
    count = prod(cfg[d.knob].size[1] for d in tiles)
    loops = Loops(grid[0], thread, count, roles.channel == len(op.axis) - 1)
    read_inputs(cfg, s, factors, local, stage, loops)


def read_inputs(
    cfg: Any, s: Schedule, factors: Operands, local: Tensor, stage: Stage, loops: Loops
) -> None:
    """Inputs come to registers, through shared memory where several threads use them."""
    data = factors.data
    if int(cfg["shared_data"].val):
        data = s.cache_read(data, "shared", [local])
        fetch(s[data], loops.threads)
        s[data].compute_at(stage, loops.block)
    for tensor in (data, factors.weight):
        own = s.cache_read(tensor, "local", [local])
        s[own].compute_at(stage, loops.thread)
        if loops.channels_last:
            s[own].vectorize(s[own].op.axis[-1])


def fallback(sketch: Sketch, _: Anchored) -> int:
    return fastest(sketch, {"auto_unroll_max_step": UNROLLS[1]})


for _layout in LAYOUTS:
    _name = f"depthwise_conv{len(_layout) - 2}d_{_layout}"
    anchor_template(f"{_name}.gpu", kinds=KINDS, tags=[_name], fallback=fallback)(
        schedule_depthwise
    )
