"""Few rows times weights of a byte or less on CPUs: as fast as these come from memory.

In: anchors of `topi.nn.dense_narrow`.  Out: their schedule, `dense.narrow.llvm`.  Lanes have
neighbouring columns, whose weights lie side by side: packed so at build time if they are constant.
A line is summed up in vector registers, and scaled once.
Read next: `cpu_dense.py`, which has weights that are floats.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.schedule.default import inline_cheap_stages
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.te.tensor import ComputeOp, PlaceholderOp, Tensor
from tilewright.topi.templates.cpu_products import ROWS
from tilewright.topi.templates.cpu_tile import (
    Tile,
    accumulator_of,
    finish,
    lanes_for,
    register_tile,
    tile_sizes,
)
from tilewright.topi.templates.narrow import operands_of
from tilewright.topi.templates.untuned import fastest

VECTORS = (1, 2, 3, 4, 6, 8)
FEW = 4
UNROLL = (0, 64, 512)  # innermost statements of a line


def schedule_narrow(cfg: Any, at: Anchored) -> None:
    """rewrite: for j: C[i, j] = sum_l P[i, j, l] * scale[j, l]
    ->    for j.o: {for l: {vectors P = sum of a line; vectors C += P * scale}}
    """
    s, found = at.schedule, operands_of(at)
    op = at.anchor.op
    assert isinstance(op, ComputeOp)
    rows, columns = op.shape
    lanes = lanes_for(columns, accumulator_of(at), at.target)
    if lanes < 2 or not all(_constant(t) for t in (found.weight, found.scale)):
        raise ScheduleError(
            f"template for {op.name}", "its weights are not known, or of one column",
            "It compiles with its default schedule.",
        )  # fmt: skip
    cfg.define_knob("tile_i", tile_sizes(rows, ROWS))
    cfg.define_knob("tile_j", [v for v in VECTORS if v <= ceil(columns / lanes)])
    cfg.define_knob("order", ("ij", "ji"))
    cfg.define_knob("unroll", UNROLL)
    for stage in at.epilogue[:-1]:
        s[stage].compute_inline()
    inline_cheap_stages(s, keep=[s[at.anchor], s[at.output]])
    block = int(cfg["tile_j"].val) * lanes
    s.pack(found.weight, [block, 1, 1], [0, 1, 2, 3])
    s.pack(found.scale, [block, 1], [0, 1, 2])
    sizes = {0: cfg["tile_i"].val, 1: cfg["tile_j"].val}
    outer = ["ij".index(letter) for letter in cfg["order"].val]
    tiled = register_tile(at, Tile(1, lanes, sizes, outer, len(outer)))
    (line,) = tiled.local.op.reduce_axis
    tiled.local.reorder(line)
    part = s[found.part]
    part.set_scope("local")
    part.compute_at(tiled.local, line)
    row, column, one = part.op.axis
    *halves, byte = part.op.reduce_axis
    vector, lane = part.split(column, factor=lanes)
    part.reorder(one, byte, *halves, row, vector, lane)
    part.vectorize(lane)
    for ax in (*halves, row, vector):
        part.unroll(ax)
    part.pragma(byte, "auto_unroll_max_step", cfg["unroll"].val)
    finish(at, tiled)


def _constant(tensor: Tensor) -> bool:
    return isinstance(tensor.op, PlaceholderOp) and tensor.op.constant


def fallback(sketch: Sketch, at: Anchored) -> int:
    """Whole lines written out, and the tile that the model likes best; of one row `FEW` vectors, as
    more at once leave no registers for what becomes floats."""
    op, held = at.anchor.op, {"order": "ij", "unroll": UNROLL[-1]}
    assert isinstance(op, ComputeOp)
    if op.shape[0] == 1 and FEW in [entity.value for entity in sketch.space.space_map["tile_j"]]:
        held["tile_j"] = FEW
    return fastest(sketch, held)


anchor_template("dense.narrow.llvm", kinds=("llvm",), tags=("dense_narrow",), fallback=fallback)(
    schedule_narrow
)
