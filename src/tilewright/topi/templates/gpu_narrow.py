"""Few rows times weights of a byte or less on GPUs: as fast as these come from memory.

In: anchors of `topi.nn.dense_narrow`.  Out: their schedule, `dense.narrow`.  Each line of weights
is one access of 16 bytes, unpacked in registers, and used for all rows:

    threads of a block       board[share, few, many]  in shared memory, added by the block
      steps of a thread      sums[few, many]          of lines, times the scales of their groups
        columns of a thread  line[few, many]          of the products of 16 bytes

Lanes have shares of the lines, rows of threads have columns, those that a gate joins together.
Where the rows are normed, each block norms them for itself, in shared memory.  Weights come to
registers, some lines together, or to a ring in shared memory, ahead of their use.
Read next: `gpu_rows.py`, which has weights that are floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.schedule.copies import stays_a_copy
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.schedule.thread_loops import deal, fetch
from tilewright.te.tensor import IterVar, Tensor
from tilewright.topi.nn.narrow import LINE
from tilewright.topi.stage import workload_of
from tilewright.topi.templates.gpu import accumulator, op_of, vector_widths
from tilewright.topi.templates.gpu_epilogue import inline_around
from tilewright.topi.templates.gpu_rows import (
    TOGETHER,
    add_up,
    gate_of,
    norm_of,
    norm_rows,
    tiles,
)
from tilewright.topi.templates.narrow import operands_of

KINDS = ("cuda", "opencl")
TAGS = ("dense_narrow",)
FEW = 4  # rows, of which a thread holds pieces of 16 bytes
MOST_ROWS = 16  # of which a thread holds the sums
LANES = (8, 16, 32, 64, 128)  # threads along x
THREADS = (1, 2, 4, 8, 16)  # along y
EACH = (1, 2, 4, 8)  # columns of a thread
AHEAD = (1, 2, 4, 8)  # lines of a column that are written out
SLOTS = (0, 2, 3, 4, 6, 8)  # of the ring; 0: weights come to registers
# Untuned.
BLOCK = 128  # threads that share a line of columns, or columns of short lines
WARP = 32  # the same of many rows, which take room in shared memory
HELD = 32  # rows times columns of a thread: each has two sums in registers
COLUMNS = 4  # of a thread: what is unpacked costs more than to read the rows again
PLAIN = 2  # the same where it costs little
USUAL_AHEAD = 2


def schedule_narrow(cfg: Any, a: Anchored) -> None:
    """rewrite: block: {shared board[share, few, many]; threads: C[few, many] = sum of the board}"""
    s, found = a.schedule, operands_of(a)
    op = op_of(s, a.anchor)
    (rows, columns), (line,) = op.shape, op.reduce_axis
    if rows > MOST_ROWS:
        raise ScheduleError(
            f"template for {op.name}", f"it has more than {MOST_ROWS} rows",
            "It compiles with its default schedule.",
        )  # fmt: skip
    cfg.define_knob("lanes", tiles(line.size, LANES))
    end, beside = gate_of(a, 1)
    cfg.define_knob("threads", tiles(columns // beside, THREADS))
    cfg.define_knob("each", tiles(columns // beside, EACH))
    cfg.define_knob("ahead", tiles(line.size, AHEAD))
    alone = a.target.copies_alone and a.target.limits.vector_bytes == LINE
    cfg.define_knob("slots", SLOTS if alone and stays_a_copy(found.weight) else SLOTS[:1])
    cfg.define_knob("auto_unroll_max_step", [0, 512])
    widths = [n for n in vector_widths(found.data.dtype, a.target) if LINE % n == 0]
    wide = widths[0] if rows <= FEW else widths[1]
    norm = norm_of(a, s[found.data], (s[found.part],))
    cfg.define_knob("shared_rows", [0] if norm else [0, 1])
    staged = bool(cfg["shared_rows"].val)
    lanes, threads, each = (cfg[name].val for name in ("lanes", "threads", "each"))
    last = inline_around(a, end, (s[found.part], s[found.rows], *norm))
    _, share = s[a.anchor].split(line, factor=lanes)
    board = s.rfactor(a.anchor, share)
    accumulated = accumulator(s, a.anchor, last)
    local = s.cache_write(board, "local")
    s[board].set_scope("shared")

    root = s[last]
    row, column = root.op.axis[-2:]
    block, inner = root.split(column, factor=threads * each)
    root.reorder(block, row, inner)
    root.bind(block, "blockIdx.x")
    thread = deal(root, root.fuse(row, inner), lanes * threads, lanes)
    root.pragma(block, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    s[board].compute_at(root, block)
    add_up(s, accumulated, root, thread, along=True)
    s[local].compute_at(s[board], _spread(s[board], each * beside))
    if norm:
        norm_rows(s, norm, wide, (root, block), (lanes, threads))

    stage = s[local]
    (step,) = stage.op.reduce_axis
    outer, ahead = stage.split(step, factor=cfg["ahead"].val)
    stage.reorder(outer, ahead, *stage.op.axis)
    for ax in (ahead, *stage.op.axis):
        stage.unroll(ax)
    piece = _lines(s, found.part, stage, ahead, wide)
    weight = found.weight
    if bool(cfg["slots"].val):
        weight = s.cache_read(weight, "shared", [found.part])
        s[weight].compute_at(stage, outer)
        fetch(s[weight], lanes * threads, LINE, lanes=lanes, slots=cfg["slots"].val)
    own = s[s.cache_read(weight, "local", [found.part])]
    own.compute_at(stage, ahead)
    own.vectorize(own.op.axis[-1])
    if staged:
        _stage_rows(s, found.rows, (stage, outer), widths[0], (lanes, threads))
    data = s[s.cache_read(found.rows, "local", [found.part]) if staged else found.rows]
    data.set_scope("local")
    data.compute_at(s[found.part], piece)
    data.vectorize(data.op.axis[-1])


def _stage_rows(
    s: Schedule, rows: Tensor, place: tuple[Stage, IterVar], width: int, block: tuple[Any, Any]
) -> None:
    """What a step reads of the rows, in shared memory, where lanes read lines from different
    banks."""
    stage, (lanes, threads) = s[rows], block
    stage.set_scope("shared")
    stage.storage_align(stage.op.axis[-2], 2 * width, width)
    stage.compute_at(*place)
    fetch(stage, lanes * threads, width, lanes=lanes)


def _spread(board: Stage, each: Any) -> IterVar:
    """Threads of the board; returns the innermost loop that is one."""
    share, few, many = board.op.axis
    row, inner = board.split(many, factor=each)
    board.storage_order(share)  # lanes side by side
    board.storage_align(many, 2 * TOGETHER, TOGETHER)  # rows of vectors, in different banks
    board.reorder(row, share, few, inner)
    board.bind(row, "threadIdx.y")
    board.bind(share, "threadIdx.x")
    return share


def _lines(s: Schedule, part: Tensor, stage: Stage, at: IterVar, wide: int) -> IterVar:
    """The sums of the products of a line, in registers, written out; returns the loop over pieces
    of the rows that one access reads."""
    own = s[part]
    own.set_scope("local")
    own.compute_at(stage, at)
    *halves, byte = own.op.reduce_axis
    piece, byte = own.split(byte, factor=wide)
    own.reorder(*halves, piece, byte, *own.op.axis)
    for ax in (*halves, piece, byte, *own.op.axis):
        own.unroll(ax)
    return piece


def fallback(sketch: Sketch, a: Anchored) -> Mapping[str, Any]:
    """Whole blocks along the depth, since neighbours in memory come together."""
    op = op_of(a.schedule, a.anchor)
    rows, lines = op.shape[0], op.reduce_axis[0].size
    plain = workload_of(op, 3, 1)[4] == "int8"
    space = {name: [e.val for e in knob] for name, knob in sketch.space.space_map.items()}
    most = BLOCK if rows <= FEW else WARP
    lanes = max((n for n in space["lanes"] if n <= most), default=min(space["lanes"]))
    threads, steps = max(BLOCK // lanes, 1), -(-lines // lanes)
    wanted = {
        "lanes": lanes,
        "threads": 2 * threads if plain and steps == 1 else threads,
        "each": max(min(PLAIN if plain else COLUMNS, HELD // rows), 1),
        "ahead": 1 if rows > 1 else min(steps, USUAL_AHEAD),
        "shared_rows": int(rows > 1),
    }
    return {
        name: max((n for n in values if n <= wanted.get(name, values[0])), default=min(values))
        for name, values in space.items()
    }


anchor_template("dense.narrow", kinds=KINDS, tags=TAGS, fallback=fallback, usual=True)(
    schedule_narrow
)
