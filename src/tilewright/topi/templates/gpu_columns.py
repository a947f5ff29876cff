"""Means and sums of columns on GPUs: what is reduced lies between the elements that are kept.

In: a reduction of which neighbours in memory are neighbours along its last axis, not along the
reduction, such as the mean of an image with channels last.  Out: its schedule, `columns.gpu`.

    block: some neighbouring results
      threads along x    a result each, so that a warp reads whole lines
      threads along y    share the reduction, and add up in shared memory

Read next: `gpu_norms.py`, which goes along rows.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.schedule.vectors import inlined_body, stride_along
from tilewright.te.tensor import ComputeOp, Tensor
from tilewright.topi.templates.gpu import op_of
from tilewright.topi.templates.gpu_epilogue import inline_around
from tilewright.topi.templates.untuned import fastest

KINDS = ("cuda", "opencl")
TAGS = ("comm_reduce", "adaptive_pool_sum", "adaptive_pool_max", "pool_sum", "pool_max")
SHORTEST = 16  # terms of a result; fewer are for one thread
LANES = (4, 8, 16, 32, 64)  # results of a block
ROWS = (4, 8, 16, 32, 64, 128)  # threads that share one


def check(a: Anchored, last: Tensor) -> None:
    """Raises ScheduleError where the terms of a result are few, or lie side by side."""
    s, op = a.schedule, op_of(a.schedule, a.anchor)
    sums = [st for st in s.stages if isinstance(st.op, ComputeOp) and st.op.combiner is not None]
    columns = op.axis[-1] if op.axis else None
    why = ""
    if len(sums) > 1 or len(op.dtypes) > 1:
        why = "it is not one reduction of one value"
    elif columns is None or columns.size < LANES[0]:
        why = "it keeps no columns"
    elif prod(ax.size for ax in op.reduce_axis) < SHORTEST:
        why = f"it reduces fewer than {SHORTEST} terms"
    elif stride_along(inlined_body(s, s[a.anchor]), columns.var) != 1 or not _moves(s, a.anchor):
        why = "neighbours along its last axis are none in memory"
    if why:
        raise ScheduleError(f"template for {op.name}", why, "Other templates compute it.")


def _moves(s: Schedule, anchor: Tensor) -> bool:
    """Whether each read that the reduction moves follows the last axis, too."""
    op = op_of(s, anchor)
    steps, column = {ax.var for ax in op.reduce_axis}, op.axis[-1].var
    moved = [
        E.free_variables(*n.args)
        for n in E.walk(inlined_body(s, s[anchor]))
        if n.op == "read" and steps & E.free_variables(*n.args)
    ]
    return bool(moved) and all(column in variables for variables in moved)


def schedule_columns(cfg: Any, a: Anchored) -> None:
    """rewrite: block: {threads (y, x): shared sum[x] over y; threads x: C[x] = sum[x]}"""
    s = a.schedule
    last = inline_around(a)
    check(a, last)
    op, output = op_of(s, a.anchor), s[last]
    terms = prod(ax.size for ax in op.reduce_axis)
    cfg.define_knob("lanes", [n for n in LANES if n < 2 * op.axis[-1].size])
    cfg.define_knob("rows", [n for n in ROWS if n == ROWS[0] or n <= terms])
    cfg.define_knob("auto_unroll_max_step", [64, 0])
    lanes, rows = cfg["lanes"].val, cfg["rows"].val

    begin, lane = output.split(output.op.axis[-1], factor=lanes)
    block = output.fuse(*output.op.axis[:-1], begin)
    output.bind(block, "blockIdx.x")
    output.bind(lane, "threadIdx.x")
    output.pragma(block, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    sums = s[a.anchor]
    if sums is not output:
        sums.set_scope("shared")
        sums.compute_at(output, block)
        _, lane = sums.split(op.axis[-1], factor=lanes)
        sums.bind(lane, "threadIdx.x")
    _, row = sums.split(sums.fuse(*op.reduce_axis), factor=rows)
    sums.bind(row, "threadIdx.y")


def fallback(sketch: Sketch, a: Anchored) -> int:
    """By the machine model, loops written out, so that loads overlap."""
    return fastest(sketch, {"auto_unroll_max_step": 64})


anchor_template("columns.gpu", kinds=KINDS, tags=TAGS, fallback=fallback)(schedule_columns)
