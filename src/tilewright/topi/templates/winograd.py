"""Winograd's convolutions: transforms in registers around a batched product like any other.

In: a configuration and the product of `topi.nn.winograd`.  Out: three nests, on GPUs three kernels:

    tiles   a thread, or on CPUs a vector of lanes, transforms a tile of one channel
    bgemm   alpha * alpha products, by `gpu.py` or `cpu_tile.py`
    output  transformed back, followed by what is elementwise behind the convolution

Loops over a tile are unrolled, so of each transform its additions remain.
Read next: `gpu.py`, `cpu_tile.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.schedule.default import inline_cheap_stages, schedule_roots
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import Anchored, anchor_template, epilogue
from tilewright.schedule.vectors import MIN_PARALLEL_WORK
from tilewright.targets.target import Target
from tilewright.te.tensor import CONSTANTS_ATTR, ComputeOp, IterVar, PlaceholderOp, Tensor
from tilewright.topi.templates.cpu_tile import (
    UNROLL,
    Tile,
    accumulator_of,
    lanes_for,
    powers,
    reduction_loops,
    register_tile,
    tile_sizes,
)
from tilewright.topi.templates.gpu import (
    KINDS,
    Roles,
    fastest_contraction,
    op_of,
    schedule_contraction,
)
from tilewright.topi.templates.untuned import fastest

TAGS = ("winograd_cp", "winograd_pc")
THREADS = (32, 64, 128, 256)  # of a block that transforms
ROWS, VECTORS, MAX_BLOCK = (1, 2, 3, 4, 5, 6, 7, 8, 12, 14), (1, 2, 3, 4, 6, 8), 16


@dataclass(frozen=True)
class Transform:
    """Two products with constant matrices, one behind the other.

    last:   the stage that has both behind it; rows: that has the first
    source: what is transformed: read in tiles, or the product itself
    """

    last: Tensor
    rows: Tensor
    source: Tensor


@dataclass(frozen=True)
class Parts:
    """inputs: transforms of the product's operands, of the data and, unless it comes transformed,
    of the kernel; back: that of the product
    image:  the output of the convolution; output: the last elementwise stage behind it
    m:      outputs of a tile along one axis
    """

    inputs: tuple[Transform, ...]
    back: Transform
    image: ComputeOp
    output: Tensor
    m: int


def parts_of(a: Anchored) -> Parts:
    """Find the stages around the product; Raises ScheduleError for another computation."""
    dag, product = a.schedule.dag, a.anchor
    inputs = tuple(_transform(t) for t in op_of(a.schedule, product).input_tensors
                   if isinstance(t.op, ComputeOp))  # fmt: skip
    rows = _only_reader(a, product)
    inverse = _only_reader(a, rows.output_tensor)
    image = _only_reader(a, inverse.output_tensor)
    behind = epilogue(dag, image)
    output = image.output_tensor if not behind else behind[-1].output_tensor
    back = Transform(inverse.output_tensor, rows.output_tensor, product)
    return Parts(inputs, back, image, output, inverse.shape[0])


def _transform(last: Tensor) -> Transform:
    rows = last.op.input_tensors[0]
    if CONSTANTS_ATTR not in getattr(rows.op, "attrs", ()):
        raise _strange(last)
    return Transform(last, rows, rows.op.input_tensors[0])


def _only_reader(a: Anchored, tensor: Tensor) -> ComputeOp:
    readers = [op for op in a.schedule.dag.compute_ops if tensor in op.input_tensors]
    if len(readers) != 1:
        raise _strange(tensor)
    return readers[0]


def _strange(tensor: Tensor) -> ScheduleError:
    return ScheduleError(
        f"Winograd's template at {tensor.name}", "it is not part of topi.nn.conv2d_winograd_*",
        "It compiles with its default schedule.",
    )  # fmt: skip


def inline_others(a: Anchored, parts: Parts) -> None:
    """Inline what is cheap and has no loops of its own: padding, copies, elementwise stages."""
    s = a.schedule
    for op in (parts.image, *(epilogue(s.dag, parts.image) or ())):
        if op.output_tensor is not parts.output:
            s[op].compute_inline()
    sources = [t.source for t in parts.inputs if not isinstance(t.source.op, PlaceholderOp)]
    inline_cheap_stages(s, [s[t] for t in (*sources, parts.output)])


def unrolled(stage: Stage, axes: Sequence[IterVar] | None = None) -> None:
    for ax in stage.op.axis if axes is None else axes:
        stage.unroll(ax)


def held(
    s: Schedule, transform: Transform, consumer: Stage, at: IterVar, form: Callable[[Stage], None]
) -> None:
    """Compute a transform's first half, and what it reads, in registers in a loop of `consumer`.

    form: gives each of these stages its loops
    """
    source = transform.source
    computed = isinstance(source.op, ComputeOp) and source.op.combiner is None
    tile = source if computed else s.cache_read(source, "local", [transform.rows])
    for tensor in (transform.rows, tile):
        stage = s[tensor]
        stage.set_scope("local")
        stage.compute_at(consumer, at)
        form(stage)


# -- GPUs ------------------------------------------------------------------------------------------


def schedule_gpu(cfg: Any, a: Anchored) -> None:
    most = a.target.limits.max_threads_per_block
    counts = [n for n in THREADS if n <= most] or [most]
    cfg.define_knob("threads_in", counts)
    cfg.define_knob("threads_out", counts)
    around_product(a, cfg["threads_in"].val, cfg["threads_out"].val)
    schedule_contraction(cfg, a, roles_of(op_of(a.schedule, a.anchor)), a.anchor)


def around_product(a: Anchored, threads_in: Any, threads_out: Any) -> None:
    """Everything but the product: a thread of a block of so many for each tile and channel."""
    s, parts = a.schedule, parts_of(a)
    inline_others(a, parts)
    for transform in parts.inputs:
        last = s[transform.last]
        eps, nu, *points = last.op.axis
        _, thread = last.split(last.fuse(*points), factor=threads_in)
        last.reorder(*last.leaf_iter_vars[-2:], eps, nu)
        spread(last, last.leaf_iter_vars[0], thread)
        unrolled(last, (eps, nu))
        held(s, transform, last, thread, unrolled)
    _output_gpu(s, parts, threads_out)
    done = [s[parts.output], s[a.anchor], *(s[t.last] for t in parts.inputs)]
    schedule_roots(s, a.target, done)


def spread(stage: Stage, block: IterVar, thread: IterVar) -> None:
    stage.bind(block, "blockIdx.x")
    stage.bind(thread, "threadIdx.x")


def roles_of(op: ComputeOp) -> Roles:
    """[eps, nu, channels, tiles], or with tiles before channels."""
    channel = 2 if op.tag == "winograd_cp" else 3
    return Roles(channel=channel, columns=5 - channel, rows=None, depth=0)


def _output_gpu(s: Schedule, parts: Parts, threads: Any) -> None:
    """A thread for each tile of the output."""
    out = s[parts.output]
    outer, inner = tiles_of(out, parts)
    out.reorder(*outer, *inner)
    block, thread = out.split(out.fuse(*outer), factor=threads)
    spread(out, block, thread)
    *rows, last = inner
    unrolled(out, rows)
    if channels_first(parts) and parts.image.shape[-1] % parts.m == 0:
        out.vectorize(last)
    else:
        out.unroll(last)
    inverse = s[parts.back.last]
    inverse.set_scope("local")
    inverse.compute_at(out, thread)
    unrolled(inverse)
    held(s, parts.back, out, thread, unrolled)


def channels_first(parts: Parts) -> bool:
    return parts.image.axis[1].name == "co"


def tiles_of(out: Stage, parts: Parts) -> tuple[list[IterVar], list[IterVar]]:
    """The output's axes: over tiles and channels, in their order, and the two inside a tile."""
    down, along = (2, 3) if channels_first(parts) else (1, 2)
    outer, inner = list(out.op.axis), []
    for d in (down, along):
        outer[d], within = out.split(outer[d], factor=parts.m)
        inner.append(within)
    return outer, inner


def fallback_gpu(sketch: Sketch, a: Anchored) -> int:
    return fastest_contraction(sketch, op_of(a.schedule, a.anchor))


# -- CPUs ------------------------------------------------------------------------------------------


def schedule_cpu(cfg: Any, a: Anchored) -> None:
    s, op = a.schedule, op_of(a.schedule, a.anchor)
    parts = parts_of(a)
    inline_others(a, parts)
    lanes = lanes_for(op.shape[-1], accumulator_of(a), a.target)
    if lanes < 2:
        raise ScheduleError(
            f"Winograd's template for {op.name}", f"{op.shape[-1]} neighbours fill no vector",
            "It compiles with its default schedule.",
        )  # fmt: skip
    for transform in parts.inputs:
        _transform_cpu(s, transform, a.target)
    _output_cpu(s, parts, a.target)
    done = [s[parts.output], s[a.anchor], *(s[t.last] for t in parts.inputs)]
    _product_cpu(cfg, a, op, lanes)
    schedule_roots(s, a.target, done)


def _transform_cpu(s: Schedule, transform: Transform, target: Target) -> None:
    """A vector of neighbouring tiles or channels at a time."""
    last = s[transform.last]
    op = op_of(s, transform.last)
    lanes = lanes_for(op.shape[-1], op.dtype, target)
    eps, nu, row, column = op.axis
    outer, lane = last.split(column, factor=lanes)
    last.reorder(row, outer, eps, nu, lane)
    at = last.fuse(row, outer)
    if prod(op.shape) >= MIN_PARALLEL_WORK and target.limits.cores > 1:
        last.parallel(at)
    unrolled(last, (eps, nu))
    last.vectorize(lane)
    held(s, transform, last, at, in_lanes)


def in_lanes(stage: Stage) -> None:
    """A tile of vectors: what surrounds it computes one vector's worth of the last axis."""
    *rest, lane = stage.op.axis
    unrolled(stage, rest)
    stage.vectorize(lane)


def _output_cpu(s: Schedule, parts: Parts, target: Target) -> None:
    """Tiles of a vector of channels; what is stored lies along the channels, or along a row."""
    out = s[parts.output]
    op = op_of(s, parts.output)
    first = channels_first(parts)
    outer, (row, column) = tiles_of(out, parts)
    channel = outer.pop(1 if first else 3)
    lanes = lanes_for(op.shape[1 if first else 3], op.dtype, target)
    channel, lane = out.split(channel, factor=lanes)
    inner = (lane, row, column) if first else (row, column, lane)
    out.reorder(*outer, channel, *inner)
    at = out.fuse(*outer, channel)
    if prod(op.shape) >= MIN_PARALLEL_WORK and target.limits.cores > 1:
        out.parallel(at)
    out.unroll(row)
    if not first:
        out.unroll(column)
        out.vectorize(lane)
    elif parts.image.shape[-1] % parts.m == 0:
        out.vectorize(column)
    else:
        out.unroll(column)
    form = in_lanes if op_of(s, parts.back.last).axis[-1].name == "co" else _over_channels
    inverse = s[parts.back.last]
    inverse.set_scope("local")
    inverse.compute_at(out, at)
    form(inverse)
    held(s, parts.back, out, at, form)


def _over_channels(stage: Stage) -> None:
    """The same where channels come before tiles: one tile, and channels that are no neighbours."""
    *tile, channel, point = stage.op.axis
    stage.reorder(channel, *tile, point)
    unrolled(stage, tile)


def _product_cpu(cfg: Any, a: Anchored, op: ComputeOp, lanes: int) -> None:
    """Lanes over the last axis, as in a matrix product; constant kernels are packed for it."""
    s = a.schedule
    rows, columns, inner = op.shape[2], op.shape[3], op.reduce_axis[0].size
    cfg.define_knob("tile_i", tile_sizes(rows, ROWS))
    cfg.define_knob("tile_j", [v for v in VECTORS if v <= ceil(columns / lanes)])
    cfg.define_knob("block_k", powers(inner, MAX_BLOCK))
    cfg.define_knob("order", ("ij", "ji"))
    cfg.define_knob("unroll", UNROLL)
    weight = op.input_tensors[1]
    if isinstance(weight.op, PlaceholderOp) and weight.op.constant:
        last = op.tag == "winograd_pc"
        _pack(s, op, weight, int(cfg["tile_j"].val) * lanes if last else int(cfg["tile_i"].val))
    place = {"i": 2, "j": 3}
    sizes = {place[k]: cfg[f"tile_{k}"].val for k in "ij"}
    outer = [0, 1, *(place[k] for k in cfg["order"].val)]
    tiled = register_tile(a, Tile(3, lanes, sizes, outer, len(outer)))
    loops = tiled.local.split(tiled.local.op.reduce_axis[0], factor=cfg["block_k"].val)
    reduction_loops(tiled, loops, cfg["unroll"].val)


def _pack(s: Schedule, op: ComputeOp, weight: Tensor, block: int) -> None:
    """Kernels in blocks of the output channels that a tile reads: [.., block, inputs, channels]."""
    read = next(n for n in E.walk(op.body) if n.op == "read" and n.attr is weight)
    channel = 3 if read.args[2] is op.reduce_axis[0].var else 2
    order = [0, 1, channel, 5 - channel]
    if block > 1:
        order.append(4 + channel)
    s.pack(weight, [block if d == channel else 1 for d in range(4)], order)


def fallback_cpu(sketch: Sketch, _: Anchored) -> int:
    return fastest(sketch, {"order": "ij", "unroll": 0, "block_k": 1})


anchor_template(
    "conv2d_winograd.gpu", kinds=KINDS, tags=TAGS, fallback=fallback_gpu
)(schedule_gpu)  # fmt: skip
anchor_template(
    "conv2d_winograd.llvm", kinds=("llvm",), tags=TAGS, fallback=fallback_cpu
)(schedule_cpu)  # fmt: skip
