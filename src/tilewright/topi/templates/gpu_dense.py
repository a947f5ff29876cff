"""Matrix products on GPUs: `dense.gpu` for dense, matmul and batch_matmul.

In: anchors of `topi.nn.dense`.  Out: tiles by `gpu.py`; a product with a vector instead reads every
weight once, and all threads of a row share its sum.  Read next: `gpu_depthwise.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.schedule.thread_loops import deal
from tilewright.te.tensor import ComputeOp
from tilewright.topi.templates.gpu import (
    KINDS,
    Roles,
    accumulator,
    fastest_contraction,
    op_of,
    schedule_contraction,
    tile_sizes,
)
from tilewright.topi.templates.gpu_epilogue import inline_around
from tilewright.topi.templates.gpu_gates import is_gate
from tilewright.topi.templates.untuned import fastest

TAGS = ("dense", "matmul", "batch_matmul")
LANES = (8, 16, 32, 64, 128, 256)


def roles_of(op: ComputeOp) -> Roles:
    """[.., i, j]: the weights follow j, the data i."""
    last = len(op.axis) - 1
    return Roles(channel=last, columns=last - 1, rows=None, depth=0)


def is_vector(op: ComputeOp) -> bool:
    return op.axis[-2].extent == 1


def schedule_dense(cfg: Any, a: Anchored) -> None:
    op = op_of(a.schedule, a.anchor)
    if is_vector(op):
        schedule_vector(cfg, a, op)
    else:
        schedule_contraction(cfg, a, roles_of(op))


def schedule_vector(cfg: Any, a: Anchored, op: ComputeOp) -> None:
    """A block computes a few neighbouring elements, each with a row of threads.

    Raises ScheduleError for a gate, which is one kernel.
    """
    if is_gate(a):
        raise ScheduleError(f"template for {op.name}", "it is a gate", "dense.gate computes it.")
    depth = op.reduce_axis[0].size
    cfg.define_split(
        "tile_j", op.axis[-1].size, policy="candidate",
        candidate=[[-1, n] for n in tile_sizes(op.axis[-1].size, 32)],
    )  # fmt: skip
    cfg.define_knob("lanes", [n for n in LANES if n <= max(depth, LANES[0])])
    cfg.define_knob("auto_unroll_max_step", [0, 16, 64])
    last = inline_around(a)
    s = a.schedule
    adder = accumulator(s, a.anchor, last)
    stage = s[last]
    *outer, j = stage.op.axis
    block, row = cfg["tile_j"].apply(s, stage, j)
    block = stage.fuse(*outer, block)
    stage.bind(block, "blockIdx.x")
    stage.bind(row, "threadIdx.y")
    stage.pragma(block, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    s[adder].compute_at(stage, row)
    deal(s[adder], s[adder].op.reduce_axis[0], cfg["lanes"].val)


def fallback(sketch: Sketch, a: Anchored) -> int:
    op = op_of(a.schedule, a.anchor)
    if not is_vector(op):
        return fastest_contraction(sketch, op)
    return fastest(sketch, {"auto_unroll_max_step": 16})


anchor_template("dense.gpu", kinds=KINDS, tags=TAGS, fallback=fallback, rows=True)(schedule_dense)
