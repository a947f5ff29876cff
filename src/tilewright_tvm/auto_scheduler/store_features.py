"""Features of each store of a program, in the layout of TVM's auto-scheduler: 164 numbers a store.

In: a closed schedule.  Out: a row per stage that is stored; `names()` says what its columns are.
Read next: `autotvm/loop_features.py` (AutoTVM's), `cost/features.py` (the project's own, which the
search uses).

Everything is counted from the loop tree; nothing is lowered.  Where TVM counts in its lowered text,
these are ours: arithmetic of indices is not counted (so the int_ columns are those of int values);
a region is the box of the elements, clipped to the tensor; lines count all inner loops that leave
the address alone; guards are not seen.  `mad` columns are 0, and a position is none or mixed, there
and here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.cost.addresses import Point
from tilewright.ir.expr import ARITHMETIC, COMPARE, LOGIC, Expr
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree.loop_tree import Bounds, LoopTree, Node
from tilewright.schedule.tree.resources import pragma_in_force
from tilewright.schedule.tree.touch import Touch, anatomy, atoms
from tilewright.te.tensor import IterVar

Matrix = npt.NDArray[np.float32]
MOST_BUFFERS, LINE_BYTES, SAMPLES = 5, 64, 10
_ARITHMETIC = ("mad", "addsub", "mul", "divmod", "cmp", "mathfunc", "otherfunc")
_POSITIONS = tuple(
    f"kPos{at}"
    for at in (
        "None", "InnerSpatial", "MiddleSpatial", "OuterSpatial", "InnerReduce", "MiddleReduce",
        "OuterReduce", "Mixed",
    )
)  # fmt: skip
_MARKS = (("vec", "vectorize"), ("unroll", "unroll"), ("parallel", "parallel"))
_TAGS = tuple(f"{kind}Idx.{dim}" for kind in ("block", "thread") for dim in "xyz")
_ACCESS = ("kRead", "kWrite", "kReadWrite")
_REUSE = ("kLoopMultipleRead", "kSerialMultipleReadWrite", "kNoReuse")
_SIZES = ("bytes", "unique_bytes", "lines", "unique_lines")
_KINDS = {"add": "addsub", "sub": "addsub", "mul": "mul", "div": "divmod", "mod": "divmod"}


def names(most_buffers: int = MOST_BUFFERS) -> list[str]:
    """What each column is."""
    found = [f"{kind}_{what}" for kind in ("float", "int") for what in _ARITHMETIC]
    found += ["bool_op", "select_op"]
    for mark, _ in _MARKS:
        found += [f"{mark}_num", f"{mark}_prod", f"{mark}_len"]
        found += [f"{mark}_type.{at}" for at in _POSITIONS]
    found += ["is_gpu", *(f"{tag.replace('.', '_')}_len" for tag in _TAGS), "vthread_len"]
    for k in range(most_buffers):
        columns = [*(f"acc_type.{kind}" for kind in _ACCESS), *_SIZES]
        columns += [f"reuse_type.{kind}" for kind in _REUSE]
        columns += ["reuse_dis_iter", "reuse_dis_bytes", "reuse_ct"]
        columns += [*(f"{size}_d_reuse_ct" for size in _SIZES), "stride"]
        found += [f"B{k}.{column}" for column in columns]
    found += [f"arith_intensity_curve_{k}" for k in range(SAMPLES)]
    found += ["alloc_size", "alloc_prod", "alloc_outer_prod", "alloc_inner_prod"]
    return [*found, "outer_prod", "num_loops", "auto_unroll_max_step"]


def store_features(schedule: Schedule, most_buffers: int = MOST_BUFFERS) -> Matrix:
    """float32 [stores, columns]: log2 of 1 + x, but one-hot columns as they are.

    Raises ScheduleError for a schedule that is not finished, SpaceError where a decision is open.
    """
    bounds = LoopTree(schedule).bounds()
    known: _Regions = defaultdict(lambda: defaultdict(list))
    rows = [_Store(bounds, node, known).row(most_buffers) for node in bounds.tree.nodes]
    columns, table = names(most_buffers), np.zeros((len(rows), len(names(most_buffers))))
    for into, row in zip(table, rows, strict=True):
        into[:] = [row.get(column, 0.0) for column in columns]
    plain = [k for k, column in enumerate(columns) if "type." in column or column == "is_gpu"]
    scaled = np.sign(table) * np.log2(1 + np.abs(table))
    scaled[:, plain] = table[:, plain]
    return np.asarray(scaled, np.float32)


# Loop -> buffer -> (elements, bytes of one) of each store inside it that touches the buffer so far.
_Regions = defaultdict[IterVar, defaultdict[Any, list[tuple[int, int]]]]


@dataclass(frozen=True, eq=False)
class _Buffer:
    """What one store touches of one buffer; kind: of `_ACCESS`; regions: elements, by depth."""

    key: Any
    kind: str
    touches: list[Touch]
    regions: list[int]
    moved: frozenset[IterVar]

    @property
    def bytes(self) -> int:
        return self.touches[0].bytes


class _Store:
    """The store of a stage's elements, inside its loops."""

    def __init__(self, bounds: Bounds, node: Node, known: _Regions) -> None:
        self.bounds, self.node, self.known = bounds, node, known
        path = [ax for _, ax in reversed(bounds.tree.path(node))]
        self.every = [*path, *node.stage.leaf_iter_vars]
        again = _bound_again(bounds, self.every)
        around = [ax for ax in path if ax not in again]
        self.loops = [ax for ax in self.every if ax not in again]
        self.lengths = [int(bounds.extent[ax]) for ax in self.loops]
        self.around = math.prod(self.lengths[: len(around)])
        self.runs = math.prod(self.lengths)
        self.buffers = self._buffers()
        for depth, ax in enumerate(self.loops):
            for buffer in self.buffers:
                known[ax][buffer.key].append((buffer.regions[depth], buffer.bytes))

    def row(self, most_buffers: int) -> dict[str, float]:
        counts = self._arithmetic()
        found: dict[str, float] = {name: n * self.runs for name, n in counts.items()}
        found |= self._loops()
        ranked = sorted((self._access(b) for b in self.buffers), key=_by_lines)
        for k, columns in enumerate(ranked[:most_buffers]):
            found |= {f"B{k}.{name}": value for name, value in columns.items()}
        each = sum(n for name, n in counts.items() if name.startswith("float_"))
        found |= self._curve(each)
        if not self.node.stage.is_output:
            size = math.prod(int(n) for n in self.bounds.region(self.node))
            found["alloc_size"] = size * self.node.op.bytes
            found["alloc_prod"], found["alloc_outer_prod"] = size * self.around, self.around
            found["alloc_inner_prod"] = self.runs / max(self.around, 1)
        found["outer_prod"], found["num_loops"] = self.runs, len(self.loops)
        return found

    # -- parts -------------------------------------------------------------------------------------
    def _arithmetic(self) -> Mapping[str, int]:
        """Operations of one iteration."""
        counts: dict[str, int] = defaultdict(int)
        op = self.node.op
        body = self.node.body if op.combiner is None else op.reduced
        _count(body, counts)
        if op.combiner is not None:
            _count(op.combiner.result, counts)
        return counts

    def _loops(self) -> dict[str, float]:
        """Marks of the loops around, blocks and threads, the pragma in force."""
        tree, found = self.bounds.tree, {}
        hows = [tree.stage_of_axis[ax].stage.annotations.get(ax, "") for ax in self.loops]
        tags = [tree.tag_of.get(ax, "") for ax in self.loops]
        for mark, how in _MARKS:
            lengths = [n for n, own in zip(self.lengths, hows, strict=True) if own == how]
            found[f"{mark}_num"] = float(len(lengths))
            found[f"{mark}_prod"] = float(math.prod(lengths)) if lengths else 0.0
            found[f"{mark}_len"] = float(lengths[-1]) if lengths else 0.0
            found[f"{mark}_type.kPos{'Mixed' if lengths else 'None'}"] = 1.0
        found["is_gpu"] = float(any(tags))
        for tag in _TAGS:
            lengths = [
                int(self.bounds.extent[ax]) for ax in self.every if tree.tag_of.get(ax) == tag
            ]
            found[f"{tag.replace('.', '_')}_len"] = float(max(lengths, default=1))
        virtual = [n for n, own in zip(self.lengths, tags, strict=True) if own == "vthread"]
        found["vthread_len"] = float(math.prod(virtual))
        limit = pragma_in_force(self.node, self.loops[-1], {}) if self.loops else 0
        found["auto_unroll_max_step"] = float(limit)
        return found

    def _buffers(self) -> list[_Buffer]:
        known, grouped = anatomy(self.bounds.tree), defaultdict(list)
        write = known.write[self.node]
        for touch in (write, *known.reads[self.node]):
            grouped[touch.producer or touch.tensor].append(touch)
        found = []
        for key, touches in grouped.items():
            own = key is self.node
            kind = _ACCESS[0 if not own else 1 if self.node.op.combiner is None else 2]
            moved = frozenset().union(*(self._moves(t) for t in touches))
            found.append(_Buffer(key, kind, touches, self._regions(touches), moved))
        return found

    def _moves(self, touch: Touch) -> frozenset[IterVar]:
        """Loops whose steps change which element of the tensor it is."""
        under = self.bounds.tree.leaves_under
        return frozenset().union(
            *(under[atom] for atom in atoms(self.bounds, touch.node, touch.axes))
        )

    def _regions(self, touches: Sequence[Touch]) -> list[int]:
        """Elements within the loops from each depth on, and within none."""
        zero = Point(self.bounds, {})
        sizes = touches[0].tensor.shape
        boxes = []
        for touch in touches:
            starts = [float(zero.position(touch, d)) for d in range(len(sizes))]
            boxes.append((touch, starts, list(starts)))
        found = [1]
        for ax, length in zip(reversed(self.loops), reversed(self.lengths), strict=True):
            end = Point(self.bounds, {ax: length - 1})
            for touch, starts, ends in boxes:
                if length > 1 and ax in self._moves(touch):
                    for d in range(len(sizes)):
                        ends[d] += abs(float(end.position(touch, d)) - starts[d])
            total = 1
            for d, size in enumerate(sizes):
                low, high = min(s[d] for _, s, _ in boxes), max(e[d] for _, _, e in boxes)
                total *= min(int(high - low) + 1, size)
            found.append(total)
        return found[::-1]

    def _access(self, buffer: _Buffer) -> dict[str, float]:
        """The columns of one buffer."""
        size, unique = buffer.bytes, float(buffer.regions[0] * buffer.bytes)
        stride, at = self._stride(buffer)
        still = math.prod(self.lengths[at + 1 :])  # inner loops that leave the address alone
        lines = max(self.runs / still * min(1.0, stride * size / LINE_BYTES), 1.0)
        row = buffer.touches[0].tensor.shape
        joined = int(row[-1]) * size if row and buffer.regions[0] >= int(row[-1]) else size
        kind, iterations, distance, count = self._reuse(buffer)
        sizes = (float(self.runs * size), unique, lines, max(unique / min(joined, LINE_BYTES), 1.0))
        found = {f"acc_type.{buffer.kind}": 1.0, f"reuse_type.{kind}": 1.0}
        found |= dict(zip(_SIZES, sizes, strict=True))
        found |= {"reuse_dis_iter": iterations, "reuse_dis_bytes": distance, "reuse_ct": count}
        for name, value in zip(_SIZES, sizes, strict=True):
            found[f"{name}_d_reuse_ct"] = value / count if count else value * 2
        innermost = at == len(self.loops) - 1
        return found | {"stride": stride if innermost else 0.0}

    def _stride(self, buffer: _Buffer) -> tuple[float, int]:
        """Of the innermost loop that moves the address, and which loop that is."""
        zero = Point(self.bounds, {})
        for at in range(len(self.loops) - 1, -1, -1):
            if self.loops[at] not in buffer.moved or self.lengths[at] < 2:
                continue
            one = Point(self.bounds, {self.loops[at]: 1})
            found = [abs(float(one.address(t)) - float(zero.address(t))) for t in buffer.touches]
            if any(found):
                return min(n for n in found if n), at
        return 0.0, -1

    def _reuse(self, buffer: _Buffer) -> tuple[str, float, float, float]:
        """(kind, iterations and bytes between two uses, uses)."""
        iterations, distance = 1.0, -1.0
        for at in range(len(self.loops) - 1, -1, -1):
            ax, length = self.loops[at], self.lengths[at]
            touched = self.known[ax]
            if ax not in buffer.moved:
                if distance < 0:  # it is the innermost loop
                    distance = float(sum(b for parts in touched.values() for _, b in parts))
                return _REUSE[0], iterations, distance, float(length)
            iterations *= length
            distance = float(sum(n * b for parts in touched.values() for n, b in parts))
            others = len(touched[buffer.key]) - 1
            if others > 0:
                least = min(n for n, _ in touched[buffer.key])
                return _REUSE[1], least / length, distance / length, float(others)
        return _REUSE[2], 0.0, 0.0, 0.0

    def _curve(self, each: int) -> dict[str, float]:
        """Arithmetic per byte against arithmetic, from the innermost loop outwards."""
        done, points = float(each), []
        for at in range(len(self.loops) - 1, -1, -1):
            done *= self.lengths[at]
            moved = sum(b.regions[at] * b.bytes for b in self.buffers)
            points.append((done, done / max(moved, 1)))
        if not points or not each:
            return {}
        xs, ys = zip(*points, strict=True)
        samples = [xs[-1] * (k + 1) / SAMPLES for k in range(SAMPLES)]
        values = np.interp(samples, xs, ys)
        return {f"arith_intensity_curve_{k}": float(v) for k, v in enumerate(values)}


def _bound_again(bounds: Bounds, loops: Sequence[IterVar]) -> set[IterVar]:
    """Loops over an index that a loop further in has, too: the threads that run the one share the
    work of the other, so it is done once for all of them."""
    tags = [bounds.tree.tag_of.get(ax, "") for ax in loops]
    return {ax for k, ax in enumerate(loops) if tags[k] in _TAGS and tags[k] in tags[k + 1 :]}


def _by_lines(columns: Mapping[str, float]) -> tuple[float, float]:
    return -columns["lines"], -columns["bytes"]


def _count(e: Expr, into: dict[str, int]) -> None:
    """Operations of an expression; indices are not looked at."""
    if e.op in ("read", "var", "const"):
        return
    for arg in e.args:
        _count(arg, into)
    if e.op in ("select", "if_then_else"):
        into["select_op"] += 1
    elif e.op in LOGIC:
        into["bool_op"] += 1
    elif e.op in ARITHMETIC or e.op in COMPARE or e.op == "call":
        kinds = {a.dtype.kind for a in e.args}
        kind = "float" if kinds & {"float", "bfloat"} else "int"
        what = _KINDS.get(e.op, "mathfunc" if e.op == "call" else "cmp")
        into[f"{kind}_{what}"] += 1
