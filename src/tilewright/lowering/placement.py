"""Where the iterations of a kernel are: every axis as an expression over loops and threads.

In: a root of a `LoopTree`, `Bounds` (ints).  Out: `Placement`, immutable: launch, leaves, axes and
where the region of each stage starts.  Read next: `accesses.py`, `guards.py`.

Lanes of a warp are a thread index that no leaf of a stage with an atom takes: `launch` has it, and
`values` are those where an atom, or a tile of an operand, begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import LoweringError
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.atoms import Atom
from tilewright.ir.expr import Expr
from tilewright.ir.symbols import last, plain
from tilewright.schedule.tree.loop_tree import Bounds, LoopTree, Node
from tilewright.schedule.tree.rings import loaders
from tilewright.te.tensor import IterVar


@dataclass(frozen=True, eq=False)
class Placement:
    """The loops of one kernel: those of a root stage and of all that is computed inside it.

    nodes:       these stages, producers first
    launch:      block or thread tag -> extent; thread_var: its variable
    leaf:        leaf axis -> a loop variable, a thread variable, or 0 where it runs once
    values:      every axis -> its value over the leaves, from the start of the stage's region
    region_base: per stage and dimension, where its region starts
    simplify:    knows the ranges of all variables
    """

    tree: LoopTree
    bounds: Bounds
    root: Node
    nodes: tuple[Node, ...]
    launch: Mapping[str, Any]
    thread_var: Mapping[str, Expr]
    leaf: Mapping[IterVar, Expr]
    values: Mapping[IterVar, Expr]
    region_base: Mapping[Node, tuple[Expr, ...]]
    simplify: Simplifier

    def extent(self, axis: IterVar) -> Any:
        """An int, or an expression of symbols."""
        return plain(self.bounds.extent[axis])

    def trips(self, node: Node, axis: IterVar) -> Any:
        """Iterations of the loop of a leaf of `node`."""
        return plain(self.bounds.trips(node, axis))

    def is_loop(self, axis: IterVar) -> bool:
        """Whether the leaf `axis` is run by a loop: not by threads, and more than once."""
        return self.leaf[axis].op == "var" and self.tree.tag_of.get(axis, "vthread") == "vthread"

    def coordinate(self, node: Node, axis: IterVar) -> Expr:
        """Where in the whole tensor, or in the reduction, an iteration of `node` is."""
        value = self.values[axis]
        if axis.kind == "spatial":
            value = self.region_base[node][node.op.axis.index(axis)] + value
        elif axis in self.bounds.begins:
            value = self.bounds.begins[axis].expression(self.values) + value
        return self.simplify(value)

    def coordinates(self, node: Node) -> dict[Expr, Expr]:
        """The variable of every axis of the stage -> its coordinate."""
        axes = (*node.op.axis, *node.op.reduce_axis)
        return {ax.var: self.coordinate(node, ax) for ax in axes}

    def lane(self, atom: Atom) -> Expr:
        """The lane of the unit of an atom that the statements at hand are for."""
        return E.const(0) if atom.by_thread else self.thread_var["threadIdx.x"]

    def children(self, node: Node, axis: IterVar) -> list[Node]:
        """The stages computed at the loop `axis` of `node`, producers first."""
        return [c for c in self.nodes if c.parent is node and c.attach_axis is axis]

    def producer(self, read: Expr) -> Node | None:
        """The stage that stores what `read` reads; None for an input."""
        return self.tree.of_stage.get(self.tree.schedule[read.attr])


def place(tree: LoopTree, bounds: Bounds, root: Node) -> Placement:
    nodes = tuple(tree.subtree(root))
    launch = {tag: plain(e) for tag, e in bounds.launch(root).items()}
    for tag, e in launch.items():
        if isinstance(e, Expr) and tag.startswith("threadIdx"):
            raise LoweringError(
                f"{root.name}: {tag}", f"a block would have {e} threads, not a number",
                "Split the loop by a factor and bind the inner one.",
            )  # fmt: skip
    if _loads_beside_one_warp(nodes, launch, bounds):
        launch["threadIdx.y"] = 1
    thread_var = {tag: E.var(tag.replace("Idx.", "_")) for tag in sorted(launch)}
    ranges = dict(bounds.symbols.ranges)
    ranges |= {thread_var[tag]: (0, last(e, bounds.symbols)) for tag, e in launch.items()}
    leaf: dict[IterVar, Expr] = {}
    for node in nodes:
        for ax in node.stage.leaf_iter_vars:
            extent, tag = plain(bounds.trips(node, ax)), node.stage.binds.get(ax, "")
            if not isinstance(extent, Expr) and extent == 1:
                leaf[ax] = E.const(0)
            elif tag and tag != "vthread":
                leaf[ax] = thread_var[tag]
            else:
                leaf[ax] = E.var(ax.name)
                ranges[leaf[ax]] = (0, last(extent, bounds.symbols))
    simplify = Simplifier(ranges)
    values: dict[IterVar, Expr] = {}
    for node in nodes:
        inner = {r.inner: plain(bounds.extent[r.inner]) for r in node.stage.relations}
        tiles = _tiles(node)
        loops = {ax: leaf[ax] * tiles.get(ax, 1) for ax in node.stage.leaf_iter_vars}
        values |= node.stage.axis_values(loops, inner)
    region_base = {
        node: tuple(simplify(b.expression(values)) for b in bounds.base[node]) for node in nodes
    }
    return Placement(
        tree, bounds, root, nodes, launch, thread_var, leaf, values, region_base, simplify
    )


def _loads_beside_one_warp(
    nodes: Sequence[Node], launch: Mapping[str, Any], bounds: Bounds
) -> bool:
    """Whether warps that load would be told from one that computes by its lanes alone: they are a
    second row then, since all lanes of a unit run an atom."""
    together = any(n.product is not None and not n.product.atom.by_thread for n in nodes)
    alone = not {"threadIdx.y", "threadIdx.z"}.intersection(launch)
    return together and alone and any(loaders(node, bounds) for node in nodes)


def _tiles(node: Node) -> dict[IterVar, int]:
    """Loops over tiles -> what they step by."""
    if node.held is None or node.product is not None:
        return {}
    fold = node.fold
    columns = {} if fold is None else {fold.column.leaf: fold.width}
    return {node.op.axis[dim]: node.held.tile(dim) for dim in node.held.dims} | columns
