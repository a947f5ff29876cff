"""Depthwise convolutions on GPUs: `depthwise_conv2d_nchw.gpu` and `depthwise_conv2d_nhwc.gpu`.

In: anchors of `topi.nn.depthwise_conv2d`.  Out: schedules in which a thread owns a small image tile
of one channel (NHWC: of a few) and keeps its inputs in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tilewright.schedule.template import Anchored, anchor_template
from tilewright.te.tensor import ComputeOp
from tilewright.topi.templates.gpu import (
    Operands,
    Roles,
    accumulator,
    fetch,
    op_of,
    operands,
    pixel_tiles,
    tile_sizes,
)
from tilewright.topi.templates.gpu_epilogue import inline_around

KINDS = ("cuda", "opencl")
NCHW = Roles(channel=1, rows=2, columns=3, depth=0)
NHWC = Roles(channel=3, rows=1, columns=2, depth=0)
CHANNEL_THREADS = (1, 2, 4, 8, 16, 32, 64)
UNROLLS = (0, 64, 512)


@dataclass(frozen=True)
class Dim:
    """A tiled dimension: its knob and its position in the output."""

    knob: str
    position: int


def dims(roles: Roles) -> list[Dim]:
    assert roles.rows is not None
    found = [Dim("tile_c", roles.channel), Dim("tile_y", roles.rows), Dim("tile_x", roles.columns)]
    return sorted(found, key=lambda d: d.position)


def define_knobs(cfg: Any, op: ComputeOp, roles: Roles) -> None:
    channels, rows, columns = (int(op.axis[d].extent) for d in (roles.channel, *_image(roles)))
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
    _read(cfg, a, factors, local, last, (grid[0], thread), count)


def _read(
    cfg: Any, a: Anchored, factors: Operands, local: Any, last: Any, loops: Any, threads: Any
) -> None:
    """Inputs come to registers, through shared memory where several threads use them."""
    s = a.schedule
    block, thread = loops
    data = factors.data
    if int(cfg["shared_data"].val):
        data = s.cache_read(data, "shared", [local])
        fetch(s[data], threads, 1)
        s[data].compute_at(s[last], block)
    for tensor in (data, factors.weight):
        own = s.cache_read(tensor, "local", [local])
        s[own].compute_at(s[last], thread)
        lanes = s[own].op.axis[-1]
        if cfg_is_last(cfg, a):
            s[own].vectorize(lanes)


def cfg_is_last(cfg: Any, a: Anchored) -> bool:
    """Whether channels are innermost, so that a thread's few of them are one access."""
    return op_of(a.schedule, a.anchor).tag.endswith("nhwc")


def fallback(space: Any, a: Anchored, roles: Roles) -> dict[str, Any]:
    """A few hundred blocks of about 128 threads with eight outputs each."""
    rows, columns = (int(a.anchor.shape[d]) for d in _image(roles))
    last = roles.channel == 3
    limit = min(128, a.target.limits.max_threads_per_block)
    wide = max(tile_sizes(columns, 4))
    strips = max(e.size[1] for e in space.space_map["tile_x"] if e.size[2] == wide and e.size[1] <= limit)
    strips = 1 if last else strips
    tall = [e.size[1:] for e in space.space_map["tile_y"] if e.size[2] == 1]
    lines = max(t for t, _ in tall if t * strips <= limit and (not last or t <= 4))
    rest = limit // (strips * lines)
    threads, each = max((t, e) for _, t, e in (x.size for x in space.space_map["tile_c"]) if t <= rest)
    return {
        "tile_c": [-1, threads, each], "tile_y": [-1, lines, 1], "tile_x": [-1, strips, wide],
        "shared_data": 0, "auto_unroll_max_step": 64,
    }  # fmt: skip


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
