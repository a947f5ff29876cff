"""Which iterations and which threads of a kernel do something: guards.

In: a `Placement`, and the tests that are known to be needless.  Out: `Guards`, immutable, which
gives conditions.  Guards sit on stores.  Read next: `overhang.py` (which tests are needless).

A matrix instruction wants all lanes of a warp together.  Its guards ask only whether the first of
its elements is one, which is the same in all lanes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import BLOCK_TAGS, THREAD_TAGS
from tilewright.lowering.placement import Placement
from tilewright.schedule.scopes import in_registers
from tilewright.schedule.tree.joins import joined_in
from tilewright.schedule.tree.loop_tree import Base, Node, Quotient
from tilewright.schedule.tree.recurrence import steps_of
from tilewright.te.tensor import IterVar

SPATIAL = ("spatial",)
ALL = ("spatial", "reduce")


@dataclass(frozen=True, eq=False)
class Guards:
    """dropped: per stage, the tests that are left out"""

    place: Placement
    dropped: Mapping[Node, frozenset[Expr]] = field(default_factory=dict)

    def without(self, node: Node, tests: Iterable[Expr]) -> Guards:
        """The same with `tests` of `node` left out too."""
        both = self.dropped.get(node, frozenset()).union(tests)
        return replace(self, dropped={**self.dropped, node: both})

    def of(self, node: Node, kinds: tuple[str, ...]) -> Expr:
        """When an iteration of `node` is one of its elements, along axes of these kinds."""
        dropped = self.dropped.get(node, frozenset())
        tests = (t for t in self.tests(node, kinds) if t not in dropped)
        return self.place.simplify(E.all_of(*tests))

    def tests(self, node: Node, kinds: tuple[str, ...]) -> list[Expr]:
        """What holds for the elements that the node must compute, where its loops do not say so."""
        return [*self.iterations(node, kinds), *self.edges(node)]

    def iterations(self, node: Node, kinds: tuple[str, ...]) -> list[Expr]:
        """The part of `tests` outside of which an iteration has no element of the buffer, or one
        that is not for it."""
        place, bounds = self.place, self.place.bounds
        tests = []
        for ax, flag in bounds.guards[node].items():
            if flag and ax.kind in kinds:
                tests += self._below(place.values[ax], place.extent(ax))
        for ax in self._carried(node):
            tests += self._below(place.values[ax], place.extent(ax))
        if "spatial" in kinds and (first := steps_of(place.tree).late.get(node)) is not None:
            tests.append(place.coordinate(node, node.op.axis[0]) >= first)
        return tests

    def _below(self, value: Expr, extent: Any) -> list[Expr]:
        """`value < extent`; where zero alone is below, of each loop: compilers leave out what those
        that are written out make in vain."""
        simple = self.place.simplify
        form = simple.linear(value)
        ends = (simple.interval(atom)[0] for atom in form.terms)
        whole = all(scale > 0 for scale in form.terms.values()) and all(low == 0 for low in ends)
        if extent == 1 and len(form.terms) > 1 and whole and not form.constant:
            return [atom < 1 for atom in form.terms]
        return [value < extent]

    def edges(self, node: Node, *, among: Collection[IterVar] | None = None) -> list[Expr]:
        """The other part: where the node's region, all of which has a place in its buffer, leaves
        the tensor.  among: the axes along which it may, default: all"""
        place, tests = self.place, []
        for ax, (below, above) in zip(node.op.axis, place.bounds.outside[node], strict=True):
            if among is not None and ax not in among:
                continue
            if below and node.product is None:
                tests.append(place.coordinate(node, ax) >= 0)
            if above:
                tests.append(place.coordinate(node, ax) < ax.size)
        return tests

    def _carried(self, node: Node) -> list[IterVar]:
        """Uneven axes of the stages around `node` whose guards it repeats: those along which its
        region moves.  What is the same all along an axis is there for all of it."""
        guards, tree = self.place.bounds.guards, self.place.tree
        moving = frozenset(p for atom in self._atoms(node) for p in tree.pieces(atom))
        flags = (item for n, _ in tree.path(node) for item in guards[n].items())
        uneven = dict.fromkeys(ax for ax, flag in flags if flag and ax in node.carried)
        return [ax for ax in uneven if moving & tree.pieces(ax)]

    def lanes(self, node: Node, *, reduce: bool = True, once: bool = True) -> Expr:
        """Which threads of the block take part: those inside the stage's own extents (`reduce`: of
        its reduction axes too) and, if `once`, a single one of those that would only repeat the
        work on memory that all of them see: blocks, too, where none of them is joined."""
        place, tests = self.place, []
        bound = [
            (ax, tag) for ax, tag in node.stage.binds.items() if reduce or ax.kind == "spatial"
        ]
        bound += self._lanes_around(node)
        for ax, tag in bound:
            if tag != "vthread" and _fewer(place.extent(ax), place.launch[tag]):
                tests.append(place.thread_var[tag] < place.extent(ax))
        if once and not in_registers(node.scope):
            mine = {tag for ax, tag in node.stage.binds.items() if ax.kind == "spatial"}
            alone = node.scope != "global" or joined_in(place.nodes) is not None
            sharing = (THREAD_TAGS,) if alone else (THREAD_TAGS, BLOCK_TAGS)
            for tags in sharing:
                for tag, extent in place.launch.items():
                    if tag in tags and tag not in mine and _fewer(1, extent):
                        tests.append(place.thread_var[tag].equal(0))
        return E.all_of(*tests)

    def _lanes_around(self, node: Node) -> list[tuple[IterVar, str]]:
        """Thread axes of other stages that the node's region starts from: lanes beyond them have
        no region."""
        tree = self.place.tree
        leaves = dict.fromkeys(ax for atom in self._atoms(node) for ax in tree.leaves_under[atom])
        return [(ax, tree.tag_of[ax]) for ax in leaves if ax in tree.tag_of]

    def _atoms(self, node: Node) -> list[IterVar]:
        """The axes that the node's region starts from."""
        found: list[IterVar] = []

        def collect(base: Base) -> None:
            for atom in base.terms:
                if isinstance(atom, Quotient):
                    collect(atom.base)
                else:
                    found.append(atom)

        for base in self.place.bounds.base[node]:
            collect(base)
        return found


def _fewer(extent: Any, launched: Any) -> bool:
    """Whether fewer may take part than are launched."""
    if isinstance(extent, Expr) or isinstance(launched, Expr):
        return extent is not launched
    return bool(extent < launched)
