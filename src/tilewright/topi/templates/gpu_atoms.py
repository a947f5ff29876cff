"""Contractions on the matrix units of GPUs: tiles of atoms, warps, slices in shared memory.

In: a configuration and an anchor with the roles of its axes.  Out: its schedule; knobs are opened
in passing.  The anchor becomes a matrix product `P[.., m, n] += L[.., m, k] * R[.., k, n]` whose
extents are whole atoms (`as_product`, `pad`), and

    split_k blocks         partial[kb, .., m, n]   one kernel; a second one adds the partials
      warps along m and n  tiles of atoms          accumulators in fragments
        warps along k      board[kw, .., m, n]     in shared memory, added by the whole block
          slices of k      in shared memory        a ring of them, filled by asynchronous copies

Read next: `gpu_atoms_conv.py`, convolutions; `gpu.py`, the same on cores that multiply one pair of
numbers at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.atoms import ATOMS, WARP, Atom, Fragment
from tilewright.ir.stmt import ASYNC_BYTES
from tilewright.schedule.copies import source_of
from tilewright.schedule.fragment_order import fragment_order
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.space.decision import Size, ceil_div, minimum, same
from tilewright.schedule.steps.layouts import PACKED
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.schedule.thread_loops import deal, fetch, lanes
from tilewright.targets.target import Target
from tilewright.te.tensor import ComputeOp, IterVar, PlaceholderOp, Tensor
from tilewright.topi.templates.gpu import (
    SPLITS,
    UNROLLS,
    accumulator,
    add_partials,
    divisors_of,
    in_steps,
    is_grouped,
    op_of,
    read_again,
    tile_sizes,
    wasted,
)
from tilewright.topi.templates.gpu_atoms_untuned import fallback
from tilewright.topi.templates.gpu_epilogue import inline_around
from tilewright.topi.templates.gpu_joins import JOINED, Span, finish
from tilewright.topi.templates.gpu_rows_behind import rows_behind, stages_of

KINDS = ("cuda",)
STRUCTURES = 96  # ways to split a sum over blocks, which may join, and warps
M, N = 16, 8  # of all atoms
COPIED = max(ASYNC_BYTES)  # bytes of a copy
SKEW = 16  # bytes that a row in shared memory is longer than a multiple of 32
WASTE = 1.34  # share of atoms that uneven tiles may add
EACH_M, EACH_N = (1, 2, 4), (1, 2, 4, 7, 8)  # atoms of a warp
WARPS_M, WARPS_N = (1, 2, 4), (1, 2, 4)
WARPS_K = (1, 2, 4, 8)
MOST_LINES = 14  # of an image, of a warp
STEPS = (1, 2, 4)  # atoms along k per slice in shared memory
FEW = 32  # rows, of which longer slices fit, so that less waits in between
LONG_STEPS = (*STEPS, 8, 16)
AHEAD = (1, 2, 4, 8, 16)  # of these atoms, written out: their constants are asked for together
STAGES = (1, 2, 3, 4)  # slices in the ring


@dataclass(frozen=True)
class Groups:
    """Which axes of an anchor are the rows, columns and the depth of a matrix product; positions
    among its spatial (m, n) and its reduction axes (k).

    image: spatial axes of which a warp has several, each with columns of its own
    channels: "m" or "n", whichever has those that fall into groups, where there are groups
    All other axes stay loops: of the batch around blocks, of the window inside a slice.
    """

    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    image: tuple[int, ...] = ()
    channels: str = "m"


def atom_for(op: ComputeOp, target: Target) -> Atom:
    """The matrix instruction for the operands of a sum of products, in either order.

    Raises ScheduleError where the target has none for them, or may not use it.
    """
    kinds = {t.dtype for t in op.input_tensors}
    for name, atom in ATOMS.items():
        fits = {atom.a.dtype, atom.b.dtype} == kinds and atom.sum.dtype is op.accumulator
        if fits and target.allows(name):
            return atom
    raise ScheduleError(
        f"template for {op.name}",
        f"{target} multiplies no matrices of {_listed(kinds)} with sums in {op.accumulator}",
        "Other templates compute it.",
    )  # fmt: skip


def in_order(atom: Atom, factors: Sequence[Dims], target: Target) -> Atom:
    """The same instruction for operands of two types that come in this order."""
    kinds = [dims.tensor.dtype for dims in factors]
    shape = atom.name.partition(".")[0]
    fitting = (ATOMS[name] for name in target.atoms if name.startswith(f"{shape}."))
    found = (other for other in fitting if [other.a.dtype, other.b.dtype] == kinds)
    return atom if [atom.a.dtype, atom.b.dtype] == kinds else next(found)


def _listed(kinds: Any) -> str:
    return " and ".join(sorted(map(str, kinds)))


# -- knobs -----------------------------------------------------------------------------------------


def tiles(extent: int, unit: int, each: Sequence[int], warps: Sequence[int]) -> list[list[int]]:
    """[blocks, warps, atoms of a warp] along an axis of `extent` elements, atoms of `unit`."""
    atoms = -(-extent // unit)
    return [
        [-1, w, e] for w in warps for e in each
        if w * e == 1 or (w * e <= 2 * atoms and wasted(atoms, w * e) <= WASTE)
    ]  # fmt: skip


def define_knobs(
    cfg: Any, op: ComputeOp, axes: Axes, atom: Atom, constant: bool, grouped: str = ""
) -> bool:
    """Open the tiles of a product and the ways to split its sum.

    constant: whether a factor is; grouped: "m" or "n" where tiles along it must not reach beyond a
    group
    Returns whether steps along the depth may be written out.
    """
    *image, m, n = (ax.size for ax in axes.tiled(op))
    depth = axes.depth(op).size
    rows, columns = tiles(m, M, EACH_M, WARPS_M), tiles(n, N, EACH_N, WARPS_N)
    rows = [tile for tile in rows if grouped != "m" or m // M % prod(tile[1:]) == 0]
    columns = [tile for tile in columns if grouped != "n" or n // N % prod(tile[1:]) == 0]
    cfg.define_split("tile_m", -(-m // M), policy="candidate", candidate=rows)
    cfg.define_split("tile_n", -(-n // N), policy="candidate", candidate=columns)
    for height in image:
        lines = tiles(height, 1, tile_sizes(height, MOST_LINES), WARPS_N)
        cfg.define_split("tile_y", height, policy="candidate", candidate=lines)
    atoms = depth // atom.extents["k"]
    cfg.define_knob("split_k", divisors_of(atoms, SPLITS, 2))
    cfg.define_knob("warps_k", divisors_of(atoms, WARPS_K, 2))
    few = constant and min(m, n) <= FEW and not image
    cfg.define_knob("step_k", [n for n in (LONG_STEPS if few else STEPS) if n <= atoms])
    if few:
        cfg.define_knob("ahead", [n for n in AHEAD if n <= atoms], absent=1)
    cfg.define_knob("auto_unroll_max_step", list(UNROLLS))
    return few


# -- the schedule ----------------------------------------------------------------------------------


def schedule_tensor(cfg: Any, a: Anchored, groups_of: Callable[[ComputeOp, Atom], Groups]) -> None:
    """Make a product of the anchor, tile it by atoms, compute what follows on its results."""
    s, anchor = a.schedule, a.anchor
    atom = atom_for(op_of(s, anchor), a.target)
    groups = groups_of(op_of(s, anchor), atom)
    grouped = groups.channels if is_grouped(op_of(s, anchor)) else ""
    window = len(op_of(s, anchor).reduce_axis) > 1
    product, axes = whole_atoms(s, anchor, groups, atom)
    factors = operands(op_of(s, product), axes)
    atom = in_order(atom, factors, a.target)
    constant = any(is_constant(s, dims.tensor) for dims in factors)
    few = define_knobs(cfg, op_of(s, product), axes, atom, constant, grouped)
    # beside a slab, constants that go through shared memory were never the fastest
    ways = [True] if groups.image else [True, False]
    cfg.define_knob("registers", ways if constant else [False])
    ahead = any(is_copied(s, dims) for dims in factors if not is_constant(s, dims.tensor))
    cfg.define_knob("stages", STAGES if ahead else [1])
    atoms = axes.depth(op_of(s, product)).size // atom.extents["k"]
    splits = divisors_of(atoms, SPLITS, 2)
    # for convolutions a second kernel was faster
    ways = [False] if window or len(splits) < 2 else list(JOINED)
    cfg.define_knob("joined", ways, absent=False)
    behind = rows_behind(cfg, a)
    last = inline_around(replace(a, anchor=product), inside=stages_of(behind))
    tiling = Tiling(cfg, atom, groups, axes)

    partial = board = product
    if (blocks := int(cfg["split_k"].val)) > 1:
        chunk, _ = s[product].split(axes.depth(op_of(s, product)), nparts=blocks)
        partial = board = s.rfactor(product, chunk)
    if (shares := int(cfg["warps_k"].val)) > 1:
        chunk, _ = s[partial].split(axes.depth(op_of(s, partial)), nparts=shares)
        board = s.rfactor(partial, chunk)

    root, joined = last, bool(cfg["joined"].val)
    if joined and blocks == 1:
        cfg.raise_error("a block that has the whole sum is joined by no other")
        joined = False
    if joined:
        root = partial
        tile = tiling.finish(s[last], s[accumulator(s, product, last)], shares)
    elif blocks > 1:
        root = partial
        add_partials(s, accumulator(s, product, last), last, a.target, behind, spread=True)
    if shares > 1:
        accumulated = accumulator(s, partial, root)
        local = s.cache_write(board, "fragment")
        s[board].set_scope("shared")
        if joined:
            s[root].join(s[last], tile)
        block, thread = tiling.share_out(s[root], root is last, shares)
        s[board].compute_at(s[root], block)
        s[accumulated].compute_at(s[root], thread)
        s[accumulated].unroll(s[accumulated].op.reduce_axis[0])
        warp = tiling.spread(s[board])
        s[local].compute_at(s[board], warp)
    else:
        local = accumulator(s, partial, root, "fragment")
        if joined:
            s[root].join(s[last], tile)
        warp = tiling.tile(s[root], root is last)
        s[local].compute_at(s[root], warp)
    first = s[root].leaf_iter_vars[0]
    s[root].pragma(first, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    multiply(cfg, s, local, atom, axes, tiling.warps * shares, cfg["ahead"].val if few else 1)


def whole_atoms(
    s: Schedule, anchor: Tensor, groups: Groups, atom: Atom, units: tuple[int, int] = (M, N),
    vectors: bool = False,
) -> tuple[Tensor, Axes]:  # fmt: skip
    """The sum of products over rows, columns and depth of whole atoms; and which axes these are.

    units: what rows and columns are rounded up to; vectors: whether there may be one of them
    """
    op = op_of(s, anchor)
    rows, columns = ([op.axis[d] for d in dims] for dims in (groups.m, groups.n))
    depth = [op.reduce_axis[d] for d in groups.k]
    axes = Axes((*groups.image, groups.m[0], groups.n[0]), groups.k[0], len(op.axis))
    grouped = is_grouped(op)
    several = max(map(len, (rows, columns, depth))) > 1 or grouped
    if several or in_steps(op, columns[-1]):
        lines = [f"{op.axis[d].name}.p" for d in groups.image]
        anchor = s.as_product(anchor, m=rows, n=columns, k=depth)
        op = op_of(s, anchor)
        ndim = len(op.axis)
        image = [d for d, ax in enumerate(op.axis) if ax.name in lines]
        axes = Axes((*image, ndim - 2, ndim - 1), len(op.reduce_axis) - 1, ndim)
    *_, m, n = axes.tiled(op)
    rows_of, columns_of = units
    divided, unit = (m, rows_of) if groups.channels == "m" else (n, columns_of)
    if grouped and divided.size % unit:
        raise ScheduleError(
            f"template for {op.name}",
            f"a group has {divided.size} channels, so that atoms would reach beyond it",
            "Other templates compute it.",
        )  # fmt: skip
    if 1 in (m.size, n.size) and not vectors:
        raise ScheduleError(
            f"template for {op.name}", "one factor is a vector", "Other templates compute it."
        )
    whole = {m: rows_of, n: columns_of, axes.depth(op): atom.extents["k"]}
    return s.pad(anchor, whole), axes


@dataclass(frozen=True)
class Axes:
    """Where a stage of sums has its axes that are tiled, in their order, and its depth.

    spatial: positions among the `ndim` axes of the product, behind those of rfactor
    reduce:  position among the reduction axes
    """

    spatial: tuple[int, ...]
    reduce: int
    ndim: int

    def tiled(self, op: ComputeOp) -> list[IterVar]:
        """[image..,] rows, columns."""
        return [op.axis[p - self.ndim] for p in self.spatial]

    def depth(self, op: ComputeOp) -> IterVar:
        return op.reduce_axis[self.reduce]


def multiply(
    cfg: Any, s: Schedule, local: Tensor, atom: Atom, axes: Axes, warps: Any, ahead: Size = 1
) -> None:
    """The sum of a warp: slices of both operands come to shared memory, then to fragments.

    ahead: steps inside a slice that are written out
    """
    stage = s[local]
    op = op_of(s, local)
    *_, m, n = axes.tiled(op)
    k = axes.depth(op)
    batch = [ax for ax in op.axis if ax not in (m, n)]
    window = [ax for ax in op.reduce_axis if ax is not k]
    size = atom.extents["k"]
    slices, rest = stage.split(k, factor=size * minimum(cfg["step_k"].val, ceil_div(k.size, size)))
    step, inner = stage.split(rest, factor=size)
    rows, row = stage.split(m, factor=M)
    columns, column = stage.split(n, factor=N)
    steps = [step]
    if not same(ahead, 1):
        steps = list(stage.split(step, factor=ahead))
        step = steps[-1]
    again = read_again(op, axes.tiled(op)[:-2])
    outer = [ax for ax in window if ax not in again]
    stage.reorder(slices, *outer, *steps, *again, *batch, rows, columns, row, column, inner)
    if len(steps) > 1:
        stage.unroll(step)
    for ax in again:
        stage.unroll(ax)
    at = dict(zip((atom.a, atom.b), (again[-1] if again else step, step), strict=True))
    stage.tensorize(row, atom.name)
    for dims, held in zip(operands(op, axes), (atom.a, atom.b), strict=True):
        if is_constant(s, dims.tensor) and bool(cfg["registers"].val):
            own = s.cache_read(dims.tensor, "fragment", [local])
            s[own].compute_at(stage, at[held])
            assert isinstance(held, Fragment)
            in_lane_order(s, dims, held, rounded=bool(atom.cut))
            continue
        width = width_of(s, dims)
        if is_constant(s, dims.tensor) and (atom.cut or not dims.along):
            dims = depth_innermost(s, dims, rounded=bool(atom.cut))
            width = width_of(s, dims)
        shared = s.cache_read(dims.tensor, "shared", [local])
        own = s.cache_read(shared, "fragment", [local])
        s[shared].compute_at(stage, slices)
        s[own].compute_at(stage, at[held])
        copy(s[shared], dims, width, warps, cfg["stages"].val)


@dataclass(frozen=True)
class Dims:
    """A factor of a product, and which of its dimensions follow the depth, and rows or columns.

    plain: whether the latter is nothing but that axis
    block: neighbours along the depth that are neighbours in memory, where others lie between blocks
    """

    tensor: Tensor
    k: int
    row: int
    plain: bool
    block: int = 1

    @property
    def along(self) -> bool:
        """Whether neighbours in memory are neighbours in shared memory, too; else those along the
        depth are there, as they have to be where several of them are one operand of bytes."""
        inner, turns = len(self.tensor.shape) - 1, self.tensor.dtype.bytes > 1
        plain = self.plain and self.block == 1
        return self.k == inner or (self.row == inner and plain and turns)


def width_of(s: Schedule, dims: Dims) -> int:
    """Elements of a copy; 1 where they have to be taken one by one."""
    size, extent = dims.tensor.dtype.bytes, _run(dims.tensor)
    if not dims.along:
        if not is_constant(s, dims.tensor):
            return dims.block
        extent = dims.tensor.shape[dims.k]
    widths = (n // size for n in sorted(ASYNC_BYTES, reverse=True) if n >= size)
    return next((width for width in widths if extent % width == 0), 1)


def _run(tensor: Tensor) -> int:
    """The innermost extent in memory of what a tensor is read from, where that is its innermost
    dimension, too."""
    op = tensor.op
    found = source_of(op.body) if isinstance(op, ComputeOp) and op.combiner is None else None
    if found is None or op.axis[-1].var is not found[1].args[-1]:
        return tensor.shape[-1]
    return _run(found[1].attr)


def is_copied(s: Schedule, dims: Dims) -> bool:
    """Whether the elements are copied without a thread's registers."""
    return width_of(s, dims) * dims.tensor.dtype.bytes in ASYNC_BYTES


def operands(op: ComputeOp, axes: Axes) -> list[Dims]:
    """The factors of a product over its rows, columns and depth: that along rows, along columns."""
    *_, m, n = (ax.var for ax in axes.tiled(op))
    k = axes.depth(op).var
    reads = dict.fromkeys(e for e in E.walk(op.body) if e.op == "read")
    found = []
    for axis in (m, n):
        (read,) = (e for e in reads if axis in E.free_variables(*e.args))
        (row,) = (d for d, index in enumerate(read.args) if axis in E.free_variables(index))
        (depth,) = (d for d, index in enumerate(read.args) if k in E.free_variables(index))
        block = _block(read.attr, depth)
        found.append(Dims(read.attr, depth, row, read.args[row] is axis, block))
    return found


def _block(tensor: Tensor, depth: int) -> int:
    """How many neighbours along a dimension a stage reads that are neighbours in memory, where it
    gathers it of blocks: at most those of a copy."""
    op = tensor.op
    if not isinstance(op, ComputeOp) or depth == len(op.axis) - 1:
        return 1
    place = E.const(0)
    for node in E.walk(op.body):
        if node.op == "read":
            place = node.args[-1]
    if (
        place.op != "floormod"
        or place.args[0] is not op.axis[depth].var
        or place.args[1].op != "const"
    ):
        return 1
    return gcd(int(place.args[1].attr), COPIED // tensor.dtype.bytes)


def is_constant(s: Schedule, tensor: Tensor) -> bool:
    """Whether it is known when the program is built, and so can be stored in any order."""
    op = s[tensor].op
    if isinstance(op, ComputeOp):
        return op.tag == PACKED and all(is_constant(s, t) for t in op.input_tensors)
    return isinstance(op, PlaceholderOp) and op.constant


def depth_innermost(s: Schedule, dims: Dims, rounded: bool = False) -> Dims:
    """A constant stored so that neighbours along the depth are neighbours in memory.

    rounded: and as atoms of tf32 want it
    """
    rank = len(dims.tensor.shape)
    order = [*(d for d in range(rank) if d != dims.k), dims.k]
    packed = s.pack(dims.tensor, [1] * rank, order, rounded)
    return Dims(packed, rank - 1, order.index(dims.row), dims.plain)


def in_lane_order(s: Schedule, dims: Dims, held: Fragment, rounded: bool = False) -> None:
    """Store a factor so that what a lane holds of an atom is one access to memory.

    rounded: and as the atom wants it
    """
    of = {letter: dims.k if letter == "k" else dims.row for letter in held.axes}
    first, second = (of[letter] for letter in held.axes)
    s.pack(dims.tensor, *fragment_order(held, len(dims.tensor.shape), (first, second)), rounded)


def _op(stage: Stage) -> ComputeOp:
    assert isinstance(stage.op, ComputeOp)
    return stage.op


@dataclass(frozen=True)
class Tiling:
    """How a stage with the rows and columns of a product spreads over blocks and warps."""

    cfg: Any
    atom: Atom
    groups: Groups
    axes: Axes

    @property
    def _tiles(self) -> list[tuple[str, int]]:
        """Knobs, and the elements that an atom has along their axes."""
        image = [("tile_y", 1)] if self.groups.image else []
        return [*image, ("tile_m", M), ("tile_n", N)]

    @property
    def warps(self) -> Any:
        """Of a block, for one share of the sum."""
        return prod(self.cfg[name].size[1] for name, _ in self._tiles)

    def _axes(self, stage: Stage, original: bool) -> tuple[list[IterVar], list[IterVar]]:
        """(batch, those that are tiled) as loops.

        original: whether the axes are those of the anchor, of which several may be rows
        """
        axes = stage.op.axis
        if not original:
            tiled = self.axes.tiled(_op(stage))
            return [ax for ax in axes if ax not in tiled], tiled
        image, rows, columns = (
            [axes[d] for d in dims] for dims in (self.groups.image, self.groups.m, self.groups.n)
        )
        own = [[ax] for ax in image] + [rows, columns]
        batch = [ax for ax in axes if not any(ax in group for group in own)]
        stage.reorder(*batch, *(ax for group in own for ax in group))
        return batch, [stage.fuse(*group) if len(group) > 1 else group[0] for group in own]

    def _blocks(self, stage: Stage, original: bool) -> tuple[IterVar, list[IterVar]]:
        """Bind the block loops; (the innermost of them, what is left of each tiled axis)."""
        batch, axes = self._axes(stage, original)
        if stage.joined:  # of a tile of its reader
            share, *_ = batch
            stage.bind(share, "blockIdx.z")
            stage.reorder(*batch, *axes)
            return share, axes
        blocks, left = [], []
        for axis, (name, unit) in zip(axes, self._tiles, strict=True):
            outer, inner = stage.split(axis, factor=unit * prod(self.cfg[name].size[1:]))
            blocks.append(outer)
            left.append(inner)
        stage.reorder(*batch, *blocks, *left)
        *lines, rows, columns = blocks
        if lines or batch:
            stage.bind(stage.fuse(*batch, *lines), "blockIdx.z")
        stage.bind(rows, "blockIdx.y")
        stage.bind(columns, "blockIdx.x")
        return columns, left

    def finish(self, stage: Stage, adder: Stage, shares: int) -> IterVar:
        """The loops of the anchor's last stage where blocks join; the innermost over tiles."""
        batch, axes = self._axes(stage, True)
        groups = [*([d] for d in self.groups.image), self.groups.m, self.groups.n]
        spans = [
            Span(axis, dims[0], unit, *self.cfg[name].size[1:])
            for axis, dims, (name, unit) in zip(axes, groups, self._tiles, strict=True)
        ]
        return finish(stage, adder, batch, spans, shares)

    def tile(self, stage: Stage, original: bool) -> IterVar:
        """Blocks, warps, lanes; returns the loop of lanes."""
        _, left = self._blocks(stage, original)
        return self._warps(stage, [], left)

    def spread(self, stage: Stage) -> IterVar:
        """Warps and lanes of a stage inside a block, whose first axis are shares of the sum."""
        share, *batch = stage.op.axis
        tiled = self.axes.tiled(_op(stage))
        stage.reorder(*(ax for ax in batch if ax not in tiled), share, *tiled)
        return self._warps(stage, [share], tiled)

    def _warps(self, stage: Stage, lead: list[IterVar], left: list[IterVar]) -> IterVar:
        warps, inner = [], []
        for axis, (name, unit) in zip(left, self._tiles, strict=True):
            warp, each = stage.split(axis, factor=unit * self.cfg[name].size[2])
            warps.append(warp)
            inner.append(each)
        stage.reorder(*lead, *warps, *inner)
        warp = stage.fuse(*lead, *warps)
        stage.bind(warp, "threadIdx.y")
        *lines, rows, columns = inner
        lane, *rest, pair = lanes(stage, rows, columns, self.atom.name)
        stage.reorder(lane, *lines, *rest, pair)
        stage.vectorize(pair)
        return lane

    def share_out(self, stage: Stage, original: bool, shares: int) -> tuple[IterVar, IterVar]:
        """The elements of a block dealt to its threads in turn; (innermost block loop, thread)."""
        block, left = self._blocks(stage, original)
        if stage.joined:  # as they lie in memory
            left = [ax for ax in stage.op.axis if ax in left]
            stage.reorder(*left)
        thread = deal(stage, stage.fuse(*left), WARP * self.warps * shares, WARP)
        return block, thread


def copy(shared: Stage, dims: Dims, width: int, warps: Any, slots: Any) -> None:
    """A slice comes to shared memory, along what is contiguous in memory; rows are as far apart as
    neighbouring rows of a matrix must be to lie in different banks.  slots: of its ring, or 0."""
    axes = list(shared.op.axis)
    inner, size = len(axes) - 1, shared.tensor.dtype.bytes
    row = dims.row if dims.k == inner else dims.k
    if not dims.along:
        shared.storage_order(axes[dims.k])  # pairs along k are read as one
        row = inner if dims.plain else dims.row
    skew = SKEW // size
    shared.storage_align(axes[row], 2 * skew, skew)
    vector = width if width > 1 else None
    slots = slots if width * size in ASYNC_BYTES else 0
    if not dims.along and width * size in ASYNC_BYTES:
        # neighbouring threads take what fills the same banks once: parts of rows, of a few rows
        depth = axes.pop(dims.k)
        outer, part = shared.split(depth, factor=max(skew, width))
        axes = [*axes[: dims.k], outer, *axes[dims.k :], part]
        shared.reorder(*axes)
    fetch(shared, WARP * warps, vector, axes, lanes=WARP, slots=slots)


# -- who uses it -----------------------------------------------------------------------------------


def dense_groups(op: ComputeOp, atom: Atom) -> Groups:
    """The longer of both axes are the rows, of which an atom has more."""
    last = len(op.axis) - 1
    few = op.axis[-2].size <= M
    return Groups(m=(last if few else last - 1,), n=(last - 1 if few else last,), k=(0,))


def schedule_dense(cfg: Any, a: Anchored) -> None:
    schedule_tensor(cfg, a, dense_groups)


anchor_template(
    "dense.tensor", kinds=KINDS, tags=("dense", "matmul", "batch_matmul"), fallback=fallback,
    structures=STRUCTURES, rows=True,
)(schedule_dense)  # fmt: skip
