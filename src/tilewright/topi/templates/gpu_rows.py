"""One row, or few, times a matrix of weights on GPUs: as fast as the weights come from memory.

In: anchors of `topi.nn.dense` of which one axis is short.  Out: their schedule, `dense.rows`.  Each
weight is read once, in accesses of 16 bytes, and used for all rows.

    split_k blocks             partial[kb, .., few, many]   one kernel; a second adds the partials
      threads of a block       board[share, .., few, many]  in shared memory, added by the block
        steps of a thread      columns x rows               sums in registers

What neighbours in memory are says who has what: along the depth, lanes have shares of the sum and
rows of threads have columns; along the columns, lanes have columns and rows of threads have shares.
Where what follows makes one element of a few neighbouring columns, as a gate does, a thread has all
of these.  Where the rows are normed, each block norms them for itself, in shared memory.
Weights come to registers, some steps together, or to a ring in shared memory, ahead of their use;
in a chain of kernels that begins before the kernel before has ended.  Read next: `gpu_atoms.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.atoms import ATOMS, WARP
from tilewright.schedule.copies import stays_a_copy
from tilewright.schedule.row_reductions import dear_rows
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.schedule.thread_loops import deal, fetch
from tilewright.schedule.vectors import inlined_body
from tilewright.targets.target import Target
from tilewright.te.tensor import ComputeOp, IterVar, PlaceholderOp, Tensor
from tilewright.topi.templates.gpu import (
    accumulator,
    add_partials,
    divisors_of,
    op_of,
    vector_widths,
    wasted,
)
from tilewright.topi.templates.gpu_epilogue import inline_around
from tilewright.topi.templates.untuned import fastest

KINDS = ("cuda",)
TAGS = ("dense", "matmul", "batch_matmul")
MOST_ROWS = 8  # of more, matrix units are faster
ACCESS = 16  # bytes
LANES = (8, 16, 32, 64, 128, 256)  # threads along x
THREADS = (1, 2, 4, 8, 16, 32)  # along y
EACH = (1, 2, 4, 8)  # columns of a thread
AHEAD = (1, 2, 4, 8, 16)  # steps along the depth that are written out
SLOTS = (0, 2, 3, 4, 6, 8, 12)  # of the ring; 0: weights come to registers
SPLITS = (1, 2, 4)  # of the sum over blocks
MOST_BESIDE = 2  # columns that make one element
WASTE = 1.34
TOGETHER = 4  # partial sums in one access
PARTS = 4  # of the sum of a row that is normed alone: a number that makes no more kinds of nests
# Untuned.
FEWER = 4  # rows, of which no matrix unit is faster
USUAL = {"lanes": 32, "threads": 4, "each": 1, "ahead": 4, "slots": 4, "split_k": 1}
NORMED = 8  # threads along y where each block norms the rows: of more columns at once
MANY, WAVES = 4, 16  # columns of a thread where that leaves so many blocks for each core
LONGEST = 96 << 10  # bytes of the rows that a block keeps in shared memory


@dataclass(frozen=True)
class Product:
    """Which axes of an anchor are the few rows, the columns and the depth, and what is read.

    few, many: positions among its spatial axes; the others are a batch
    along:     whether neighbours of the weights in memory are neighbours along the depth, else
               along the columns
    width:     elements of the weights in one access; data_width: of the data
    ndim:      axes of the anchor, behind those of rfactor
    last:      what shares the loops of the anchor; beside: neighbouring columns of each of its own
    norm:      stages of sums of the rows and of what is made of them, the data last
    """

    few: int
    many: int
    data: Tensor
    weight: Tensor
    along: bool
    width: int
    data_width: int
    ndim: int
    last: Tensor
    beside: int = 1
    norm: tuple[Stage, ...] = ()

    def axes(self, stage: Stage) -> tuple[list[IterVar], IterVar, IterVar]:
        """(the batch, the few rows, the columns) of a stage; a share that rfactor made is left."""
        own = stage.op.axis[-self.ndim :]
        few, many = own[self.few], own[self.many]
        return [ax for ax in own if ax not in (few, many)], few, many


def product_of(a: Anchored) -> Product:
    """Raises ScheduleError where no axis is short, or the weights do not lie in rows.

    Constant weights are stored with neighbours along the depth side by side.
    """
    s, op = a.schedule, op_of(a.schedule, a.anchor)
    last = len(op.axis) - 1
    few, many = sorted((last - 1, last), key=lambda d: op.axis[d].size)
    if op.axis[few].size > MOST_ROWS:
        raise _refused(op, f"it has more than {MOST_ROWS} rows")
    column, (depth, *others) = op.axis[many].var, op.reduce_axis
    reads = list(dict.fromkeys(e for e in E.walk(op.body) if e.op == "read"))
    weights = [e for e in reads if column in E.free_variables(*e.args)]
    data = [e for e in reads if column not in E.free_variables(*e.args)]
    if others or len(weights) != 1 or len(data) != 1:
        raise _refused(op, "it is no product of a matrix and few rows")
    (read,), (other,) = weights, data
    norm = norm_of(a, s[other.attr])
    if read.args[-1] not in (column, depth.var) or depth.var not in other.args:
        raise _refused(op, "neighbours in its weights are neighbours along no axis")
    weight, along = read.attr, read.args[-1] is depth.var
    if not along and isinstance(s[weight].op, PlaceholderOp) and s[weight].op.constant:
        at = read.args.index(depth.var)
        order = [*(d for d in range(len(weight.shape)) if d != at), at]
        weight, along = s.pack(weight, [1] * len(weight.shape), order), True
    width = _width(weight, a.target)
    wide = other.args[-1] is depth.var and along
    data_width = min(width, _width(other.attr, a.target)) if wide else 1
    end, beside = gate_of(a, many) if along else (a.output, 1)
    return Product(
        few, many, other.attr, weight, along, width, data_width, len(op.axis), end, beside, norm
    )


def norm_of(a: Anchored, data: Stage, parts: Sequence[Stage] = ()) -> tuple[Stage, ...]:
    """What makes the rows of sums of their elements; () where no sum is before the anchor.

    parts: sums that are terms of the anchor
    Raises ScheduleError for sums that are not along the rows of the data, or of another operand.
    """
    s, anchor = a.schedule, a.schedule[a.anchor]
    sums = [
        stage
        for stage in s.stages
        if isinstance(stage.op, ComputeOp) and stage.op.combiner is not None
        if stage is not anchor and stage not in parts and s.reaches(stage, anchor)
    ]
    if not sums:
        return ()
    op, rows = op_of(s, a.anchor), prod(data.op.shape[:-1])
    for stage in sums:
        whole = s.reaches(stage, data) and prod(stage.op.shape) == rows
        if not whole or prod(ax.size for ax in stage.op.reduce_axis) != data.op.shape[-1]:
            raise _refused(op, f"{stage.name}, which it reads, is a sum itself")
    inner = [*sums, *(d for d in dear_rows(s) if s.reaches(d, data))]
    own = [stage for stage in s.stages if stage in inner or stage is data]
    if rows * data.op.shape[-1] * data.op.dtype.bytes > LONGEST:
        raise _refused(op, "a block has no room for its rows")
    return tuple(own)


def gate_of(a: Anchored, many: int) -> tuple[Tensor, int]:
    """What is made of the columns, where it is one element of each few of them, and how many."""
    shape, end = list(a.anchor.shape), a.schedule.dag.outputs[0]
    if a.has_epilogue or end is a.anchor or len(end.shape) != len(shape):
        return a.output, 1
    beside = shape[many] // max(end.shape[many], 1)
    whole = [n * beside if d == many else n for d, n in enumerate(end.shape)]
    return (end, beside) if whole == shape and 1 < beside <= MOST_BESIDE else (a.output, 1)


def _width(tensor: Tensor, target: Target) -> int:
    return next(n for n in vector_widths(tensor.dtype, target) if tensor.shape[-1] % n == 0)


def _refused(op: ComputeOp, why: str) -> ScheduleError:
    return ScheduleError(f"template for {op.name}", why, "Other templates compute it.")


def tiles(extent: int, sizes: Iterable[int]) -> list[int]:
    """Those of `sizes` of which `extent` is not much less than a multiple; 1 at least."""
    found = [n for n in sizes if n <= extent and wasted(extent, n) <= WASTE]
    return found or [1]


# -- knobs -----------------------------------------------------------------------------------------


def define_knobs(cfg: Any, a: Anchored, found: Product) -> None:
    op = op_of(a.schedule, a.anchor)
    depth, columns = op.reduce_axis[0].size, op.axis[found.many].size // found.beside
    across = depth if found.along else columns
    cfg.define_knob("lanes", tiles(-(-across // found.width), LANES))
    cfg.define_knob("threads", tiles(columns if found.along else depth, THREADS))
    cfg.define_knob("each", tiles(columns, EACH) if found.along else [1])
    cfg.define_knob("ahead", tiles(-(-depth // (found.width if found.along else 1)), AHEAD))
    alone = (
        a.target.copies_alone
        and found.width * found.weight.dtype.bytes == a.target.limits.vector_bytes
        and stays_a_copy(found.weight)
        and op.axis[found.few].size * depth * found.data.dtype.bytes <= LONGEST
    )
    cfg.define_knob("slots", SLOTS if alone else SLOTS[:1])
    splits = SPLITS[:1] if found.norm else SPLITS  # each part would sum up whole rows
    cfg.define_knob("split_k", divisors_of(depth, splits, 64 * found.width))
    cfg.define_knob("auto_unroll_max_step", [0, 512])


# -- the schedule ----------------------------------------------------------------------------------


def schedule_rows(cfg: Any, a: Anchored) -> None:
    """rewrite: block: {shared board[share, few, many]; threads: C[few, many] = sum of the board}"""
    s, anchor = a.schedule, a.anchor
    found = product_of(a)
    define_knobs(cfg, a, found)
    lanes, threads, each = (cfg[name].val for name in ("lanes", "threads", "each"))
    last = inline_around(a, found.last, found.norm)

    partial = anchor
    if (blocks := int(cfg["split_k"].val)) > 1:
        chunk, _ = s[anchor].split(op_of(s, anchor).reduce_axis[0], nparts=blocks)
        partial = s.rfactor(anchor, chunk)
    board = _shares(cfg, s, partial, found)
    root = last
    if blocks > 1:
        root = partial
        add_partials(s, accumulator(s, anchor, last), last, a.target)
    accumulated = accumulator(s, partial, root)
    local = s.cache_write(board, "local")
    s[board].set_scope("shared")

    tile = threads * each if found.along else lanes * found.width
    block, inner = _blocks(s[root], found, tile)
    thread = deal(s[root], inner, lanes * threads, lanes)
    s[board].compute_at(s[root], block)
    add_up(s, accumulated, s[root], thread, found.along)
    s[root].pragma(block, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)

    s[local].compute_at(s[board], _spread(s[board], found, each * found.beside))
    shared = {}
    if found.norm:
        shared[found.data] = found.data
        norm_rows(s, found.norm, found.data_width, (s[root], block), (lanes, threads))
    elif bool(cfg["slots"].val):
        rows = shared[found.data] = s.cache_read(found.data, "shared", [local])
        s[rows].compute_at(s[root], block)
        fetch(s[rows], lanes * threads, found.data_width, lanes=lanes)
    _sum(cfg, s, local, found, shared)


def _shares(cfg: Any, s: Schedule, partial: Tensor, found: Product) -> Tensor:
    """The board: a partial sum for each of the threads that take neighbouring steps in turn."""
    step = op_of(s, partial).reduce_axis[0]
    if found.along:
        step, _ = s[partial].split(step, factor=found.width)
    _, share = s[partial].split(step, factor=cfg["lanes" if found.along else "threads"].val)
    board: Tensor = s.rfactor(partial, share)
    return board


def norm_rows(
    s: Schedule, norm: tuple[Stage, ...], width: int, place: tuple[Stage, IterVar],
    block: tuple[Any, Any],
) -> None:  # fmt: skip
    """The rows in shared memory, normed by all threads of a block, from a copy that is in shared
    memory, too; their sums by a warp for each row where lines of threads are warps, whose lanes
    exchange what they have, else by all threads.  Of a row that is alone several have a share.

    width: elements of the rows in one access; block: its threads along x and y
    """
    *inner, data = norm
    lanes, threads = block
    for source in _rows_before(s, norm):
        stage = s[s.cache_read(source, "shared", [r.tensor for r in s.readers(source)])]
        stage.compute_at(*place)
        fetch(stage, lanes * threads, width, lanes=lanes)
    data.set_scope("shared")
    data.compute_at(*place)
    outer, lane = data.split(data.fuse(*data.op.axis), factor=width)
    data.vectorize(lane)
    own = _first(data, deal(data, outer, lanes * threads, lanes))
    for stage in inner:
        reduced, alone = stage.op.reduce_axis, bool(lanes == WARP)
        if reduced and alone and prod(stage.op.shape) == 1:
            share_out(s, stage, width, threads, place)
            reduced = ()
        if not reduced and alone:
            stage.set_scope("local")
            stage.compute_at(data, own)
            continue
        stage.set_scope("shared")
        stage.compute_at(*place)
        if reduced and alone:
            by_warps(s, stage, width, threads)
        elif reduced:
            deal(stage, stage.fuse(*reduced), lanes * threads, lanes)


def _first(stage: Stage, thread: IterVar) -> IterVar:
    """Threads outside what each of them does in turn; returns the inner one, `thread`."""
    *_, turn, row, _, lane = stage.leaf_iter_vars
    stage.reorder(row, thread, turn, lane)
    return thread


def share_out(
    s: Schedule, stage: Stage, width: int, warps: Any, place: tuple[Stage, IterVar]
) -> None:
    """The sum of one row, or the like, by several warps, in vectors; `stage` puts together what
    these have."""
    loop, _ = stage.split(stage.fuse(*stage.op.reduce_axis), factor=width)
    turn, _ = stage.split(loop, factor=WARP)
    _, share = stage.split(turn, factor=PARTS)
    part = s[s.rfactor(stage.tensor, share)]
    part.set_scope("shared")
    part.compute_at(*place)
    _, warp = part.split(part.op.axis[0], factor=warps)
    part.bind(warp, "threadIdx.y")
    _, lane, vector = part.op.reduce_axis
    part.bind(lane, "threadIdx.x")
    by_lanes(s, part, lane, vector, width)
    stage.unroll(stage.op.reduce_axis[0])


def by_warps(s: Schedule, stage: Stage, width: int, warps: Any) -> None:
    """A sum along rows, or the like, by a warp for each row, in vectors."""
    loop, vector = stage.split(stage.fuse(*stage.op.reduce_axis), factor=width)
    _, warp = stage.split(stage.fuse(*stage.op.axis), factor=warps)
    stage.bind(warp, "threadIdx.y")
    by_lanes(s, stage, deal(stage, loop, WARP), vector, width)


def by_lanes(s: Schedule, stage: Stage, lane: IterVar, vector: IterVar, width: int) -> None:
    """Lanes exchange what they have found in vectors of `width` elements, which they read at once,
    in accesses as long as there are, and keep in registers."""
    stage.pragma(lane, "exchange", 1)
    for source in op_of(s, stage.tensor).input_tensors:
        if prod(source.shape) > prod(stage.op.shape):
            own = s[s.cache_read(source, "local", [stage.tensor])]
            own.compute_at(stage, lane)
            access = gcd(width, ACCESS // source.dtype.bytes)
            outer, last = own.split(own.op.axis[-1], factor=access)
            own.unroll(outer)
            own.vectorize(last)
    stage.unroll(vector)


def _rows_before(s: Schedule, norm: tuple[Stage, ...]) -> list[Tensor]:
    """What the sums and the data read, whose elements are those of the rows."""
    own = {stage.tensor for stage in norm}
    reads = [n.attr for stage in norm for n in E.walk(inlined_body(s, stage))
             if n.op == "read" and n.attr not in own]  # fmt: skip
    return [t for t in dict.fromkeys(reads) if prod(t.shape) == prod(norm[-1].op.shape)]


def _blocks(stage: Stage, found: Product, tile: Any) -> tuple[IterVar, IterVar]:
    """Bind the blocks of the output; returns (the innermost block loop, the elements of one)."""
    lead = list(stage.op.axis[: -found.ndim])
    batch, few, many = found.axes(stage)
    outer, inner = stage.split(many, factor=tile)
    stage.reorder(*lead, *batch, outer, few, inner)
    if lead or batch:
        stage.bind(stage.fuse(*lead, *batch), "blockIdx.y")
    stage.bind(outer, "blockIdx.x")
    return outer, stage.fuse(few, inner)


def _spread(board: Stage, found: Product, each: Any) -> IterVar:
    """Threads of the board; returns the innermost loop that is one."""
    share, *lead = board.op.axis[: -found.ndim]
    batch, few, many = found.axes(board)
    if found.along:
        row, inner = board.split(many, factor=each)
        lane = share
        board.storage_order(share)  # lanes side by side
        board.storage_align(many, 2 * TOGETHER, TOGETHER)  # rows of vectors, in different banks
    else:
        lane, inner = board.split(many, factor=found.width)
        row = share
    board.reorder(*lead, *batch, row, lane, few, inner)
    board.bind(row, "threadIdx.y")
    board.bind(lane, "threadIdx.x")
    return lane


def add_up(s: Schedule, accumulated: Tensor, root: Stage, thread: IterVar, along: bool) -> None:
    """A thread adds the shares of an element, a vector at a time where they lie side by side.

    along: whether they do
    """
    share = op_of(s, accumulated).reduce_axis[0]
    if along and share.size % TOGETHER == 0 and share.size > 2 * TOGETHER:
        _, lane = s[accumulated].split(share, factor=TOGETHER)
        part = s[s.rfactor(accumulated, lane, len(s[accumulated].op.axis))]
        part.set_scope("local")
        part.compute_at(root, thread)
        (step,) = part.op.reduce_axis
        part.reorder(step, *part.op.axis)
        part.vectorize(part.op.axis[-1])
        part.unroll(step)
    s[accumulated].compute_at(root, thread)
    s[accumulated].unroll(op_of(s, accumulated).reduce_axis[0])


def _sum(
    cfg: Any, s: Schedule, local: Tensor, found: Product, shared: dict[Tensor, Tensor]
) -> None:
    """The share of a thread: vectors of its columns, and of the rows, step by step.

    shared: what lies in shared memory already
    """
    stage = s[local]
    step, *vector = op_of(s, local).reduce_axis
    outer, ahead = stage.split(step, factor=cfg["ahead"].val)
    stage.reorder(outer, ahead, *stage.op.axis, *vector)
    for ax in (ahead, *found.axes(stage)[1:], *vector):
        stage.unroll(ax)
    if bool(cfg["slots"].val):
        ring = shared[found.weight] = s.cache_read(found.weight, "shared", [local])
        s[ring].compute_at(stage, outer)
        lanes, threads = cfg["lanes"].val, cfg["threads"].val
        fetch(s[ring], lanes * threads, found.width, lanes=lanes, slots=cfg["slots"].val)
    for tensor, width in ((found.weight, found.width), (found.data, found.data_width)):
        own = s.cache_read(shared.get(tensor, tensor), "local", [local])
        s[own].compute_at(stage, ahead)
        _, lanes = s[own].split(s[own].op.axis[-1], factor=width)
        s[own].vectorize(lanes)


def fallback(sketch: Sketch, a: Anchored) -> Mapping[str, Any] | int:
    """A warp for each sum, or for several where there are many, four of them in a block; a ring.

    By the model alone where columns lie side by side.
    """
    found = product_of(a)
    op = op_of(a.schedule, a.anchor)
    if op.axis[found.few].size > FEWER and any(
        {atom.a.dtype} == {found.data.dtype, found.weight.dtype} and a.target.allows(name)
        for name, atom in ATOMS.items()
    ):
        raise _refused(op, "matrix units are faster")
    if not found.along:
        return fastest(sketch, {})
    space = {name: [e.val for e in knob] for name, knob in sketch.space.space_map.items()}
    steps = op.reduce_axis[0].size // found.width
    blocks = op.axis[found.many].size // (USUAL["threads"] * MANY)
    wanted = {**USUAL, "lanes": min(max(steps // 2, 1), USUAL["lanes"])}
    if blocks >= WAVES * a.target.limits.cores:
        wanted |= {"each": MANY // found.beside, "ahead": 1}
    elif found.norm:
        wanted |= {"threads": NORMED}
    near = {
        name: max((n for n in space[name] if n <= w), default=min(space[name]))
        for name, w in wanted.items()
    }
    return {**{name: values[0] for name, values in space.items()}, **near}


anchor_template("dense.rows", kinds=KINDS, tags=TAGS, fallback=fallback, usual=True)(schedule_rows)
