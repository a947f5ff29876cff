"""Features of loops, as AutoTVM's tuners see a candidate: `itervar` and `curve`.

In: a `Group` of candidates of one structure.  Out: float32 [n, width]; the width depends on the
structure; or the same numbers by loop and name.  Everything is counted from the loop tree, nothing
is lowered.
Read next: `cost/features.py` (the project's own), `feature_types.py`.

`itervar` has a row per loop, in the order of the text: log2 of its length, its depth, log2 of the
product of the lengths around it (itself included) and of the iterations inside it, its mark one-hot
over `MARKS`, log2 of the additions, multiplications and divisions of its statements; then, for each
access inside it, by the name of the buffer: stride, modulus, count, reuse, and count and reuse over
the parallel loops alone.  log2 is of x + 1, with the sign of x.

`curve` takes the accesses of the innermost loops, one per tensor, and samples how count, reuse and
the product of lengths grow from loop to loop: count -> reuse, reuse -> count, count -> product,
product -> count, each at log2 = 0, 1, ..., as (value, distance to the sample).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.concurrency import cached_property
from tilewright.cost.addresses import Point, vector
from tilewright.ir import expr as E
from tilewright.schedule.sketch import Group
from tilewright.schedule.space.decision import Number
from tilewright.schedule.tree.loop_tree import Bounds, Node
from tilewright.schedule.tree.touch import Touch, anatomy, moved_dimensions, strides
from tilewright.te.tensor import IterVar

Matrix = npt.NDArray[np.float32]
Vectors = npt.NDArray[np.float64]
MARKS = (
    "blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z",
    "unroll", "vectorize", "parallel", "", "vthread",
)  # fmt: skip
# Loops that run side by side: the greater, the further out.
_LEVEL = {"blockIdx": 2, "threadIdx": 1, "parallel": 1}
SAMPLES = 20  # of a curve, where nobody says
_COUNTED = {"add": 0, "sub": 0, "mul": 1, "div": 2, "mod": 2}
_NO_MODULUS = -1


@dataclass(eq=False)
class _Loop:
    """A loop where it stands in the text.  arithmetic: additions, multiplications, divisions of
    the statements right inside it; accesses: all inside it
    """

    axis: IterVar
    parent: _Loop | None
    depth: int
    mark: str
    arithmetic: list[int] = field(default_factory=lambda: [0, 0, 0])
    accesses: list[_Access] = field(default_factory=list)

    @cached_property
    def level(self) -> int:
        return _LEVEL.get(self.mark.partition(".")[0], 0)


@dataclass(eq=False)
class _Access:
    """name: of the buffer, with a number that tells its accesses apart; loops: those around it"""

    name: str
    touch: Touch
    loops: tuple[_Loop, ...]

    @property
    def tensor(self) -> str:
        """What the buffer is a copy of."""
        return self.name.rpartition("_")[0].partition(".")[0]


@dataclass(frozen=True)
class LoopRow:
    """The numbers of one loop as they are: ints, or vectors [n] where candidates differ.

    attributes: length, depth, product of the lengths around, iterations inside, the mark one-hot
    arithmetic: additions, multiplications, divisions
    accesses: by name: stride, modulus, count, reuse, count and reuse of the parallel loops alone
    """

    axis: IterVar
    attributes: tuple[Any, ...]
    arithmetic: tuple[int, ...]
    accesses: dict[str, tuple[Any, ...]]


def itervar_rows(group: Group) -> list[LoopRow]:
    """A row for each loop, in the order of the text."""
    numbers = _Numbers(group.bounds)
    found = []
    for loop in numbers.loops:
        sizes = numbers.length(loop), loop.depth, numbers.product(loop), numbers.inside(loop)
        marks = tuple(int(loop.mark == mark) for mark in MARKS)
        accesses = sorted(loop.accesses, key=lambda a: a.name)
        patterns = {a.name: numbers.pattern(a, loop) for a in accesses}
        found.append(LoopRow(loop.axis, (*sizes, *marks), tuple(loop.arithmetic), patterns))
    return found


_PLAIN = (1, *range(4, 4 + len(MARKS)))  # attributes that are no logarithms: depth and marks


def logarithms(row: LoopRow) -> LoopRow:
    """The row with log2 of x + 1 for sizes, counts and strides; depth and marks stay."""
    length, depth, around, inside, *marks = row.attributes
    attributes = _log(length), depth, _log(around), _log(inside), *marks
    accesses = {name: tuple(map(_log, pattern)) for name, pattern in row.accesses.items()}
    return LoopRow(row.axis, attributes, tuple(map(_log, row.arithmetic)), accesses)


def itervar_features(group: Group) -> Matrix:
    """float32 [n, width], see the head of the module."""
    columns: list[Any] = []
    plain: list[int] = []
    for row in itervar_rows(group):
        plain += [len(columns) + k for k in _PLAIN]
        columns += [*row.attributes, *row.arithmetic, *chain(*row.accesses.values())]
    rows = _stacked(columns, len(group.rows))
    found = _log(rows)
    found[plain] = rows[plain]
    return np.ascontiguousarray(found.T, np.float32)


def curve_features(group: Group, samples: int = SAMPLES) -> Matrix:
    """float32 [n, width], see the head of the module."""
    numbers, rows = _Numbers(group.bounds), len(group.rows)
    columns: list[Any] = []
    for access in sorted(_innermost(numbers.loops), key=lambda a: a.name):
        points = [numbers.point(access, loop) for loop in access.loops]
        count, reuse, product = (_curve([p[k] for p in points], rows) for k in range(3))
        for x, y in ((count, reuse), (reuse, count), (count, product), (product, count)):
            columns += _samples(x, y, samples)
    return np.ascontiguousarray(_stacked(columns, rows).T, np.float32)


class _Numbers:
    """The numbers of loops and accesses for the candidates of a group."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.loops = list(_loops(bounds))
        self._zero = Point(bounds, {})
        self._one: dict[IterVar, Point] = {}
        self._origin: dict[tuple[_Access, int], Any] = {}
        self._moves: dict[_Access, dict[IterVar, list[int]]] = {}
        self._strides: dict[_Access, list[Number]] = {}
        self._products: dict[_Loop, Any] = {}
        self._inner: dict[tuple[_Access, int], tuple[Any, Any]] = {}

    def length(self, loop: _Loop) -> Any:
        return self.bounds.extent[loop.axis]

    def product(self, loop: _Loop) -> Any:
        """Of the lengths of the loops around, itself included."""
        if loop not in self._products:
            around = 1 if loop.parent is None else self.product(loop.parent)
            self._products[loop] = around * self.length(loop)
        return self._products[loop]

    def inside(self, loop: _Loop) -> Any:
        """Iterations of the busiest statement inside."""
        most: Any = -1
        for access in loop.accesses:
            count, reuse = self._within(access, loop.depth - 1)
            most = np.maximum(most, count * reuse)
        return most

    def point(self, access: _Access, loop: _Loop) -> tuple[Any, Any, Any]:
        """count, reuse, and the product of lengths, for a curve."""
        return (*self._within(access, loop.depth - 1), self.product(loop))

    def pattern(self, access: _Access, loop: _Loop) -> tuple[Any, ...]:
        """stride, modulus, count, reuse, and the last two of the parallel loops alone."""
        stride = self._stride(access, loop.axis)
        end = self._end_of_level(access, loop)
        threads = (0, 0) if end is None else self._split(access, loop.depth - 1, end)
        return (stride, _NO_MODULUS, *self._within(access, loop.depth - 1), *threads)

    def _end_of_level(self, access: _Access, loop: _Loop) -> int | None:
        """Where the loops of this level end, directly around those of the next."""
        loops = access.loops
        if loop.level:
            for k in range(loop.depth, len(loops)):
                if loops[k - 1].level == loop.level and loops[k].level == loop.level - 1:
                    return k
        return None

    def _within(self, access: _Access, start: int) -> tuple[Any, Any]:
        """`_split` of all loops from there on."""
        key = access, start
        if key not in self._inner:
            if start == len(access.loops):
                self._inner[key] = 1, 1
            else:
                inner, own = self._within(access, start + 1), self._split(access, start, start + 1)
                self._inner[key] = own[0] * inner[0], own[1] * inner[1]
        return self._inner[key]

    def _split(self, access: _Access, start: int, end: int) -> tuple[Any, Any]:
        """Products of the loops that move the access, and of those that do not."""
        moved, count, reuse = self._moved(access), 1, 1
        for loop in access.loops[start:end]:
            if loop.axis in moved:
                count = count * self.length(loop)
            else:
                reuse = reuse * self.length(loop)
        return count, reuse

    def _moved(self, access: _Access) -> dict[IterVar, list[int]]:
        """The loops that move the access, and the dimensions in which they do."""
        if access not in self._moves:
            self._moves[access] = moved_dimensions(self.bounds, access.touch)
        return self._moves[access]

    def _stride(self, access: _Access, axis: IterVar) -> Any:
        if axis not in self._one:
            self._one[axis] = Point(self.bounds, {axis: 1})
        if access not in self._strides:
            self._strides[access] = strides(self.bounds, access.touch)
        one, total = self._one[axis], 0
        for dim in self._moved(access).get(axis, ()):
            step = one.index(access.touch, dim) - self._start(access, dim)
            total = total + step * vector(self._strides[access][dim])
        return total

    def _start(self, access: _Access, dim: int) -> Any:
        """Where it is in a dimension when all loops begin."""
        if (access, dim) not in self._origin:
            self._origin[access, dim] = self._zero.index(access.touch, dim)
        return self._origin[access, dim]


def _loops(bounds: Bounds) -> Iterator[_Loop]:
    """All loops in the order of the text, with what they hold."""
    seen: Counter[str] = Counter()
    found: list[_Loop] = []
    for root in bounds.tree.roots:
        _visit(bounds, root, (), found, seen)
    return iter(found)


def _visit(
    bounds: Bounds, node: Node, around: tuple[_Loop, ...], found: list[_Loop], seen: Counter[str]
) -> None:
    stage = node.stage
    for axis in stage.leaf_iter_vars:
        mark = bounds.tree.tag_of.get(axis) or stage.annotations.get(axis, "")
        loop = _Loop(axis, around[-1] if around else None, len(around) + 1, mark)
        found.append(loop)
        around = (*around, loop)
        for child in node.children:
            if child.attach_axis is axis:
                _visit(bounds, child, around, found, seen)
    known = anatomy(bounds.tree)
    own = known.write[node]
    if around:
        for n in E.walk(node.body):
            if n.op in _COUNTED and n.dtype.startswith(("float", "bfloat")):
                around[-1].arithmetic[_COUNTED[n.op]] += 1
        around[-1].arithmetic[0] += node.op.combiner is not None
    for touch in (*known.reads[node], *[own] * (1 + (node.op.combiner is not None))):
        buffer = touch.producer.name if touch.producer is not None else touch.tensor.name
        access = _Access(f"{buffer}_{seen[buffer]}", touch, around)
        seen[buffer] += 1
        for loop in around:
            loop.accesses.append(access)


def _innermost(loops: list[_Loop]) -> list[_Access]:
    """The accesses of the deepest loops, of each tensor those of the last loop."""
    deepest = max((loop.depth for loop in loops), default=0)
    found: dict[str, _Access] = {}
    for loop in reversed(loops):
        if loop.depth == deepest:
            for access in sorted(loop.accesses, key=lambda a: a.name):
                found.setdefault(access.tensor, access)
    return list(found.values())


def _curve(values: list[Any], rows: int) -> Vectors:
    """log2 of the values in ascending order, after a first 0: [len(values) + 1, rows]."""
    table = np.zeros((len(values) + 1, rows))
    for k, value in enumerate(values):
        table[k + 1] = np.log2(np.maximum(value, 1))
    return np.sort(table, axis=0)


def _samples(x: Vectors, y: Vectors, count: int) -> Iterator[Any]:
    """At each sample: y of the last point that is not beyond it, and how far it is behind."""
    at = np.arange(count, dtype=float)[:, None]
    last = (x < at[:, None] + 1e-6).sum(axis=1) - 1
    found, behind = np.take_along_axis(y, last, 0), at - np.take_along_axis(x, last, 0)
    return chain.from_iterable(zip(found, behind, strict=True))


def _log(x: Any) -> Any:
    """log2 of |x| + 1, with the sign of x."""
    if not isinstance(x, np.ndarray):
        return math.copysign(math.log2(abs(x) + 1.0), x)
    return np.sign(x) * np.log2(np.abs(x) + 1.0)


def _stacked(columns: list[Any], rows: int) -> Vectors:
    """[columns, rows]"""
    out = np.zeros((len(columns), rows))
    for row, values in zip(out, columns, strict=True):
        row[:] = values
    return out
