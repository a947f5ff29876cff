"""Row by row: a softmax or a norm reads each row some times while it is near, in one loop nest.

In: a schedule whose cheap stages are inlined.  Out: the same, all of it computed where its output
computes a row, if all reductions are along the rest of a row.  Read next: `default.py`,
`../topi/templates/gpu_norms.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tilewright.ir import expr as E
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.thread_loops import deal
from tilewright.schedule.vectors import (
    MAX_STRIDE,
    MIN_PARALLEL_WORK,
    inlined_body,
    lanes_inside,
    lanes_of,
    stride_along,
)
from tilewright.targets.target import Target
from tilewright.te.tensor import ComputeOp, IterVar, Tensor

LONGEST_ROW = 1 << 16  # elements that one block of threads goes through
ROW_BYTES = 1 << 14  # of a row that a CPU keeps between two passes
THREADS = (32, 64, 128, 256)


def dear_rows(s: Schedule) -> list[Stage]:
    """Stages that call functions once for each row, such as the root of a variance: inlined, they
    would be called once for each element."""
    return [
        stage
        for stage in s.stages
        if isinstance(stage.op, ComputeOp)
        and stage.op.combiner is None
        and any(n.op == "call" for n in E.walk(stage.op.body))
        and any(prod(r.op.shape) > prod(stage.op.shape) for r in s.readers(stage))
    ]


@dataclass(frozen=True)
class Rows:
    """Stages of which each element belongs to one row, and the reductions go along rows.

    inner:  all but the last, in order
    outer:  how many first axes name the row
    length: of a row, in elements
    """

    inner: Sequence[Stage]
    output: Stage
    outer: int

    @property
    def length(self) -> int:
        return prod(self.output.op.shape[self.outer :])

    @property
    def whole(self) -> list[Stage]:
        """Those in between that are as long as a row."""
        return [stage for stage in self.inner if prod(stage.op.shape[self.outer :]) > 1]

    @property
    def last(self) -> int:
        """Which axis tells neighbouring rows apart."""
        sizes = [ax.size for ax in self.output.op.axis[: self.outer]]
        return max((k for k, n in enumerate(sizes) if n > 1), default=self.outer - 1)


@dataclass(frozen=True)
class Spread:
    """How rows are spread over threads; numbers may be open decisions.

    threads, rows: of a row; of a block
    vector:        neighbours that a thread stores at once
    keep:          stages as long as a row are kept in shared memory, not computed for each reader
    fetch:         so are inputs that several stages read
    exchange:      the threads of a row are a warp, whose lanes exchange what they have reduced
    """

    threads: Any
    rows: Any = 1
    vector: Any = 1
    keep: bool = False
    fetch: bool = False
    exchange: bool = False


def rows_of(s: Schedule) -> Rows | None:
    """Return what is left to schedule as rows, if that is what it is."""
    stages = [
        stage
        for stage in s.stages
        if isinstance(stage.op, ComputeOp) and stage.attach_kind == "root"
    ]
    outer = _outer_axes(s, stages)
    return Rows(stages[:-1], stages[-1], outer) if outer else None


def usual_threads(row: int) -> int:
    return next((n for n in THREADS if 4 * n >= row), THREADS[-1])


def schedule_rows(s: Schedule, target: Target) -> list[Stage]:
    """Schedule everything by rows, if that is what there is; the stages that are done, or none."""
    found = rows_of(s)
    if found is None:
        return []
    outer, output, row = found.outer, found.output, found.length
    rows = prod(output.op.shape[:outer])
    if target.has_threads:
        least = max(2 * target.limits.warp_size, 32)
        fits = least <= row <= LONGEST_ROW
        return rows_on_threads(s, found, Spread(usual_threads(row))) if fits else []
    kept = row * output.op.dtype.compute.bytes
    few = rows < target.limits.cores and rows * row >= MIN_PARALLEL_WORK
    if few or (found.whole and kept > ROW_BYTES):
        return []
    return _on_cores(s, found.inner, output, outer, target)


def _outer_axes(s: Schedule, roots: Sequence[Stage]) -> int:
    """How many first axes all stages have in common, with reductions along all others; 0: none.

    Every stage reads the others at its own place along the common axes.
    """
    *inner, output = roots
    reductions = [stage for stage in inner if stage.op.reduce_axis]
    if not reductions or output.op.reduce_axis or any(stage.is_output for stage in inner):
        return 0
    shape = output.op.shape
    outer = min(_leading(stage.op.shape, shape) for stage in reductions)
    if any(prod(stage.op.shape[outer:]) != 1 for stage in reductions):
        return 0
    own = {stage.tensor for stage in inner}
    for stage in roots:
        if stage.op.shape[:outer] != shape[:outer]:
            return 0
        if prod(stage.op.shape[outer:]) not in (1, prod(shape[outer:])):
            return 0
        place = [ax.var for ax in stage.op.axis[:outer]]
        for n in E.walk(inlined_body(s, stage)):
            if n.op == "read" and n.attr in own and list(n.args[:outer]) != place:
                return 0
    return outer if prod(shape[outer:]) > 1 else 0


def _leading(shape: Sequence[int], of: Sequence[int]) -> int:
    """Axes before the first in which `shape` differs from `of`."""
    pairs = enumerate(zip(shape, of, strict=False))
    return next((k for k, (a, b) in pairs if a != b), min(len(shape), len(of)))


def rows_on_threads(s: Schedule, found: Rows, spread: Spread) -> list[Stage]:
    """rewrite: block for some rows: {shared max = ..; shared sum = ..; threads: C[rows, :] = ..}"""
    output, inner, last = found.output, list(found.inner), found.last
    copies = [_fetched(s, tensor) for tensor in _inputs(s, found)] if spread.fetch else []
    for stage in found.whole:
        if not spread.keep:
            stage.compute_inline()
            inner.remove(stage)
    axes = list(output.op.axis[: found.outer])
    row = axes.pop(last)
    begin, row = output.split(row, factor=spread.rows)
    output.reorder(*axes, begin, row)
    block = output.fuse(*axes, begin)
    output.bind(block, "blockIdx.x")
    output.bind(row, "threadIdx.y")
    _along(output, output.fuse(*output.op.axis[found.outer :]), spread, vectors=True)
    for stage in (*copies, *inner):
        op = stage.op
        assert isinstance(op, ComputeOp)
        _, row = stage.split(op.axis[last], factor=spread.rows)
        stage.bind(row, "threadIdx.y")
        if op.reduce_axis:
            shared = _along(stage, stage.fuse(*op.reduce_axis), spread)
            if spread.exchange:
                stage.pragma(shared, "exchange", 1)
        elif prod(op.shape[found.outer :]) > 1:
            _along(stage, stage.fuse(*op.axis[found.outer :]), spread, vectors=stage in copies)
        stage.set_scope("shared")
        stage.compute_at(output, block)
    return [*copies, *inner, output]


def _inputs(s: Schedule, found: Rows) -> list[Tensor]:
    """Of the shape of the output, and read by several stages."""
    return [
        stage.tensor
        for stage in s.stages
        if not isinstance(stage.op, ComputeOp)
        and stage.op.shape == found.output.op.shape
        and len(s.readers(stage)) > 1
    ]


def _fetched(s: Schedule, tensor: Tensor) -> Stage:
    return s[s.cache_read(tensor, "shared", [r.tensor for r in s.readers(tensor)])]


def _along(stage: Stage, loop: IterVar, spread: Spread, vectors: bool = False) -> IterVar:
    """The threads of a row take it in turns.  Returns the loop that they run."""
    if vectors:
        loop, lane = stage.split(loop, factor=spread.vector)
        stage.vectorize(lane)
    return deal(stage, loop, spread.threads)


def _on_cores(
    s: Schedule, inner: Sequence[Stage], output: Stage, outer: int, target: Target
) -> list[Stage]:
    """rewrite: parallel for each row: {max = ..; sum = ..; vectors: C[row, :] = ..}"""
    parts = {stage: _partial(s, stage, target) for stage in inner if stage.op.reduce_axis}
    work = prod(output.op.shape)
    row = output.fuse(*output.op.axis[:outer])
    if work >= MIN_PARALLEL_WORK and target.limits.cores > 1:
        output.parallel(row)
    _vectorize(output, output.op.axis[outer:], target)
    done = [output]
    for stage in inner:
        part = parts.get(stage)
        for computed in (part, stage) if part is not None else (stage,):
            computed.set_scope("local")
            computed.compute_at(output, row)
            done.append(computed)
        if part is not None:
            lanes_inside(part)
        elif not stage.op.reduce_axis and prod(stage.op.shape[outer:]) > 1:
            _vectorize(stage, stage.op.axis[outer:], target)
    return done


def _vectorize(stage: Stage, axes: Sequence[IterVar], target: Target) -> None:
    op = stage.op
    assert isinstance(op, ComputeOp)
    lanes = lanes_of(op, axes[-1].size, target)
    if lanes > 1:
        _, lane = stage.split(axes[-1], factor=lanes)
        stage.vectorize(lane)


def _partial(s: Schedule, stage: Stage, target: Target) -> Stage | None:
    """As many partial results of a reduction as a vector has lanes, if it reads neighbours."""
    op = stage.op
    assert isinstance(op, ComputeOp)
    chain = op.reduce_axis[-1]
    lanes = lanes_of(op, chain.size, target)
    if lanes < 4 or chain.size < 2 * lanes:
        return None
    if stride_along(inlined_body(s, stage), chain.var) > MAX_STRIDE:
        return None
    _, lane = stage.split(chain, factor=lanes)
    return s[s.rfactor(stage.tensor, lane, len(op.axis))]
