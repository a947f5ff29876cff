"""What the CPU templates share: operands made ready, one tile of the output in registers.

In: an `Anchored` schedule and sizes (ints or decisions).  Out: stages tiled, vectorised, spread
over the cores.
Read next: `cpu_conv2d.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from tilewright.base.dtype import DType
from tilewright.base.errors import ScheduleError
from tilewright.schedule.default import (
    inline_cheap_stages,
    padded_inputs,
    schedule_roots,
)
from tilewright.schedule.schedule import Stage
from tilewright.schedule.template import Anchored
from tilewright.schedule.vectors import MIN_PARALLEL_WORK, lane_axis
from tilewright.targets.target import Target
from tilewright.te.tensor import ComputeOp, IterVar, PlaceholderOp, Tensor

MAX_WASTE = 1.15  # iterations of a tiled axis, over its extent
UNROLL = (0, 128, 512)  # innermost statements that reduction loops may be written out to


@dataclass(frozen=True)
class Operands:
    """What the anchor reads, once cheap stages are inlined.

    data, weight: as the anchor reads them
    stored: the stage that computes the data (padding, an elementwise prologue); None for an input
    """

    data: Tensor
    weight: Tensor
    stored: Stage | None

    @property
    def constant(self) -> bool:
        """Whether the weight is known when the kernel is built, so that it may be packed then."""
        return isinstance(self.weight.op, PlaceholderOp) and self.weight.op.constant

    @property
    def movable(self) -> bool:
        """Whether the data may be computed tile by tile: by a stage that is no reduction."""
        op = None if self.stored is None else self.stored.op
        return isinstance(op, ComputeOp) and op.combiner is None


def operands(at: Anchored) -> Operands:
    """Inline the epilogue, copies and cheap stages; find what the anchor reads."""
    s = at.schedule
    for op in at.epilogue[:-1]:
        s[op].compute_inline()
    tensors = s[at.anchor].op.input_tensors
    if len(tensors) != 2:
        raise ScheduleError(
            f"template for {s[at.anchor].name}",
            f"it reads {len(tensors)} tensors, not data and weight",
            "It compiles with its default schedule.",
        )
    data, weight = (_behind_copies(at, t) for t in tensors)
    own = [s[at.anchor], s[at.output], *padded_inputs(s)]
    stored = s[data] if isinstance(data.op, ComputeOp) else None
    inline_cheap_stages(s, keep=[*own, stored] if stored is not None else own)
    return Operands(data, weight, stored)


def _behind_copies(at: Anchored, tensor: Tensor) -> Tensor:
    """Inline stages that only copy (padding by nothing) and give the tensor they copy."""
    s = at.schedule
    while True:
        stage = s[tensor]
        op = stage.op
        if not isinstance(op, ComputeOp) or op.body.op != "read":
            return tensor
        stage.compute_inline()
        tensor = op.body.attr


@dataclass(frozen=True)
class Tile:
    """One tile of the output, accumulated in registers.

    lane, lanes:   the output dimension whose neighbours share a vector, and how many do
    sizes:         output dimension -> points per tile, for `lane` vectors per tile; the others: 1
    outer:         all output dimensions, in the order of the loops over tiles
    parallel:      how many of these loops, from the outside, are spread over the cores
    """

    lane: int
    lanes: int
    sizes: Mapping[int, Any]
    outer: Sequence[int]
    parallel: int


@dataclass(frozen=True)
class Tiled:
    """The output and its accumulators; `task`: its parallel loop, `tile`: its loop over tiles."""

    output: Stage
    local: Stage
    task: IterVar
    tile: IterVar


def register_tile(at: Anchored, shape: Tile) -> Tiled:
    """Tile the output and compute the anchor's share of it in vector registers.

    rewrite: for i: C[i] = f(sum_k e(i, k))
       ->    parallel for i.o: {for k: unrolled for i.i: vector acc += e; for i.i: C[..] = f(acc)}
    The reduction loops of the anchor stay outside of the tile's; the caller orders them.
    """
    s = at.schedule
    if at.has_epilogue:
        local = s[at.anchor]
        local.set_scope("local")
    else:
        local = s[s.cache_write(at.anchor, "local")]
    out = s[at.output]
    axes = list(out.op.axis)
    work = prod(out.op.shape) * prod(ax.size for ax in local.op.reduce_axis)
    inner = {}
    for d, size in shape.sizes.items():
        per_tile = size * shape.lanes if d == shape.lane else size
        axes[d], inner[d] = out.split(axes[d], factor=per_tile)
    inner[shape.lane], lane = out.split(inner[shape.lane], factor=shape.lanes)
    tiles = [axes[d] for d in shape.outer]
    dims = [d for d in inner if d != shape.lane] + [shape.lane]
    out.reorder(*tiles, *(inner[d] for d in dims), lane)
    task = out.fuse(*tiles[: shape.parallel])
    if work >= MIN_PARALLEL_WORK and at.target.limits.cores > 1:
        out.parallel(task)
    out.vectorize(lane)
    tile = task if shape.parallel == len(tiles) else tiles[-1]
    local.compute_at(out, tile)
    vectors, lane = local.split(local.op.axis[shape.lane], factor=shape.lanes)
    held = [local.op.axis[d] for d in dims if d != shape.lane]
    rest = [ax for ax in local.op.axis if ax not in held and ax is not local.op.axis[shape.lane]]
    local.reorder(*rest, *local.op.reduce_axis, *held, vectors, lane)
    local.vectorize(lane)
    for ax in (*held, vectors):
        local.unroll(ax)
    return Tiled(out, local, task, tile)


def reduction_loops(tiled: Tiled, order: Sequence[IterVar], unroll: Any) -> None:
    """Put the reduction loops in order, outside the tile; unroll: innermost statements at most."""
    tiled.local.reorder(*order)
    tiled.local.pragma(order[0], "auto_unroll_max_step", unroll)


def store_at(stored: Stage, tiled: Tiled, target: Target) -> None:
    """Compute the data (its padding, its prologue) per task, in memory of the task."""
    op = stored.op
    assert isinstance(op, ComputeOp)
    stored.set_scope("shared")
    stored.compute_at(tiled.output, tiled.task)
    place = lane_axis(op)
    outer, lane = stored.split(op.axis[place], factor=lanes_for(op.shape[place], op.dtype, target))
    if place + 1 < len(op.axis):
        stored.reorder(outer, *op.axis[place + 1 :], lane)
    stored.vectorize(lane)


def finish(at: Anchored, tiled: Tiled) -> None:
    """Schedule what is still computed on its own: stored data, what the epilogue reads."""
    schedule_roots(at.schedule, at.target, done=[tiled.output])


# -- sizes -----------------------------------------------------------------------------------------


def accumulator_of(at: Anchored) -> DType:
    """The type whose vectors the accumulators fill."""
    op = at.anchor.op
    assert isinstance(op, ComputeOp)
    return op.accumulator


def lanes_for(extent: int, dtype: DType, target: Target) -> int:
    """The lanes of a full vector, fewer where the extent is shorter."""
    lanes = target.limits.vector_bytes // dtype.bytes
    while lanes > 1 and lanes >= 2 * extent:
        lanes //= 2
    return lanes


def tile_sizes(extent: int, candidates: Iterable[int]) -> list[int]:
    """Those of the candidates that cover `extent` with little waste, ascending; at least 1."""
    chosen = {c for c in candidates if c <= extent and ceil(extent / c) * c <= MAX_WASTE * extent}
    return sorted(chosen | {1})


def powers(extent: int, most: int) -> list[int]:
    """Powers of two that divide `extent`, up to `most`."""
    return [b for b in (1, 2, 4, 8, 16, 32, 64, 128) if b <= most and extent % b == 0]
