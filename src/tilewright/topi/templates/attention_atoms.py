"""Attention on the matrix units of GPUs: scores, softmax and probabilities stay in registers.

In: a product whose first operand is the softmax of another product, as `attention_stages.py` finds
it.  Out: its schedule; a warp has the scores of its rows, whose maxima and sums its lanes know
together, and what they hold of the probabilities is what the second product wants of them.

    blocks of rows         out[.., i, d]
      warps, atoms of rows   sums of both products, maxima and sums of rows in fragments
        slices of keys         in shared memory, a ring of them, filled by asynchronous copies

Read next: `gpu_atoms.py`, products by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.ir.atoms import WARP, Atom, Fragment
from tilewright.schedule.copies import stays_a_copy
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.schedule.thread_loops import fetch, lanes
from tilewright.te.tensor import ComputeOp, IterVar, Tensor
from tilewright.topi.templates.attention_stages import (
    PRODUCT,
    attention_of,
    divided_last,
    keep_wide,
    result_of,
)
from tilewright.topi.templates.gpu import accumulator, op_of
from tilewright.topi.templates.gpu_atoms import (
    KINDS,
    SKEW,
    STAGES,
    Axes,
    Dims,
    M,
    N,
    atom_for,
    operands,
    width_of,
)
from tilewright.topi.templates.untuned import fastest

WARPS = (1, 2, 4, 8)
EACH = (1, 2)  # atoms of rows of a warp
KEYS = (16, 32, 64, 128)  # of a slice
MOST_KEYS = 256  # whose scores a warp keeps


def schedule(cfg: Any, at: Anchored) -> None:
    """rewrite: block of rows: {fragments of scores, max, sum, probabilities; out}

    running: slices of keys are forgotten when the next ones come (`accumulate_at`); else a warp
    keeps all scores of its rows
    """
    s, atom = at.schedule, atom_for(op_of(at.schedule, at.anchor), at.target)
    keep_wide(s, at.anchor)
    a = attention_of(at, moved=True)
    _check_atom(at, atom)
    rows, length = _op(a.scores).shape[-2:]
    depth, columns = _op(a.scores).reduce_axis[0].size, at.anchor.shape[-1]
    if 1 in (rows, length, depth, columns):
        raise ScheduleError(
            f"template for {at.anchor.op.name}", "one factor is a vector",
            "Other templates compute it.",
        )  # fmt: skip
    a.kept.compute_inline()
    divided = divided_last(s, at.anchor)
    if divided is None and length > MOST_KEYS:
        raise ScheduleError(
            f"template for {at.anchor.op.name}",
            f"probabilities are no quotients, and a warp keeps no {length} scores of a row",
            "Other templates compute it.",
        )  # fmt: skip
    cfg.define_knob("warps", [n for n in WARPS if n * M < rows + M])
    cfg.define_knob("each", [n for n in EACH if n * M < rows + M])
    cfg.define_knob("keys", [n for n in KEYS if n < length + KEYS[0]])
    cfg.define_knob("stages", STAGES)
    ways = [False] * (length <= MOST_KEYS) + [True] * (divided is not None)
    cfg.define_knob("running", ways)
    cfg.define_knob("auto_unroll_max_step", [0, 512])
    warps, own = cfg["warps"].val, M * cfg["each"].val
    out, batch, i, j = result_of(at)
    total = at.anchor if divided is None else divided
    uneven = any(length % n for n in KEYS)
    slice_ = int(cfg["keys"].val) if uneven else M  # whose extent is one of stages
    product = _padded(s, total, N, slice_)
    scored = _padded(s, a.scores.tensor, max(slice_, N), atom.extents["k"])
    sums = s[accumulator(s, product, out.tensor, "fragment")]
    scores = s[s.cache_write(scored, "fragment") if scored is a.scores.tensor else scored]
    share = s[operands(_op(sums), _axes(_op(sums)))[0].tensor]
    for stage in (a.scores, s[at.anchor], a.probability, s[total]):
        if stage not in (out, share, sums, scores):
            stage.compute_inline()
    lane = _tile(out, batch, i, j, atom, warps, own)
    out.pragma(out.leaf_iter_vars[0], "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    for stage in (sums, scores, a.largest, a.total, share):
        stage.set_scope("fragment")
    sums.compute_at(out, lane)
    slices, rest = sums.split(sums.op.reduce_axis[0], factor=cfg["keys"].val)
    step = _product(sums, atom, [slices], k=rest)
    share.compute_at(sums, step)
    if bool(cfg["running"].val):
        scores.compute_at(sums, slices)
        for stage in (a.largest, a.total):
            stage.accumulate_at(sums, slices)
        inner = _product(scores, atom)
        host, loop = sums, slices
    else:
        for stage in (scores, a.largest, a.total):
            stage.compute_at(out, lane)
        host, (loop, keys) = scores, scores.split(scores.op.axis[-1], factor=cfg["keys"].val)
        inner = _product(scores, atom, [loop], n=keys)
    queries, found = operands(_op(scores), _axes(_op(scores)))
    held = _fragment(s, queries.tensor, scores)
    held.compute_at(out, lane)
    for tensor in _op(held).input_tensors:  # of which it is a padded copy
        _inline_from(s, s[tensor])
    _bring(cfg, s, found, scores, (host, loop), inner, warps)
    _, values = operands(_op(sums), _axes(_op(sums)))
    _bring(cfg, s, values, sums, (sums, slices), step, warps)


def _op(stage: Stage) -> ComputeOp:
    assert isinstance(stage.op, ComputeOp)
    return stage.op


def _check_atom(at: Anchored, atom: Atom) -> None:
    """Raise ScheduleError where lanes hold other sums than they need of the next product."""
    kept = [bit.replace("n", "k") for bit in atom.sum.lane.split()]
    assert isinstance(atom.a, Fragment)
    if kept != atom.a.lane.split():
        raise ScheduleError(
            f"template for {at.anchor.op.name}",
            f"a lane does not hold those sums of {atom} that it needs as an operand",
            "Other templates compute it.",
        )  # fmt: skip


def _tile(
    out: Stage, batch: list[IterVar], i: IterVar, j: IterVar, atom: Atom, warps: Any, own: Any
) -> IterVar:
    """Blocks of rows, warps, lanes; returns the loop of lanes."""
    blocks, rest = out.split(i, factor=own * warps)
    warp, rows = out.split(rest, factor=own)
    out.reorder(*batch, blocks, warp, rows, j)
    if batch:
        out.bind(out.fuse(*batch), "blockIdx.y")
    out.bind(blocks, "blockIdx.x")
    out.bind(warp, "threadIdx.y")
    lane, *_, pair = lanes(out, rows, j, atom.name)
    out.vectorize(pair)
    return lane


def _axes(op: ComputeOp) -> Axes:
    ndim = len(op.axis)
    return Axes((ndim - 2, ndim - 1), 0, ndim)


def _product(
    stage: Stage, atom: Atom, outside: Sequence[IterVar] = (), *, n: IterVar | None = None,
    k: IterVar | None = None,
) -> IterVar:  # fmt: skip
    """A product of rows by columns in atoms, whose steps along the depth are outside of its tiles.

    outside: loops around all; n, k: loops over columns and depth, whole axes unless given
    Returns the loop over steps.
    """
    op = _op(stage)
    *batch, m, columns = op.axis
    step, inner = stage.split(op.reduce_axis[0] if k is None else k, factor=atom.extents["k"])
    tiles, row = stage.split(m, factor=M)
    blocks, column = stage.split(columns if n is None else n, factor=N)
    stage.reorder(*outside, *batch, step, tiles, blocks, row, column, inner)
    stage.tensorize(row, atom.name)
    return step


def _padded(s: Schedule, product: Tensor, columns: int, depth: int) -> Tensor:
    """A product whose columns and depth are multiples of these; its operands are zero beyond."""
    op = op_of(s, product)
    return s.pad(product, {op.axis[-1]: columns, op.reduce_axis[0]: depth})


def _fragment(s: Schedule, tensor: Tensor, reader: Stage) -> Stage:
    """A fragment of an operand from where it is, or from what it is computed of."""
    stage = s[tensor]
    if isinstance(stage.op, ComputeOp):
        stage.set_scope("fragment")
        return stage
    return s[s.cache_read(tensor, "fragment", [reader.tensor])]


def _bring(
    cfg: Any, s: Schedule, dims: Dims, reader: Stage, place: tuple[Stage, IterVar], step: IterVar,
    warps: Any,
) -> None:  # fmt: skip
    """Slices of an operand in shared memory, and fragments of them."""
    width, copied = width_of(s, dims), stays_a_copy(dims.tensor)
    shared = s[s.cache_read(dims.tensor, "shared", [reader.tensor])]
    own = s[s.cache_read(shared.tensor, "fragment", [reader.tensor])]
    _inline_from(s, s[dims.tensor])
    shared.compute_at(*place)
    own.compute_at(reader, step)
    axes = shared.op.axis
    row = dims.row if dims.k == len(axes) - 1 else dims.k
    if not dims.along:
        shared.storage_order(axes[dims.k])
        row = len(axes) - 1
    skew = SKEW // shared.tensor.dtype.bytes
    shared.storage_align(axes[row], 2 * skew, skew)
    slots = cfg["stages"].val if width > 1 and copied else 0
    fetch(shared, WARP * warps, width if width > 1 else None, lanes=WARP, slots=slots)


def _inline_from(s: Schedule, stage: Stage) -> None:
    """Inline a stage and what it is computed of."""
    if isinstance(stage.op, ComputeOp) and stage.attach_kind == "root":
        stage.compute_inline()
        for tensor in stage.op.input_tensors:
            _inline_from(s, s[tensor])


def fallback(sketch: Sketch, _: Anchored) -> int:
    """Choose what the model likes best of those that fit."""
    return fastest(sketch, {})


anchor_template(
    "attention.tensor", kinds=KINDS, tags=(PRODUCT,), fallback=fallback, special=True, alone=True
)(schedule)
