"""Attention: softmax(a b) c in one kernel, a block of rows at a time, with no scores in memory.

In: a product whose first operand is the softmax of another product, with elementwise steps and
views in between, of operands that were moved, and perhaps a transposition of the result.  Out: its
schedule; a block computes the scores of a few rows where it needs them, in registers' caches on a
CPU, in shared memory on a GPU.  Read next: `cpu_dense.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.space.decision import ceil_div, maximum, minimum
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.schedule.thread_loops import deal, fetch, staged
from tilewright.schedule.vectors import lanes_inside, lanes_of
from tilewright.te.tensor import ComputeOp, IterVar, Tensor
from tilewright.topi.stage import workload_of
from tilewright.topi.templates.attention_stages import PRODUCT, attention_of, result_of
from tilewright.topi.templates.untuned import fastest

ROWS = (1, 2, 4, 8, 16, 32)
COLUMNS = (1, 2, 4)  # vectors of a tile in registers
THREADS = (64, 128, 256)
STEPS = (8, 16, 32, 64)  # of a product per slice in shared memory
LANES = (8, 16, 32)  # threads that share a row of the softmax


def _adder(at: Anchored, out: Stage) -> Stage:
    """The sums of the second product, by themselves."""
    s = at.schedule
    return s[s.cache_write(at.anchor, "local")] if out is s[at.anchor] else s[at.anchor]


def schedule_cpu(cfg: Any, at: Anchored) -> None:
    """rewrite: parallel for rows: {scores, max, exp, sum, exp / sum, out of them}"""
    a = attention_of(at)
    cfg.define_knob("rows", [n for n in ROWS if n <= max(at.anchor.shape[-2], 1)])
    cfg.define_knob("scores_j", COLUMNS)
    cfg.define_knob("out_j", COLUMNS)
    out, batch, i, j = result_of(at)
    adder = _adder(at, out)
    parts = [_partial(at, stage) for stage in (a.largest, a.total)]
    dot = _dot(at, a.scores)
    block, _ = out.split(i, factor=cfg["rows"].val)
    row = out.leaf_iter_vars[out.leaf_iter_vars.index(block) + 1]
    out.reorder(*batch, block, row, j)
    task = out.fuse(*batch, block)
    out.parallel(task)
    _vectorize(out, j, at)
    for stage in (*a.all, adder, *(p for p in (a.queries, *parts) if p is not None)):
        stage.set_scope("local")
        stage.compute_at(out, task)
    for part in parts:
        if part is not None:
            lanes_inside(part)
    if dot is None:
        _product(a.scores, at, cfg["scores_j"].val)
    else:
        _tile_of_dots(a.scores, dot, cfg["scores_j"].val)
    for stage in (a.kept, a.probability):
        _vectorize(stage, stage.op.axis[-1], at)
    _product(adder, at, cfg["out_j"].val)


def _dot(at: Anchored, stage: Stage) -> Stage | None:
    """Partial sums with lanes over the reduction, where neighbours along it are neighbours in both
    operands; None where lanes go over the columns."""
    op = stage.op
    assert isinstance(op, ComputeOp)
    (k,) = op.reduce_axis
    lanes = lanes_of(op, k.size, at.target)
    if not workload_of(op, 2, 2)[4] or lanes < 2:
        return None
    _, lane = stage.split(k, factor=lanes)
    return at.schedule[at.schedule.rfactor(stage.tensor, lane, len(op.axis))]


def _tile_of_dots(stage: Stage, dot: Stage, columns: Any) -> None:
    """Rows and columns whose partial sums are in registers together."""
    *batch, i, j = stage.op.axis
    rows, row = stage.split(i, factor=2)
    tiles, column = stage.split(j, factor=columns)
    stage.reorder(*batch, rows, tiles, row, column)
    dot.set_scope("local")
    dot.compute_at(stage, tiles)
    *batch, i, j, lane = dot.op.axis
    dot.reorder(*batch, *dot.op.reduce_axis, i, j, lane)
    dot.vectorize(lane)
    dot.unroll(i)
    dot.unroll(j)


def _product(stage: Stage, at: Anchored, vectors: Any) -> None:
    """for rows: for columns of some vectors: for k: vectors"""
    op = stage.op
    assert isinstance(op, ComputeOp)
    lanes = lanes_of(op, op.axis[-1].size, at.target)
    *batch, i, j = op.axis
    (k,) = op.reduce_axis
    if lanes < 2:
        stage.reorder(*batch, i, j, k)
        return
    outer, lane = stage.split(j, factor=lanes)
    tile, vector = stage.split(outer, factor=vectors)
    rows, row = stage.split(i, factor=4)
    stage.reorder(*batch, rows, tile, k, row, vector, lane)
    stage.vectorize(lane)
    stage.unroll(vector)
    stage.unroll(row)


def _vectorize(stage: Stage, loop: IterVar, at: Anchored) -> None:
    op = stage.op
    assert isinstance(op, ComputeOp)
    lanes = lanes_of(op, op.shape[-1], at.target)
    if lanes > 1:
        _, lane = stage.split(loop, factor=lanes)
        stage.vectorize(lane)


def _partial(at: Anchored, stage: Stage) -> Stage | None:
    op = stage.op
    assert isinstance(op, ComputeOp)
    chain = op.reduce_axis[-1]
    lanes = lanes_of(op, chain.size, at.target)
    if lanes < 4 or chain.size < 2 * lanes:
        return None
    _, lane = stage.split(chain, factor=lanes)
    return at.schedule[at.schedule.rfactor(stage.tensor, lane, len(op.axis))]


def schedule_gpu(cfg: Any, at: Anchored) -> None:
    """rewrite: block of rows: {shared scores; shared max, sum; shared probabilities; out}"""
    a, s = attention_of(at), at.schedule
    depth = _op(a.scores).reduce_axis[0].size
    cfg.define_knob("rows", [n for n in ROWS if n <= max(at.anchor.shape[-2], 1)])
    cfg.define_knob("each", [1, 2, 4, 8])  # rows of a thread
    cfg.define_knob("scores_j", COLUMNS)  # columns of a thread
    cfg.define_knob("out_j", COLUMNS)
    cfg.define_knob("step_k", [n for n in STEPS if n <= max(depth, STEPS[0])])
    cfg.define_knob("step_v", [n for n in STEPS if n <= max(a.scores.op.shape[-1], STEPS[0])])
    cfg.define_knob("lanes", LANES)
    cfg.define_knob("threads", list(THREADS))
    cfg.define_knob("auto_unroll_max_step", [0, 64, 512])
    block = Block(cfg["threads"].val, cfg["lanes"].val, cfg["rows"].val, cfg["each"].val)
    a.kept.compute_inline()
    out, batch, i, j = result_of(at)
    adder = _adder(at, out)
    scores = s[s.cache_write(a.scores.tensor, "local")]
    rows, row = out.split(i, factor=block.rows)
    out.reorder(*batch, rows, row, j)
    task = out.fuse(*batch, rows)
    out.bind(task, "blockIdx.x")
    out.pragma(task, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    for stage in (a.scores, a.largest, a.total, a.probability):
        stage.set_scope("shared")
        stage.compute_at(out, task)
    place = block.tile(out, row, j, cfg["out_j"].val)
    _sums(s, adder, out, place, cfg["step_v"].val, block, a.probability.tensor)
    for stage in (a.largest, a.total):
        block.share(stage, stage.op.axis[-1], stage.fuse(*_op(stage).reduce_axis))
    i, j = a.probability.op.axis[-2:]
    block.share(a.probability, i, j)
    i, j = a.scores.op.axis[-2:]
    place = block.tile(a.scores, i, j, cfg["scores_j"].val)
    if a.queries is not None:
        a.queries.set_scope("shared")
        a.queries.compute_at(out, task)
        deal(a.queries, a.queries.fuse(*a.queries.op.axis), block.threads, block.lanes)
    near = None if a.queries is None else a.queries.tensor
    _sums(s, scores, a.scores, place, cfg["step_k"].val, block, near)


@dataclass(frozen=True)
class Block:
    """Threads of a block: `lanes` along x, the rest along y.  rows: of the block; each: of a thread
    where it adds up products."""

    threads: Any
    lanes: Any
    rows: Any
    each: Any

    def tile(self, stage: Stage, i: IterVar, j: IterVar, columns: Any) -> IterVar:
        """A thread has `each` neighbouring rows, and columns as far apart as there are threads for
        the same rows, so that neighbours read neighbours.  Returns the innermost thread loop."""
        wide = maximum(self.threads // ceil_div(self.rows, self.each), 1)
        group, row = stage.split(i, factor=self.each)
        outer, inner = stage.split(j, factor=wide * columns)
        apart, column = stage.split(inner, factor=wide)
        stage.reorder(outer, apart, group, column, row)
        stage.bind(apart, "vthread")
        return deal(stage, stage.fuse(group, column), self.threads, self.lanes)

    def share(self, stage: Stage, i: IterVar, j: IterVar) -> None:
        """Some threads for each row, which add up what they have where `j` is a reduction."""
        _, y = stage.split(i, factor=self.threads // self.lanes)
        _, x = stage.split(j, factor=self.lanes)
        stage.bind(y, "threadIdx.y")
        stage.bind(x, "threadIdx.x")


def _sums(
    s: Schedule, adder: Stage, reader: Stage, at: IterVar, step: Any, block: Block,
    near: Tensor | None = None, wide: bool = True,
) -> None:  # fmt: skip
    """The sums of a thread in registers, from slices of both factors in shared memory.

    near: the factor that is there already; wide: see `thread_loops.staged`
    """
    op = _op(adder)
    adder.set_scope("local")
    adder.compute_at(reader, at)
    (k,) = op.reduce_axis
    slices, inner = adder.split(k, factor=minimum(step, k.size))
    adder.reorder(slices, inner, *op.axis)
    for tensor in dict.fromkeys(op.input_tensors):
        shared = tensor
        if tensor is not near:
            shared = s.cache_read(tensor, "shared", [adder.tensor], staged(tensor.dtype, wide))
            s[shared].compute_at(adder, slices)
            s[shared].storage_align(s[shared].op.axis[-2], 2, 1)  # columns in different banks
            fetch(s[shared], block.threads, lanes=block.lanes)
        own = s.cache_read(shared, "local", [adder.tensor])
        s[own].compute_at(adder, inner)


def _op(stage: Stage) -> ComputeOp:
    assert isinstance(stage.op, ComputeOp)
    return stage.op


def fallback(sketch: Sketch, _: Anchored) -> int:
    """Choose what the model likes best of those that fit."""
    return fastest(sketch, {})


for _name, _kinds, _schedule in (
    ("attention.llvm", ("llvm",), schedule_cpu),
    ("attention.gpu", ("cuda", "opencl"), schedule_gpu),
):
    anchor_template(
        _name, kinds=_kinds, tags=(PRODUCT,), fallback=fallback, special=True, alone=True
    )(_schedule)
