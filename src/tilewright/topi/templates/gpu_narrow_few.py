"""Few rows times weights of a byte or less on matrix units: as fast as these come from memory.

In: anchors of `topi.nn.dense_narrow`.  Out: their schedule, `dense.narrow.few`.  Bytes are stored
in the order in which lanes hold them, and become floats of the rows' type on their way to an atom,
which is exact; of one row or two, times integers, they stay bytes, and the rows become digits
(`gpu_digits.py`).  What atoms add up of a line, or of a group, is scaled and added up by a warp:

    a block     some atoms of columns, all of the depth, all few rows
      slices of lines       bytes and scales come to rings in shared memory, bytes far ahead
        warps along lines   a step of each slice: board[kw, few, many], added by the whole block
          a line            16 bytes of each column: an atom, or two of which each has a half

Rows come to shared memory at once where they fit: in a ring each of their slices would be waited
for with all bytes that were asked for before.  Where they are normed, each block norms them for
itself.  Read next: `gpu_narrow.py`, without matrix units; `gpu_few.py`, weights that are floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, prod
from typing import Any

import numpy as np

from tilewright.base.errors import ScheduleError
from tilewright.ir.atoms import ATOMS, CROSSED, WARP, Atom, Fragment
from tilewright.schedule.copies import stays_a_copy
from tilewright.schedule.fragment_order import fragment_order
from tilewright.schedule.schedule import Stage
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.steps.digits import DEEPEST
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.schedule.thread_loops import deal, fetch, lanes
from tilewright.targets.limits import Limits
from tilewright.targets.target import Target
from tilewright.te.tensor import ComputeOp, IterVar, Tensor
from tilewright.topi.nn.narrow import LINE
from tilewright.topi.stage import workload_of
from tilewright.topi.templates.gpu import accumulator, op_of, vector_widths
from tilewright.topi.templates.gpu_atoms import SKEW, Axes, M, N, is_constant, operands, tiles
from tilewright.topi.templates.gpu_digits import ATOM, BYTES, Cut, count_of, terms_of
from tilewright.topi.templates.gpu_epilogue import inline_around
from tilewright.topi.templates.gpu_few import APART, STAGES, WHOLE
from tilewright.topi.templates.gpu_rows import gate_of, norm_of, norm_rows
from tilewright.topi.templates.narrow import Operands, operands_of

KINDS = ("cuda",)
TAGS = ("dense_narrow",)
MOST_ROWS = 16
EACH, WARPS = (1, 2, 4), (1, 2, 4)  # atoms of a warp, warps along the columns
UNROLLED = 512  # steps
SHARES = (2, 4, 8, 16)  # warps along the lines
STEPS = (1, 2, 4, 8)  # lines, or groups, of a warp in a slice
# Untuned.
PAIR, WIDE, LOW = (1, 2), (1, 4), (2, 1)  # warps of a block along the columns, atoms of each
BUSY, WAVE = 0.9, 1.5  # blocks for each core, of which some have one, or all do
DEPTH = 128  # of one row, of a warp in a slice, of which there are two at least
MOST_BLOCKS = 4  # of a core at a time
ROOM = 0.95  # of shared memory, for rings and rows that are normed
ROOM_ALONE = 0.55  # of digits, in blocks that are alone on a core: the next kernel's are beside
BLOCK, SLICE = 128 << 10, 40 << 10  # bytes of weights; in rows of digits
WHOLE_NUMBERS = ("int8", "int4")  # kinds of which a byte holds each number
Form = tuple[tuple[int, int], int, int]  # warps of columns and atoms of each, shares, steps
_AXES = Axes((1, 0), -1, 3)  # of sums of lines: few rows, columns, lines


def schedule_narrow_few(cfg: Any, a: Anchored) -> None:
    """rewrite: block: {slices: {rings; warps: board[share, few, many] += scale * line}; C = sum}"""
    s, found = a.schedule, operands_of(a)
    op = op_of(s, a.anchor)
    (rows, columns), (line,) = op.shape, op.reduce_axis
    digits = _in_digits(a, found)
    atom = ATOMS[ATOM] if digits else _atom_for(op, found.data, a.target)
    if rows > MOST_ROWS:
        raise _refused(op, f"it has more than {MOST_ROWS} rows")
    if not all(is_constant(s, t) for t in (found.weight, found.scale)):
        raise _refused(op, "its weights are not constant")
    if line.size < min(SHARES):
        raise _refused(op, "it has few lines")
    end, beside = gate_of(a, 1)
    shapes = tiles(columns, M, EACH, WARPS)
    cfg.define_split("tile_m", -(-columns // M), policy="candidate", candidate=shapes)
    cfg.define_knob("warps_k", [n for n in SHARES if n <= line.size])
    cfg.define_knob("step_k", [n for n in STEPS if n <= line.size])
    cfg.define_knob("stages", STAGES)
    cfg.define_knob("auto_unroll_max_step", [0, UNROLLED])
    shares, step = cfg["warps_k"].val, cfg["step_k"].val
    warps, each = cfg["tile_m"].size[1:]
    norm = norm_of(a, s[found.data], (s[found.part],))
    part, groups = found.part, found.scale.shape[1]
    fits = min(SHARES) <= groups < line.size
    cfg.define_knob("grouped", ([1] if digits else [1, 0]) if fits else [0])
    if bool(cfg["grouped"].val):
        part = s.sum_groups(a.anchor)
    if not norm and not stays_a_copy(found.data):
        raise _refused(op, "its rows are computed")
    cut, sums, fragment = None, a.anchor, atom.a
    if digits:
        cut, norm = Cut.made(a, part, found.data, norm[:-1]), norm[:-1]
        sums, part, apart, fragment = cut.sums, cut.products, cut.numbers, BYTES
    else:
        apart = s.apart(part, str(found.data.dtype))
    (line,) = op_of(s, sums).reduce_axis
    few, many, _ = op_of(s, part).axis
    product = s.pad(part, {few: N, many: M})
    numbers, held = (s[dims.tensor] for dims in operands(op_of(s, product), _AXES))
    assert isinstance(fragment, Fragment)
    weight = s.pack(found.weight, *fragment_order(fragment, 3, (0, 2)))
    scale = s.pack(found.scale, [(2, M // 2), 1], [1, 0, 4, 2])  # those of a lane side by side
    inside = (s[product], numbers, held, *norm, *(cut.stages if cut else ()))
    last = inline_around(a, end, inside)
    if product is not part:
        s[part].compute_inline()
    if cut is not None and held.tensor is not cut.columns:
        s[cut.columns].compute_inline()

    slices, rest = s[sums].split(line, factor=shares * step)
    share, _ = s[sums].split(rest, factor=step)
    board = s.rfactor(sums, share)
    accumulated = accumulator(s, a.anchor, last)
    local = s.cache_write(board, "fragment")
    s[board].set_scope("shared")
    threads = WARP * warps * shares
    root = s[last]
    row, column = root.op.axis[-2:]
    block, inner = root.split(column, factor=M * warps * each // beside)
    root.reorder(block, row, inner)
    root.bind(block, "blockIdx.x")
    thread = deal(root, root.fuse(row, inner), threads, WARP)
    root.pragma(block, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    s[board].compute_at(root, block)
    if cut is None:
        s[board].storage_align(s[board].op.axis[-2], 2 * APART, APART)
    s[accumulated].compute_at(root, thread)
    s[accumulated].unroll(op_of(s, accumulated).reduce_axis[0])
    if cut is not None:
        s[sums].set_scope("local")
        s[sums].compute_at(root, thread)
        (share,) = op_of(s, sums).reduce_axis
        *_, digit = op_of(s, sums).axis
        s[sums].reorder(share, digit)
        s[sums].unroll(share)
        s[sums].unroll(digit)
        near = s[s.cache_read(board, "local", [sums])]
        near.compute_at(s[sums], share)
        outer, access = near.split(near.op.axis[-1], factor=LINE // near.op.dtype.bytes)
        near.unroll(outer)
        near.vectorize(access)
    s[local].compute_at(s[board], _spread(s[board], each, atom, digits))

    stage = s[local]
    slices, line = op_of(s, local).reduce_axis
    stage.reorder(slices, line, *stage.op.axis)
    stage.unroll(line)
    made = s[product]
    made.set_scope("fragment")
    made.compute_at(stage, line)
    half = _atoms(made, atom, digits)
    numbers.set_scope("fragment")
    numbers.compute_at(made, half)
    width = vector_widths(found.data.dtype, a.target)[0]
    if cut is not None:
        cut.schedule(width, (root, block), thread, warps * shares)
    elif norm:
        norm_rows(s, norm, width, (root, block), (WARP, warps * shares))
    else:
        shared = s[s.cache_read(found.data, "shared", [held.tensor])]
        whole = prod(found.data.shape) * found.data.dtype.bytes <= WHOLE
        shared.compute_at(*((root, block) if whole else (stage, slices)))
        skew = SKEW // found.data.dtype.bytes
        shared.storage_align(shared.op.axis[-2], 2 * skew, skew)
        slots = 0 if whole else cfg["stages"].val
        fetch(shared, WARP * warps * shares, width, lanes=WARP, slots=slots)
    held.set_scope("fragment")
    held.compute_at(made, half)
    weights = s[s.cache_read(weight, "shared", [apart])]
    scales = s[s.cache_read(scale, "shared", [local])]
    for copied in (weights, scales):
        copied.compute_at(stage, slices)
    *places, k1, k3, m3, k0 = weights.op.axis
    outer, access = weights.split(weights.fuse(k1, k3, m3, k0), factor=LINE)
    weights.vectorize(access)
    threads, slots = WARP * warps * shares, cfg["stages"].val
    fetch(weights, threads, None, [*places, outer], lanes=WARP, slots=slots)
    fetch(scales, threads, LINE // found.scale.dtype.bytes, lanes=WARP, slots=slots)


def _in_digits(a: Anchored, found: Operands) -> bool:
    """Whether rows are multiplied digit by digit: a few, by whole numbers of a byte in groups."""
    op = op_of(a.schedule, a.anchor)
    groups, lines = found.scale.shape[1], op.reduce_axis[0].size
    depth = found.data.shape[-1] // (groups if groups >= min(SHARES) else lines)
    few = op.shape[0] * count_of(found.data) <= N
    fits = depth % ATOMS[ATOM].extents["k"] == 0 and depth <= DEEPEST
    return few and fits and workload_of(op, 3, 1)[4] in WHOLE_NUMBERS and a.target.allows(ATOM)


def fallback(sketch: Sketch, a: Anchored) -> int:
    """What was fastest of some forms: of one row steps of whole groups, so that a scale counts
    once, and rings as deep as there is room: most of the bytes are there before the kernel may
    begin.  Of large products warps have several atoms where the sums of a group have one scale,
    else two each take one."""
    op, limits = op_of(a.schedule, a.anchor), a.target.limits
    found, knobs = operands_of(a), {n: list(knob) for n, knob in sketch.space.space_map.items()}
    (rows, columns), lines, data = op.shape, op.reduce_axis[0].size, found.data
    depth = data.shape[-1] // lines
    row = rows * depth * data.dtype.bytes  # of a line
    unit = lines // found.scale.shape[1]

    def blocks(tile: tuple[int, int]) -> float:
        """For each core."""
        return float(columns / (M * prod(tile) * limits.cores))

    may_group = bool(knobs["grouped"][0].val)
    if _in_digits(a, found):
        grouped, unit = int(may_group), unit if may_group else 1
        unit *= terms_of(rows, count_of(data), lines // unit, unit * depth)[1]
        tile, shares, step = _of_digits(columns, lines // unit, unit * LINE * M, limits)
        held, row, room = rows * depth * lines * count_of(data), 0, ROOM_ALONE
        shares, step = _most(knobs["warps_k"], shares), _most(knobs["step_k"], step)
    else:
        tile, shares, step = _of_halves(rows, lines, depth, may_group, blocks)
        grouped = int(may_group and step % unit == 0)
        unit, room = unit if grouped else 1, ROOM
        held = row * lines if row * lines <= WHOLE else 0
        held, row = (held, 0 if held else row) if stays_a_copy(data) else (2 * row * lines, row)
        shares, step = _most(knobs["warps_k"], shares), _most(knobs["step_k"], step // unit)
    alone = [e for e in knobs["tile_m"] if e.size[2] <= tile[1] and e.size[1] <= tile[0]]
    fixed = {"tile_m": max(alone, key=lambda e: prod(e.size[1:])).value}
    fixed |= {"auto_unroll_max_step": UNROLLED if _in_digits(a, found) else 0}
    fixed |= {"warps_k": shares, "step_k": step, "grouped": grouped}
    slices = max(-(-lines // (shares * step * unit)), 2)
    resident = min(ceil(blocks(tile)), MOST_BLOCKS)
    free = limits.shared_bytes_per_core * (room if resident == 1 else ROOM) / resident - held
    slots = free / (shares * step * unit * (M * prod(tile) * LINE + row))
    stages = sorted((e.val for e in knobs["stages"]), reverse=True)
    for n in [*(n for n in stages if n <= min(slots, slices)), stages[-1]]:
        index = sketch.space.index_of({**fixed, "stages": n})
        if sketch.legal(np.array([index]))[0]:
            return index
    raise _refused(op, "no ring fits")


def _of_digits(columns: int, terms: int, each: int, limits: Limits) -> Form:
    """A block for each core, which makes the digits once, but no more bytes than BLOCK; few bytes
    are one slice, more come in slices of a term of each warp, of which two fit.

    terms: that are abreast; each: bytes of these, of an atom's columns
    """
    atoms = -(-columns // (M * limits.cores))
    atoms = min(1 << (atoms - 1).bit_length(), max(WARPS) * 2)
    while atoms > 1 and terms * each * atoms > BLOCK:
        atoms //= 2
    warps = max(WARPS) if atoms >= max(WARPS) else 1
    tile, shares = (warps, atoms // warps), max(SHARES) // warps
    if terms * each * atoms <= SLICE:
        shares = min(shares, 1 << (terms.bit_length() - 1))
        return tile, shares, -(-terms // shares)
    resident = min(-(-columns // (M * atoms * limits.cores)), MOST_BLOCKS)
    room = limits.shared_bytes_per_core * ROOM // resident
    while shares > min(SHARES) and (terms < 2 * shares or 2 * shares * each * atoms > room):
        shares //= 2
    return tile, shares, 1


def _of_halves(
    rows: int, lines: int, depth: int, may_group: bool, blocks: Callable[[tuple[int, int]], float]
) -> Form:
    """blocks: of a tile, for each core"""
    wide, step = blocks(PAIR), 2
    tile = PAIR if wide >= BUSY else (1, 1)
    if wide >= WAVE:
        shares, step = 4, 4  # larger ones leave no registers for the kernel behind
    else:
        shares = 16 // tile[1]
    if rows == 1:
        step = max(DEPTH // depth, 1)
        shares = 16 if lines >= 2 * 16 * step else 8
        if wide >= WAVE:
            shares = 4
        if wide >= WAVE and may_group and blocks(WIDE) <= 2:
            tile = WIDE
        elif wide >= WAVE and not may_group and blocks(LOW) <= MOST_BLOCKS:
            tile, shares, step = LOW, 2, 2 * step
    return tile, shares, step


def _most(knob: Sequence[Any], limit: int) -> int:
    """The largest value up to a limit, or the smallest."""
    values = [e.val for e in knob]
    return int(max((n for n in values if n <= limit), default=min(values)))


def _atoms(stage: Stage, atom: Atom, digits: bool) -> IterVar:
    """A line in atoms; returns the loop over its halves."""
    op = stage.op
    assert isinstance(op, ComputeOp)
    few, many, line = op.axis
    *halves, depth = op.reduce_axis
    step, inner = stage.split(depth, factor=atom.extents["k"])
    rows, row = stage.split(many, factor=M)
    columns, column = stage.split(few, factor=N)
    stage.reorder(line, *halves, step, rows, columns, row, column, inner)
    for ax in (*halves, step) if digits else halves:
        stage.unroll(ax)
    stage.tensorize(row, atom.name)
    return step


def _spread(board: Stage, each: Any, atom: Atom, digits: bool) -> IterVar:
    """Warps and lanes of the board, which has columns first where rows are digits; returns the loop
    of lanes."""
    share, few, many = board.op.axis
    if digits:
        few, many = many, few
    warp, inner = board.split(many, factor=M * each)
    board.reorder(share, warp, inner, few)
    board.bind(board.fuse(share, warp), "threadIdx.y")
    lane, *rest, pair = lanes(board, inner, few, atom.name, digits)
    board.reorder(lane, *rest, pair)
    return lane


def _atom_for(op: ComputeOp, data: Tensor, target: Target) -> Atom:
    atom = CROSSED.get(str(data.dtype))
    if atom is not None and target.allows(atom.name):
        return atom
    raise _refused(op, f"{target} multiplies no matrices of {data.dtype}")


def _refused(op: ComputeOp, why: str) -> ScheduleError:
    return ScheduleError(f"template for {op.name}", why, "Other templates compute it.")


anchor_template(
    "dense.narrow.few", kinds=KINDS, tags=TAGS, fallback=fallback, usual=True, special=True
)(schedule_narrow_few)
