"""Contractions on GPUs: tiles, shared memory, and a reduction split in and across blocks.

In: a configuration and an anchor with the roles of its axes (`Roles`).  Out: its schedule; knobs
are opened in passing.  Convolutions and matrix products differ in their roles only.
Read next: `gpu_conv2d.py`, `gpu_dense.py`.

    split_k blocks        partial[kb, n, f, y, x]  one kernel; a second one adds the partials
      threads_k threads   board[kz, ...]           in shared memory, added by the whole block
        tiles of a thread                          channels x rows x columns in registers
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tilewright.base.dtype import DType
from tilewright.base.errors import LegalityError, ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.space.config_space import ConfigSpace
from tilewright.schedule.space.decision import Size, ceil_div, minimum, same, where
from tilewright.schedule.template import Anchored
from tilewright.schedule.thread_loops import deal, fetch, over_blocks, ring_sizes, staged
from tilewright.targets.target import Target
from tilewright.te.tensor import ComputeOp, IterVar, PlaceholderOp, Tensor
from tilewright.topi.templates.gpu_epilogue import inline_around
from tilewright.topi.templates.gpu_rows_behind import (
    RowsBehind,
    add_in_rows,
    rows_behind,
    stages_of,
)
from tilewright.topi.templates.untuned import fastest, or_with

KINDS = ("cuda", "opencl")
SUM_THREADS = 128  # threads of a block that only adds partial results
SPLITS = (1, 2, 4, 8, 16, 32)  # of a reduction over blocks
LANES = (1, 2, 4, 8, 16)  # threads that share a reduction
STEPS = (1, 2, 4, 8, 16, 32)  # of a thread's reduction per slice in shared memory
UNROLLS = (0, 512, 1500)
WASTE = 1.34  # share of iterations that uneven tiles may add
RESULTS, SHARE = 32, 16  # untuned: results of a thread, reduction steps for one of them
MAX_CHANNEL_TILE, MAX_PIXEL_TILE = 256, 64  # of a block, along one axis


@dataclass(frozen=True)
class Roles:
    """What the axes of an anchor are for; positions among its spatial or its reduction axes.

    channel: spatial axis along which the weights vary, not the data
    columns, rows: spatial axes along which the data vary (rows: None for a matrix product)
    depth: the reduction axis that is split; the others are the window
    group: output channels that share their inputs (all of them: 0)
    """

    channel: int
    columns: int
    rows: int | None
    depth: int
    group: int = 0

    def batch(self, ndim: int) -> list[int]:
        return [d for d in range(ndim) if d not in (self.channel, self.columns, self.rows)]


@dataclass(frozen=True)
class Operands:
    """The two factors of the product.

    channel_dim: dimension of `weight` that follows the channel axis
    along_columns: whether neighbouring elements of `data` are neighbouring columns
    vectors: elements of `weight` that one access may read, descending: (1,) where channels are not
        innermost
    wide: whether copies of them have the type of arithmetic, see `thread_loops.staged`
    """

    data: Tensor
    weight: Tensor
    channel_dim: int
    along_columns: bool
    vectors: tuple[int, ...] = (1,)
    wide: bool = True


def operands(op: ComputeOp, roles: Roles, wide: bool = True) -> Operands:
    """Tell the factors of a product apart: only the data's index follows the columns.

    Raises ScheduleError where that is not so: the tag is of an operator, what it computes is not.
    """
    column, channel = op.axis[roles.columns].var, op.axis[roles.channel].var
    reads = [n for n in E.walk(op.body) if n.op == "read"]
    data = next((n for n in reads if column in E.free_variables(*n.args)), None)
    weight = next((n for n in reads if column not in E.free_variables(*n.args)), None)
    follows = [] if weight is None else [channel in E.free_variables(i) for i in weight.args]
    if data is None or weight is None or True not in follows:
        raise ScheduleError(
            f"template for {op.name}", f"its tag is {op.tag!r}, and it is no product of that kind",
            "It compiles with its default schedule.",
        )  # fmt: skip
    along = column in E.free_variables(data.args[-1])
    return Operands(data.attr, weight.attr, follows.index(True), along, wide=wide)


# -- knobs -----------------------------------------------------------------------------------------


def vector_widths(dtype: DType, target: Target) -> tuple[int, ...]:
    """Elements of one access, descending: of the widest, of half of it, a single one.  GPUs have no
    narrower vectors worth having."""
    full = target.limits.vector_bytes // dtype.bytes
    return tuple(dict.fromkeys(max(n, 1) for n in (full, full // 2, 1)))


def wasted(extent: int, tile: int) -> float:
    """Iterations that tiles of `tile` make of `extent`, as a multiple of it."""
    return -(-extent // tile) * tile / extent


def tile_sizes(extent: int, most: int) -> list[int]:
    """Divisors and powers of two up to `most`, ascending."""
    powers = [1 << k for k in range(most.bit_length())]
    divisors = [d for d in range(1, most + 1) if extent % d == 0]
    return [n for n in sorted({*powers, *divisors}) if n <= min(extent, most)]


def channel_tiles(extent: int, group: int = 0) -> list[list[int]]:
    """[blocks, virtual threads, threads, per thread]; a tile stays within its group."""
    tiles = []
    for virtual in (1, 2):
        for threads in (1, 2, 4, 8, 16, 32, 64):
            for each in (1, 2, 4, 8):
                tile = virtual * threads * each
                fits = group % tile == 0 if group else wasted(extent, tile) <= WASTE
                if virtual > each:
                    continue  # neighbouring channels first, they come in one access
                if tile == 1 or (tile <= MAX_CHANNEL_TILE and fits):
                    tiles.append([-1, virtual, threads, each])
    return tiles


def pixel_tiles(extent: int, most_each: int) -> list[list[int]]:
    """[blocks, strips, per strip]: a thread owns whole strips, a block owns neighbouring ones."""
    tiles = []
    for each in tile_sizes(extent, most_each):
        for strips in tile_sizes(ceil_div(extent, each), 32):
            if strips * each <= MAX_PIXEL_TILE and wasted(extent, strips * each) <= WASTE:
                tiles.append([-1, strips, each])
    return tiles


def define_knobs(cfg: Any, op: ComputeOp, roles: Roles, target: Target, wide: bool = True) -> Size:
    """Open the tile sizes of an anchor and the ways to split its reduction.

    Returns `stages` of `reduce_in_slices`, which is a knob where both factors can be copied so.
    """
    extents = [ax.size for ax in op.axis]
    depth = op.reduce_axis[roles.depth].size
    cfg.define_split(
        "tile_f", extents[roles.channel], policy="candidate",
        candidate=channel_tiles(extents[roles.channel], roles.group),
    )  # fmt: skip
    if roles.rows is not None:
        rows = pixel_tiles(extents[roles.rows], 4)
        cfg.define_split("tile_y", extents[roles.rows], policy="candidate", candidate=rows)
    columns = pixel_tiles(extents[roles.columns], 8)
    cfg.define_split("tile_x", extents[roles.columns], policy="candidate", candidate=columns)
    cfg.define_knob("vthread_x", [1, 2])
    cfg.define_knob("split_k", divisors_of(depth, SPLITS, 4))
    lanes, steps = ((1,), (1,)) if target.is_mali else (LANES, STEPS)
    cfg.define_knob("threads_k", divisors_of(depth, lanes, 4))
    cfg.define_knob("step_k", [n for n in steps if n <= depth])
    factors = operands(op, roles, wide)
    vector, *_ = vector_widths(staged(factors.data.dtype, wide), target)
    cfg.define_knob("align_data", [1, vector if factors.along_columns else 2])
    cfg.define_knob("auto_unroll_max_step", list(UNROLLS))
    sizes = ring_sizes((factors.data, factors.weight), target)
    if len(sizes) == 1:
        return 0
    cfg.define_knob("stages", sizes, absent=0)
    stages: Size = cfg["stages"].val
    return stages


def divisors_of(extent: int, sizes: Iterable[int], least: int) -> list[int]:
    """1, and those of `sizes` that divide `extent` into at least `least` steps."""
    return [n for n in sizes if n == 1 or (extent % n == 0 and extent // n >= least)]


# -- untuned ---------------------------------------------------------------------------------------


def fastest_contraction(sketch: Sketch, op: ComputeOp) -> int:
    """The fastest by the machine model, with the reduction split as far as the device asks for.

    It is chosen among plain copies.  The best of them were 1 to 5% faster through the smallest
    ring, and no faster with more slots: it is taken where the model does not expect less.
    """
    splits = reduction_splits(sketch.space, op, sketch.target)
    sizes: Any = sketch.space.space_map.get("stages", ())
    plain = {"stages": 0} if sizes else {}
    ways = [{"split_k": k, "threads_k": lanes, **plain} for k, lanes in splits]
    try:
        index = fastest(sketch, *ways)
    except LegalityError:  # a reduction of several axes may have no shares of that size
        index = fastest(sketch, {"split_k": 1, "threads_k": 1, **plain})
    if not sizes:
        return index
    return or_with(sketch, index, {"stages": min(e.val for e in sizes if e.val)})


def reduction_splits(space: ConfigSpace, op: ComputeOp, target: Target) -> list[tuple[int, int]]:
    """One or two pairs (split_k, threads_k) of the space: so many shares of each reduction that the
    threads of a quarter-full device have `RESULTS` results each, or less of them, each share with
    `SHARE` steps to do.  A device that is full without shares may still like shorter sums."""
    limits = target.limits
    results, steps = (prod(ax.size for ax in axes) for axes in (op.axis, op.reduce_axis))
    threads = limits.cores * limits.max_threads_per_core // 4
    shares = max(min(threads * RESULTS // results, steps // SHARE), 1)
    if shares == 1:
        return list(dict.fromkeys([(1, 1), _split(space, 4, 1)]))
    least = 1 << shares.bit_length() - 1
    return list(
        dict.fromkeys(_split(space, n, n if n <= LANES[-1] else 4) for n in (least, 2 * least))
    )


def _split(space: ConfigSpace, shares: int, lanes: int) -> tuple[int, int]:
    """About so many shares, of which `lanes` are threads of a block and the rest blocks."""
    blocks, threads = ([e.val for e in space.space_map[k]] for k in ("split_k", "threads_k"))
    lanes = max(n for n in threads if n <= lanes)
    return max(n for n in blocks if n == 1 or n * lanes <= shares), lanes


# -- the schedule ----------------------------------------------------------------------------------


def schedule_contraction(
    cfg: Any, a: Anchored, roles: Roles, last: Tensor | None = None, wide: bool = True
) -> None:
    """Tile the anchor, split its reduction, and compute what follows where its results are.

    last: the stage whose loops the anchor shares, where what surrounds it is scheduled already
    wide: see `Operands`
    """
    s, anchor = a.schedule, a.anchor
    op = op_of(s, anchor)
    stages = define_knobs(cfg, op, roles, a.target, wide)
    behind = rows_behind(cfg, a)
    last = inline_around(a, inside=stages_of(behind)) if last is None else last
    factors = packed(s, operands(op_of(s, anchor), roles, wide), a.target)
    tiling = Tiling(cfg, roles, len(op.axis))

    partial = board = anchor
    if (blocks := int(cfg["split_k"].val)) > 1:
        chunk, _ = s[anchor].split(reduce_axis(s, anchor, roles), nparts=blocks)
        partial = board = s.rfactor(anchor, chunk)
    if (lanes := int(cfg["threads_k"].val)) > 1:
        _, lane = s[partial].split(reduce_axis(s, partial, roles), factor=lanes)
        board = s.rfactor(partial, lane)

    root = last
    if blocks > 1:
        root = partial
        add_partials(s, accumulator(s, anchor, last), last, a.target, behind)
    threads = tiling.threads * lanes
    if lanes > 1:
        accumulated = accumulator(s, partial, root)
        local = s.cache_write(board, "local")
        s[board].set_scope("shared")
        block, thread = tiling.share_out(s[root], threads)
        s[board].compute_at(s[root], block)
        s[accumulated].compute_at(s[root], thread)
        s[accumulated].unroll(s[accumulated].op.reduce_axis[0])
        inner = tiling.spread(s[board])
        s[local].compute_at(s[board], inner)
    else:
        local = accumulator(s, partial, root)
        inner = tiling.tile(s[root])
        s[local].compute_at(s[root], inner)
    s[root].pragma(
        s[root].leaf_iter_vars[0], "auto_unroll_max_step", cfg["auto_unroll_max_step"].val
    )
    if a.target.is_mali:
        reduce_in_registers(cfg, s, local, factors, roles)
    else:
        reduce_in_slices(cfg, s, local, factors, roles, threads, stages)


def op_of(s: Schedule, tensor: Tensor) -> ComputeOp:
    op = s[tensor].op
    assert isinstance(op, ComputeOp)
    return op


def is_grouped(op: ComputeOp) -> bool:
    """Whether channels of a convolution fall into groups."""
    return op.tag.startswith("group_")


def in_steps(op: ComputeOp, axis: IterVar) -> bool:
    """Whether neighbours along an axis are not neighbours in what is read."""
    reads = (e for e in E.walk(op.body) if e.op == "read")
    places = (i for read in reads for i in read.args if axis.var in E.free_variables(i))
    return any(node.op == "mul" and axis.var in node.args for i in places for node in E.walk(i))


def read_again(op: ComputeOp, lines: Sequence[IterVar]) -> list[IterVar]:
    """The axis of a window for whose elements some lines of an image are read again by whoever has
    several of them: what has been loaded of a line serves for all of these elements."""
    simple = Simplifier({})
    indices = dict.fromkeys(i for e in E.walk(op.body) if e.op == "read" for i in e.args)
    for line, index in ((line, i) for line in lines for i in indices):
        inside = E.free_variables(index)
        if line.var not in inside:
            continue
        step = simple(E.substitute(index, {line.var: line.var + 1}) - index)
        window = [ax for ax in op.reduce_axis if ax.var in inside]
        if step.op == "const" and window and step.attr < window[0].size:
            return window[:1]
    return []


def reduce_axis(s: Schedule, tensor: Tensor, roles: Roles) -> IterVar:
    """The axis in the role of the depth; rfactor leaves what remains of it at its position."""
    return op_of(s, tensor).reduce_axis[roles.depth]


def accumulator(s: Schedule, reduction: Tensor, reader: Tensor, scope: str = "local") -> Tensor:
    """The stage that sums in registers: the reduction itself where `reader` is another stage."""
    if reduction is reader:
        written: Tensor = s.cache_write(reduction, scope)
        return written
    s[reduction].set_scope(scope)
    return reduction


def packed(s: Schedule, factors: Operands, target: Target) -> Operands:
    """The factors with channels innermost in the weights, if that costs nothing at run time."""
    op, channels = s[factors.weight].op, s[factors.weight].op.shape[factors.channel_dim]
    inner = len(op.shape) - 1
    weight = factors.weight
    if factors.channel_dim != inner:
        if not (isinstance(op, PlaceholderOp) and op.constant) or weight is factors.data:
            return factors
        order = [d for d in range(len(op.shape)) if d != factors.channel_dim]
        weight = s.pack(weight, [1] * len(op.shape), [*order, factors.channel_dim])
    widths = vector_widths(staged(weight.dtype, factors.wide), target)
    vectors = tuple(n for n in widths if channels % n == 0)
    return replace(factors, weight=weight, channel_dim=inner, vectors=vectors)


def add_partials(
    s: Schedule, accumulated: Tensor, last: Tensor, target: Target,
    behind: RowsBehind | None = None, *, spread: bool = False,
) -> None:  # fmt: skip
    """The second kernel: the sum over blocks and the epilogue, thread by thread in memory order,
    or row by row where norms of rows are behind.

    spread: over all cores, be it that a thread has fewer elements of one access
    """
    if behind is not None:
        add_in_rows(s, accumulated, last, behind)
        return
    stage, adder = s[last], s[accumulated]
    *outer, inner = stage.op.axis
    widest_type = max((op_of(s, accumulated).accumulator, last.dtype), key=lambda t: t.bytes)
    widths = [n for n in vector_widths(widest_type, target) if inner.size % n == 0]
    most = prod(last.shape) // (SUM_THREADS * target.limits.cores) if spread else widths[0]
    lanes = next((n for n in widths if n <= most), widths[-1])
    rest, lane = stage.split(inner, factor=lanes)
    _, thread = over_blocks(stage, [*outer, rest], SUM_THREADS)
    stage.vectorize(lane)
    adder.compute_at(stage, thread)
    (chunk,) = adder.op.reduce_axis
    adder.reorder(*adder.op.axis[:-1], chunk, adder.op.axis[-1])
    adder.vectorize(adder.op.axis[-1])
    adder.unroll(chunk)


@dataclass(frozen=True)
class Tiling:
    """How a stage with the anchor's axes, behind those of rfactor, spreads over the device."""

    cfg: Any
    roles: Roles
    ndim: int

    @property
    def _window(self) -> list[tuple[str, int]]:
        rows = [] if self.roles.rows is None else [("tile_y", self.roles.rows)]
        return [*rows, ("tile_x", self.roles.columns)]

    @property
    def strips(self) -> Any:
        return prod(self.cfg[name].size[1] for name, _ in self._window)

    @property
    def threads(self) -> Any:
        """Threads of a block for one share of the reduction."""
        return self.cfg["tile_f"].size[2] * ceil_div(self.strips, self.cfg["vthread_x"].val)

    def _blocks(self, stage: Stage) -> tuple[list[IterVar], dict[int, IterVar]]:
        """Bind the block loops of `stage`; (what is bound, what is left of each tiled axis)."""
        axes = stage.op.axis
        lead, own = list(axes[: -self.ndim]), axes[-self.ndim :]
        left: dict[int, IterVar] = {}
        outer: dict[int, IterVar] = {}
        for name, position in [("tile_f", self.roles.channel), *self._window]:
            size = self.cfg[name].size
            tile = prod(size[1:])
            outer[position], left[position] = stage.split(own[position], factor=tile)
        batch = [*lead, *(own[d] for d in self.roles.batch(self.ndim))]
        pixels = [outer[position] for _, position in self._window]
        channel = outer[self.roles.channel]
        stage.reorder(*batch, channel, *pixels, *(left[d] for d in sorted(left)))
        bound = [stage.fuse(*pixels), channel] + ([stage.fuse(*batch)] if batch else [])
        for axis, dim in zip(bound, "xyz", strict=False):
            stage.bind(axis, f"blockIdx.{dim}")
        return bound, left

    def tile(self, stage: Stage) -> IterVar:
        """Blocks, virtual threads, threads, thread tiles; returns the thread loop."""
        return self._threads(stage, self._blocks(stage)[1], [])

    def spread(self, stage: Stage) -> IterVar:
        """Threads and thread tiles of a stage inside a block, one thread per leading index too."""
        axes = stage.op.axis
        own = axes[-self.ndim :]
        roles = (self.roles.channel, *(p for _, p in self._window))
        return self._threads(stage, {d: own[d] for d in roles}, [axes[0]])

    def _threads(self, stage: Stage, left: dict[int, IterVar], lead: list[IterVar]) -> IterVar:
        size = self.cfg["tile_f"].size
        virtual, rest = stage.split(left[self.roles.channel], factor=size[2] * size[3])
        thread, each = stage.split(rest, factor=size[3])
        strips, tile = [], [each]
        for name, position in self._window:
            strip, inner = stage.split(left[position], factor=self.cfg[name].size[2])
            strips.append(strip)
            tile.append(inner)
        stage.reorder(virtual, *strips, *lead, thread, *tile)
        strip = stage.fuse(*strips)
        apart, strip = stage.split(strip, nparts=self.cfg["vthread_x"].val)
        stage.reorder(virtual, apart, *lead, thread, strip, *tile)
        fused = stage.fuse(*lead, thread, strip)
        stage.bind(virtual, "vthread")
        stage.bind(apart, "vthread")
        stage.bind(fused, "threadIdx.x")
        return fused

    def share_out(self, stage: Stage, threads: Size) -> tuple[IterVar, IterVar]:
        """The elements of a block dealt to its threads in turn; (innermost block loop, thread)."""
        bound, left = self._blocks(stage)
        fused = stage.fuse(*(left[d] for d in sorted(left)))
        return bound[0], deal(stage, fused, threads)


def reduce_in_slices(
    cfg: Any, s: Schedule, local: Tensor, factors: Operands, roles: Roles, threads: Size,
    stages: Size = 0,
) -> None:  # fmt: skip
    """A thread's reduction: slices of both factors come to shared memory, then to registers.

    stages: slices that shared memory holds while their copies go on; 0: threads copy them
    """
    stage = s[local]
    window = list(op_of(s, local).reduce_axis)
    depth = window.pop(roles.depth)
    slices, step = stage.split(depth, factor=minimum(cfg["step_k"].val, depth.size))
    loops = [step, *window]
    stage.reorder(slices, *loops, *op_of(s, local).axis)
    for tensor, loop in {factors.data: loops[:2][-1], factors.weight: loops[-1]}.items():
        shared = s.cache_read(tensor, "shared", [local], staged(tensor.dtype, factors.wide))
        own = s.cache_read(shared, "local", [local])
        s[shared].compute_at(stage, slices)
        s[own].compute_at(stage, loop)
        if tensor is factors.data:
            copy_data(cfg, s[shared], factors, threads, stages)
        else:
            copy_weight(cfg, s[shared], s[own], factors, threads, stages)


def reduce_in_registers(
    cfg: Any, s: Schedule, local: Tensor, factors: Operands, roles: Roles
) -> None:
    """A thread's reduction where shared memory gains nothing: factors come to registers at once."""
    stage = s[local]
    window = list(op_of(s, local).reduce_axis)
    depth = window.pop(roles.depth)
    stage.reorder(depth, *window, *op_of(s, local).axis)
    for tensor in (factors.data, factors.weight):
        own = s.cache_read(tensor, "local", [local])
        s[own].compute_at(stage, [depth, *window][-1])
        if tensor is factors.weight:
            in_vectors(cfg, s[own], factors)


def copy_data(cfg: Any, shared: Stage, factors: Operands, threads: Size, stages: Size = 0) -> None:
    """Rows are padded: along the columns, so that they may start at vectors; along the channels to
    an odd length, so that columns lie in different banks.
    """
    factor = cfg["align_data"].val
    shared.storage_align(shared.op.axis[-2], factor, 0 if factors.along_columns else factor - 1)
    fetch(shared, threads, slots=stages)


def copy_weight(
    cfg: Any, shared: Stage, own: Stage, factors: Operands, threads: Size, stages: Size = 0
) -> None:
    """In vectors, to shared memory and from there to registers, where channels are innermost."""
    if factors.vectors == (1,):
        if factors.channel_dim < len(shared.op.axis) - 1:
            shared.storage_align(shared.op.axis[factors.channel_dim], 2, 1)
        fetch(shared, threads, slots=stages)
        return
    tile = cfg["tile_f"].size
    width = widest(prod(tile[1:]), factors.vectors)
    fetch(shared, threads, None if same(width, 1) else width, slots=stages)
    in_vectors(cfg, own, factors)


def in_vectors(cfg: Any, own: Stage, factors: Operands) -> None:
    """Weights to registers, neighbouring channels of a thread in one access."""
    width = widest(cfg["tile_f"].size[3], factors.vectors)
    _, lane = own.split(own.op.axis[-1], factor=width)
    own.vectorize(lane)


def widest(extent: Size, vectors: Sequence[int]) -> Size:
    """The widest of the vectors, given in descending order, that `extent` consists of."""
    lanes: Size = 1
    for n in reversed(vectors):
        lanes = where(extent % n == 0, n, lanes)
    return lanes
