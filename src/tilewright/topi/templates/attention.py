"""Attention: softmax(a b) c in one kernel, a block of rows at a time, with no scores in memory.

In: a product whose first operand is the softmax of another product, with elementwise steps and
views in between.  Out: its schedule; a block computes the scores of a few rows where it needs them,
in registers' caches on a CPU, in shared memory on a GPU.  Read next: `cpu_dense.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.schedule.schedule import Stage
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.schedule.vectors import lanes_inside, lanes_of
from tilewright.te.tensor import ComputeOp, IterVar
from tilewright.topi.templates.untuned import fastest

PRODUCT, SUM = "batch_matmul", "comm_reduce"
ROWS = (1, 2, 4, 8, 16, 32)
COLUMNS = (1, 2, 4)  # vectors of a tile in registers
THREADS = (64, 128, 256)


@dataclass(frozen=True)
class Attention:
    """scores: the first product; largest, total: of its softmax; probability: what the second
    product reads; kept: the stage of exponentials, which the total and the probabilities read"""

    scores: Stage
    largest: Stage
    total: Stage
    kept: Stage
    probability: Stage

    @property
    def all(self) -> tuple[Stage, ...]:
        return (self.scores, self.largest, self.kept, self.total, self.probability)


def attention_of(at: Anchored) -> Attention:
    """The stages of an attention; what stands between them is inlined.

    Raises ScheduleError for any other computation.
    """
    s, anchor = at.schedule, at.anchor.op
    assert isinstance(anchor, ComputeOp)
    ops = s.dag.compute_ops
    products = [op for op in ops if op.tag == PRODUCT]
    sums = [op for op in ops if op.tag == SUM]
    computed = [t for t in anchor.input_tensors if isinstance(t.op, ComputeOp)]
    exponentials = [op for op in ops if op.name == "T_softmax_exp"]
    if (
        [len(products), len(sums), len(computed), len(exponentials)] != [2, 2, 1, 1]
        or products[1] is not anchor
        or computed[0] is not anchor.input_tensors[0]
    ):
        raise ScheduleError(
            f"template for {anchor.name}", "it is no product with a softmax of a product",
            "Other templates take it.",
        )  # fmt: skip
    found = Attention(s[products[0]], s[sums[0]], s[sums[1]], s[exponentials[0]], s[computed[0]])
    limits = at.target.limits
    room = limits.shared_bytes_per_block if at.target.has_threads else limits.max_stack_bytes
    row = len(found.all) * products[0].shape[-1] * products[0].dtype.compute.bytes
    if row > room:
        raise ScheduleError(
            f"template for {anchor.name}", f"a row of scores takes {row} of {room} bytes",
            "It compiles with its default schedule.",
        )  # fmt: skip
    ends = [*found.all, s[anchor], s[at.output]]
    for stage in s.stages:
        if isinstance(stage.op, ComputeOp) and stage not in ends:
            stage.compute_inline()
    return found


def schedule_cpu(cfg: Any, at: Anchored) -> None:
    """rewrite: parallel for rows: {scores, max, exp, sum, exp / sum, out of them}"""
    a, s = attention_of(at), at.schedule
    cfg.define_knob("rows", [n for n in ROWS if n <= max(at.output.shape[-2], 1)])
    cfg.define_knob("scores_j", COLUMNS)
    cfg.define_knob("out_j", COLUMNS)
    adder = s[at.anchor] if at.has_epilogue else s[s.cache_write(at.anchor, "local")]
    parts = [_partial(at, stage) for stage in (a.largest, a.total)]
    dot = _dot(at, a.scores)
    out = s[at.output]
    *batch, i, j = out.op.axis
    block, _ = out.split(i, factor=cfg["rows"].val)
    row = out.leaf_iter_vars[out.leaf_iter_vars.index(block) + 1]
    out.reorder(*batch, block, row, j)
    task = out.fuse(*batch, block)
    out.parallel(task)
    _vectorize(out, j, at)
    for stage in (*a.all, adder, *(p for p in parts if p is not None)):
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
    if not op.attrs["workload"][4] or lanes < 2:
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
    cfg.define_knob("rows", [n for n in ROWS if n <= max(at.output.shape[-2], 1)])
    cfg.define_knob("each", [1, 2, 4, 8])  # rows of a thread's results
    cfg.define_knob("threads", list(THREADS))
    cfg.define_knob("auto_unroll_max_step", [0, 64, 512])
    threads = cfg["threads"].val
    a.kept.compute_inline()
    adder = s[at.anchor] if at.has_epilogue else s[s.cache_write(at.anchor, "local")]
    scores = s[s.cache_write(a.scores.tensor, "local")]
    out = s[at.output]
    *batch, i, j = out.op.axis
    block, row = out.split(i, factor=cfg["rows"].val)
    rows, each = out.split(row, factor=cfg["each"].val)
    out.reorder(*batch, block, rows, j, each)
    task = out.fuse(*batch, block)
    out.bind(task, "blockIdx.x")
    place = out.fuse(rows, j)
    thread = _thread(out, place, threads)
    out.pragma(task, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    _in_registers(adder, out, thread)
    for stage in (a.scores, a.largest, a.total, a.probability):
        stage.set_scope("shared")
        stage.compute_at(out, task)
    for stage in (a.largest, a.total):
        _thread(stage, stage.fuse(*stage.op.reduce_axis), threads)
    *others, i, j = a.scores.op.axis
    a.scores.reorder(*others, j, i)
    _in_registers(scores, a.scores, _thread(a.scores, j, threads))
    _thread(a.probability, a.probability.op.axis[-1], threads)


def _thread(stage: Stage, loop: IterVar, threads: Any) -> IterVar:
    _, thread = stage.split(loop, factor=threads)
    stage.bind(thread, "threadIdx.x")
    return thread


def _in_registers(adder: Stage, reader: Stage, at: IterVar) -> None:
    """The sums of a thread's rows go on together: a column is loaded once for all of them."""
    adder.set_scope("local")
    adder.compute_at(reader, at)
    *batch, i, j = adder.op.axis
    adder.reorder(*adder.op.reduce_axis, *batch, j, i)
    adder.unroll(i)


def fallback(sketch: Sketch, _: Anchored) -> int:
    """What the model likes best of those that fit."""
    return fastest(sketch, {})


anchor_template("attention.llvm", kinds=("llvm",), tags=(PRODUCT,), fallback=fallback)(schedule_cpu)
anchor_template("attention.gpu", kinds=("cuda", "opencl"), tags=(PRODUCT,), fallback=fallback)(
    schedule_gpu
)
