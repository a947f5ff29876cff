"""Convolutions for CUDA by TVM's names, all over images with channels first.

In: anchors of `topi.nn`.  Out: outputs in tiles of blocks, virtual threads, threads and elements;
slices of data and weights in shared memory.  Read next: `tiles.py`, `gpu_products.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.schedule.schedule import Schedule
from tilewright.schedule.template import Anchored
from tilewright.te.tensor import ComputeOp, IterVar, Tensor
from tilewright.topi.stage import groups_of, workload_of
from tilewright.topi.templates.gpu import accumulator, op_of
from tilewright.topi.templates.gpu_epilogue import inline_around
from tilewright_tvm.topi.templates import workloads
from tilewright_tvm.topi.templates.naming import GPU, by_name
from tilewright_tvm.topi.templates.tiles import (
    Knobs,
    define_unroll,
    factors,
    last_of,
    spread,
    through_shared,
    unroll,
)


@dataclass(frozen=True)
class Form:
    """One of the templates.

    tiles:    knob -> dimension of the output, in the order of the loops
    lengths:  knob -> dimension that it has the length of, where that is another one: the original
              mixes them up, and what was recorded was measured that way
    reduced:  knob -> (reduction axis that it has the length of, the one that it tiles)
    depth:    loops that such a knob makes; the others of the reduction run outside its innermost
    blocks, threads: which knobs share an index; two lists of threads: the knob `fuse_yx` chooses
    """

    tiles: Mapping[str, int]
    reduced: Mapping[str, tuple[int, int]]
    blocks: Knobs
    threads: tuple[Knobs, ...]
    unrolls: tuple[int, ...] = (0, 512, 1500)
    depth: int = 2
    in_turn: bool = False
    lengths: Mapping[str, int] = field(default_factory=dict)


F, Y, X = ("tile_f",), ("tile_y",), ("tile_x",)
N_F, Y_X = ("tile_n", "tile_f"), ("tile_y", "tile_x")
EITHER: tuple[Knobs, ...] = ((N_F, Y, X), (("tile_n",), F, Y_X))  # fuse_yx = 0, 1
CONV1D = Form(
    {"tile_n": 0, "tile_f": 1, "tile_x": 2}, {"tile_rc": (0, 0)}, (("tile_n",), F, X), ((N_F, X),),
    unrolls=(64, 512, 1500), depth=3,
)  # fmt: skip
CONV1D_NWC = Form(  # rc is the window, which comes first in this layout
    {"tile_n": 0, "tile_x": 1, "tile_f": 2}, {"tile_rc": (0, 0)}, (("tile_n",), X, F),
    ((("tile_n", "tile_x"), F),), unrolls=(64, 512, 1500), depth=3,
)  # fmt: skip
CONV2D = Form(
    {"tile_f": 1, "tile_y": 2, "tile_x": 3},
    {"tile_rc": (0, 0), "tile_ry": (1, 1), "tile_rx": (2, 2)}, (F, Y, X), ((F, Y, X),),
)  # fmt: skip
CONV3D = Form(
    {"tile_f": 1, "tile_d": 2, "tile_y": 3, "tile_x": 4},
    {"tile_rc": (0, 0), "tile_rd": (2, 1), "tile_ry": (2, 2), "tile_rx": (3, 3)},
    (F, ("tile_d", "tile_y"), X), ((("tile_f", "tile_d"), Y, X),),
)  # fmt: skip
CONV3D_NDHWC = replace(
    CONV3D, lengths={"tile_f": 4, "tile_d": 1, "tile_y": 2, "tile_x": 3}
)  # fmt: skip
GROUPS = Form(
    {"tile_n": 0, "tile_g": 1, "tile_f": 1, "tile_y": 2, "tile_x": 3},
    {"tile_rc": (0, 0), "tile_ry": (1, 2), "tile_rx": (2, 1)},
    (("tile_n",), ("tile_g", "tile_f"), Y_X), EITHER, in_turn=True,
)  # fmt: skip
TRANSPOSED = Form(
    {"tile_n": 0, "tile_f": 1, "tile_y": 2, "tile_x": 3}, {"tile_rc": (0, 0)},
    (("tile_n",), F, Y_X), EITHER, unrolls=(64, 512, 1500), depth=3,
)  # fmt: skip


def schedule(cfg: Any, a: Anchored, form: Form) -> None:
    s, op = a.schedule, op_of(a.schedule, a.anchor)
    last = inline_around(a, last_of(a, op))
    groups = groups_of(op, op.shape[1]) if "tile_g" in form.tiles else 1
    define(cfg, form, s[last].op.shape, op, groups)
    tensors = factors(a)
    local = accumulator(s, a.anchor, last)
    axes = axes_of(s, last, form, groups)
    lead = [] if "tile_n" in form.tiles else [s[last].op.axis[0]]
    threads = form.threads[int(cfg["fuse_yx"].val) if len(form.threads) > 1 else 0]
    tiles = spread(cfg, s, last, axes, form.blocks, threads, lead)
    s[local].compute_at(s[last], tiles.thread)
    outer, inner = reduction(cfg, s, local, form)
    s[local].reorder(*outer, *inner, *s[local].op.axis)
    through_shared(s, tensors, local, s[local], outer[-1], tiles.counts, in_turn=form.in_turn)
    unroll(cfg, s[last])


def define(cfg: Any, form: Form, shape: tuple[int, ...], op: ComputeOp, groups: int) -> None:
    """Open the knobs, in the original's order."""
    extents = {name: shape[form.lengths.get(name, d)] for name, d in form.tiles.items()}
    if "tile_g" in extents:
        extents |= {"tile_g": groups, "tile_f": extents["tile_f"] // groups}
    for name, extent in extents.items():
        cfg.define_split(name, extent, num_outputs=2 if name == "tile_g" else 4)
    sizes = window_of(op)
    for name, (length, _) in form.reduced.items():
        cfg.define_split(name, sizes[length], num_outputs=form.depth)
    define_unroll(cfg, form.unrolls)
    if len(form.threads) > 1:
        cfg.define_knob("fuse_yx", [0, 1])


def window_of(op: ComputeOp) -> list[int]:
    """Lengths of the reduction; each phase of a transposed convolution has a part of the window."""
    if "transpose" not in op.tag:
        return [ax.size for ax in op.reduce_axis]
    _, _, (_, kernel, _), *_ = workload_of(op, 2)
    return [op.reduce_axis[0].size, *kernel[2:]]


def axes_of(s: Schedule, last: Tensor, form: Form, groups: int) -> dict[str, IterVar]:
    axes = {name: s[last].op.axis[d] for name, d in form.tiles.items()}
    if "tile_g" in axes:
        axes["tile_g"], axes["tile_f"] = s[last].split(axes["tile_f"], nparts=groups)
    return axes


def reduction(
    cfg: Any, s: Schedule, local: Tensor, form: Form
) -> tuple[list[IterVar], list[IterVar]]:
    """Loops of the reduction outside the copies, and inside."""
    axes = list(op_of(s, local).reduce_axis)
    outer, inner = [], []
    for name, (_, tiled) in sorted(form.reduced.items(), key=lambda item: item[1][1]):
        *outside, inside = cfg[name].apply(s, local, axes[tiled])
        outer += outside
        inner.append(inside)
    done = {tiled for _, tiled in form.reduced.values()}
    return outer + [ax for k, ax in enumerate(axes) if k not in done], inner


def schedule_depthwise(cfg: Any, a: Anchored) -> None:
    """Data and weights of a block in shared memory, those of a thread in registers."""
    s, op = a.schedule, op_of(a.schedule, a.anchor)
    last = inline_around(a)
    form = Form(CONV2D.tiles, {}, CONV2D.blocks, CONV2D.threads, (0, 256, 1500))
    define(cfg, form, op.shape, op, 1)
    tensors = factors(a)
    local = accumulator(s, a.anchor, last)
    axes = axes_of(s, last, form, 1)
    tiles = spread(cfg, s, last, axes, form.blocks, form.threads[0], [s[last].op.axis[0]])
    s[local].compute_at(s[last], tiles.thread)
    copies = through_shared(s, tensors, local, s[last], tiles.block, tiles.counts, in_turn=True)
    for shared in copies:
        s[s.cache_read(shared, "local", [local])].compute_at(s[last], tiles.thread)
    unroll(cfg, s[last])


def _register(name: str, tags: list[str], compute: Any, form: Form) -> None:
    def scheduled(cfg: Any, a: Anchored) -> None:
        schedule(cfg, a, form)

    by_name(name, GPU, tags, compute, scheduled)


for _layout, _form in (("ncw", CONV1D), ("nwc", CONV1D_NWC)):
    _register(
        f"conv1d_{_layout}.cuda", [f"conv1d_{_layout}"], workloads.CONV[_layout.upper()], _form
    )
    _register(
        f"group_conv1d_{_layout}.cuda", [f"group_conv1d_{_layout}", f"conv1d_{_layout}"],
        workloads.GROUPED[_layout.upper()], _form,
    )  # fmt: skip
# The original's name says nchw.
_register(
    "conv1d_transpose_nchw.cuda", ["conv1d_transpose_ncw"], workloads.TRANSPOSED["NCW"], CONV1D
)
_register("conv2d_nchw.cuda", ["conv2d_nchw"], workloads.CONV["NCHW"], CONV2D)
_register("group_conv2d_nchw.cuda", ["group_conv2d_nchw"], workloads.GROUPED["NCHW"], GROUPS)
_register(
    "conv2d_transpose_nchw.cuda", ["conv2d_transpose_nchw", "group_conv2d_transpose_nchw"],
    workloads.TRANSPOSED["NCHW"], TRANSPOSED,
)  # fmt: skip
_register("conv3d_ncdhw.cuda", ["conv3d_ncdhw"], workloads.GROUPED["NCDHW"], CONV3D)
_register("conv3d_ndhwc.cuda", ["conv3d_ndhwc"], workloads.GROUPED["NDHWC"], CONV3D_NDHWC)
_register(
    "conv3d_transpose_ncdhw.cuda", ["conv3d_transpose_ncdhw"], workloads.TRANSPOSED["NCDHW"],
    CONV3D,
)  # fmt: skip
by_name(
    "depthwise_conv2d_nchw.cuda", GPU, ["depthwise_conv2d_nchw"], workloads.DEPTHWISE["NCHW"],
    schedule_depthwise,
)  # fmt: skip
