"""Large products by groups of warps: tiles in swizzled rings, sums in registers of the group.

In: a configuration and an anchor that multiplies matrices.  Out: its schedule; knobs are opened in
passing.  The anchor becomes a product `P[.., m, n] += L[.., m, k] * R[.., n, k]` whose extents are
whole atoms, and

    blocks, in strips of some rows  tiles of both factors stay near
      groups along m and n          accumulators, atoms of 64 rows below each other
        slices of k                 rows of 128 bytes in shared memory, a ring of them

Of a result of few tiles each block adds up a part of the depth, `split_k` of them one tile, and a
second kernel adds up the parts.

Both factors need their depth innermost: constants are stored so.  Small products, vectors, factors
that lie otherwise are left to `gpu_atoms.py`.  Read next: `lowering/fragments.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from tilewright.base.errors import ScheduleError
from tilewright.ir.atoms import GROUP, GROUP_ATOMS, GROUP_ROWS, Atom
from tilewright.ir.stmt import ASYNC_BYTES
from tilewright.ir.swizzle import SWIZZLES
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.schedule.thread_loops import deal, fetch, lanes
from tilewright.targets.target import Target
from tilewright.te.tensor import ComputeOp, IterVar, Tensor
from tilewright.topi.templates.gpu import (
    SPLITS,
    accumulator,
    add_partials,
    divisors_of,
    op_of,
    wasted,
)
from tilewright.topi.templates.gpu_atoms import (
    KINDS,
    Axes,
    Dims,
    depth_innermost,
    is_constant,
    operands,
    tiles,
    width_of,
)
from tilewright.topi.templates.gpu_epilogue import inline_around
from tilewright.topi.templates.gpu_rows import gate_of
from tilewright.topi.templates.gpu_rows_behind import rows_behind, stages_of
from tilewright.topi.templates.untuned import fastest

LEAST = 64  # rows, and columns, from which a product is large
COLUMNS = (64, 128, 192, 256)  # of an atom
WASTE = 1.34  # share of atoms that uneven tiles may add
EACH_M = (1, 2)  # atoms of a group below each other
GROUPS_M, GROUPS_N = (1, 2, 4), (1, 2)
STAGES = (2, 3, 4, 5, 6)  # slices in the ring
ENGINES = (-1, 4)  # warps that only load, for a copy engine; -1: threads copy, and no engine
FEW_TILES = 2  # of the least size, for each core: from there on sums are not split
# Large products of halves on an H200, in tiles of 128 rows: microseconds for 64 of the depth of a
# tile of so many columns; terms that all cores multiply in one; and what it takes to add up parts.
SLICE, SLICE_US = 64, {64: 0.24, 128: 0.29, 192: 0.42, 256: 0.65}
BUSY_RATE, PART_US = 375e6, 2.0
LARGE, EACH_TILE = 1 << 31, 2
STRIPS = (1, 2, 4, 8, 16)  # tiles along m whose blocks follow each other


def atom_for(op: ComputeOp, target: Target, columns: int) -> Atom:
    """The instruction of a group for the operands of a sum of products, with so many columns.

    Raises ScheduleError where the target has none for them, or may not use it.
    """
    kinds = {t.dtype for t in op.input_tensors}
    for name, atom in GROUP_ATOMS.items():
        if atom.extents["n"] == columns and {atom.a.dtype} == kinds and target.allows(name):
            return atom
    raise ScheduleError(
        f"template for {op.name}",
        f"{target} has no groups of warps that multiply {' and '.join(sorted(map(str, kinds)))}",
        "Other templates compute it.",
    )  # fmt: skip


def row_bytes(depth: int, size: int) -> int:
    """The longest swizzled rows of which a depth is whole ones; 0 where there are none."""
    return max(n for n in SWIZZLES if n == 0 or depth % (n // size) == 0)


def schedule_groups(cfg: Any, a: Anchored) -> None:
    """Make a product of the anchor, tile it for groups, compute what follows on its results."""
    s, op = a.schedule, op_of(a.schedule, a.anchor)
    last = len(op.axis) - 1
    axes = Axes((last - 1, last), 0, last + 1)
    m, n = (ax.size for ax in axes.tiled(op))
    depth = axes.depth(op).size
    nbytes = row_bytes(depth, op.input_tensors[0].dtype.bytes) if len(op.reduce_axis) == 1 else 0
    if min(m, n) < LEAST or not nbytes:
        raise ScheduleError(
            f"template for {op.name}", f"{m} x {n} x {depth} is small, or of no whole rows",
            "Other templates compute it.",
        )  # fmt: skip
    sizes = [size for size in COLUMNS if wasted(n, size) <= WASTE]
    cfg.define_knob("columns", sizes or [LEAST])
    columns = int(cfg["columns"].val)
    atom = atom_for(op, a.target, columns)
    cfg.define_split(
        "tile_m", -(-m // GROUP_ROWS), policy="candidate",
        candidate=tiles(m, GROUP_ROWS, EACH_M, GROUPS_M),
    )  # fmt: skip
    cfg.define_split(
        "tile_n", -(-n // columns), policy="candidate", candidate=tiles(n, columns, (1,), GROUPS_N)
    )
    cfg.define_knob("stages", list(STAGES))
    engine = a.target.copies_boxes and not atom.split
    cfg.define_knob("engine", list(ENGINES if engine else ENGINES[:1]))
    cfg.define_knob("strip", [n for n in STRIPS if n == 1 or n * GROUP_ROWS <= m])
    slices = depth * op.input_tensors[0].dtype.bytes // nbytes
    batch = prod(ax.size for ax in op.axis[:-2])
    few = batch * -(-m // LEAST) * -(-n // LEAST) <= FEW_TILES * a.target.limits.cores
    end, beside = gate_of(a, last)
    whole = beside > 1 or not few  # a sum of both sides of a gate is not split
    cfg.define_knob("split_k", [1] if whole else divisors_of(slices, SPLITS, 2), absent=1)
    many = not few and op.input_tensors[0].dtype.bytes == 2  # wider ones leave no room for tiles
    cfg.define_knob("rows", [1] if beside > 1 else [0, 1] if many else [0], absent=0)
    rows, cols = axes.tiled(op)
    product = s.pad(a.anchor, {rows: GROUP_ROWS, cols: columns})
    factors = [_for_groups(s, dims, atom) for dims in operands(op_of(s, product), axes)]
    behind = rows_behind(cfg, a)
    root = inline_around(replace(a, anchor=product), end, stages_of(behind))
    partial = product
    if (blocks := int(cfg["split_k"].val)) > 1:
        chunk, _ = s[product].split(axes.depth(op_of(s, product)), nparts=blocks)
        partial = s.rfactor(product, chunk)
        add_partials(s, accumulator(s, product, root), root, a.target, behind)
        root = partial
    stored, by_rows = root, int(cfg["rows"].val)
    made = None
    if beside > 1:  # the tile of the product lies in shared memory, with both sides of each gate
        local, root = s.cache_write(partial, "fragment"), partial
        made = s[s.cache_write(stored, "local")]
        s[root].set_scope("shared")
    else:
        local = accumulator(s, partial, root, "fragment")
        root = s.cache_write(stored, "shared") if by_rows else root
    block, *tile = _tiles(cfg, s[stored], axes, atom, beside)
    if by_rows:
        s[root].compute_at(s[stored], block)
        _store_rows(cfg, s, stored, root, tile, made)
        tile = [*axes.tiled(op_of(s, root))]
    s[local].compute_at(s[root], _lanes(cfg, s[root], atom, tile))
    _multiply(cfg, s, local, atom, axes, factors, nbytes)


def _for_groups(s: Schedule, dims: Dims, atom: Atom) -> Dims:
    """The factor as groups read it.  Raises ScheduleError where it lies otherwise."""
    inner = len(dims.tensor.shape) - 1
    if (atom.cut or dims.k != inner) and is_constant(s, dims.tensor):
        dims = depth_innermost(s, dims, rounded=bool(atom.cut))
    if dims.k != inner or width_of(s, dims) == 1:
        raise ScheduleError(
            f"template for {dims.tensor.name}", "its depth is not innermost, in pieces of 16 bytes",
            "Other templates compute it.",
        )  # fmt: skip
    return dims


def _tiles(
    cfg: Any, stage: Stage, axes: Axes, atom: Atom, beside: int
) -> tuple[IterVar, IterVar, IterVar]:
    """Blocks of a stage with the rows and columns of the product: their loop, rows and columns of
    a tile.  beside: columns of the product of which the stage makes one

    Blocks go along a strip of rows first, so that those which run together read few tiles.
    """
    op = stage.op
    assert isinstance(op, ComputeOp)
    rows, columns = axes.tiled(op)
    batch = [ax for ax in op.axis if ax not in (rows, columns)]
    each_m, each_n = GROUP_ROWS * cfg["tile_m"].size[2], atom.extents["n"] * cfg["tile_n"].size[2]
    block_m, m = stage.split(rows, factor=each_m * cfg["tile_m"].size[1])
    block_n, n = stage.split(columns, factor=each_n // beside * cfg["tile_n"].size[1])
    strips, strip = stage.split(block_m, factor=cfg["strip"].val)
    stage.reorder(*batch, strips, block_n, strip, m, n)
    if batch:
        stage.bind(stage.fuse(*batch) if len(batch) > 1 else batch[0], "blockIdx.z")
    tiles = stage.fuse(strips, block_n, strip)
    stage.bind(tiles, "blockIdx.x")
    return tiles, m, n


def _lanes(cfg: Any, stage: Stage, atom: Atom, tile: Sequence[IterVar]) -> IterVar:
    """Groups and lanes of a tile, of its rows and columns; the loop of lanes."""
    m, n = tile
    each_m, each_n = GROUP_ROWS * cfg["tile_m"].size[2], atom.extents["n"] * cfg["tile_n"].size[2]
    group_m, m = stage.split(m, factor=each_m)
    group_n, n = stage.split(n, factor=each_n)
    stage.reorder(group_m, group_n, m, n)
    stage.bind(stage.fuse(group_m, group_n), "threadIdx.y")
    lane, *_, pair = lanes(stage, m, n, atom.name)
    stage.vectorize(pair)
    return lane


def _store_rows(
    cfg: Any, s: Schedule, stored: Tensor, held: Tensor, tile: Sequence[IterVar],
    made: Stage | None,
) -> None:  # fmt: skip
    """Results of a tile go by way of shared memory: a thread stores 16 bytes of a row, its
    neighbours what is beside them.  Lanes hold two columns of a row each.

    made: what a thread stores, of neighbouring columns that it reads together before; None: a copy
    """
    width = max(ASYNC_BYTES) // stored.dtype.bytes
    s[held].storage_align(s[held].op.axis[-2], 2 * width, width)
    groups = prod(cfg[name].size[1] for name in ("tile_m", "tile_n"))
    if made is None:
        fetch(s[stored], GROUP * groups, width, axes=tile, lanes=GROUP)
        return
    row, column = tile
    width //= 2  # of what is read as much as of what is stored, in registers beside the sums
    # Before it is fused, so that what a thread reads begins at whole vectors.
    line, lane = s[stored].split(column, factor=width)
    s[stored].vectorize(lane)
    thread = deal(s[stored], s[stored].fuse(row, line), GROUP * groups, GROUP)
    made.compute_at(s[stored], thread)
    made.unroll(made.op.axis[-1])
    own = s[s.cache_read(held, "local", [r.tensor for r in s.readers(s[held])])]
    own.compute_at(s[stored], thread)
    _, lane = own.split(own.op.axis[-1], factor=max(ASYNC_BYTES) // held.dtype.bytes)
    own.vectorize(lane)


def _multiply(
    cfg: Any, s: Schedule, local: Tensor, atom: Atom, axes: Axes, factors: list[Dims], nbytes: int
) -> None:
    """The sum of a group: slices of both factors, rows of so many bytes, come to shared memory."""
    stage, op = s[local], op_of(s, local)
    m, n = axes.tiled(op)
    batch = [ax for ax in op.axis if ax not in (m, n)]
    size = factors[0].tensor.dtype.bytes
    slices, rest = stage.split(axes.depth(op), factor=nbytes // size)
    step, inner = stage.split(rest, factor=atom.extents["k"])
    rows, row = stage.split(m, factor=atom.extents["m"])
    columns, column = stage.split(n, factor=atom.extents["n"])
    stage.reorder(slices, step, *batch, rows, columns, row, column, inner)
    stage.unroll(step)
    stage.tensorize(row, atom.name)
    groups = prod(cfg[name].size[1] for name in ("tile_m", "tile_n"))
    for dims in factors:
        shared = s.cache_read(dims.tensor, "shared", [local])
        s[shared].compute_at(stage, slices)
        s[shared].swizzle(nbytes)
        if (loaders := int(cfg["engine"].val)) >= 0:
            s[shared].bulk_copy()
            s[shared].pipeline(cfg["stages"].val, loaders)
            continue
        width = max(ASYNC_BYTES) // size
        fetch(s[shared], GROUP * groups, width, lanes=GROUP, slots=cfg["stages"].val)


def fallback(sketch: Sketch, a: Anchored) -> int:
    """The fastest by the machine model, which does not know what it is worth to store rows: on an
    H200 an eighth to a third of the time of 2048^3 and of shorter sums."""
    space = sketch.space.space_map
    rows = max(e.val for e in space["rows"])
    return fastest(sketch, *({"columns": e.val, "rows": rows} for e in space["columns"]))


def large(sketch: Sketch, a: Anchored) -> Mapping[str, Any] | int:
    """Of a large product of halves: tiles of 128 rows by two groups, loaded by a copy engine, of as
    many columns, and in as many parts of the depth, as take least by what an H200 took for each.

    Raises ScheduleError for others, of which trees know enough.
    """
    op, knobs = op_of(a.schedule, a.anchor), sketch.space.space_map
    *batch, m, n = (ax.size for ax in op.axis)
    depth = op.reduce_axis[0].size
    engine = max(e.val for e in knobs["engine"])
    halves = op.input_tensors[0].dtype.bytes == 2
    if batch or not halves or engine < 0 or m < 4 * LEAST or m * n * depth < LARGE:
        raise ScheduleError(
            f"template for {op.name}, untuned", f"nobody measured {m} x {n} x {depth}",
            "Trees predict what is fast.",
        )  # fmt: skip
    rows, cores = EACH_TILE * GROUP_ROWS, a.target.limits.cores
    found = []
    for columns in (e.val for e in knobs["columns"]):
        tiles_ = -(-m // rows) * -(-n // columns)
        for parts in (e.val for e in knobs["split_k"]):
            waves = -(-tiles_ * parts // cores)
            alone = waves * (depth / SLICE / parts) * SLICE_US[columns]
            busy = tiles_ * rows * columns * depth / BUSY_RATE
            second = parts > 1 or a.rows_follow  # a kernel that adds up, or norms, or both
            found.append((max(alone, busy) + second * (PART_US + parts), -columns, parts))
    for _, columns, parts in sorted(found):
        held = {"columns": -columns, "engine": engine, "split_k": parts}
        held["strip"] = max(e.val for e in knobs["strip"] if e.val <= EACH_TILE * 2)
        held["rows"] = max(e.val for e in knobs["rows"])
        for name in set(knobs) - {*held, "tile_m", "tile_n", "stages"}:
            held[name] = knobs[name][-1].val
        index = _deepest(sketch, held)
        if index is not None:
            return index
    raise ScheduleError(
        f"template for {op.name}, untuned", "no tile of 128 rows fits", "Trees predict others."
    )


def _deepest(sketch: Sketch, held: Mapping[str, Any]) -> int | None:
    """The member with tiles of two groups below each other, and the longest ring that fits."""
    space = sketch.space
    pairs = ((name, sizes) for name, sizes in (("tile_m", [EACH_TILE, 1]), ("tile_n", [1, 1])))
    tiles_ = {
        name: next((e.value for e in space.space_map[name] if [*e.size[1:]] == sizes), None)
        for name, sizes in pairs
    }
    if None in tiles_.values():
        return None
    for stages in sorted((e.val for e in space.space_map["stages"]), reverse=True):
        index = space.index_of({**held, **tiles_, "stages": stages})
        if sketch.legal(np.array([index]))[0]:
            return index
    return None


anchor_template(
    "dense.groups",
    kinds=KINDS,
    tags=("dense", "matmul", "batch_matmul"),
    fallback=fallback,
    rows=True,
    measured=large,
)(schedule_groups)
