"""What each stage reads and writes, and with which loops the place moves.

In: a `LoopTree`, its `Bounds`.  Out: `Touch`es: every read of a stage and the write of its result.
Read next: `resources.py`.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.schedule.space.decision import Number
from tilewright.schedule.state import FuseRelation, SplitRelation
from tilewright.schedule.tree.loop_tree import Base, Bounds, Node, Quotient
from tilewright.schedule.tree.structure import Structure
from tilewright.te.tensor import IterVar, Tensor


@dataclass(frozen=True, eq=False)
class Touch:
    """`node` reads `tensor` (or writes its own result) at `index`, over its root axes.

    producer: the stage that stores the tensor; None for an input, and for what statements made
    axes:     root axes of the node that the index depends on; by_dim: in each dimension
    chosen:   for each dimension, a read that its index depends on: data say where it points
    """

    node: Node
    tensor: Tensor
    producer: Node | None
    index: tuple[Expr, ...]
    write: bool
    axes: frozenset[IterVar]
    by_dim: tuple[frozenset[IterVar], ...]
    chosen: tuple[Expr | None, ...]

    @property
    def scope(self) -> str:
        return self.producer.scope if self.producer is not None else "global"

    @property
    def bytes(self) -> int:
        """Bytes of an element; where several tensors are written, of one in each."""
        return self.node.op.bytes if self.write else self.tensor.dtype.bytes


class Anatomy:
    """What a loop tree says about memory, whatever its numbers.  `anatomy(tree)` makes one a tree.

    splits: relation that makes an axis out of others (split), or takes it from one (fuse)
    """

    def __init__(self, tree: Structure) -> None:
        self.relation: dict[IterVar, SplitRelation | FuseRelation] = {}
        self.reads: dict[Node, list[Touch]] = {}
        self.write: dict[Node, Touch] = {}
        self.axis_of: dict[Expr, IterVar] = {}
        for node in tree.nodes:
            for r in node.stage.relations:
                if isinstance(r, SplitRelation):
                    self.relation[r.parent] = r
                else:
                    self.relation[r.outer] = self.relation[r.inner] = r
            self.axis_of |= {ax.var: ax for ax in (*node.op.axis, *node.op.reduce_axis)}
        for node in tree.nodes:
            self.reads[node] = [
                self._touch(tree, node, e.attr, e.args, write=False)
                for e in dict.fromkeys(n for n in E.walk(node.body) if n.op == "read")
            ]
            index = tuple(ax.var for ax in node.op.axis)
            self.write[node] = self._touch(tree, node, node.stage.tensor, index, write=True)

    def _touch(
        self, tree: Structure, node: Node, tensor: Tensor, index: tuple[Expr, ...], *, write: bool
    ) -> Touch:
        producer = node if write else tree.of_stage.get(tree.schedule[tensor])
        by_dim = tuple(
            frozenset(self.axis_of[v] for v in E.free_variables(i) if v in self.axis_of)
            for i in index
        )
        axes = frozenset[IterVar]().union(*by_dim)
        chosen = tuple(next((n for n in E.walk(i) if n.op == "read"), None) for i in index)
        return Touch(node, tensor, producer, tuple(index), write, axes, by_dim, chosen)


_known: weakref.WeakKeyDictionary[Structure, Anatomy] = weakref.WeakKeyDictionary()


def anatomy(tree: Structure) -> Anatomy:
    found = _known.get(tree)
    if found is None:
        found = _known[tree] = Anatomy(tree)
    return found


def whole_work(node: Node) -> int:
    """Iterations of the node's computation, each element once."""
    work = 1
    for ax in (*node.op.axis, *node.op.reduce_axis):
        work *= int(ax.extent or 1)
    return work


def strides(bounds: Bounds, touch: Touch) -> list[Number]:
    """Strides of the buffer that is touched, in elements."""
    if touch.producer is not None:
        return bounds.strides(touch.producer)
    result: list[Number] = []
    step = 1
    for size in reversed(touch.tensor.shape):
        result.append(step)
        step *= size
    return result[::-1]


def shape(bounds: Bounds, touch: Touch) -> list[Number]:
    """Extents of the buffer that is touched."""
    if touch.producer is None:
        return list(touch.tensor.shape)
    return bounds.region(touch.producer)


def moves(bounds: Bounds, touch: Touch) -> frozenset[IterVar]:
    """Leaf axes whose steps change the address, as far as the structure tells."""
    return _leaves(bounds, touch, touch.axes)


def moved_dimensions(bounds: Bounds, touch: Touch) -> dict[IterVar, list[int]]:
    """For each of these axes the dimensions in which the place changes."""
    found: dict[IterVar, list[int]] = {}
    for dim, axes in enumerate(touch.by_dim):
        for leaf in _leaves(bounds, touch, axes):
            found.setdefault(leaf, []).append(dim)
    return found


def _leaves(bounds: Bounds, touch: Touch, axes: frozenset[IterVar]) -> frozenset[IterVar]:
    leaves: set[IterVar] = set()
    for atom in atoms(bounds, touch.node, axes):
        leaves |= bounds.tree.leaves_under[atom]
    if touch.producer is not None and touch.producer.parent is not None:
        leaves -= touch.producer.points
    return frozenset(leaves)


def atoms(bounds: Bounds, node: Node, axes: frozenset[IterVar]) -> set[IterVar]:
    """Axes that root axes of `node` are computed from: they, parts of axes around it."""
    found = set(axes)
    for axis in axes:
        if axis.kind == "spatial" and node.parent is not None:
            _collect(bounds.base[node][node.op.axis.index(axis)], found)
        elif axis in bounds.begins:
            _collect(bounds.begins[axis], found)
    return found


def _collect(base: Base, into: set[IterVar]) -> None:
    for atom in base.terms:
        if isinstance(atom, Quotient):
            _collect(atom.base, into)
        else:
            into.add(atom)
