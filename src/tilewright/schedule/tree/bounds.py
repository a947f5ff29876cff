"""Bound inference: extents, regions and guards of every stage, on ints and on arrays alike.

In: a `Structure` and an assignment of its decisions.  Out: `Bounds`, polymorphic numbers.  Branches
depend on structure only; `where`, `minimum` and the gcd rule do what would be a branch on a number.
Read next: `resources.py` (what they ask of a device), `lowering/nest.py` (ints to loops);
`open_bounds.py` (extents that calls give).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.symbols import plain
from tilewright.schedule.scopes import in_registers
from tilewright.schedule.space.decision import (
    Number,
    ceil_div,
    evaluate,
    gcd,
    logical_and,
    logical_not,
    maximum,
    minimum,
    where,
)
from tilewright.schedule.state import FuseRelation, SplitRelation
from tilewright.schedule.tree.access import Access, DivMod
from tilewright.schedule.tree.layout import Fragments, Layout, Strided
from tilewright.schedule.tree.structure import Node, Structure
from tilewright.te.tensor import IterVar


@dataclass(frozen=True, eq=False)
class Quotient:
    """The atom `base // k` or `base % k` with a polymorphic base."""

    kind: str
    base: Base
    k: Number


Atom = IterVar | Quotient


class Base:
    """sum(coefficient * atom) + constant, polymorphic numbers; atoms are axes or Quotients."""

    __slots__ = ("constant", "terms")

    def __init__(self, terms: dict[Atom, Number] | None = None, constant: Number = 0) -> None:
        self.terms = terms if terms is not None else {}
        self.constant = constant

    def add(self, other: Base, scale: Number = 1) -> Base:
        terms = dict(self.terms)
        for atom, c in other.terms.items():
            total = terms[atom] + c * scale if atom in terms else c * scale
            if isinstance(total, int) and total == 0:
                terms.pop(atom, None)
            else:
                terms[atom] = total
        return Base(terms, self.constant + other.constant * scale)

    def expression(self, values: Mapping[IterVar, Expr]) -> Expr:
        """The base of one candidate over the values of axes."""
        total = E.convert(plain(self.constant))
        for atom, c in self.terms.items():
            if isinstance(atom, Quotient):
                inner, k = atom.base.expression(values), plain(atom.k)
                value = inner // k if atom.kind == "div" else inner % k
            else:
                value = values[atom]
            total = total + value * plain(c)
        return total

    def masked(self, keep: Number) -> Base:
        """The base times a 0/1 number."""
        if isinstance(keep, int):
            return self if keep else Base()
        return Base({a: c * keep for a, c in self.terms.items()}, self.constant * keep)


Span = tuple[Base, Number]  # [base, base + extent)
_ZERO = Base()


class Bounds:
    """Extents, bases and guards of every stage.  All values are ints or vectors of one length.

    symbols: what is known of extents that calls give; here there are none
    extent:  iterations of each axis (root axes: the region computed)
    reach:   1 + the greatest value of each axis over all iterations, guarded or not: more than the
             extent where a split is uneven, because guards sit on stores and what is computed
             inside the loops runs in overhanging iterations too (unless it carries the guard)
    factor:  of each split relation
    base:    per node and spatial dimension, where its region starts
    guards:  per node, axis -> whether `axis < extent` must be tested (an uneven split)
    begins:  where the part of a reduction axis begins that an iteration of another stage is about
    outside: per node and dimension (below, above): whether the region may leave the tensor's shape
    """

    symbols = Simplifier({})

    def __init__(self, tree: Structure, assignment: Mapping[str, Number]) -> None:
        self.tree, self.assignment = tree, assignment
        self.extent: dict[IterVar, Number] = {}
        self.reach: dict[IterVar, Number] = {}
        self.factor: dict[SplitRelation, Number] = {}
        self.base: dict[Node, list[Base]] = {}
        self.guards: dict[Node, dict[IterVar, Any]] = {}
        self.outside: dict[Node, list[tuple[Any, Any]]] = {}
        self.begins: dict[IterVar, Base] = {}
        self._quotients: dict[tuple[Any, ...], Quotient] = {}
        self._limited: dict[tuple[Node, frozenset[IterVar]], dict[IterVar, Number]] = {}
        self._vthreads: dict[Node, dict[IterVar, Any]] = {}
        self._strides: dict[Node, list[Number]] = {}
        for node in reversed(tree.nodes):
            self._infer(node)

    def __repr__(self) -> str:
        stages = ", ".join(node.name for node in self.tree.nodes)
        rows = max((np.size(value) for value in self.extent.values()), default=1)
        return f"Bounds(of {stages}; {rows} candidate{'s' * (rows != 1)})"

    # -- per node --------------------------------------------------------------------------------
    def _infer(self, node: Node) -> None:
        axes = node.op.axis
        bases = [_ZERO] * len(axes)
        outside: list[tuple[Any, Any]] = [(False, False)] * len(axes)
        for ax in (*axes, *node.op.reduce_axis, *node.stage.units):
            self.extent[ax] = _some(ax.size)
        if node.parent is not None:
            for d, ax in enumerate(axes):
                size = _some(ax.size)
                base, extent = self._region(node, d, size)
                if node.held is not None:
                    extent = self._whole(extent, node.held.tile(d))
                bases[d], self.extent[ax] = base, extent
                lo, hi = self.interval(base, node)
                outside[d] = (self._may(lo < 0), self._may(hi + extent > size))
        if node.stage.along is not None and node.parent is not None:
            (k,) = node.op.reduce_axis
            around = node.points | {node.attach_axis} if node.attach_axis else node.points
            self.begins[k], self.extent[k] = self._span_axis(node.stage.along, around, node.parent)
        if node.product is not None:
            k = node.product.parts["k"].root
            self.extent[k] = self._whole(self.extent[k], node.product.atom.extents["k"])
        self.base[node], self.outside[node] = bases, outside
        self._propagate(node)

    def _whole(self, extent: Any, tile: int) -> Any:
        """An extent in whole tiles: what lies beyond the tensors is zero in the operands."""
        return self._short(ceil_div(extent, tile) * tile)

    def _propagate(self, node: Node) -> None:
        need: dict[IterVar, Any] = {}
        uneven: dict[SplitRelation, Any] = {}
        vectors = {ax for ax, how in node.stage.annotations.items() if how == "vectorize"}
        lanes = node.stage.binds.keys() | vectors  # as many as were asked for
        inside = node.stage.inside  # these, too
        for r in node.stage.relations:
            if isinstance(r, FuseRelation):
                self.extent[r.fused] = self._short(self.extent[r.outer] * self.extent[r.inner])
                continue
            n = self.extent[r.parent]
            if r.factor is not None:
                f = evaluate(r.factor, self.assignment)
                given = r.inner in inside or self.tree.leaves_under[r.inner] & lanes
                if node.parent is not None and not given:
                    f = self._needed(f, n)
                outer = self._short(ceil_div(n, f))
            else:
                outer = evaluate(r.nparts, self.assignment)  # type: ignore[arg-type]
                f = self._short(ceil_div(n, outer))
            self.extent[r.outer], self.extent[r.inner], self.factor[r] = outer, f, f
            uneven[r] = self._may(outer * f != n)
        for ax in node.stage.leaf_iter_vars:
            self.reach[ax] = self.extent[ax]
        for r in reversed(node.stage.relations):
            if isinstance(r, SplitRelation):
                whole = (self.reach[r.outer] - 1) * self.factor[r]
                self.reach[r.parent] = self._short(whole + self.reach[r.inner])
                outer = need.pop(r.outer, False)
                need[r.parent] = uneven[r]  # implies the outer child's guard, else that suffices
                if outer is not False:
                    need[r.outer] = logical_and(outer, logical_not(uneven[r]))
            else:
                inner = self.extent[r.inner]
                self.reach[r.outer] = (self.reach[r.fused] - 1) // inner + 1
                self.reach[r.inner] = inner
        self.guards[node] = {ax: flag for ax, flag in need.items() if flag is not False}

    # -- what is another question where extents are no numbers -------------------------------------
    def _may(self, condition: Any) -> Any:
        """A condition, for which something must be done where it may hold."""
        return condition

    def _at_most(self, a: Any, b: Any) -> Any:
        """Whether a <= b, for sure."""
        return a <= b

    def _short(self, value: Any) -> Any:
        """A number, in its shortest form."""
        return value

    def _needed(self, factor: Any, extent: Any) -> Any:
        """How much of a tile is computed: it is of the tensor, less of it may be needed here."""
        return minimum(factor, extent)

    def _counts(self, coefficient: Any) -> Any:
        """Whether an atom with this coefficient matters."""
        return coefficient != 0

    def _clipped(self, hull: Span, size: Any) -> Span:
        """What readers need of a dimension, but no more than there is of it."""
        whole = self._at_most(size, hull[1])
        if isinstance(whole, (bool, np.bool_)):
            return (_ZERO, size) if whole else hull
        return hull[0].masked(where(whole, 0, 1)), minimum(hull[1], size)

    # -- regions -----------------------------------------------------------------------------------
    def _region(self, node: Node, dim: int, size: int) -> Span:
        """What all readers of `node` need of dimension `dim`, clipped to its shape."""
        whole: Span = (_ZERO, size)
        hull: Span | None = None
        for read in node.reads:
            access = read.indices[dim]
            if access is None:
                return whole
            span = self._span_access(access, read.reader, node)
            hull = span if hull is None else self._hull(hull, span)
        if hull is not None and node.held is not None and dim in node.held.dims:
            return hull  # tiles begin where those of the reader do
        return whole if hull is None else self._clipped(hull, size)

    def _hull(self, a: Span, b: Span) -> Span:
        lo, hi = self.interval(self._difference(b[0], a[0]))
        low, high = minimum(lo, 0), maximum(a[1], hi + b[1])
        return Base(a[0].terms, a[0].constant + low), high - low

    def _difference(self, a: Base, b: Base) -> Base:
        """a - b, in which what is the same number is one atom, and k * (x // k) + x % k is x: of
        each candidate for itself, because numbers may be equal for some of them only."""
        result, known = a.add(b, -1), dict[tuple[Atom, Atom], Any]()
        while (shorter := self._put_together(result, known)) is not None:
            result = shorter
        return result

    def _put_together(self, base: Base, known: dict[tuple[Atom, Atom], Any]) -> Base | None:
        """A base with two of its atoms put together; None where there are none left.

        known: what `_alike` says of two atoms
        """
        kinds = {atom: self._kind(atom) for atom in base.terms}
        found = [atom for atom in kinds if kinds[atom]]
        pairs = [(p, q) for p, q in combinations(found, 2) if kinds[p] == kinds[q]]
        pairs += [(p, q) for p in found for q in found if (kinds[p], kinds[q]) == ("div", "mod")]
        for p, q in pairs:
            if (p, q) not in known:
                known[p, q] = self._alike(p, q)
            alike, c = known[p, q], base.terms[q]
            gone, instead = [q], Base({p: 1})
            if kinds[p] != kinds[q] and isinstance(q, Quotient):
                alike = logical_and(alike, base.terms[p] == c * q.k)
                gone, instead = [p, q], q.base
            if np.any(logical_and(alike, self._counts(c))):
                left = {a: where(alike, 0, n) if a in gone else n for a, n in base.terms.items()}
                return Base({}, base.constant).add(Base(left)).add(instead, where(alike, c, 0))
        return None

    def _kind(self, atom: Atom) -> str:
        """Atoms of one kind may be the same number; those of none are themselves only."""
        if isinstance(atom, Quotient):
            return atom.kind
        tag = self.tree.tag_of.get(atom, "")
        return tag if tag.startswith("threadIdx") else ""

    def _alike(self, p: Atom, q: Atom) -> Any:
        """Whether loops that the same threads run are as many, or quotients are of the same number
        by the same number."""
        if not (isinstance(p, Quotient) and isinstance(q, Quotient)):
            return logical_and(True, self.extent[p] == self.extent[q])  # type: ignore[index]
        rest = self._difference(p.base, q.base)
        alike: Any = p.k == q.k
        for number in (rest.constant, *rest.terms.values()):
            alike = logical_and(alike, number == 0)
        return alike

    def _span_access(self, access: Access, reader: Node, node: Node) -> Span:
        base = Base({}, access.constant)
        extent: Number = 1
        for c, atom in self._fused_again(access, reader):
            if isinstance(atom, DivMod):
                inner = self._span_access(atom.access, reader, node)
                b, e = self._quotient_span(atom.kind, inner, atom.k, (atom, node))
            else:
                b, e = self._span_axis(atom, node.points, reader)
                around = self._begin(reader, atom)
                if around is not None:
                    outer, oe = self._span_base(around, node.points, reader)
                    b, e = outer.add(b), oe + e - 1
            base = base.add(b, c)
            if c < 0:
                base.constant = base.constant + c * (e - 1)
            extent = extent + abs(c) * (e - 1)
        return base, extent

    def _begin(self, node: Node, axis: IterVar) -> Base | None:
        """Where the part of an axis that is computed of the node begins, if it may be a part."""
        if axis in node.op.axis:
            return self.base[node][node.op.axis.index(axis)]
        return self.begins.get(axis)

    def _fused_again(self, access: Access, reader: Node) -> Sequence[tuple[int, IterVar | DivMod]]:
        """The terms of an access, axes that the reader fused put together where the access itself
        is their fusion: it follows the fused loop, which neighbours of it need not."""
        if reader.parent is not None:  # its regions start at axes, not at fused ones
            return access.terms
        of: dict[IterVar | DivMod, int] = {atom: c for c, atom in access.terms}
        for r in reader.stage.relations:
            if isinstance(r, FuseRelation) and r.outer in of and r.inner in of:
                n, c = self.extent[r.inner], of[r.inner]
                if isinstance(n, int) and of[r.outer] == c * n:
                    del of[r.outer], of[r.inner]
                    of[r.fused] = c
        return [(c, atom) for atom, c in of.items()]

    def _span_base(self, base: Base, points: frozenset[IterVar], reader: Node) -> Span:
        result = Base({}, base.constant)
        extent: Number = 1
        for atom, c in base.terms.items():
            if isinstance(atom, Quotient):
                inner = self._span_base(atom.base, points, reader)
                key: tuple[Any, ...] = (atom, points, reader.carried)
                b, e = self._quotient_span(atom.kind, inner, atom.k, key)
            else:
                b, e = self._span_axis(atom, points, reader)
            result = result.add(b, c)
            if not (isinstance(e, int) and e == 1):
                result.constant = result.constant + minimum(c, 0) * (e - 1)
                scale: Any = maximum(c, -c)
                extent = extent + scale * (e - 1)
        return result, extent

    def _span_axis(self, axis: IterVar, points: frozenset[IterVar], reader: Node) -> Span:
        """An axis keeps its level while all leaves under it are points, or none is."""
        leaves = self.tree.leaves_under[axis]
        if leaves <= points:
            return Base({axis: 1}), 1
        if not leaves & points:
            return _ZERO, self._reached(axis, reader)
        r = self.tree.relation_under[axis]
        if isinstance(r, SplitRelation):
            (ob, oe), (ib, ie) = (self._span_axis(ax, points, reader) for ax in (r.outer, r.inner))
            f = self.factor[r]
            return Base({}, 0).add(ob, f).add(ib), (oe - 1) * f + ie
        fused = self._span_axis(r.fused, points, reader)
        kind = "div" if axis is r.outer else "mod"
        return self._quotient_span(kind, fused, self.extent[r.inner], (r.fused, points))

    def _quotient_span(self, kind: str, span: Span, k: Number, key: tuple[Any, ...]) -> Span:
        """[b, b+e) under div or mod by k: exact where aligned, a cover elsewhere (gcd rule)."""
        b, e = span
        g: Number = k
        for c in (*b.terms.values(), b.constant):
            g = gcd(g, c)
        ident = (kind, *key)
        atom = self._quotients.get(ident)
        if atom is None:
            atom = self._quotients[ident] = Quotient(kind, b, k)
        if kind == "div":
            extent = (k - g + e - 1) // k + 1
            if not b.terms:
                return Base({}, b.constant // k), extent
            return Base({atom: 1}), extent
        aligned = self._at_most(e, g)
        if isinstance(aligned, (bool, np.bool_)):
            if not aligned:
                return _ZERO, k
            return (Base({atom: 1}) if b.terms else Base({}, b.constant % k)), e
        keep = where(aligned, 1, 0)
        base = Base({atom: keep}) if b.terms else Base({}, b.constant % k * keep)
        return base, where(aligned, e, k)

    def _reached(self, axis: IterVar, reader: Node | None) -> Number:
        """1 + the greatest value of `axis` in the statements of `reader` (None: of anything)."""
        owner = self.tree.stage_of_axis[axis]
        if owner is reader:
            return self.extent[axis]  # its own guards hold
        if reader is None or not reader.carried:
            return self.reach[axis]
        key = owner, reader.carried
        if key not in self._limited:
            self._limited[key] = self._limits(*key)
        return self._limited[key][axis]

    def _limits(self, owner: Node, carried: frozenset[IterVar]) -> dict[IterVar, Number]:
        """`reach` of the axes of `owner` where the guards of `carried` axes hold."""
        flags = {ax: flag for ax, flag in self.guards[owner].items() if ax in carried}
        reach = {ax: self.extent[ax] for ax in owner.stage.leaf_iter_vars}
        for r in reversed(owner.stage.relations):
            if isinstance(r, SplitRelation):
                flag = flags.get(r.parent, False)
                free = (reach[r.outer] - 1) * self.factor[r] + reach[r.inner]
                reach[r.parent] = where(flag, self.extent[r.parent], free)
                reach[r.outer] = where(flag, self.extent[r.outer], reach[r.outer])
            else:
                inner = self.extent[r.inner]
                reach[r.outer] = (reach[r.fused] - 1) // inner + 1
                reach[r.inner] = inner
        return reach

    def interval(self, base: Base, reader: Node | None = None) -> tuple[Number, Number]:
        """Inclusive (least, greatest) value of a base over all loops, or in the statements of
        `reader`."""
        lo: Number = base.constant
        hi: Number = base.constant
        for atom, c in base.terms.items():
            if isinstance(atom, Quotient):
                a, z = self.interval(atom.base, reader)
                if atom.kind == "div":
                    a, z = a // atom.k, z // atom.k
                else:
                    a, z = 0, minimum(atom.k - 1, maximum(z, 0))
            else:
                a, z = 0, self._reached(atom, reader) - 1
            if isinstance(c, int):
                lo, hi = (lo + c * a, hi + c * z) if c >= 0 else (lo + c * z, hi + c * a)
            else:
                lo, hi = lo + minimum(c * a, c * z), hi + maximum(c * a, c * z)
        return lo, hi

    # -- derived -----------------------------------------------------------------------------------
    def region(self, node: Node) -> list[Number]:
        """Extent of the node's buffer per dimension, before storage_align."""
        return [self.extent[ax] for ax in node.op.axis]

    def strides(self, node: Node) -> list[Number]:
        """Row-major strides of the node's buffer in elements, padded by storage_align."""
        if node not in self._strides:
            self._strides[node] = self._find_strides(node)
        return self._strides[node]

    def _find_strides(self, node: Node) -> list[Number]:
        region = self.region(node)
        strides: list[Number] = [1] * len(region)
        step: Number = 1
        for d in reversed(self.tree.storage_order(node)):
            if d in node.stage.aligned:
                factor, offset = (evaluate(v, self.assignment) for v in node.stage.aligned[d])
                step = step + (factor + offset - step % factor) % factor
            strides[d] = step
            step = self._short(step * region[d])
        return strides

    def elements(self, node: Node) -> Number:
        """Elements of the node's buffer (one copy); of a fragment, those of one lane."""
        if node.held is not None:
            return self._short(self.layout(node).size)  # type: ignore[no-any-return]
        order = self.tree.storage_order(node)
        if not order:
            return 1
        return self._short(self.strides(node)[order[0]] * self.region(node)[order[0]])  # type: ignore[no-any-return]

    def layout(self, node: Node) -> Layout:
        """Where the elements of the node's buffer lie."""
        if node.held is not None:
            return Fragments(node.held, tuple(self.region(node)))
        return Strided(tuple(self.strides(node)), self.elements(node))

    def trips(self, node: Node, leaf: IterVar) -> Number:
        """Iterations of the loop of a leaf: none are left of those inside an atom, and one for each
        tile of an operand, or of sums that are reduced."""
        if node.stage.inside_atom(leaf):
            return 1
        if node.held is not None and node.product is None and leaf in node.op.axis:
            return self._short(self.extent[leaf] // node.held.tile(node.op.axis.index(leaf)))  # type: ignore[no-any-return]
        if node.fold is not None and leaf is node.fold.column.leaf:
            return self._short(ceil_div(self.extent[leaf], node.fold.width))  # type: ignore[no-any-return]
        return self.extent[leaf]

    def vthreads(self, node: Node) -> dict[IterVar, Any]:
        """Virtual threads around `node` that its values differ by: axis -> whether they do (or a
        mask)."""
        if node not in self._vthreads:
            self._vthreads[node] = self._find_vthreads(node)
        return self._vthreads[node]

    def _find_vthreads(self, node: Node) -> dict[IterVar, Any]:
        around = [
            ax for _, ax in reversed(self.tree.path(node)) if self.tree.tag_of.get(ax) == "vthread"
        ]
        result: dict[IterVar, Any] = {}
        for v in around:
            flag: Any = any(v in self.tree.leaves_under[a] for a in self._own_axes(node))
            for base in self.base[node]:
                flag = flag | self._depends(base, v)
            for producer in self.tree.nodes:
                own = in_registers(producer.scope)
                if producer is node or not own or producer.parent is None:
                    continue
                if any(r.reader is node for r in producer.reads):
                    flag = flag | self.vthreads(producer).get(v, False)
            if flag is not False:
                result[v] = flag
        return result

    def _own_axes(self, node: Node) -> tuple[IterVar, ...]:
        return (*node.op.axis, *node.op.reduce_axis)

    def _depends(self, base: Base, leaf: IterVar) -> Any:
        flag: Any = False
        for atom, c in base.terms.items():
            if isinstance(atom, Quotient):
                inner = self._depends(atom.base, leaf)
            else:
                inner = leaf in self.tree.leaves_under[atom]
            if inner is not False:
                flag = flag | (self._counts(c) & inner)
        return flag

    def replicas(self, node: Node) -> Number:
        """Copies of a local buffer: one per virtual thread that its values differ by."""
        if not in_registers(node.scope):
            return 1
        copies: Number = 1
        for ax, flag in self.vthreads(node).items():
            copies = copies * where(flag, self.extent[ax], 1)
        return copies

    def launch(self, root: Node) -> dict[str, Number]:
        """Extent of each block and thread tag of the kernel: the maximum over its stages."""
        result: dict[str, Number] = {}
        for node in self.tree.subtree(root):
            for ax, tag in node.stage.binds.items():
                if tag != "vthread":
                    e = self.extent[ax]
                    result[tag] = self._short(maximum(result[tag], e)) if tag in result else e
            if node.product is not None and not node.product.atom.by_thread:
                lanes = node.product.atom.lanes
                result["threadIdx.x"] = maximum(result.get("threadIdx.x", 1), lanes)
        return result


def _some(size: Any) -> Any:
    """The extent of an axis, of one without values as if it had one: no kernel is made of that."""
    return 1 if isinstance(size, int) and size == 0 else size
