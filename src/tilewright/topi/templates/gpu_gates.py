"""Gates on GPUs: an image times factors for its channels, which small products have made.

In: one or two products of a row and a matrix, each of what the one before gave, whose last result
is read along the channels of what follows (squeeze and excite).  Out: its schedule, `dense.gate`:
one kernel, of which each block works out the factors of its own channels.

    block: channels x a part of the pixels
      warps             shared board[lane, all]   shares of sums, a warp for some elements
      threads           shared hidden[all]        all shares; the same for factor[channels]
      threads           C[pixels, channels] = image * factor, in vectors

The first product is computed by every block: it is little beside the launch of a kernel.
Read next: `gpu_rows.py`, `../../graph/passes/gates.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.atoms import WARP
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import Anchored, anchor_template, anchored_schedule
from tilewright.schedule.vectors import inlined_body
from tilewright.te.tensor import ComputeOp, IterVar, PlaceholderOp, Tensor
from tilewright.topi.templates.gpu import op_of, vector_widths
from tilewright.topi.templates.untuned import fastest

KINDS = ("cuda",)
TAGS = ("dense", "matmul")
MOST_SUMS = 2
CHANNELS = (8, 16, 32, 64)  # of a block
WARPS = (4, 8, 16, 32)
USUAL_WARPS = 16
PARTS = (1, 2, 4, 8, 16, 32)  # of the pixels


@dataclass(frozen=True)
class Gate:
    """sums: the products, in order; factor: what the output reads along its last axis"""

    sums: list[Stage]
    factor: Stage
    output: Stage


def gate_of(a: Anchored) -> Gate:
    """Inline what lies between.  Raises ScheduleError where it is something else."""
    s = a.schedule
    computed = [stage for stage in s.stages if isinstance(stage.op, ComputeOp)]
    sums = [stage for stage in computed if _op(stage).combiner is not None]
    output = computed[-1]
    if not output.is_output or len(s.dag.outputs) > 1 or output in sums:
        raise _refused(a, "its last stage is no one elementwise result")
    if len(sums) > MOST_SUMS or not all(_is_row(stage) for stage in sums):
        raise _refused(a, f"it is not one row times up to {MOST_SUMS} matrices")
    if any(not s.reaches(one, other) for one, other in pairwise(sums)):
        raise _refused(a, "its products do not follow each other")
    last = sums[-1]
    behind = [
        stage
        for stage in computed
        if s.reaches(last, stage) and stage is not output and stage.op.shape == last.op.shape
    ]
    factor = behind[-1]  # the sum itself at least
    for stage in computed:
        if stage not in (*sums, factor, output):
            stage.compute_inline()
    channel = _op(output).axis[-1]
    if channel.size != prod(factor.op.shape) or output.op.shape == factor.op.shape:
        raise _refused(a, "there is not one factor for each channel")
    ranges = {ax.var: (0, ax.size - 1) for ax in _op(output).axis}
    for node in E.walk(inlined_body(s, output)):
        if node.op == "read" and node.attr is factor.tensor:
            place: E.Expr = E.const(0)
            for index, extent in zip(node.args, factor.op.shape, strict=True):
                place = place * extent + index
            if Simplifier(ranges)(place) is not channel.var:
                raise _refused(a, "its factors are not read along its last axis")
    return Gate(sums, factor, output)


def is_gate(a: Anchored) -> bool:
    """Whether it is scheduled as such; other templates would leave all but one sum to a kernel
    each."""
    try:
        gate_of(anchored_schedule(a.schedule.dag, a.target))
    except ScheduleError:
        return False
    return any(kind in a.target.device_kind.templates for kind in KINDS)


def _op(stage: Stage) -> ComputeOp:
    assert isinstance(stage.op, ComputeOp)
    return stage.op


def _is_row(stage: Stage) -> bool:
    op = _op(stage)
    return op.tag in TAGS and prod(op.shape) == max(op.shape) and len(op.reduce_axis) == 1


def _refused(a: Anchored, why: str) -> ScheduleError:
    return ScheduleError(f"template for {a.anchor.op.name}", why, "Other templates compute it.")


def schedule_gate(cfg: Any, a: Anchored) -> None:
    """rewrite: block: {shared hidden = ..; shared factor = ..; threads: C = image * factor}"""
    s, found = a.schedule, gate_of(a)
    output, channel = found.output, _op(found.output).axis[-1]
    rest = _op(output).axis[:-1]
    kinds = [t.dtype for t in (output.tensor, *_op(output).input_tensors)]
    widest = max(kinds, key=lambda kind: kind.bytes)
    vector = next(n for n in vector_widths(widest, a.target) if channel.size % n == 0)
    tiles = [n for n in CHANNELS if channel.size % n == 0 and n % vector == 0]
    cfg.define_knob("channels", tiles or [vector])
    cfg.define_knob("warps", list(WARPS))
    pixels = prod(ax.size for ax in rest)
    cfg.define_knob("parts", [n for n in PARTS if n == 1 or n * WARP <= pixels])
    cfg.define_knob("auto_unroll_max_step", [512, 0])
    channels, warps = cfg["channels"].val, cfg["warps"].val

    begin, inner = output.split(channel, factor=channels)
    group, lane = output.split(inner, factor=vector)
    output.reorder(begin, *rest, group, lane)
    part, pixel = output.split(output.fuse(*rest), nparts=cfg["parts"].val)
    output.reorder(begin, part, pixel, group, lane)
    block = output.fuse(begin, part)
    output.bind(block, "blockIdx.x")
    _, thread = output.split(output.fuse(pixel, group), factor=WARP * warps)
    _on_warps(output, thread)
    output.vectorize(lane)
    output.pragma(block, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    for stage in found.sums:
        _sum(s, stage.tensor, output, block, warps, a)
    if found.factor is not found.sums[-1]:
        _, lane = found.factor.split(found.factor.fuse(*_op(found.factor).axis), factor=WARP)
        found.factor.bind(lane, "threadIdx.x")
        found.factor.set_scope("shared")
        found.factor.compute_at(output, block)


def _on_warps(stage: Stage, thread: Any) -> None:
    row, lane = stage.split(thread, factor=WARP)
    stage.bind(row, "threadIdx.y")
    stage.bind(lane, "threadIdx.x")


def _sum(
    s: Schedule, tensor: Tensor, output: Stage, block: IterVar, warps: Any, a: Anchored
) -> None:
    """rewrite: {shared board[lane, element] = share of the sum; shared sum = all shares}

    A warp has some of the elements, whose weights are all asked for before one is needed; a lane
    takes neighbouring terms, of weights that lie in rows.
    """
    (depth,) = op_of(s, tensor).reduce_axis
    rows = _rows(op_of(s, tensor))
    width = min((_width(t, a) for t in rows), default=1)
    step, _ = s[tensor].split(depth, factor=width)
    _, lane = s[tensor].split(step, factor=WARP)
    board = s.rfactor(tensor, lane)
    local = s.cache_write(board, "local")

    many = max(range(len(tensor.shape)), key=lambda d: tensor.shape[d])
    stage = s[board]
    share, *own = stage.op.axis
    stage.set_scope("shared")
    stage.compute_at(output, block)
    row, each = stage.split(own[many], nparts=warps)
    stage.reorder(*(ax for d, ax in enumerate(own) if d != many), row, share, each)
    stage.bind(row, "threadIdx.y")
    stage.bind(share, "threadIdx.x")
    stage.storage_order(share)
    stage.storage_align(own[many], WARP, 1)  # what neighbours add up is in different banks

    inner = s[local]
    inner.compute_at(stage, share)
    outer, *vector = op_of(s, local).reduce_axis
    axes = list(op_of(s, local).axis)
    inner.reorder(outer, *axes, *vector)
    for ax in (*axes, *vector):
        inner.unroll(ax)
    for read in rows if width > 1 else ():
        copy = s.cache_read(read, "local", [local])
        s[copy].compute_at(inner, outer)
        _, lanes = s[copy].split(s[copy].op.axis[-1], factor=width)
        s[copy].vectorize(lanes)

    total = s[tensor]
    total.set_scope("shared")
    total.compute_at(output, block)
    _, thread = total.split(total.fuse(*total.op.axis), factor=WARP * warps)
    _on_warps(total, thread)
    total.unroll(op_of(s, tensor).reduce_axis[0])


def _rows(op: ComputeOp) -> list[Tensor]:
    """The inputs of a product whose neighbours are neighbours along its depth; of none where that
    is not so of its weights."""
    depth = op.reduce_axis[0].var
    column = max(op.axis, key=lambda ax: ax.size).var
    reads = [n for n in E.walk(op.body) if n.op == "read" and isinstance(n.attr.op, PlaceholderOp)]
    weights = [n.attr for n in reads if column in E.free_variables(*n.args)]
    found = list(dict.fromkeys(n.attr for n in reads if n.args[-1] is depth))
    return found if all(w in found for w in weights) else []


def _width(tensor: Tensor, a: Anchored) -> int:
    return next(n for n in vector_widths(tensor.dtype, a.target) if tensor.shape[-1] % n == 0)


def fallback(sketch: Sketch, a: Anchored) -> int:
    """By the machine model, loops written out, so that loads overlap, and with many warps, each of
    which has few elements: it knows less of latency than of work."""
    return fastest(sketch, {"auto_unroll_max_step": 512, "warps": USUAL_WARPS})


anchor_template("dense.gate", kinds=KINDS, tags=TAGS, fallback=fallback, special=True)(
    schedule_gate
)
