"""Products of bytes on GPUs without matrix units for them: four products of a thread at once.

In: a configuration and an anchor.  Out: its schedule; knobs are opened in passing.  Tiles are as in
`gpu.py`, but both factors lie in shared memory with the depth innermost, of which a thread reads
words of four bytes, each an operand of `dp4a`:

    split_k blocks          partial[kb, .., m, n]   one kernel; a second one adds the partials
      threads along m and n                         4 x 8 of a warp: rows in different banks
        slices of k         in shared memory        a ring of them where copies go on alone
          words of k        of each row of a thread, in registers

Matrix units are faster where they fit (`gpu_atoms.py`).  Read next: `ir/atoms.py`, whose atoms of a
thread these are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.ir.atoms import THREAD_ATOMS, Atom
from tilewright.ir.stmt import ASYNC_BYTES
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.space.decision import minimum
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.schedule.thread_loops import RINGS, fetch
from tilewright.targets.target import Target
from tilewright.te.tensor import ComputeOp, IterVar, Tensor
from tilewright.topi.templates.gpu import (
    SPLITS,
    UNROLLS,
    accumulator,
    add_partials,
    divisors_of,
    is_grouped,
    op_of,
    wasted,
)
from tilewright.topi.templates.gpu_atoms import (
    WASTE,
    Axes,
    Dims,
    Groups,
    atom_for,
    depth_innermost,
    is_constant,
    operands,
    whole_atoms,
    width_of,
)
from tilewright.topi.templates.gpu_atoms_conv import gathered_groups
from tilewright.topi.templates.gpu_epilogue import inline_around
from tilewright.topi.templates.untuned import fastest

KINDS = ("cuda",)
WORD = 4  # bytes: an operand
UNIT = 4  # rows, and columns, that extents are rounded up to
LANES_M, LANES_N = 4, 8  # of a warp
EACH = (1, 2, 4, 8)  # rows, and columns, of a thread
ROWS, COLUMNS = (1, 2, 4), (1, 2, 4)  # warps
STEPS = (4, 8, 16)  # words of a slice


def dot_for(op: ComputeOp, target: Target) -> Atom:
    """The instruction of a thread for the factors of a sum of products, in either order.

    Raises ScheduleError where the target has none for them.
    """
    kinds = {t.dtype for t in op.input_tensors}
    for name, atom in THREAD_ATOMS.items():
        fits = {atom.a.dtype, atom.b.dtype} == kinds and atom.sum.dtype is op.accumulator
        if fits and target.kind in atom.texts and target.has(name):
            return atom
    raise ScheduleError(
        f"template for {op.name}",
        f"threads of {target} add up no products of {' and '.join(sorted(map(str, kinds)))}",
        "Other templates compute it.",
    )  # fmt: skip


def has_unit(op: ComputeOp, target: Target) -> bool:
    """Whether a matrix unit multiplies the types of a sum of products."""
    try:
        atom_for(op, target)
    except ScheduleError:
        return False
    return True


def _tiles(extent: int, lanes: int, warps: Sequence[int]) -> list[list[int]]:
    """[blocks, warps, lanes, rows of a thread]"""
    found = [[-1, w, lanes, each] for w in warps for each in EACH]
    fit = [tile for tile in found if wasted(extent, prod(tile[1:])) <= WASTE]
    return fit or [[-1, 1, lanes, 1]]


def schedule_dots(cfg: Any, a: Anchored, groups_of: Callable[[ComputeOp, Atom], Groups]) -> None:
    """Make a product of words of the anchor, tile it, compute what follows on its results."""
    s, anchor = a.schedule, a.anchor
    atom = dot_for(op_of(s, anchor), a.target)
    if has_unit(op_of(s, anchor), a.target) and not is_grouped(op_of(s, anchor)):
        raise ScheduleError(
            f"template for {anchor.name}", "matrix units multiply it", "Other templates compute it."
        )
    groups = groups_of(op_of(s, anchor), atom)
    product, axes = whole_atoms(s, anchor, groups, atom, (UNIT, UNIT))
    factors = operands(op_of(s, product), axes)
    kinds = [dims.tensor.dtype for dims in factors]
    atom = next(x for x in THREAD_ATOMS.values() if [x.a.dtype, x.b.dtype] == kinds)
    op = op_of(s, product)
    *_, m, n = (ax.size for ax in axes.tiled(op))
    words = axes.depth(op).size // WORD
    cfg.define_split("tile_m", m, policy="candidate", candidate=_tiles(m, LANES_M, ROWS))
    cfg.define_split("tile_n", n, policy="candidate", candidate=_tiles(n, LANES_N, COLUMNS))
    cfg.define_knob("split_k", divisors_of(words, SPLITS, 4))
    cfg.define_knob("step_k", [n for n in STEPS if n <= words] or [words])
    cfg.define_knob("auto_unroll_max_step", list(UNROLLS))
    alone = a.target.copies_alone and all(_is_copied(s, dims) for dims in factors)
    cfg.define_knob("stages", RINGS if alone else RINGS[:1])
    last = inline_around(replace(a, anchor=product))
    root = partial = product
    if (blocks := int(cfg["split_k"].val)) > 1:
        chunk, _ = s[product].split(axes.depth(op), nparts=blocks)
        root = partial = s.rfactor(product, chunk)
        add_partials(s, accumulator(s, product, last), last, a.target, spread=True)
    else:
        root = last
    local = accumulator(s, partial, root)
    s[local].compute_at(s[root], _tile(cfg, s[root], axes, groups, original=root is last))
    _multiply(cfg, s, local, atom, axes)


def _is_copied(s: Schedule, dims: Dims) -> bool:
    """Whether words of it can be copied without a thread's registers."""
    along = dims.k == len(dims.tensor.shape) - 1
    return is_constant(s, dims.tensor) or (along and width_of(s, dims) in ASYNC_BYTES)


def _tile(cfg: Any, stage: Stage, axes: Axes, groups: Groups, *, original: bool) -> IterVar:
    """Blocks, warps, lanes, rows of a thread; returns the loop of lanes.

    original: whether the axes are those of the anchor, of which several may be rows
    """
    op, own = stage.op, list(stage.op.axis)
    assert isinstance(op, ComputeOp)
    tiled = [[ax] for ax in axes.tiled(op)]
    if original:
        tiled = [[own[d] for d in dims] for dims in (groups.m, groups.n)]
    batch = [ax for ax in own if not any(ax in group for group in tiled)]
    stage.reorder(*batch, *(ax for group in tiled for ax in group))
    loops = []
    for group, name in zip(tiled, ("tile_m", "tile_n"), strict=True):
        axis = stage.fuse(*group) if len(group) > 1 else group[0]
        _, warps, lanes, each = cfg[name].size
        block, rest = stage.split(axis, factor=warps * lanes * each)
        warp, rest = stage.split(rest, factor=lanes * each)
        loops.append((block, warp, *stage.split(rest, factor=each)))
    pairs = [ax for pair in zip(*loops, strict=True) for ax in pair]
    stage.reorder(*batch, *pairs)
    block_m, block_n, warp_m, warp_n, lane_m, lane_n, _, _ = pairs
    if batch:
        stage.bind(stage.fuse(*batch) if len(batch) > 1 else batch[0], "blockIdx.z")
    stage.bind(block_m, "blockIdx.y")
    stage.bind(block_n, "blockIdx.x")
    stage.bind(stage.fuse(warp_m, warp_n), "threadIdx.y")
    lane = stage.fuse(lane_m, lane_n)
    stage.bind(lane, "threadIdx.x")
    unroll = cfg["auto_unroll_max_step"].val
    stage.pragma(stage.leaf_iter_vars[0], "auto_unroll_max_step", unroll)
    return lane


def _multiply(cfg: Any, s: Schedule, local: Tensor, atom: Atom, axes: Axes) -> None:
    """The sum of a thread: slices of both factors come to shared memory, words to registers."""
    stage, op = s[local], op_of(s, local)
    *_, m, n = axes.tiled(op)
    k = axes.depth(op)
    words = minimum(cfg["step_k"].val, k.size // WORD)
    slices, rest = stage.split(k, factor=WORD * words)
    step, word = stage.split(rest, factor=WORD)
    rows, row = stage.split(m, factor=1)
    columns, column = stage.split(n, factor=1)
    others = [ax for ax in op.reduce_axis if ax is not k]
    batch = [ax for ax in op.axis if ax not in (m, n)]
    stage.reorder(slices, *others, step, *batch, rows, columns, row, column, word)
    stage.tensorize(row, atom.name)
    warps = prod(cfg[name].size[1] for name in ("tile_m", "tile_n"))
    for dims in operands(op, axes):
        if is_constant(s, dims.tensor) and dims.k != len(dims.tensor.shape) - 1:
            dims = depth_innermost(s, dims)
        shared = s.cache_read(dims.tensor, "shared", [local])
        own = s.cache_read(shared, "local", [local])
        s[shared].compute_at(stage, slices)
        s[own].compute_at(stage, step)
        _copy(cfg, s, s[shared], dims, warps)


def _copy(cfg: Any, s: Schedule, shared: Stage, dims: Dims, warps: Any) -> None:
    """A slice with the depth innermost, rows an odd number of words apart."""
    axes = list(shared.op.axis)
    along = dims.k == len(axes) - 1
    width = min(width_of(s, dims), WORD) if along else 1
    if not along:
        shared.storage_order(axes[dims.k])
    shared.storage_align(axes[dims.row], 2 * WORD, WORD)
    slots = cfg["stages"].val if width in ASYNC_BYTES else 0
    vector = width if width > 1 else None
    fetch(shared, LANES_M * LANES_N * warps, vector, axes, lanes=LANES_M * LANES_N, slots=slots)


def fallback(sketch: Sketch, _: Anchored) -> int:
    """The fastest by the machine model."""
    stages = sketch.space.space_map["stages"]
    return fastest(sketch, {"stages": stages[min(1, len(stages) - 1)].val})


def dense_groups(op: ComputeOp, atom: Atom) -> Groups:
    last = len(op.axis) - 1
    return Groups(m=(last - 1,), n=(last,), k=(0,))


def schedule_dense(cfg: Any, a: Anchored) -> None:
    schedule_dots(cfg, a, dense_groups)


def schedule_conv(cfg: Any, a: Anchored) -> None:
    schedule_dots(cfg, a, gathered_groups)


anchor_template(
    "dense.dots", kinds=KINDS, tags=("dense", "matmul", "batch_matmul"), fallback=fallback
)(schedule_dense)
for _layout in ("ncw", "nwc", "nchw", "nhwc", "ncdhw", "ndhwc"):
    _name = f"conv{len(_layout) - 2}d_{_layout}"
    anchor_template(
        f"{_name}.dots", kinds=KINDS, tags=(_name, f"group_{_name}"), fallback=fallback
    )(schedule_conv)
