"""Depthwise convolutions on GPUs: `depthwise_conv2d_nchw.gpu` and `depthwise_conv2d_nhwc.gpu`.

In: anchors of `topi.nn.depthwise_conv2d`.  Out: schedules in which a thread owns a small image tile
of one channel (NHWC: of a few) and keeps its inputs in registers.  Read next: `gpu.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.targets.target import Target
from tilewright.te.tensor import ComputeOp, IterVar, Tensor
from tilewright.topi.templates.gpu import (
    KINDS,
    Operands,
    Roles,
    accumulator,
    fetch,
    op_of,
    operands,
    pixel_tiles,
    vector_widths,
)
from tilewright.topi.templates.gpu_epilogue import inline_around
from tilewright.topi.templates.untuned import fastest

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


def define_knobs(cfg: Any, op: ComputeOp, roles: Roles, target: Target) -> None:
    channels, rows, columns = (op.axis[d].size for d in (roles.channel, *_image(roles)))
    last = roles.channel == len(op.axis) - 1
    each = sorted(vector_widths(op.output_tensor.dtype, target)) if last else [1]
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
    define_knobs(cfg, op, roles, a.target)
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


def fallback(sketch: Sketch, _: Anchored) -> int:
    return fastest(sketch, {"auto_unroll_max_step": UNROLLS[1]})


@anchor_template(
    "depthwise_conv2d_nchw.gpu", kinds=KINDS, tags=["depthwise_conv2d_nchw"],
    fallback=fallback,
)  # fmt: skip
def depthwise_nchw(cfg: Any, a: Anchored) -> None:
    schedule_depthwise(cfg, a, NCHW)


@anchor_template(
    "depthwise_conv2d_nhwc.gpu", kinds=KINDS, tags=["depthwise_conv2d_nhwc"],
    fallback=fallback,
)  # fmt: skip
def depthwise_nhwc(cfg: Any, a: Anchored) -> None:
    schedule_depthwise(cfg, a, NHWC)
