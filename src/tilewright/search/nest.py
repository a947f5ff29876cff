"""Loops around and inside each stage, with their lengths, and how often everything runs.

In: a `LoopTree` and its `Bounds`.  Out: `Nest` per stage: loops from the outside in, which of them
code generation writes out, and how many loads are left after it.  Read next: `gpu_facts.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from tilewright.base.target import Target
from tilewright.ir import expr as E
from tilewright.ir.expr import ARITHMETIC, COMPARE, LOGIC, Expr
from tilewright.schedule.decision import ceil_div, evaluate, maximum, minimum, where
from tilewright.schedule.steps import FuseRelation, SplitRelation
from tilewright.schedule.tree import Bounds, Node
from tilewright.search.access import Anatomy, Point, Touch, anatomy, moves, shape, vector
from tilewright.te.tensor import IterVar

CALL_COST = 16  # instructions of exp and its like


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

    guards: for every comparison that guards a read, the root axes it looks at
    apart:  1 where the lanes of the vectorised loop are no vector on a GPU: they differ in guards,
            or their fused index has to be taken apart one by one; else 0
    """

    def __init__(self, node: Node, bounds: Bounds, target: Target) -> None:
        self.node, self.bounds, self.target = node, bounds, target
        self.anatomy: Anatomy = anatomy(bounds.tree)
        self.reads = self.anatomy.reads[node]
        self.write = self.anatomy.write[node]
        self.moves = {t: moves(bounds, t) for t in (*self.reads, self.write)}
        tree = bounds.tree
        path = [
            Loop(owner, ax, vector(bounds.extent[ax]), tree.tag_of.get(ax, ""),
                 owner.stage.annotations.get(ax, ""), False, False)
            for owner, ax in reversed(tree.path(node))
        ]  # fmt: skip
        self.path = path
        self.guards = _guards(self)
        self.apart: Any = 0
        self._parts_matter: dict[FuseRelation, Any] = {}
        self.own = self._own_loops()
        self.loops = [*path, *self.own]
        self.vector = next((lp for lp in self.own if lp.how == "vectorize"), None)

    def _own_loops(self) -> list[Loop]:
        node, bounds = self.node, self.bounds
        registers = _register_axes(self)
        pragma = vector(_pragma(bounds, node))
        children = [c for c in bounds.tree.nodes if c.parent is node]
        result: list[Loop] = []
        steps: Any = _stores(node, bounds)
        still: Any = True
        for ax in reversed(node.stage.leaf_iter_vars):
            extent = vector(bounds.extent[ax])
            tag, how = bounds.tree.tag_of.get(ax, ""), node.stage.annotations.get(ax, "")
            inside: Any = sum(_statements(c, bounds) for c in children if c.attach_axis is ax)
            steps = steps + inside
            if tag and tag != "vthread":
                result.append(Loop(node, ax, extent, tag, how, True, still))
                continue
            if how != "vectorize":
                steps = steps * extent
            elif self.target.is_gpu:
                lanes = Loop(node, ax, extent, tag, how, True, still)
                self.apart = self._lanes_apart(lanes)
                steps = steps * where(self.apart > 0, extent, 1)
            written: Any = (extent == 1) | (steps <= pragma)
            if how in ("unroll", "vectorize") or tag == "vthread":
                written = True
            elif ax in registers:
                written = written | (steps <= self.target.limits.max_unrolled_body)
            still = still & written
            result.append(Loop(node, ax, extent, tag, how, True, still))
        return result[::-1]

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
        """Iterations of its own serial loops, each time it runs."""
        return self.product(lp for lp in self.own if lp.serial)

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
        for lp in self.path:  # virtual threads are part of every body
            if lp.tag == "vthread" and lp.axis not in self.moves[touch]:
                total = total / lp.extent
        for lp in self.own:
            if not lp.serial:
                continue
            moved = lp.axis in self.moves[touch]
            if lp.how == "vectorize":
                total = total * (vector_factor if moved else 1)
            else:
                total = total * (lp.extent if moved else where(lp.unrolled, 1, lp.extent))
        return total

    def tile(self, kind: str) -> Any:
        """Product of the written-out loops of a kind ("spatial", "reduce"), without the vector."""
        total: Any = 1
        for lp in self.own:
            if lp.serial and lp.how != "vectorize" and lp.axis.kind == kind:
                total = total * where(lp.unrolled, lp.extent, 1)
        return total

    def _lanes_apart(self, lanes: Loop) -> Any:
        divisions, tests = self._index_work(lanes)
        return greatest((*divisions.values(), *tests))

    def index_work(self) -> tuple[Any, Any]:
        """Divisions of fused indices, and comparisons, that each iteration does anew."""
        divisions: dict[FuseRelation, Any] = {}
        tests: list[Any] = [0] * len(self.guards)
        for lp in self.own:
            if not lp.serial:
                continue
            found, moved = self._index_work(lp)
            tests = [maximum(a, b) for a, b in zip(tests, moved, strict=True)]
            for r, mask in found.items():
                divisions[r] = maximum(divisions.get(r, 0), mask)
        return sum(divisions.values()), sum(tests)

    def _index_work(self, loop: Loop) -> tuple[dict[FuseRelation, Any], list[Any]]:
        """The same for one loop: 1 per relation and per guard where it does, else 0."""
        course = Course(self, loop)
        tests = [greatest(course.moves(axis) for axis in axes) for axes in self.guards]
        for axis in (*self.node.op.axis, *self.node.op.reduce_axis):
            course.moves(axis)
        return {r: m * self._told_apart(r) for r, m in course.irregular.items()}, tests

    def _told_apart(self, r: FuseRelation) -> Any:
        """1 where the parts of a fused index matter; 0 where memory is laid out like the index."""
        if self.guards:
            return 1
        if r not in self._parts_matter:
            here = Point(self.bounds, {})
            row, column = Point(self.bounds, {r.outer: 1}), Point(self.bounds, {r.inner: 1})
            inner = vector(self.bounds.extent[r.inner])
            self._parts_matter[r] = greatest(
                1 * (row.address(t) - here.address(t) != inner * (column.address(t) - here.address(t)))
                for t in self.reads
            )
        return self._parts_matter[r]

    def stride(self, touch: Touch, axis: IterVar) -> Any:
        """Elements between the addresses of iterations 0 and 1 of a leaf axis."""
        if axis not in self.moves[touch]:
            return 0
        zero, one = Point(self.bounds, {}), Point(self.bounds, {axis: 1})
        return one.address(touch) - zero.address(touch)


class Course:
    """How the axes of a stage move while one of its own serial loops runs.

    irregular: fuse relations whose parts each iteration must work out anew, by a division: the
    loop's steps are neither whole rows of the inner axis nor do they stay within one (masks)
    """

    def __init__(self, nest: Nest, loop: Loop) -> None:
        self.nest, self.loop = nest, loop
        self.relation = nest.anatomy.relation
        self.irregular: dict[FuseRelation, Any] = {}
        self._known: dict[IterVar, tuple[Any, Any]] = {}

    def moves(self, axis: IterVar) -> Any:
        """1 where the value of an axis of any level changes, else 0."""
        step, sure = self._step(axis)
        return (self.loop.extent > 1) * maximum(minimum(step, 1), 1 - sure)

    def _step(self, axis: IterVar) -> tuple[Any, Any]:
        """By how much the axis moves at each iteration, and 1 where that is so at all, else 0."""
        if axis not in self._known:
            self._known[axis] = self._derive(axis)
        return self._known[axis]

    def _derive(self, axis: IterVar) -> tuple[Any, Any]:
        r = self.relation.get(axis)
        if r is None:
            return int(axis is self.loop.axis), 1
        if isinstance(r, SplitRelation):
            outer, sure = self._step(r.outer)
            inner, also = self._step(r.inner)
            return outer * vector(self.nest.bounds.factor[r]) + inner, sure * also
        step, sure = self._step(r.fused)
        outer, inner = (vector(self.nest.bounds.extent[ax]) for ax in (r.outer, r.inner))
        rows = step // inner
        rest = step - rows * inner
        whole = (rest == 0) | (inner % maximum(rest * self.loop.extent, 1) == 0)
        smooth = maximum(sure * whole, 1 * ((inner == 1) | (outer == 1)))
        self.irregular[r] = (self.loop.extent > 1) * (1 - smooth)
        return (rows if axis is r.outer else rest), sure * smooth


def greatest(values: Iterable[Any]) -> Any:
    """Per candidate; 0 of none."""
    return reduce(maximum, values, 0)


def _guards(nest: Nest) -> list[list[IterVar]]:
    axis_of, body = nest.anatomy.axis_of, nest.node.body
    conditions = [n.args[0] for n in E.walk(body) if n.op in ("select", "if_then_else")]
    tests = dict.fromkeys(n for n in E.walk(*conditions) if n.op in COMPARE)
    return [[axis_of[v] for v in E.free_variables(n) if v in axis_of] for n in tests]


def _register_axes(nest: Nest) -> set[IterVar]:
    """Loops that index local buffers: they are written out, so that those become registers."""
    found: set[IterVar] = set()
    for touch in (*nest.reads, nest.write):
        if touch.scope == "local":
            found |= nest.moves[touch]
    return found


def _statements(node: Node, bounds: Bounds) -> Any:
    """Innermost statements of a stage and all that is computed inside it."""
    steps: Any = _stores(node, bounds)
    children = [c for c in bounds.tree.nodes if c.parent is node]
    for ax in reversed(node.stage.leaf_iter_vars):
        for child in children:
            if child.attach_axis is ax:
                steps = steps + _statements(child, bounds)
        tag = node.stage.binds.get(ax, "")
        if (tag and tag != "vthread") or node.stage.annotations.get(ax) == "vectorize":
            continue
        steps = steps * vector(bounds.extent[ax])
    return steps


def _stores(node: Node, bounds: Bounds) -> Any:
    """Statements of one iteration: a copy that may be one of nothing, or of a padding's zero, reads
    first and then writes under its guard."""
    if node.scope != "shared" or not any(n.op == "if_then_else" for n in E.walk(node.body)):
        return 1
    total: Any = 1
    for ax in node.stage.leaf_iter_vars:
        total = total * vector(bounds.extent[ax])
    return where(total > vector(bounds.elements(node)), 2, 1)


def _pragma(bounds: Bounds, node: Node | None) -> Any:
    """auto_unroll_max_step in force for the loops of a stage."""
    while node is not None:
        entry = node.stage.pragmas.get("auto_unroll_max_step")
        if entry is not None:
            return evaluate(entry[1], bounds.assignment)
        node = node.parent
    return 0


def footprints(nest: Nest, touch: Touch, loops: list[Loop], granule: int) -> list[Any]:
    """Bytes of the touched buffer within loops[k:], for every k to len(loops), in whole granules.

    The elements are taken as a box, clipped to the buffer.
    """
    zero = Point(nest.bounds, {})
    sizes = [vector(n) for n in shape(nest.bounds, touch)]
    starts = [zero.index(touch, dim) for dim in range(len(sizes))]
    widths: list[Any] = [1] * len(sizes)
    found = [_box(widths, sizes, touch.bytes, granule)]
    for lp in reversed(loops):
        if lp.axis not in nest.moves[touch]:
            found.append(found[-1])
            continue
        end = Point(nest.bounds, {lp.axis: lp.extent - 1})
        for dim, start in enumerate(starts):
            widths[dim] = widths[dim] + abs(end.index(touch, dim) - start)
        found.append(_box(widths, sizes, touch.bytes, granule))
    return found[::-1]


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


def mix(node: Node) -> Mix:
    """What one iteration computes; a sum of products is one multiply-add."""
    body = node.body
    if node.op.combiner is None:
        total, tests = _count(body)
        return Mix(0, total, tests)
    value = body.args[0]
    total, tests = _count(value)
    if node.op.combiner.name == "sum" and value.op == "mul":
        return Mix(1, total - 1, tests)
    return Mix(0, total + 1, tests)


def _count(e: Expr) -> tuple[int, int]:
    """Arithmetic instructions, and conditions of choices."""
    if e.op in ("read", "var", "const"):
        return 0, 0
    if e.op in ("select", "if_then_else"):
        parts = [_count(a) for a in e.args[1:]]
        tests = sum(n.op in COMPARE for n in E.walk(e.args[0]))
        return max(p[0] for p in parts), tests + max(p[1] for p in parts)
    inner = [_count(a) for a in e.args]
    plain = e.op in ARITHMETIC or e.op in COMPARE or e.op in LOGIC
    own = CALL_COST if e.op == "call" else int(plain)
    return own + sum(p[0] for p in inner), sum(p[1] for p in inner)
