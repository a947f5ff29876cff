"""Loops around statements: what every kind of loop nest is made with.

In: accesses and guards of a kernel.  Out: `Emission`, whose methods put loops of the right kind
around a statement.  Read next: `reductions.py`, `nest.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.base.errors import LoweringError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.renaming import fresh_loops
from tilewright.ir.stmt import Allocate, For, If, Stmt, seq, statements
from tilewright.lowering.accesses import Accesses
from tilewright.lowering.bulk import Gates, Turned, computes
from tilewright.lowering.guards import Guards
from tilewright.lowering.joins import finished
from tilewright.lowering.placement import Placement
from tilewright.lowering.ring import Tiles, turned
from tilewright.schedule.tree.joins import joined_in
from tilewright.schedule.tree.loop_tree import Node
from tilewright.schedule.tree.resources import pragma_in_force
from tilewright.schedule.tree.rings import ahead, atoms_of, lag, slots
from tilewright.schedule.tree.rounding import ARRIVED
from tilewright.te.tensor import IterVar

_KIND = {"vectorize": "vectorized", "unroll": "unrolled", "parallel": "parallel"}

# Position of a leaf -> what becomes of the loop nest from that leaf inwards.
Around = Mapping[int, Callable[[Stmt], Stmt]]
_NOTHING: Around = {}
Renaming = Callable[[Expr], Expr]


@dataclass(frozen=True, eq=False)
class Emission:
    """What the statements of one kernel are made from.

    unroll_limit: loop variable -> auto_unroll_max_step in force there; grows with every loop made
    gates:        of the rings that bulk copies fill, made when they are first met
    """

    accesses: Accesses
    guards: Guards
    unroll_limit: dict[Expr, int]
    gates: dict[tuple[object, ...], Gates] = field(default_factory=dict)

    @property
    def place(self) -> Placement:
        return self.accesses.place

    def loop(self, node: Node, axis: IterVar, body: Stmt, var: Expr | None = None) -> Stmt:
        """The loop of a leaf around `body`, which stays alone where threads run the leaf.

        var: another variable than the leaf's own
        """
        if not self.place.is_loop(axis):
            return body
        var = self.place.leaf[axis] if var is None else var
        kind = _KIND.get(node.stage.annotations.get(axis, ""), "serial")
        extent = self.place.trips(node, axis)
        if isinstance(extent, Expr) and (mark := node.stage.mark(axis)) not in (None, "parallel"):
            raise LoweringError(
                f"{mark}({node.name}.{axis.name})", f"the loop has {extent} iterations, no number",
                f"Split it by a factor, and {mark} the inner loop.",
            )  # fmt: skip
        limit = int(pragma_in_force(node, axis, self.place.bounds.assignment))
        if limit:
            self.unroll_limit[var] = limit
        kind = "vthread" if axis in node.stage.binds else kind
        return For(var, extent, body, kind)

    def allocated(self, node: Node, body: Stmt) -> Stmt:
        """`body`, during which the buffers of `node` live."""
        storage = self.accesses.storage
        more = [storage.second[node]] if node in storage.second else []
        for buffer in (*more, *reversed(storage.of(node))):
            body = Allocate(buffer, body)
        return body

    def iterated(
        self,
        node: Node,
        axis: IterVar,
        inner: Callable[[], Stmt],
        emit: Callable[[Node], Stmt],
        *,
        repeat: bool = True,
    ) -> Stmt:
        """The loop of a leaf around what `inner` gives, with the stages computed in it in front.

        emit:   gives the statements of such a stage; all are asked for before `inner` is
        repeat: whether it is a loop at all, or all of its iterations are elsewhere
        """
        children, bounds = self.place.children(node, axis), self.place.bounds
        behind = int(lag(node, axis, bounds))
        made = {child: self._tiles(child, emit(child), behind) for child in children}
        front, begin, wait = turned(
            [t for child, t in made.items() if t.slots and child.view is None],
            self.place.leaf[axis], self.place.extent(axis), self.unroll_limit, self.place.simplify,
        )  # fmt: skip
        bulk = Turned.of(
            {child: t.copy for child, t in made.items() if child.view is not None}, self.gates,
            self.place, self.unroll_limit,
        )  # fmt: skip

        def during(those: Sequence[Node], body: Stmt) -> Stmt:
            for child in reversed(those):
                if made[child].slots < 2 and child.view is None and child.stage.along is None:
                    body = self.allocated(child, body)
                for other in child.children:
                    if other.stage.along is not None:  # it is read behind the loops of the child
                        body = self.allocated(other, body)
            return body

        def plain(those: Sequence[Node]) -> list[Stmt]:
            return [made[child].copy for child in those if not made[child].slots]

        joined, body = joined_in(children), inner()
        if joined is not None:  # the rest is for the last block
            at = children.index(joined)
            body = during(children[at + 1 :], seq(*plain(children[at + 1 :]), body))
            counts = self.accesses.counters(joined)
            body = finished(joined, self.place, counts, made[joined].copy, body)
            children = children[:at]
        alone = [child for child in children if made[child].slots == 1 and child.view is None]
        at = next((k for k, c in enumerate(children) if _reads(c, alone)), len(children))
        first, rest = plain(children[:at]), plain(children[at:])
        body = during(children, seq(bulk.begin, begin, *first, wait, *rest, body, bulk.end))
        loop = self.loop(node, axis, body) if repeat else body
        if behind:
            loop = self._last_alone(loop)
        if bulk.beside is not None:
            loop = If(computes(self.place), loop, bulk.beside)
        body = seq(bulk.front, front, loop)
        for child in reversed(children):
            if made[child].slots >= 2 or child.view is not None:
                body = self.allocated(child, body)
        return body

    def _last_alone(self, loop: Stmt) -> Stmt:
        """A loop in which batches of groups are in flight, its last iteration behind it.

        The wait for all of them is there, and no part of the loop: a wait that depends on the
        iteration would be one in each, and in front of a wait that nothing but the sums stands
        behind, NVIDIA's assembler reads them.
        """
        if not (isinstance(loop, For) and loop.kind == "serial" and isinstance(loop.extent, int)):
            return loop
        if loop.extent < 2 or any(isinstance(s, Allocate) for s in statements(loop.body)):
            return loop
        last = loop.extent - 1
        alone = fresh_loops(loop.body, self.unroll_limit, {loop.var: E.const(last)})
        return seq(replace(loop, extent=last), alone)

    def _tiles(self, node: Node, copy: Stmt, behind: int) -> Tiles:
        groups = any(atom.by_group for atom in atoms_of(node))
        second = self.accesses.storage.second.get(node)
        held = slots(node, self.place.bounds)
        early = ahead(node, behind, self.place.bounds)
        return Tiles(copy, held, early, groups, node.rounds == ARRIVED, second)

    def nest(
        self,
        node: Node,
        innermost: Stmt,
        emit: Callable[[Node], Stmt],
        around: Around = _NOTHING,
        upto: int | None = None,
    ) -> Stmt:
        """The loops of `node` around `innermost`, with the stages computed in them in front.

        emit:   gives the statements of such a stage
        around: changes the nest from some leaf on
        upto:   the leaves that get loops, all unless given
        """
        leaves = node.stage.leaf_iter_vars[:upto]

        def at(k: int) -> Stmt:
            if k == len(leaves):
                return innermost
            body = self.iterated(node, leaves[k], lambda: at(k + 1), emit)
            return around[k](body) if k in around else body

        return at(0)

    def again(self, node: Node, first: int, stmt: Callable[[Renaming], Stmt], suffix: str) -> Stmt:
        """The spatial loops from leaf `first` inwards once more, around a statement of its own."""
        leaf = self.place.leaf
        axes = [
            ax
            for ax in node.stage.leaf_iter_vars[first:]
            if ax.kind == "spatial" and self.place.is_loop(ax)
        ]
        fresh = {leaf[ax]: E.var(f"{ax.name}.{suffix}") for ax in axes}
        body = stmt(lambda e: E.substitute(e, fresh))
        for ax in reversed(axes):
            body = self.loop(node, ax, body, fresh[leaf[ax]])
        return body


def _reads(node: Node, copies: Sequence[Node]) -> bool:
    """Whether a stage, or one that is computed in it, reads one of `copies`."""
    own = any(read.reader is node for copy in copies for read in copy.reads)
    return own or any(_reads(child, copies) for child in node.children)


def guarded(test: Expr, body: Stmt) -> Stmt:
    """`body` where the test holds; nothing where it never does."""
    if test.op == "const":
        return body if test.attr else seq()
    return If(test, body)
