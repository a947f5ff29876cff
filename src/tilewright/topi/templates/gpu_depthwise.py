"""Depthwise convolutions on GPUs: `depthwise_conv2d_nchw.gpu` and `depthwise_conv2d_nhwc.gpu`.

In: anchors of `topi.nn.depthwise_conv2d`.  Out: schedules in which a thread owns a small image tile
of one channel (NHWC: of a few) and keeps its inputs in registers.  Read next: `gpu.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.space.decision import ceil_div
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.te.tensor import ComputeOp, IterVar, Tensor
from tilewright.topi.templates.gpu import (
    KINDS,
    Operands,
    Roles,
    accumulator,
    fetch,
    footprint,
    op_of,
    operands,
    pixel_tiles,
)
from tilewright.topi.templates.gpu_epilogue import inline_around

NCHW = Roles(channel=1, rows=2, columns=3, depth=0)
NHWC = Roles(channel=3, rows=1, columns=2, depth=0)
CHANNEL_THREADS = (1, 2, 4, 8, 16, 32, 64)
UNROLLS = (0, 64, 512)


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


def dims(roles: Roles) -> list[Dim]:
    assert roles.rows is not None
    found = [Dim("tile_c", roles.channel), Dim("tile_y", roles.rows), Dim("tile_x", roles.columns)]
    return sorted(found, key=lambda d: d.position)


def define_knobs(cfg: Any, op: ComputeOp, roles: Roles) -> None:
    channels, rows, columns = (op.axis[d].size for d in (roles.channel, *_image(roles)))
    each = (1, 2, 4) if roles.channel == len(op.axis) - 1 else (1,)
    cfg.define_split(
        "tile_c", channels, policy="candidate",
        candidate=[
            [-1, t, e] for t in CHANNEL_THREADS for e in each
            if t * e == 1 or (t * e <= channels and channels % e == 0)
        ],
    )  # fmt: skip
    cfg.define_split("tile_y", rows, policy="candidate", candidate=pixel_tiles(rows, 8))
    cfg.define_split("tile_x", columns, policy="candidate", candidate=pixel_tiles(columns, 8))
    cfg.define_knob("shared_data", [0, 1])
    cfg.define_knob("auto_unroll_max_step", list(UNROLLS))


def _image(roles: Roles) -> tuple[int, int]:
    assert roles.rows is not None
    return roles.rows, roles.columns


def schedule_depthwise(cfg: Any, a: Anchored, roles: Roles) -> None:
    op = op_of(a.schedule, a.anchor)
    define_knobs(cfg, op, roles)
    last = inline_around(a)
    s = a.schedule
    factors = operands(op_of(s, a.anchor), roles)
    local = accumulator(s, a.anchor, last)
    stage = s[last]
    tiles = {d: cfg[d.knob].apply(s, stage, stage.op.axis[d.position]) for d in dims(roles)}
    batch = stage.op.axis[0]
    blocks, threads, each = ([tile[k] for tile in tiles.values()] for k in range(3))
    channel = next(tile for d, tile in tiles.items() if d.position == roles.channel)
    pixels = [axis for axis in blocks if axis is not channel[0]]
    stage.reorder(batch, channel[0], *pixels, *threads, *each)
    grid = [stage.fuse(*pixels), channel[0], batch]
    for axis, dim in zip(grid, "xyz", strict=True):
        stage.bind(axis, f"blockIdx.{dim}")
    thread = stage.fuse(*threads)
    stage.bind(thread, "threadIdx.x")
    stage.pragma(batch, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    s[local].compute_at(stage, thread)
    s[local].reorder(*s[local].op.reduce_axis, *s[local].op.axis)
    count = prod(cfg[d.knob].size[1] for d in tiles)
    loops = Loops(grid[0], thread, count, roles.channel == 3)
    read_inputs(cfg, s, factors, local, stage, loops)


def read_inputs(
    cfg: Any, s: Schedule, factors: Operands, local: Tensor, stage: Stage, loops: Loops
) -> None:
    """Inputs come to registers, through shared memory where several threads use them."""
    data = factors.data
    if int(cfg["shared_data"].val):
        data = s.cache_read(data, "shared", [local])
        fetch(s[data], loops.threads, 1)
        s[data].compute_at(stage, loops.block)
    for tensor in (data, factors.weight):
        own = s.cache_read(tensor, "local", [local])
        s[own].compute_at(stage, loops.thread)
        if loops.channels_last:
            s[own].vectorize(s[own].op.axis[3])


def fallback(space: Any, a: Anchored, roles: Roles) -> int:
    """The cheapest of a fixed sample by instructions, their latency and the spread of addresses."""
    op, limits = op_of(a.schedule, a.anchor), a.target.limits
    indices = space.sample(4096, np.random.default_rng(0))
    at = space.decode(indices)
    names = [d.knob for d in dims(roles)]
    threads = prod(at[f"{n}.1"] for n in names)
    each = prod(at[f"{n}.2"] for n in names)
    blocks = prod(at[f"{n}.0"] for n in names) * op.axis[0].size
    window = prod(ax.size for ax in op.reduce_axis)
    inputs = at["tile_c.2"] * footprint(op, roles, {n: at[f"{n}.2"] for n in ("tile_y", "tile_x")})
    neighbours = at[f"{names[-1]}.1"] * at[f"{names[-1]}.2"]  # elements side by side in memory
    loads = inputs * np.maximum(limits.warp_size / neighbours, 1.0)
    warps = ceil_div(threads, limits.warp_size) * ceil_div(blocks, limits.cores)
    hidden = np.minimum(warps, 32) / 32
    cost = warps * (each * window + 8.0 * loads + 40) / hidden + 4.0 * at["shared_data"] * warps
    cost = np.where(threads <= limits.max_threads_per_block, cost, np.inf)
    cost = np.where(each + inputs + window > 96, np.inf, cost)
    return int(indices[np.argmin(cost)])


@anchor_template(
    "depthwise_conv2d_nchw.gpu", kinds=KINDS, tags=["depthwise_conv2d_nchw"],
    fallback=lambda space, a: fallback(space, a, NCHW),
)  # fmt: skip
def depthwise_nchw(cfg: Any, a: Anchored) -> None:
    schedule_depthwise(cfg, a, NCHW)


@anchor_template(
    "depthwise_conv2d_nhwc.gpu", kinds=KINDS, tags=["depthwise_conv2d_nhwc"],
    fallback=lambda space, a: fallback(space, a, NHWC),
)  # fmt: skip
def depthwise_nhwc(cfg: Any, a: Anchored) -> None:
    schedule_depthwise(cfg, a, NHWC)
