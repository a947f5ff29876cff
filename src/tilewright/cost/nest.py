"""Loops around and inside each stage, with their lengths, and how often everything runs.

In: the resources of a kernel.  Out: `Nest` per stage: loops from the outside in, how many loads are
left after those that the resources say are written out, and what indices cost.
Read next: `gpu_facts.py`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce, wraps
from typing import Any, TypeVar

import numpy as np

from tilewright.cost.addresses import Point, Steps, floor_div, floor_mod, vector
from tilewright.cost.atom_facts import operand_of
from tilewright.ir import expr as E
from tilewright.ir.expr import ARITHMETIC, COMPARE, LOGIC, Expr
from tilewright.schedule.space.decision import ceil_div, maximum, minimum, where
from tilewright.schedule.state import FuseRelation, SplitRelation
from tilewright.schedule.tree.loop_tree import Node
from tilewright.schedule.tree.resources import KernelResources
from tilewright.schedule.tree.touch import (
    Anatomy,
    Touch,
    anatomy,
    atoms,
    moved_dimensions,
    moves,
    shape,
)
from tilewright.te.tensor import IterVar

T = TypeVar("T")
CALL_COST = 16  # instructions of exp and its like
POWER_COST = 3  # of exp where it is a power of two: see lowering/powers.py


def _once_a_node(function: Callable[[Node], T]) -> Callable[[Node], T]:
    """Remember what a function says of a node, which is the same for every population."""
    known: weakref.WeakKeyDictionary[Node, T] = weakref.WeakKeyDictionary()

    @wraps(function)
    def asked(node: Node) -> T:
        found = known.get(node)
        if found is None:
            found = known[node] = function(node)
        return found

    return asked


@dataclass(frozen=True, eq=False)
class Loop:
    """tag: block, thread or vthread it is bound to; how: its annotation; own: not a parent's.

    unrolled: it and everything inside it is written out (a mask)
    """

    node: Node
    axis: IterVar
    extent: Any
    tag: str
    how: str
    own: bool
    unrolled: Any

    @property
    def serial(self) -> bool:
        """Run through by each thread, virtual threads included."""
        return not self.tag or self.tag == "vthread"


class Nest:
    """The loops of one stage, outermost first: those around its attach point, then its own.

    origin: the iteration with all axes at zero, one for all nests of a kernel
    guards: for every comparison that guards a read, the root axes it looks at
    operand: how a warp holds what the stage copies for an atom, if it does: its loops step from
            tile to tile, of which each lane fetches its elements, and are written out.  Loops
            inside an atom are none
    apart:  1 where the lanes of the vectorised loop are no vector on a GPU: they differ in guards,
            or their fused index has to be taken apart one by one; else 0
    """

    def __init__(self, node: Node, kernel: KernelResources, origin: Point) -> None:
        self.node, self.kernel, self.bounds, self.origin = node, kernel, kernel.bounds, origin
        self.anatomy: Anatomy = anatomy(self.bounds.tree)
        self.reads = self.anatomy.reads[node]
        self.write = self.anatomy.write[node]
        self.moves = {t: moves(self.bounds, t) for t in (*self.reads, self.write)}
        tree, bounds = self.bounds.tree, self.bounds
        path = [
            Loop(owner, ax, vector(bounds.extent[ax]), tree.tag_of.get(ax, ""),
                 owner.stage.annotations.get(ax, ""), False, False)
            for owner, ax in reversed(tree.path(node))
        ]  # fmt: skip
        self.path = path
        self.operand = operand_of(node)
        self.guards = _guards(self)
        self.apart: Any = 0
        self._courses: dict[IterVar, Course] = {}
        self._strides: dict[tuple[Touch, IterVar], Any] = {}
        self._zero = Steps(self.bounds, {})
        self.own = self._own_loops()
        self.loops = [*path, *self.own]
        self.vector = next((lp for lp in self.own if lp.how == "vectorize"), None)

    def _own_loops(self) -> list[Loop]:
        node, extents = self.node, self.bounds.extent
        annotations, leaves = node.stage.annotations, node.stage.leaf_iter_vars
        lanes: Any = 1
        for ax in leaves if self.kernel.target.has_threads else ():
            if annotations.get(ax) == "vectorize":
                loop = Loop(node, ax, vector(extents[ax]), "", "vectorize", True, True)
                course = self._course(loop)
                self.apart = greatest((*course.divisions.values(), *course.tests))
                lanes = where(self.apart > 0, extents[ax], 1)
        written = self.kernel.written_out(node, lanes)
        result: list[Loop] = []
        still: Any = True
        for ax in reversed(leaves):
            if node.stage.inside_atom(ax):
                continue
            tag = self.bounds.tree.tag_of.get(ax, "")
            if not tag or tag == "vthread":
                still = still & (written[ax] if self.operand is None else True)
            extent, how = vector(self.bounds.trips(node, ax)), annotations.get(ax, "")
            result.append(Loop(node, ax, extent, tag, how, True, still))
        return result[::-1]

    def _of_a_lane(self, count: Any) -> Any:
        """Of each tile of an operand a lane has some elements."""
        return count if self.operand is None else count * self.operand.fragment.elements

    def product(self, loops: Iterable[Loop]) -> Any:
        total: Any = 1
        for lp in loops:
            total = total * lp.extent
        return total

    @property
    def executions(self) -> Any:
        """How often one thread (or one block, for shared memory) runs the stage's own loops."""
        shared = self.node.scope == "shared"
        total: Any = 1
        for lp in self.path:
            if not lp.tag:
                total = total * lp.extent
        if not shared:
            total = total * vector(self.bounds.replicas(self.node))
        return total

    @property
    def trips(self) -> Any:
        """Iterations of its own serial loops, each time it runs: those of one lane."""
        return self._of_a_lane(self.product(lp for lp in self.own if lp.serial))

    @property
    def body(self) -> Any:
        """Innermost statements that are written out."""
        total: Any = 1
        for lp in self.own:
            if lp.serial and lp.how != "vectorize":
                total = total * where(lp.unrolled, lp.extent, 1)
        return total

    @property
    def rolled(self) -> Any:
        """Iterations of the innermost loop that stays a loop, each time it runs."""
        total: Any = 1
        for lp in self.own:
            if lp.serial and lp.how != "vectorize":
                total = total * where(lp.unrolled, 1, lp.extent)
        return total

    def loads(self, touch: Touch, *, vector_factor: Any = 1) -> Any:
        """Loads of one thread each time the stage runs; equal ones in a body count once.

        vector_factor: how many the vectorised loop takes, where the address moves with it
        """
        total: Any = 1
        used = atoms(self.bounds, touch.node, touch.axes)
        for lp in self.path:  # virtual threads are part of every body
            for part in self._parts(lp.node, lp.axis) if lp.tag == "vthread" else ():
                if part not in used:
                    total = total / vector(self.bounds.extent[part])
        for lp in self.own:
            if not lp.serial:
                continue
            moved = lp.axis in self.moves[touch]
            if lp.how == "vectorize":
                total = total * (vector_factor if moved else 1)
            else:
                total = total * (lp.extent if moved else where(lp.unrolled, 1, lp.extent))
        return self._of_a_lane(total)

    def tile(self, kind: str) -> Any:
        """Product of the written-out loops of a kind ("spatial", "reduce"), without the vector."""
        total: Any = 1
        for lp in self.own:
            if lp.serial and lp.how != "vectorize" and lp.axis.kind == kind:
                total = total * where(lp.unrolled, lp.extent, 1)
        return total

    def index_work(self) -> tuple[Any, Any]:
        """Divisions of fused indices, and comparisons, that each iteration does anew."""
        divisions: dict[FuseRelation, Any] = {}
        tests: list[Any] = [0] * len(self.guards)
        for lp in self.own:
            if not lp.serial:
                continue
            course = self._course(lp)
            tests = [maximum(a, b) for a, b in zip(tests, course.tests, strict=True)]
            for r, mask in course.divisions.items():
                divisions[r] = maximum(divisions.get(r, 0), mask)
        return sum(divisions.values()), sum(tests)

    def _course(self, loop: Loop) -> Course:
        if loop.axis not in self._courses:
            self._courses[loop.axis] = Course(self, loop)
        return self._courses[loop.axis]

    def _parts(self, node: Node, axis: IterVar) -> list[IterVar]:
        """The axes that were fused into this one, or itself."""
        for r in node.stage.relations:
            if isinstance(r, FuseRelation) and r.fused is axis:
                return [*self._parts(node, r.outer), *self._parts(node, r.inner)]
        return [axis]

    def stride(self, touch: Touch, axis: IterVar) -> Any:
        """Elements between the addresses of iterations 0 and 1 of one of the stage's axes."""
        if not self.moves[touch] & self.bounds.tree.leaves_under[axis]:
            return 0
        if (touch, axis) not in self._strides:
            one = Steps(self.bounds, {axis: 1})
            self._strides[touch, axis] = one.address(touch) - self._zero.address(touch)
        return self._strides[touch, axis]


class Course:
    """What one serial loop of a stage does to the axes its indices are made of.

    divisions: fuse relation -> 1 where each iteration takes the index apart anew, by a division,
               else 0: the loop's steps are neither whole rows of the inner axis nor within one
    tests:     for each guard, 1 where an axis it looks at moves, else 0
    """

    def __init__(self, nest: Nest, loop: Loop) -> None:
        self.nest, self.loop = nest, loop
        self.leaves_under = nest.bounds.tree.leaves_under
        self._known: dict[IterVar, tuple[Any, Any]] = {}
        self.divisions: dict[FuseRelation, Any] = {}
        self.tests = [greatest(self._moves(axis) for axis in axes) for axes in nest.guards]
        for r in nest.node.stage.relations:
            if isinstance(r, FuseRelation) and loop.axis in self.leaves_under[r.fused]:
                anew = (loop.extent > 1) * (1 - self._step(r.outer)[1])
                self.divisions[r] = anew * self._matters(r) if np.any(anew) else 0

    def _moves(self, axis: IterVar) -> Any:
        """1 where the value of an axis of any level changes, else 0."""
        if self.loop.axis not in self.leaves_under[axis]:
            return 0
        step, sure = self._step(axis)
        return (self.loop.extent > 1) * maximum(minimum(step, 1), 1 - sure)

    def _matters(self, r: FuseRelation) -> Any:
        """1 where the parts of the fused index do; 0 where memory is laid out like the index."""
        nest = self.nest
        if nest.guards:
            return 1
        inner = vector(nest.bounds.extent[r.inner])
        return greatest(
            1 * (nest.stride(t, r.outer) != inner * nest.stride(t, r.inner)) for t in nest.reads
        )

    def _step(self, axis: IterVar) -> tuple[Any, Any]:
        """By how much the axis moves at each iteration, and 1 where that is so at all, else 0."""
        if axis not in self._known:
            moving = self.loop.axis in self.leaves_under[axis]
            self._known[axis] = self._derive(axis) if moving else (0, 1)
        return self._known[axis]

    def _derive(self, axis: IterVar) -> tuple[Any, Any]:
        r = self.nest.anatomy.relation.get(axis)
        if r is None:
            return 1, 1
        if isinstance(r, SplitRelation):
            outer, sure = self._step(r.outer)
            inner, also = self._step(r.inner)
            return outer * vector(self.nest.bounds.factor[r]) + inner, sure * also
        step, sure = self._step(r.fused)
        outer, inner = (vector(self.nest.bounds.extent[ax]) for ax in (r.outer, r.inner))
        rows = floor_div(step, inner)
        rest = step - rows * inner
        span = step * self.loop.extent
        # Steps within a row straddle none where no outer loop shifts them.
        within = (rows == 0) & (floor_mod(inner, maximum(step, 1)) == 0)
        fixed = (floor_mod(inner, maximum(span, 1)) == 0) | (span >= outer * inner)
        whole = (rest == 0) | (within & fixed)
        smooth = maximum(sure * whole, 1 * ((inner == 1) | (outer == 1)))
        self._known[r.outer], self._known[r.inner] = (rows, smooth), (rest, smooth)
        return self._known[axis]


def greatest(values: Iterable[Any]) -> Any:
    """Per candidate; 0 of none."""
    return reduce(maximum, values, 0)


def _guards(nest: Nest) -> list[list[IterVar]]:
    axis_of = nest.anatomy.axis_of
    tests = _tests(nest.node)
    return [[axis_of[v] for v in E.free_variables(n) if v in axis_of] for n in tests]


@_once_a_node
def _tests(node: Node) -> tuple[Expr, ...]:
    """The comparisons that guard reads."""
    conditions = [n.args[0] for n in E.walk(node.body) if n.op in ("select", "if_then_else")]
    return tuple(dict.fromkeys(n for n in E.walk(*conditions) if n.op in COMPARE))


def footprints(nest: Nest, touch: Touch, loops: list[Loop], granule: int) -> list[Any]:
    """Bytes of the touched buffer within loops[k:], for every k to len(loops), in whole granules.

    The elements are taken as a box, clipped to the buffer.
    """
    sizes = [vector(n) for n in shape(nest.bounds, touch)]
    found: list[Any] = []
    last: list[Any] = []
    for widths in _widths(nest, touch, loops):
        found.append(found[-1] if widths is last else _box(widths, sizes, touch.bytes, granule))
        last = widths
    return found[::-1]


def footprint(nest: Nest, touch: Touch, loops: list[Loop], granule: int) -> Any:
    """The first of `footprints`: within all the loops."""
    *_, widths = _widths(nest, touch, loops)
    sizes = [vector(n) for n in shape(nest.bounds, touch)]
    return _box(widths, sizes, touch.bytes, granule)


def _widths(nest: Nest, touch: Touch, loops: list[Loop]) -> Iterator[list[Any]]:
    """Extents of the box in each dimension, from no loop to all; the same list while unchanged."""
    starts = [nest.origin.index(touch, dim) for dim in range(len(touch.index))]
    moved = moved_dimensions(nest.bounds, touch)
    widths: list[Any] = [1 for _ in starts]
    yield widths
    for lp in reversed(loops):
        if lp.axis in nest.moves[touch]:
            end, widths = Point(nest.bounds, {lp.axis: lp.extent - 1}), widths.copy()
            for dim in moved[lp.axis]:
                widths[dim] = widths[dim] + abs(end.index(touch, dim) - starts[dim])
        yield widths


def _box(widths: list[Any], sizes: list[Any], element: int, granule: int) -> Any:
    run: Any = 1  # elements side by side
    runs: Any = 1
    whole: Any = True  # the dimensions so far are covered in full, so that runs join
    for width, size in zip(reversed(widths), reversed(sizes), strict=True):
        width = minimum(width, size)
        run, runs = run * where(whole, width, 1), runs * where(whole, 1, width)
        whole = whole & (width == size)
    return runs * ceil_div(run * element, granule) * granule


@dataclass(frozen=True)
class Mix:
    """Instructions of one iteration of a stage, beside its loads and stores.

    fma: multiply-adds; other: the rest of its arithmetic; tests: conditions around reads
    """

    fma: int
    other: int
    tests: int

    @property
    def flops(self) -> int:
        return 2 * self.fma + self.other


@_once_a_node
def mix(node: Node) -> Mix:
    """What one iteration computes; a sum of products is one multiply-add."""
    body = node.body
    call = POWER_COST if node.held is not None else CALL_COST
    if node.op.combiner is None:
        total, tests = _count(body, call)
        return Mix(0, total, tests)
    value = node.op.reduced
    total, tests = _count(value, call)
    term = value.args[1] if value.op == "if_then_else" else value
    if node.op.combiner.name == "sum" and term.op == "mul":
        return Mix(1, total - 1, tests)
    return Mix(0, total + 1, tests)


def _count(e: Expr, call: int) -> tuple[int, int]:
    """Arithmetic instructions, and conditions of choices; call: instructions of a function."""
    if e.op in ("read", "var", "const"):
        return 0, 0
    if e.op in ("select", "if_then_else"):
        parts = [_count(a, call) for a in e.args[1:]]
        tests = sum(n.op in COMPARE for n in E.walk(e.args[0]))
        return max(p[0] for p in parts), tests + max(p[1] for p in parts)
    inner = [_count(a, call) for a in e.args]
    plain = e.op in ARITHMETIC or e.op in COMPARE or e.op in LOGIC
    own = call if e.op == "call" else int(plain)
    return own + sum(p[0] for p in inner), sum(p[1] for p in inner)
