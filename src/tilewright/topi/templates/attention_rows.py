"""Attention of few rows on GPUs, as a step of a decoder has it: as fast as keys and values come.

In: a product whose first operand is the softmax of another product, as `attention_stages.py` finds
it, of so few rows that no matrix unit is worth while.  Out: its schedule; all keys and values of a
block are asked for before anything waits, and all its threads take part in each product.

    blocks of rows            out[.., i, d]
      asynchronous copies       keys, values: whole, in shared memory
      a thread for each key     scores; lanes of a warp exchange maxima and sums
      shares of the keys        board[share, .., i, d]: sums, which the block adds up

Keys that a mask of places hides from the rows of a block are left out: `lowering/unseen_keys.py`.
Read next: `attention_atoms.py`, `gpu_rows.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.atoms import WARP
from tilewright.ir.stmt import ASYNC_BYTES
from tilewright.schedule.copies import stays_a_copy
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.space.decision import maximum
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.schedule.thread_loops import deal, fetch, staged
from tilewright.schedule.vectors import inlined_body
from tilewright.te.tensor import ComputeOp, IterVar, PlaceholderOp, Tensor
from tilewright.topi.templates.attention_stages import (
    PRODUCT,
    Attention,
    attention_of,
    divided_last,
    keep_wide,
    result_of,
)
from tilewright.topi.templates.gpu import accumulator, divisors_of, op_of
from tilewright.topi.templates.gpu_atoms import KINDS, SKEW, Axes, Dims, operands, width_of
from tilewright.topi.templates.untuned import fastest

MOST_ROWS = 16  # of more, matrix units have whole atoms
ROWS = (1, 2, 4, 8)  # of a block
WARPS = (2, 4, 8, 16)
PIECES = (1, 2, 4, 8, 16, 32, 64, 128)  # of the keys, each for a block of its own
NEAR = 32  # pieces, of which a block has room
SHORTEST = 64  # keys of a piece
WORD = 4  # bytes of a float32
VECTOR_BYTES = 16  # that a thread reads at once


def schedule(cfg: Any, at: Anchored) -> None:
    """rewrite: block of rows: {keys, values; scores, max, sum; shares of the result; out}"""
    s = at.schedule
    keep_wide(s, at.anchor)
    a = attention_of(at, whole=False)
    rows, length = a.scores.op.shape[-2:]
    depth, columns = op_of(s, a.scores.tensor).reduce_axis[0].size, at.anchor.shape[-1]
    if rows > MOST_ROWS or 1 in (length, depth, columns):
        raise ScheduleError(
            f"template for {at.anchor.op.name}",
            f"it has more than {MOST_ROWS} rows, or a factor is a vector",
            "Other templates compute it.",
        )  # fmt: skip
    a.kept.compute_inline()
    cfg.define_knob("rows", [n for n in ROWS if n <= rows])
    cfg.define_knob("warps", WARPS)
    total = divided_last(s, at.anchor)
    cfg.define_knob(
        "pieces", PIECES[:1] if total is None else divisors_of(length, PIECES, SHORTEST)
    )
    cfg.define_knob("auto_unroll_max_step", [512, 0])
    warps, parts = cfg["warps"].val, int(cfg["pieces"].val)
    out, batch, i, j = result_of(at)
    found = Found(a, total or at.anchor, a.largest, a.total)
    if parts > 1:
        maxima, totals, sums, pieces = s.split_softmax(found.sums, parts)
        found = Found(a, sums, s[maxima], s[totals])
    shares = _shared_out(s, found.sums, warps)
    adder = s[accumulator(s, total or at.anchor, out.tensor)]
    if parts > 1:
        s[found.sums].set_scope("local")
    block, row = out.split(i, factor=cfg["rows"].val)
    out.reorder(*batch, block, row, j)
    block = out.fuse(*batch, block)
    out.bind(block, "blockIdx.x")
    out.pragma(block, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    place = Block(s, (out, block), warps, at.target.copies_alone)
    adder.compute_at(out, place.deal(out, out.fuse(row, j)))
    adder.unroll(op_of(s, adder.tensor).reduce_axis[0])
    if parts > 1:
        place = _joined(place, s[pieces], found)
    _softmax(place, found, shares)


@dataclass(frozen=True)
class Found:
    """What a block computes of an attention: `sums`, relative to `largest`, and the `total` of the
    exponentials: those of all keys, or of a piece of them"""

    of: Attention
    sums: Tensor
    largest: Stage
    total: Stage


def _softmax(block: Block, found: Found, shares: Shares) -> None:
    """rewrite: {masks; scores, max, sum, exponentials; shares of the sums}"""
    for tensor, readers in _masks(block.s, found).items():
        block.copy(tensor, readers)
    _scores(block, found.of)
    _weighted(block, shares)
    block.reduce(found.largest, found.total)
    probability = found.of.probability
    block.put(probability)
    block.deal(probability, probability.fuse(*probability.op.axis))


def _joined(end: Block, pieces: Stage, found: Found) -> Block:
    """Blocks of their own for the pieces of a row, of which the last one puts them together: what
    a few have found is in its shared memory.  Returns the place of a piece."""
    s, place = end.s, end.place
    if pieces.op.shape[0] <= NEAR:
        readers = [r.tensor for r in s.readers(pieces)]
        near = s[s.cache_read(pieces.tensor, "shared", readers)]
        near.compute_at(*place)
        end.deal(near, near.fuse(*near.op.axis))
    pieces.join(*place)
    part, *rest = pieces.op.axis
    pieces.bind(part, "blockIdx.y")
    s[found.sums].compute_at(pieces, end.deal(pieces, pieces.fuse(*rest)))
    end.reduce(found.of.largest, found.of.total)
    return Block(s, (pieces, part), end.warps, end.alone)


def _masks(s: Schedule, attention: Found) -> dict[Tensor, list[Tensor]]:
    """What else is read between both products, and by whom."""
    a = attention.of
    between = (attention.largest, attention.total, a.probability)
    inside = {a.scores.tensor, attention.largest.tensor, attention.total.tensor, a.total.tensor}
    reads = (n.attr for st in between for n in E.walk(inlined_body(s, st)) if n.op == "read")
    return {
        tensor: [
            r.tensor
            for r in s.readers(tensor)
            if r in between or any(s.reaches(r, stage) for stage in between)
        ]
        for tensor in dict.fromkeys(reads)
        if tensor not in inside
    }


@dataclass(frozen=True)
class Block:
    """place: where its stages are computed; alone: whether copies go on beside its threads"""

    s: Schedule
    place: tuple[Stage, IterVar]
    warps: Any
    alone: bool

    def put(self, stage: Stage) -> None:
        stage.set_scope("shared")
        stage.compute_at(*self.place)

    def deal(self, stage: Stage, loop: IterVar) -> IterVar:
        return deal(stage, loop, WARP * self.warps, WARP)

    def reduce(self, *stages: Stage) -> None:
        """A warp for each row, whose lanes exchange what they have found."""
        for stage in stages:
            self.put(stage)
            (loop,) = op_of(self.s, stage.tensor).reduce_axis
            _, lane = stage.split(loop, factor=WARP)
            _, warp = stage.split(stage.op.axis[-1], factor=self.warps)
            stage.bind(warp, "threadIdx.y")
            stage.bind(lane, "threadIdx.x")
            stage.pragma(lane, "exchange", 1)

    def bring(self, factor: Dims, reader: Stage) -> tuple[Tensor, int]:
        """A factor in shared memory, and how many neighbours of it lie side by side.

        Of a cache to which something is written, what was there comes there, and what is new.
        """
        s, width = self.s, width_of(self.s, factor)
        inner = len(factor.tensor.shape) - 1
        write = _write_of(s, factor.tensor)
        if write is None:
            stage = s[s.cache_read(factor.tensor, "shared", [reader.tensor])]
            found, old = stage.tensor, factor.tensor
        else:
            found, old = factor.tensor, write.old
            stage = s[s.cache_read(old, "shared", [write.stage.tensor])]
            for tensor in write.others:
                self.keep(tensor, write.stage)
        stage.compute_at(*self.place)
        if factor.row != inner:  # threads read rows
            skew = SKEW // stage.tensor.dtype.bytes
            stage.storage_align(stage.op.axis[-2], 2 * skew, skew)
        slots = 1 if width > 1 and self.alone and stays_a_copy(old) else 0
        fetch(stage, WARP * self.warps, width if width > 1 else None, lanes=WARP, slots=slots)
        return found, width

    def keep(self, tensor: Tensor, reader: Stage) -> None:
        """What a stage reads in shared memory: computed there, or copied."""
        stage = self.s[tensor]
        if not isinstance(stage.op, ComputeOp):
            self.copy(tensor, [reader.tensor])
        elif stage.attach_kind == "inline":  # else another factor has kept it
            stage.compute_root()
            self.put(stage)
            self.deal(stage, stage.fuse(*stage.op.axis))

    def copy(self, tensor: Tensor, readers: list[Tensor]) -> None:
        """Have what is there in shared memory, with the keys where accesses can be as large."""
        stage = self.s[self.s.cache_read(tensor, "shared", readers)]
        self.put(stage)
        size, run = tensor.dtype.bytes, tensor.shape[-1] if tensor.shape else 1
        widths = [n // size for n in sorted(ASYNC_BYTES, reverse=True) if n >= size]
        width = next((n for n in widths if run % n == 0), 0)
        alone = width and self.alone and stays_a_copy(tensor)
        fetch(stage, WARP * self.warps, width or None, lanes=WARP, slots=1 if alone else 0)


@dataclass(frozen=True)
class Write:
    """A stage that has new elements where something says so, and those of `old` elsewhere.

    others: what it reads besides
    """

    stage: Stage
    old: Tensor
    others: tuple[Tensor, ...]


def _write_of(s: Schedule, tensor: Tensor) -> Write | None:
    """The write of which a factor is a view; None where it is none."""
    stage = s[tensor]
    while isinstance(stage.op, ComputeOp) and stage.op.body.op == "read":
        stage = s[stage.op.body.attr]
    op = stage.op
    if not isinstance(op, ComputeOp) or op.body.op not in ("select", "if_then_else"):
        return None
    test, *sides = op.body.args
    own = tuple(ax.var for ax in op.axis)
    for old, new in (sides, sides[::-1]):
        kept = old.op == "read" and old.args == own and isinstance(s[old.attr].op, PlaceholderOp)
        if kept and test.op == new.op == "read" and old.attr not in (test.attr, new.attr):
            return Write(stage, old.attr, (test.attr, new.attr))
    return None


def _scores(block: Block, a: Attention) -> None:
    """A thread has whole keys, for all rows of the block."""
    s, stage = block.s, a.scores
    queries, keys = operands(op_of(s, stage.tensor), _axes(stage))
    sums = s[s.cache_write(stage.tensor, "local")]
    block.put(stage)
    *_, i, j = stage.op.axis
    stage.reorder(j, i)
    sums.compute_at(stage, block.deal(stage, j))
    near = a.queries
    if near is None:
        wide = staged(queries.tensor.dtype)
        near = s[s.cache_read(queries.tensor, "shared", [sums.tensor], wide)]
    elif near.op.dtype is not near.op.dtype.compute:
        s.widen(near.tensor)
    block.put(near)
    block.deal(near, near.fuse(*near.op.axis))
    found, width = block.bring(keys, sums)
    (k,) = op_of(s, sums.tensor).reduce_axis
    step, inner = sums.split(k, factor=width if keys.k == len(keys.tensor.shape) - 1 else 1)
    sums.reorder(step, inner, *sums.op.axis)
    for loop in (inner, *sums.op.axis[-2:]):
        sums.unroll(loop)
    for tensor in (found, near.tensor):
        own = s[s.cache_read(tensor, "local", [sums.tensor])]
        own.compute_at(sums, step)
        _in_vectors(own, VECTOR_BYTES // tensor.dtype.bytes)


@dataclass(frozen=True)
class Shares:
    """board: sums of values over shares of the keys; wide: neighbouring columns of a thread"""

    board: Stage
    values: Dims
    wide: int


def _shared_out(s: Schedule, total: Tensor, warps: Any) -> Shares:
    """Split a sum over keys so that all threads have a share of it, for a few columns."""
    _, values = operands(op_of(s, total), _axes(s[total]))
    wide = width_of(s, values) if values.row == len(values.tensor.shape) - 1 else 1
    shares = maximum(WARP * warps // (total.shape[-1] // wide), 1)
    _, share = s[total].split(op_of(s, total).reduce_axis[0], factor=shares)
    return Shares(s[s.rfactor(total, share)], values, wide)


def _weighted(block: Block, shares: Shares) -> None:
    s, board = block.s, shares.board
    sums = s[s.cache_write(board.tensor, "local")]
    block.put(board)
    share, *batch, i, j = board.op.axis
    group, column = board.split(j, factor=shares.wide)
    piece, lane = board.split(column, factor=gcd(shares.wide, VECTOR_BYTES // WORD))
    board.reorder(*batch, share, group, i, piece, lane)
    board.vectorize(lane)
    sums.compute_at(board, block.deal(board, board.fuse(share, group)))
    found, width = block.bring(shares.values, sums)
    (k,) = op_of(s, sums.tensor).reduce_axis
    sums.reorder(k, *sums.op.axis)
    for loop in sums.op.axis[-2:]:
        sums.unroll(loop)
    own = s[s.cache_read(found, "local", [sums.tensor])]
    own.compute_at(sums, k)
    _in_vectors(own, min(shares.wide, width))


def _in_vectors(stage: Stage, most: int) -> None:
    """Read neighbours together."""
    inner = stage.op.axis[-1]
    width = next(n for n in (most, most // 2, most // 4, 1) if n and inner.size % n == 0)
    _, lane = stage.split(inner, factor=width)
    stage.vectorize(lane)


def _axes(stage: Stage) -> Axes:
    ndim = len(stage.op.axis)
    return Axes((ndim - 2, ndim - 1), 0, ndim)


def fallback(sketch: Sketch, _: Anchored) -> int:
    """Choose what the model likes best of those that fit."""
    return fastest(sketch, {})


anchor_template(
    "attention.rows", kinds=KINDS, tags=(PRODUCT,), fallback=fallback, special=True, alone=True
)(schedule)
