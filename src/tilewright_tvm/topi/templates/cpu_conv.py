"""Convolutions for x86 by TVM's names: vectors over a block of channels, some columns at a time.

In: anchors over NCHW, or over blocks of channels, whose sizes are then those of the data.  Out:
tiles in registers, by `topi/templates/cpu_tile.py`.  In TVM the tile of input channels is the block
that data lie in; data NCHW are read where they lie.  Read next: `cpu_products.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.schedule.space.config_space import ConfigSpace
from tilewright.schedule.space.decision import Size
from tilewright.schedule.space.trace import Refused
from tilewright.schedule.template import Anchored
from tilewright.te.tensor import ComputeOp
from tilewright.topi.stage import groups_of, workload_of
from tilewright.topi.templates.cpu_tile import Tile, Tiled, finish, operands, register_tile
from tilewright.topi.templates.gpu import op_of
from tilewright_tvm.topi.templates import workloads
from tilewright_tvm.topi.templates.naming import CPU, by_name
from tilewright_tvm.topi.templates.tiles import pack

MOST_COLUMNS, MOST_COLUMNS_3D = 64, 8
STRUCTURES = 1 << 9  # blocks of both kinds of channels, and the order


@dataclass(frozen=True)
class Sizes:
    """Of the convolution; blocks: of input and output channels, where data have some

    row, column: dimensions of the output; channel: the one with the lanes
    """

    channels_in: int
    channels_out: int
    row: int
    column: int
    channel: int
    blocks: tuple[int, int] | None = None


def sizes_of(op: ComputeOp) -> Sizes:
    name, (_, data, _), (_, weight, _), *_ = workload_of(op, 2)
    if name.endswith("NCHWc"):
        blocks = (data[4], weight[5])
        return Sizes(data[1] * data[4], op.shape[1] * op.shape[4], 2, 3, 4, blocks)
    last = len(data) - 1
    if name.endswith("c"):  # channels innermost
        return Sizes(data[last], op.shape[last], last - 2, last - 1, last)
    return Sizes(data[1], op.shape[1], last - 1, last, 1)


def define(cfg: Any, sizes: Sizes, columns: int, policy: str, most: int = MOST_COLUMNS) -> None:
    cfg.define_split("tile_ic", sizes.channels_in, num_outputs=2)
    cfg.define_split("tile_oc", sizes.channels_out, num_outputs=2)
    cfg.define_split(
        "tile_ow", columns, num_outputs=2, policy=policy, filter=lambda tile: tile.size[-1] <= most
    )


def schedule_conv2d(cfg: Any, a: Anchored) -> None:
    op = op_of(a.schedule, a.anchor)
    sizes = sizes_of(op)
    define(cfg, sizes, op.shape[sizes.column], "verbose")
    single = [ax.size for ax in op.reduce_axis][1:3] == [1, 1]
    if single:
        cfg.define_knob("tile_oh", [1, 2] if op.shape[sizes.row] > 1 else [1])
    else:
        cfg.define_knob("unroll_kw", [True, False])
    if single:
        compute(cfg, a, sizes, cfg["tile_oh"].val, unrolled=False)
    else:
        compute(cfg, a, sizes, 1, unrolled=bool(cfg["unroll_kw"].val))


def schedule_groups(cfg: Any, a: Anchored) -> None:
    """Blocks of channels are those of one group."""
    op = op_of(a.schedule, a.anchor)
    sizes = sizes_of(op)
    groups = groups_of(op, sizes.channels_out)
    define(cfg, sizes, op.shape[sizes.column], "factors")
    cfg.define_knob("unroll_kw", [True, False])
    for name, whole in (("tile_ic", sizes.channels_in), ("tile_oc", sizes.channels_out)):
        own = whole // groups
        if not isinstance(cfg, ConfigSpace) and own % cfg[name].size[-1] != 0:
            raise Refused(
                name, f"a group has {own} channels", "Use a block that divides them."
            )  # fmt: skip
    compute(cfg, a, sizes, 1, unrolled=bool(cfg["unroll_kw"].val))


def schedule_conv3d(cfg: Any, a: Anchored) -> None:
    op = op_of(a.schedule, a.anchor)
    sizes = sizes_of(op)
    define(cfg, sizes, op.shape[sizes.column], "factors", MOST_COLUMNS_3D)
    cfg.define_knob("unroll_kw", [True, False])
    compute(cfg, a, sizes, 1, unrolled=bool(cfg["unroll_kw"].val))


def compute(cfg: Any, a: Anchored, sizes: Sizes, rows: Size, *, unrolled: bool) -> None:
    """Blocks of input channels, the window, channels of a block; constant weights in both kinds of
    blocks, innermost.

    unrolled: columns of the window inside channels, written out
    """
    s, ops = a.schedule, operands(a)
    if sizes.blocks is None:
        rank = len(s[ops.weight].op.shape)
        outputs, inputs = (0, 1) if sizes.channel == 1 else (rank - 1, rank - 2)
        blocks: list[Size] = [1] * rank
        blocks[outputs], blocks[inputs] = cfg["tile_oc"].size[-1], cfg["tile_ic"].size[-1]
        image = [d for d in range(rank) if d not in (outputs, inputs)]
        pack(s, ops.weight, blocks, [outputs, inputs, *image, rank + inputs, rank + outputs])
    tiled = tile(cfg, a, sizes, rows)
    axes = list(op_of(s, tiled.local.tensor).reduce_axis)
    if sizes.blocks is not None:
        outer, *window, inner = axes
    else:
        depth = axes.pop(0 if sizes.channel == 1 else -1)
        window = axes
        outer, inner = cfg["tile_ic"].apply(s, tiled.local.tensor, depth)
    *window, kx = window
    if unrolled:
        tiled.local.reorder(outer, *window, inner, kx)
        tiled.local.unroll(kx)
    else:
        tiled.local.reorder(outer, *window, kx, inner)
    finish(a, tiled)


def schedule_depthwise(cfg: Any, a: Anchored) -> None:
    s, op = a.schedule, op_of(a.schedule, a.anchor)
    sizes = sizes_of(op)
    define(cfg, sizes, op.shape[sizes.column], "factors")
    cfg.define_knob("unroll_kw", [True, False])
    operands(a)
    tiled = tile(cfg, a, sizes, 1)
    ky, kx = op_of(s, tiled.local.tensor).reduce_axis
    tiled.local.reorder(ky, kx)
    if bool(cfg["unroll_kw"].val):
        tiled.local.unroll(kx)
    finish(a, tiled)


def tile(cfg: Any, a: Anchored, sizes: Sizes, rows: Size) -> Tiled:
    lanes = cfg["tile_oc"].size[-1]
    if sizes.blocks is not None:
        check_blocks(cfg, sizes.blocks)
        lanes = sizes.blocks[1]
    inner = {sizes.channel: 1, sizes.row: rows, sizes.column: cfg["tile_ow"].size[-1]}
    outer = list(range(len(op_of(a.schedule, a.anchor).shape)))
    if sizes.blocks is None and sizes.channel != 1:  # blocks of channels before the image
        outer = [0, sizes.channel, *outer[1:-1]]
    return register_tile(a, Tile(sizes.channel, lanes, inner, outer, 3))


def check_blocks(cfg: Any, blocks: tuple[int, int]) -> None:
    """Refuse configurations whose blocks are not those that data and weights lie in."""
    if isinstance(cfg, ConfigSpace):  # it is being filled: nothing is chosen yet
        return
    for name, block in zip(("tile_ic", "tile_oc"), blocks, strict=True):
        if cfg[name].size[-1] != block:
            raise Refused(
                name, f"the data lie in blocks of {block}", f"Use {name} = [-1, {block}]."
            )  # fmt: skip


by_name(
    "conv2d_NCHWc.x86", CPU, ["conv2d_nchw", "conv2d_NCHWc"], workloads.MAYBE_BLOCKED,
    schedule_conv2d, STRUCTURES,
)  # fmt: skip
by_name(
    "depthwise_conv2d_NCHWc.x86", CPU, ["depthwise_conv2d_nchw", "depthwise_conv2d_NCHWc"],
    workloads.DEPTHWISE_MAYBE_BLOCKED, schedule_depthwise,
)  # fmt: skip
for _device in ("x86", "arm_cpu"):
    by_name(
        f"group_conv2d_nchw.{_device}", CPU, ["group_conv2d_nchw"], workloads.GROUPED["NCHW"],
        schedule_groups, STRUCTURES,
    )  # fmt: skip
for _layout in ("NCDHW", "NDHWC"):
    by_name(
        f"conv3d_{_layout.lower()}.x86", CPU, [f"conv3d_{_layout.lower()}"],
        workloads.GROUPED[_layout], schedule_conv3d, STRUCTURES,
    )  # fmt: skip
