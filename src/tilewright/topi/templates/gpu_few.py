"""A few rows times a matrix of constant weights on matrix units: as fast as the weights come.

In: anchors of `topi.nn.dense` of which one axis is short.  Out: their schedule, `dense.few`.  The
weights are stored in the order in which lanes hold them, and each is read once:

    a block     some atoms of weights' rows, all of the depth, all few rows
      slices of the depth   weights come to a ring in shared memory, far ahead
        warps along k       a step of each slice: board[kw, few, many], added by the whole block

What a device needs under way to be busy is in the ring of the weights, which asks for them before a
kernel of a chain waits for the one before it.  Groups of copies end in order: a slice of rows in a
ring, asked for behind that wait, would be waited for with all weights that were asked for before.
So rows come at once where they are few, through registers.  Neighbouring warps have neighbouring
steps, so that what a block reads at a time is one piece.  Read next: `gpu_rows.py`, for fewer rows
still.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from tilewright.base.errors import ScheduleError
from tilewright.ir.atoms import WARP, Atom, Fragment
from tilewright.schedule.copies import source_of, stays_a_copy
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.space.decision import Size
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.schedule.thread_loops import deal, fetch
from tilewright.te.tensor import ComputeOp, IterVar, Tensor
from tilewright.topi.templates.gpu import accumulator, op_of
from tilewright.topi.templates.gpu_atoms import (
    COPIED,
    KINDS,
    Axes,
    Groups,
    M,
    N,
    Tiling,
    atom_for,
    copy,
    dense_groups,
    in_lane_order,
    in_order,
    is_constant,
    is_copied,
    operands,
    tiles,
    whole_atoms,
    width_of,
)
from tilewright.topi.templates.gpu_epilogue import inline_around

MOST_ROWS = 16
EACH, WARPS = (1, 2, 4), (1, 2, 4)  # atoms of a warp, warps along the weights' rows
SHARES = (2, 4, 8, 16)  # warps along the depth
STEPS = (1, 2, 4)  # atoms along the depth of a warp in a slice
WHOLE = 32 << 10  # bytes of rows that are copied at once
# Untuned.
USUAL = 8  # shares
FEWEST = 8  # rows: each slice costs a wait and a barrier, so its steps are many, its slices AHEAD
AHEAD = (6, 4)
BUSY = 0.9  # of the cores have a block, of the larger kind
WIDE = 2  # blocks of the larger kind for each core, of which one row is faster otherwise
APART = 4  # floats that rows of sums are longer than a multiple of 8, to lie in different banks
STAGES = (2, 3, 4, 6, 8, 12)  # slices in the rings


def schedule_few(cfg: Any, a: Anchored) -> None:
    """rewrite: block: {slices: {rings; warps: board[share, few, many] += ..}; C = sum of board}"""
    s, anchor = a.schedule, a.anchor
    op = op_of(s, anchor)
    atom = atom_for(op, a.target)
    if min(ax.size for ax in op.axis[-2:]) > MOST_ROWS:
        raise _refused(op, f"it has more than {MOST_ROWS} rows")
    groups = dense_groups(op, atom)
    product, axes = whole_atoms(s, anchor, groups, atom, vectors=True)
    factors = operands(op_of(s, product), axes)
    atom = in_order(atom, factors, a.target)
    weights, rows = (dims.tensor for dims in factors)
    if not is_constant(s, weights) or not is_copied(s, factors[1]) or not stays_a_copy(rows):
        raise _refused(op, "its weights are not constant, or its rows are computed")
    many, few = axes.tiled(op_of(s, product))
    depth = axes.depth(op_of(s, product)).size // atom.extents["k"]
    if depth < min(SHARES):
        raise _refused(op, "its depth is one atom")
    lines = tiles(many.size, M, EACH, WARPS)
    cfg.define_split("tile_m", many.size // M, policy="candidate", candidate=lines)
    alone = [[-1, 1, few.size // N]]
    cfg.define_split("tile_n", few.size // N, policy="candidate", candidate=alone)
    cfg.define_knob("warps_k", [n for n in SHARES if n <= depth])
    cfg.define_knob("step_k", [n for n in STEPS if n <= depth])
    cfg.define_knob("stages", STAGES)
    cfg.define_knob("auto_unroll_max_step", [0, 512])
    source = _unpadded(s, rows)
    size = source.shape[factors[1].k] * source.shape[factors[1].row] * rows.dtype.bytes
    inside = [s[rows]] if size <= WHOLE and source is not rows else []
    last = inline_around(replace(a, anchor=product), inside=inside)
    tiling, shares, step = Tiling(cfg, atom, groups, axes), cfg["warps_k"].val, cfg["step_k"].val

    atoms, _ = s[product].split(axes.depth(op_of(s, product)), factor=atom.extents["k"])
    _, rest = s[product].split(atoms, factor=shares * step)
    share, _ = s[product].split(rest, factor=step)
    board = s.rfactor(product, share)
    accumulated = accumulator(s, product, last)
    local = s.cache_write(board, "fragment")
    s[board].set_scope("shared")
    threads = WARP * tiling.warps * shares
    block, thread = _share_out(s[last], groups, M * prod(cfg["tile_m"].size[1:]), threads)
    s[board].compute_at(s[last], block)
    s[board].storage_align(s[board].op.axis[-2], 2 * APART, APART)
    s[accumulated].compute_at(s[last], thread)
    s[accumulated].unroll(op_of(s, accumulated).reduce_axis[0])
    s[local].compute_at(s[board], tiling.spread(s[board]))
    s[last].pragma(s[last].leaf_iter_vars[0], "auto_unroll_max_step",
                   cfg["auto_unroll_max_step"].val)  # fmt: skip
    whole = (source, s[last], block) if size <= WHOLE else None
    _multiply(cfg, s, local, atom, axes, tiling.warps * shares, whole)


def _unpadded(s: Schedule, rows: Tensor) -> Tensor:
    """What a factor of the product is without zeros beyond."""
    op = s[rows].op
    found = source_of(op.body) if isinstance(op, ComputeOp) and op.combiner is None else None
    if found is None or list(found[1].args) != [ax.var for ax in op.axis]:
        return rows
    source: Tensor = found[1].attr
    return source if len(s.readers(rows)) == 1 else rows


def _accesses(stage: Stage) -> list[IterVar]:
    """The axes of a copy, with those of one access fused."""
    axes, together = list(stage.op.axis), list[IterVar]()
    while prod(ax.size for ax in together) * stage.tensor.dtype.bytes < COPIED:
        together.insert(0, axes.pop())
    return [*axes, stage.fuse(*together)]


def _refused(op: ComputeOp, why: str) -> ScheduleError:
    return ScheduleError(f"template for {op.name}", why, "Other templates compute it.")


def _share_out(stage: Stage, groups: Groups, tile: Size, threads: Size) -> tuple[IterVar, IterVar]:
    """The elements of a block dealt to its threads as they lie in memory, where rows are short;
    (innermost block loop, thread)."""
    many, few = (stage.op.axis[d] for (d,) in (groups.m, groups.n))
    batch = [ax for ax in stage.op.axis if ax not in (many, few)]
    block, inner = stage.split(many, factor=tile)
    stage.reorder(*batch, block, few, inner)
    if batch:
        stage.bind(stage.fuse(*batch), "blockIdx.y")
    stage.bind(block, "blockIdx.x")
    return block, deal(stage, stage.fuse(few, inner), threads, WARP)


def _multiply(
    cfg: Any, s: Schedule, local: Tensor, atom: Atom, axes: Axes, warps: Any,
    whole: tuple[Tensor, Stage, IterVar] | None,
) -> None:  # fmt: skip
    """The sum of a warp: steps of slices that come to rings in shared memory.

    whole: the rows, without zeros beyond, and where all are copied; None: they have a ring, too
    """
    stage, op = s[local], op_of(s, local)
    m, n = axes.tiled(op)
    batch = [ax for ax in op.axis if ax not in (m, n)]
    slices, step, inner = op.reduce_axis
    rows, row = stage.split(m, factor=M)
    columns, column = stage.split(n, factor=N)
    stage.reorder(slices, step, *batch, rows, columns, row, column, inner)
    stage.unroll(step)
    stage.tensorize(row, atom.name)
    weights, few = operands(op, axes)
    assert isinstance(atom.a, Fragment)
    held = s.cache_read(weights.tensor, "fragment", [local])
    s[held].compute_at(stage, step)
    in_lane_order(s, weights, atom.a, rounded=bool(atom.cut))
    (packed,) = op_of(s, held).input_tensors
    ring = s.cache_read(packed, "shared", [held])
    s[ring].compute_at(stage, slices)
    *places, held_together = _accesses(s[ring])
    s[ring].vectorize(held_together)
    fetch(s[ring], WARP * warps, None, places, lanes=WARP, slots=cfg["stages"].val)
    source, outer, place = whole or (few.tensor, stage, slices)
    if source is few.tensor:
        shared = s.cache_read(source, "shared", [local])
        own = s.cache_read(shared, "fragment", [local])
    else:  # lanes of rows beyond have zeros
        shared, own = s.cache_read(source, "shared", [few.tensor]), few.tensor
        s[own].set_scope("fragment")
    s[shared].compute_at(outer, place)
    s[own].compute_at(stage, step)
    copy(s[shared], few, width_of(s, few), warps, 0 if whole else cfg["stages"].val)


def fallback(sketch: Sketch, a: Anchored) -> int:
    """Two atoms of the weights' rows for a warp where most cores have a block then; large slices of
    the rows that one atom has, of more rows small ones in the deepest ring that fits.

    Raises ScheduleError where `gpu_rows.py` is faster: of one row times many columns; or where what
    follows has a kernel of its own, as a gate that it computes inside.
    """
    op, knobs = op_of(a.schedule, a.anchor), sketch.space.space_map
    few, many = sorted(ax.size for ax in op.axis[-2:])
    depth = op.reduce_axis[0].size // atom_for(op, a.target).extents["k"]
    cores = a.target.limits.cores
    if any(end is not a.output for end in a.schedule.dag.outputs):
        raise _refused(op, "another kernel computes what follows")
    if few == 1 and many > WIDE * M * EACH[1] * cores:
        raise _refused(op, "rows of threads are faster")
    wanted = EACH[1] if many >= BUSY * M * EACH[1] * cores else EACH[0]
    alone = [e for e in knobs["tile_m"] if e.size[1] == 1 and e.size[2] <= wanted]
    held = {
        "tile_m": max(alone, key=lambda e: e.size[2]).value,
        "tile_n": knobs["tile_n"][0].value,
        "warps_k": (shares := max(e.val for e in knobs["warps_k"] if e.val <= USUAL)),
        "auto_unroll_max_step": 0,
    }
    slices = -(-depth // shares)
    large = [n for n in STEPS if few <= FEWEST and slices % n == 0]
    rings = [(n, slots) for n in reversed(large) if n > 1 for slots in AHEAD]
    rings += [(1, n) for n in STAGES[::-1]]
    for step, stages in rings:
        index = sketch.space.index_of({**held, "step_k": step, "stages": stages})
        if sketch.legal(np.array([index]))[0]:
            return index
    raise _refused(op, "no ring fits")


anchor_template(
    "dense.few",
    kinds=KINDS,
    tags=("dense", "matmul"),
    fallback=fallback,
    special=True,
    usual=True,
)(schedule_few)
