"""Norms and softmax, row by row: a few threads for each row, some rows for each block.

In: a reduction along rows, with what reads it and its rows, such as a softmax, a layer norm or an
RMS norm.  Out: its schedule; how many threads, whether what several stages read is kept in shared
memory.  Read next: `../../schedule/row_reductions.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.ir.atoms import WARP
from tilewright.schedule.default import inline_cheap_stages
from tilewright.schedule.row_reductions import (
    LONGEST_ROW,
    Rows,
    Spread,
    rows_of,
    rows_on_threads,
    usual_threads,
)
from tilewright.schedule.schedule import Stage
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.te.tensor import ComputeOp, Tensor
from tilewright.topi.templates.untuned import fastest

SHORTEST_ROW = 16
THREADS = (8, 16, 32, 64, 128, 256, 512)
ROWS = (1, 2, 4, 8, 16)
VECTORS = (1, 2, 4, 8)
VECTOR_BYTES = 16  # that a thread can load at once
WORD = 4  # bytes of a float32
UNTUNED_BLOCK = 64  # threads of a block that has short rows


def schedule_gpu(cfg: Any, at: Anchored) -> None:
    """rewrite: block of rows: {shared rows; shared max, sum; threads: result}"""
    s = at.schedule
    found = _rows(at)
    length, dtype = found.length, found.output.op.dtype
    innermost = found.output.op.axis[-1].size
    wide = max(VECTOR_BYTES // dtype.bytes, 1)
    cfg.define_knob("threads", [n for n in THREADS if n < 2 * length])
    cfg.define_knob("rows", [n for n in ROWS if n <= found.output.op.axis[found.last].size])
    cfg.define_knob("vector", [n for n in VECTORS if n <= wide and innermost % n == 0])
    cfg.define_knob("keep", [False, True] if found.whole else [False])
    cfg.define_knob("fetch", [False, True])
    cfg.define_knob("auto_unroll_max_step", [0, 16, 64])
    spread = Spread(
        cfg["threads"].val, cfg["rows"].val, cfg["vector"].val,
        bool(cfg["keep"].val), bool(cfg["fetch"].val),
    )  # fmt: skip
    rows_on_threads(s, found, spread)
    block = found.output.leaf_iter_vars[0]
    found.output.pragma(block, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)


def schedule_warps(cfg: Any, at: Anchored) -> None:
    """rewrite: block of rows, a warp for each: {shared rows; max, sum of lanes; lanes: result}

    Rows of halves, of which a lane reads 16 bytes at once; the lanes of a warp exchange what they
    have reduced.
    """
    s = at.schedule
    found = _rows(at)
    narrow = {t.dtype for t in _read(found) if t.dtype.is_float and t.dtype.bytes < WORD}
    if not narrow or at.target.limits.warp_size != WARP or not at.target.atoms:
        raise ScheduleError(
            f"template for {at.anchor.op.name}", f"it has no halves, or {at.target} no such warps",
            "Other templates compute it.",
        )  # fmt: skip
    innermost = found.output.op.axis[-1].size
    wide = VECTOR_BYTES // min(kind.bytes for kind in narrow)
    cfg.define_knob("rows", [n for n in ROWS if n <= found.output.op.axis[found.last].size])
    cfg.define_knob("vector", [n for n in VECTORS[::-1] if n <= wide and innermost % n == 0])
    cfg.define_knob("keep", [False, True] if found.whole else [False])
    cfg.define_knob("fetch", [True, False])
    cfg.define_knob("auto_unroll_max_step", [64, 16, 0])
    spread = Spread(
        WARP, cfg["rows"].val, cfg["vector"].val, bool(cfg["keep"].val), bool(cfg["fetch"].val),
        exchange=True,
    )  # fmt: skip
    rows_on_threads(s, found, spread)
    block = found.output.leaf_iter_vars[0]
    found.output.pragma(block, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)


def _read(found: Rows) -> list[Tensor]:
    return [t for stage in (*found.inner, found.output) for t in _op(stage).input_tensors]


def _op(stage: Stage) -> ComputeOp:
    assert isinstance(stage.op, ComputeOp)
    return stage.op


def first_of_warps(sketch: Sketch, _: Anchored) -> int:
    """A warp for each row; rows that share a block need it less often."""
    return fastest(sketch, {"fetch": True, "keep": False, "auto_unroll_max_step": 64})


def _rows(at: Anchored) -> Rows:
    """Raises ScheduleError for what is not computed row by row, or has too short or long ones."""
    inline_cheap_stages(at.schedule)
    found = rows_of(at.schedule)
    if found is None or not SHORTEST_ROW <= found.length <= LONGEST_ROW:
        raise ScheduleError(
            f"template for {at.anchor.op.name}",
            f"it does not go along rows of {SHORTEST_ROW} to {LONGEST_ROW} elements",
            "It compiles with its default schedule.",
        )
    return found


def fallback(sketch: Sketch, at: Anchored) -> int:
    """A block for each row; short ones share it."""
    found = _rows(at)
    spaces = sketch.space.space_map
    most = [entity.val for entity in spaces["rows"]]
    threads = min(usual_threads(found.length), max(e.val for e in spaces["threads"]))
    return fastest(
        sketch,
        {
            "threads": threads,
            "rows": max(n for n in most if n == 1 or n * threads <= UNTUNED_BLOCK),
            "vector": 1, "keep": False, "fetch": False, "auto_unroll_max_step": 0,
        },
    )  # fmt: skip


anchor_template(
    "rows.warps", kinds=("cuda",), tags=("comm_reduce",), fallback=first_of_warps, special=True
)(schedule_warps)
anchor_template("rows.gpu", kinds=("cuda", "opencl"), tags=("comm_reduce",), fallback=fallback)(
    schedule_gpu
)
