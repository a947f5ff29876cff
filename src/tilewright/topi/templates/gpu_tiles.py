"""Large products without matrix units: `dense.tiles`, tiles of warps from rings in shared memory.

In: a configuration and an anchor that multiplies matrices.  Out: its schedule; knobs are opened in
passing.  Both factors lie in shared memory with rows or columns innermost, so that a thread reads
what it multiplies in pieces of 16 bytes:

    blocks, in strips of some rows  tiles of both factors stay near
      chunks                        pieces of a thread lie a part of the tile apart (vthread)
        warps                       4 x 8 lanes: neighbours read pieces that are neighbours
          slices of k               a ring, filled by asynchronous copies
            16 bytes x 16 bytes     of each chunk: outer products in registers

Extents are rounded up to whole tiles, with factors that are zero there, so that no multiply-add has
a guard.  On an H200 tiles of 128 x 128 with 8 x 8 results of a thread were the fastest; 16 x 8 run
fewer instructions and were 2% slower.  Read next: `gpu_dense.py`, which has smaller products, and
`gpu_warp_groups.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from tilewright.base.errors import LegalityError, ScheduleError
from tilewright.cost.machine_model import predict_seconds
from tilewright.ir.stmt import ASYNC_BYTES
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.space.decision import ceil_div
from tilewright.schedule.template import (
    Anchored,
    anchor_template,
    anchor_templates,
    sketch_of_anchor,
)
from tilewright.schedule.thread_loops import fetch, ring_sizes
from tilewright.te.tensor import ComputeOp, IterVar, Tensor
from tilewright.topi.templates.gpu import (
    KINDS,
    accumulator,
    add_partials,
    divisors_of,
    op_of,
    wasted,
)
from tilewright.topi.templates.gpu_atoms import Axes, Dims, is_constant, operands, width_of
from tilewright.topi.templates.gpu_epilogue import inline_around
from tilewright.topi.templates.untuned import fastest

LEAST = 64  # rows, and columns, from which a product is large
PIECE = max(ASYNC_BYTES)  # bytes that a thread reads and copies at once
LANES_M, LANES_N = 4, 8  # of a warp
UNITS = (256, 128, 64, 32)  # whole tiles: what extents are rounded up to
WASTE = 1.05  # share of multiply-adds that a larger unit may add to those of the smallest
CHUNKS = (1, 2, 4)  # pieces of a thread along an axis
WARPS = (1, 2, 3, 4, 8)
MOST = 256  # rows, or columns, of a tile
STEPS = (8, 16)  # of the sum, per slice
DEPTHS = (64, 32, 16, 8)  # what depths are rounded up to
NEAR = 8  # neighbours of a row that neighbouring threads copy
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)
STRIP = 4  # untuned
ROUNDS, SHARES = 2, 4  # untuned: blocks of a core up to which sums are split; shares at most
SMALLER, MARGIN = "dense.gpu", 1.2  # the template of smaller products; what decides for it
UNROLL = 64  # iterations of copies that are written out
STRIPS = (1, 4, 8, 16)  # tiles along m whose blocks follow each other


def schedule_tiles(cfg: Any, a: Anchored) -> None:
    """Make a product of whole tiles of the anchor, tile it, compute what follows on its results."""
    s, op = a.schedule, op_of(a.schedule, a.anchor)
    axes = _axes(op)
    rings = ring_sizes(op.input_tensors, a.target)
    if len(op.reduce_axis) != 1 or min(ax.size for ax in axes.tiled(op)) < LEAST or len(rings) == 1:
        raise ScheduleError(
            f"template for {op.name}", "it is small, or its factors cannot be copied alone",
            "Other templates compute it.",
        )  # fmt: skip
    piece = PIECE // op.input_tensors[0].dtype.bytes
    for dims in operands(op, axes):
        if dims.k == len(dims.tensor.shape) - 1 and is_constant(s, dims.tensor):
            _with_rows_innermost(s, dims)
    op = op_of(s, a.anchor)
    rows, columns = axes.tiled(op)
    depth = axes.depth(op)
    units = {rows: _unit(rows.size), columns: _unit(columns.size), depth: _unit(depth.size, DEPTHS)}
    whole = s.pad(a.anchor, units)
    op = op_of(s, whole)
    m, n = axes.tiled(op)
    steps = axes.depth(op).size
    for name, axis, unit in (("tile_m", m, LANES_M * piece), ("tile_n", n, LANES_N * piece)):
        cfg.define_split(
            name, -(-axis.size // unit), policy="candidate", candidate=list(_tiles(axis.size, unit))
        )
    cfg.define_knob("step_k", [n for n in STEPS if steps % n == 0])
    # the place of a slot is a mask where their number is a power of two: three were 3 to 23% slower
    cfg.define_knob("stages", [n for n in rings if n & (n - 1) == 0])
    cfg.define_knob("split_k", divisors_of(steps // max(STEPS), SPLITS, 4))
    cfg.define_knob("strip", [n for n in STRIPS if n == 1 or n * LEAST <= m.size])
    last = inline_around(replace(a, anchor=whole))
    root = partial = whole
    if (shares := int(cfg["split_k"].val)) > 1:
        chunk, _ = s[whole].split(axes.depth(op), nparts=shares)
        root = partial = s.rfactor(whole, chunk)
        add_partials(s, accumulator(s, whole, last), last, a.target)
    else:
        root = last
    local = accumulator(s, partial, root)
    lane = _tile(cfg, s[root], axes, piece)
    s[local].compute_at(s[root], lane)
    _multiply(cfg, s, local, axes, piece)


def _axes(op: ComputeOp) -> Axes:
    last = len(op.axis) - 1
    return Axes((last - 1, last), 0, last + 1)


def _unit(extent: int, units: Sequence[int] = UNITS) -> int:
    """The largest unit that makes hardly more of an extent than the smallest does."""
    least = wasted(extent, units[-1])
    return next(n for n in units if wasted(extent, n) <= WASTE * least)


def _tiles(extent: int, unit: int) -> Iterator[list[int]]:
    """[blocks, chunks, warps]: tiles that an extent is whole ones of."""
    for chunks in CHUNKS:
        for warps in WARPS:
            tile = chunks * warps * unit
            if tile <= MOST and extent % tile == 0:
                yield [-1, chunks, warps]


def _with_rows_innermost(s: Schedule, dims: Dims) -> Tensor:
    """A constant stored so that its depth is not innermost."""
    rank = len(dims.tensor.shape)
    packed: Tensor = s.pack(
        dims.tensor, [1] * rank, [*(d for d in range(rank) if d != dims.row), dims.row]
    )
    return packed


def _tile(cfg: Any, stage: Stage, axes: Axes, piece: int) -> IterVar:
    """Blocks, chunks, warps, lanes of a stage with the rows and columns of the product.

    Returns the loop of lanes.  Blocks go along a strip of rows first, see `gpu_warp_groups.py`.
    """
    op = stage.op
    assert isinstance(op, ComputeOp)
    tiled = axes.tiled(op)
    batch = [ax for ax in op.axis if ax not in tiled]
    loops = []
    for axis, name, lanes in zip(tiled, ("tile_m", "tile_n"), (LANES_M, LANES_N), strict=True):
        _, chunks, warps = cfg[name].size
        unit = lanes * piece
        block, rest = stage.split(axis, factor=unit * chunks * warps)
        chunk, rest = stage.split(rest, factor=unit * warps)
        warp, rest = stage.split(rest, factor=unit)
        lane, each = stage.split(rest, factor=piece)
        loops.append((block, chunk, warp, lane, each))
    (rows, *inner_m), (columns, *inner_n) = loops
    strips, strip = stage.split(rows, factor=cfg["strip"].val)
    pairs = [ax for pair in zip(inner_m, inner_n, strict=True) for ax in pair]
    stage.reorder(*batch, strips, columns, strip, *pairs)
    if batch:
        stage.bind(stage.fuse(*batch) if len(batch) > 1 else batch[0], "blockIdx.z")
    stage.bind(stage.fuse(strips, columns, strip), "blockIdx.x")
    chunk_m, chunk_n, warp_m, warp_n, lane_m, lane_n, _, each = pairs
    stage.bind(chunk_m, "vthread")
    stage.bind(chunk_n, "vthread")
    stage.bind(stage.fuse(warp_m, warp_n), "threadIdx.y")
    lane = _woven(stage, lane_m, lane_n)
    stage.bind(lane, "threadIdx.x")
    stage.pragma(stage.leaf_iter_vars[0], "auto_unroll_max_step", UNROLL)
    if tiled[1].size % piece == 0:
        stage.vectorize(each)
    return lane


def _woven(stage: Stage, lane_m: IterVar, lane_n: IterVar) -> IterVar:
    """The loop of the lanes, of which neighbours read one piece of a row, and every other one a
    piece of a column: shared memory then serves half a warp at once, else a quarter."""
    m, near_m = stage.split(lane_m, factor=2)
    n, near_n = stage.split(lane_n, factor=2)
    stage.reorder(m, n, near_n, near_m)
    return stage.fuse(m, n, near_n, near_m)


def _multiply(cfg: Any, s: Schedule, local: Tensor, axes: Axes, piece: int) -> None:
    """The sum of a thread: slices of both factors come to shared memory, then to registers."""
    stage, op = s[local], op_of(s, local)
    slices, step = stage.split(axes.depth(op), factor=cfg["step_k"].val)
    stage.reorder(slices, step, *op.axis)
    stage.unroll(step)
    warps = prod(cfg[name].size[2] for name in ("tile_m", "tile_n"))
    for dims in operands(op, axes):
        shared = s.cache_read(dims.tensor, "shared", [local])
        own = s.cache_read(shared, "local", [local])
        s[shared].compute_at(stage, slices)
        s[own].compute_at(stage, step)
        _copy(cfg, s, s[shared], dims, warps)
        loops = s[own].op.axis
        outer, inner = s[own].split(loops[dims.row], factor=piece)
        s[own].reorder(*(ax for d, ax in enumerate(loops) if d != dims.row), outer, inner)
        s[own].vectorize(inner)


def _copy(cfg: Any, s: Schedule, shared: Stage, dims: Dims, warps: Any) -> None:
    """A slice, stored with rows innermost: in whole pieces where it lies so, else one by one, by
    threads of which neighbours read along the depth and store to different banks."""
    axes = list(shared.op.axis)
    threads = LANES_M * LANES_N
    if dims.row == len(axes) - 1:
        width = width_of(s, dims)
        vector = width if width > 1 else None
        fetch(shared, threads * warps, vector, lanes=threads, slots=cfg["stages"].val)
        return
    piece = PIECE // shared.tensor.dtype.bytes
    depth = axes[dims.k]
    shared.storage_order(axes[dims.row])
    shared.storage_align(depth, threads, piece)
    outer, part = shared.split(depth, factor=NEAR)
    others = [ax for ax in axes if ax is not depth]
    shared.reorder(outer, *others, part)
    fetch(
        shared, threads * warps, None, [outer, *others, part], lanes=threads,
        slots=cfg["stages"].val,
    )  # fmt: skip


def fallback(sketch: Sketch, a: Anchored) -> int:
    """The fastest by the machine model, of tiles that read little of what they multiply.

    Raises LegalityError where `dense.gpu` is faster by more than the model can tell: its tiles are
    smaller.
    """
    index = fastest(sketch, *_large_tiles(sketch, op_of(a.schedule, a.anchor)))
    others = anchor_templates(sketch.dag, sketch.target)
    for smaller in (t for t in others if t.name == SMALLER):
        other = sketch_of_anchor(smaller, sketch.dag, sketch.target)
        found = other.fallback()
        if found is not None and MARGIN * _seconds(other, found) < _seconds(sketch, index):
            raise LegalityError(f"{sketch.origin}, untuned", f"{SMALLER} is faster", "Take that.")
    return index


def _large_tiles(sketch: Sketch, op: ComputeOp) -> list[dict[str, Any]]:
    """What knobs are held at: each large tile that is about square, with few shares of the sum,
    which leave a core with no more than `ROUNDS` blocks."""
    space = sketch.space.space_map
    held = {name: space[name][-1].val for name in ("step_k", "stages")}
    held["strip"] = max(e.val for e in space["strip"] if e.val <= STRIP)
    piece = PIECE // op.input_tensors[0].dtype.bytes
    *batch, m, n = (ax.size for ax in op.axis)
    ways = []
    for rows, columns in product(space["tile_m"], space["tile_n"]):
        tile = LANES_M * piece * prod(rows.size[1:]), LANES_N * piece * prod(columns.size[1:])
        chunks = rows.size[1], columns.size[1]
        if min(tile) < LEAST or max(tile) > 2 * min(tile) or 1 in chunks:
            continue
        blocks = prod(batch) * ceil_div(m, tile[0]) * ceil_div(n, tile[1])
        most = min(sketch.target.limits.cores * ROUNDS // blocks, SHARES)
        shares = [e.val for e in space["split_k"] if e.val <= max(most, 1)]
        ways += [
            {**held, "tile_m": rows.value, "tile_n": columns.value, "split_k": k} for k in shares
        ]
    return ways or [held]


def _seconds(sketch: Sketch, index: int) -> float:
    return float(sum(predict_seconds(g)[0] for g in sketch.groups(np.array([index]))))


anchor_template(
    "dense.tiles", kinds=KINDS, tags=("dense", "matmul", "batch_matmul"), fallback=fallback
)(schedule_tiles)
