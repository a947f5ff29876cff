"""Tiles that overhang their tensor: guards that nothing needs, and when a tile is whole.

What a stage computes beyond its tensor is never used, so on a CPU it needs no guard if all it reads
is memory.  In: placements of all kernels, storage.  Out: an `Overhang`: the tests that are
dropped, and storage with room for what then is computed and read behind the ends.
Further, for guards that stay: the condition under which a tile needs none.  Read next: `nest.py`,
which emits both nests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.lowering.accesses import Accesses
from tilewright.lowering.guards import SPATIAL, Guards
from tilewright.lowering.placement import Placement
from tilewright.lowering.storage import Storage
from tilewright.schedule.state import SplitRelation
from tilewright.schedule.tree.loop_tree import Node
from tilewright.te.tensor import IterVar, PlaceholderOp, Tensor

# Elements that an overhanging tile may read behind a workspace, and how many more follow: a vector
# of every second or third element is read as a whole.
_MAX_BEHIND = 1 << 14
_SLACK = 64

_GROWS = {"lt": 1, "le": 1, "gt": -1, "ge": -1}  # comparison -> sign of the side that may break it


@dataclass(frozen=True, eq=False)
class Overhang:
    """guards: of each kernel, without what is needless; storage: with room for the rest"""

    guards: tuple[Guards, ...]
    storage: Storage


def let_overhang(
    places: Sequence[Placement], storage: Storage, given_out: Collection[Tensor] = ()
) -> Overhang:
    """Drop the guards that stages computed inside others can do without.  Their buffers take an
    element for every iteration; workspaces grow by the few elements that are read behind them.

    given_out: tensors that are no workspaces though they are no outputs
    """
    behind: dict[Tensor, int] = {}
    found = []
    for place in places:
        guards = Guards(place)
        for node in place.nodes:
            if node.parent is None or node.stage.aligned or node.held is not None:
                continue
            kept = [t for t in guards.tests(node, SPATIAL) if place.simplify(t).op != "const"]
            fixed = _told_apart(place, node)
            free = [test for test in kept if test not in fixed]
            if not free:
                continue
            storage = storage.with_room(node, place.tree, place.bounds)
            for tests in (free, *([test] for test in free)):
                rest = [test for test in kept if test not in tests]
                over = _reads_behind(guards, storage, node, rest) if tests[0] in kept else None
                if over is not None and over.keys().isdisjoint(given_out):
                    kept = rest
                    guards = guards.without(node, tests)
            for tensor, last in (_reads_behind(guards, storage, node, kept) or {}).items():
                behind[tensor] = max(last, behind.get(tensor, 0))
        found.append(guards)
    sizes = {tensor: last + 1 + _SLACK for tensor, last in behind.items()}
    return Overhang(tuple(found), storage.grown(sizes))


def _told_apart(place: Placement, node: Node) -> set[Expr]:
    """Guards of a reduction without which an iteration beyond an inner loop would add to an
    element that belongs to the next iteration of the outer one."""
    if node.op.combiner is None:
        return set()
    inner: set[IterVar] = set()
    for r in node.stage.relations:
        if isinstance(r, SplitRelation):
            inner |= {r.inner, r.outer} if r.parent in inner else {r.inner}
        elif r.outer in inner:
            inner.add(r.fused)
    axes = inner & place.bounds.guards[node].keys()
    return {place.values[ax] < place.extent(ax) for ax in axes}


def _reads_behind(
    guards: Guards, storage: Storage, node: Node, tests: Iterable[Expr]
) -> dict[Tensor, int] | None:
    """Workspace -> last element that `node` reads behind its end where only `tests` hold; None if
    a read might fault, or meet what nobody wrote."""
    place, found = guards.place, dict[Tensor, int]()
    condition = E.all_of(*tests)
    holds = place.simplify if condition.op == "const" else place.simplify.assuming(condition)
    for e in E.walk(node.body):
        if e.op != "read":
            continue
        producer, stage = place.producer(e), place.tree.schedule[e.attr]
        low, high = _interval(place, storage, node, e, holds)
        over = high - storage.buffers[e.attr].size
        if low < 0 or over >= _MAX_BEHIND:
            return None
        if stage.aligned:
            return None
        private = producer is not None and producer.parent is not None
        if producer is not None and private and guards.of(producer, SPATIAL).op != "const":
            return None
        if over >= 0:
            given = stage.is_output or isinstance(stage.op, PlaceholderOp)
            if private or given or producer in place.tree.prepacked:
                return None
            found[e.attr] = max(int(high), found.get(e.attr, 0))
    return found


def _interval(
    place: Placement, storage: Storage, node: Node, read: Expr, holds: Simplifier
) -> tuple[float, float]:
    """Bounds of the flat index: as a whole, or by dimension, which guards speak of."""
    low, high = holds.interval(Accesses(place, storage).value(node, read).args[0])
    producer = place.producer(read)
    if producer is not None and producer.parent is not None:
        return low, high
    mapping = place.coordinates(node)
    first = last = 0.0
    strides = storage.strides_of(read.attr, producer)
    for index, stride in zip(read.args, strides, strict=True):
        least, most = holds.interval(E.substitute(index, mapping))
        first, last = first + least * stride, last + most * stride
    return max(low, first), min(high, last)


def whole_tile(guard: Expr, own: Mapping[Expr, Any], simplify: Simplifier) -> Expr | None:
    """When `guard` holds for all values of the variables `own`; None where there is no guard, where
    that never happens, or where the form of the guard does not say it.

    own: variables with their extents, numbers or expressions of symbols
    """
    if guard.op == "const":
        return None
    tests = []
    for test in E.conjuncts(guard):
        sign = _GROWS.get(test.op)
        if sign is None:
            return None
        form = simplify.linear(test.args[0]).add(simplify.linear(test.args[1]), -1)
        worst: dict[Expr, E.Value] = {}
        for atom, c in form.terms.items():
            if atom in own:
                grows = c * sign > 0
                if grows and isinstance(own[atom], Expr):
                    return None  # as often as a call says
                worst[atom] = simplify.ranges[atom][1 if grows else 0]
            elif own.keys() & E.free_variables(atom):
                return None
        tests.append(E.substitute(simplify(test), worst))
    inside = simplify(E.all_of(*tests))
    return None if inside.op == "const" else inside
