"""Who rounds the operands of atoms that look at the first digits of float32 only.

In: the nodes of a loop tree, producers first, with their products.  Out: `Node.rounds`,
`Node.rounded`, `Node.parts`.  An operand is rounded once, where that costs least: a constant when
it is packed; a slab of an image when it has come to shared memory, for all places in the window
that read it; what groups of warps read likewise; all else by the lanes that have loaded it.
Where groups multiply numbers of two parts, the thread that has copied one takes it apart: the
smaller part goes to another buffer.  Warps do so in registers.
Read next: `lowering/ring.py`, `lowering/fragments.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tilewright.base.artifact import Packing
from tilewright.base.errors import ScheduleError
from tilewright.schedule.copies import source_of
from tilewright.te.tensor import Tensor

if TYPE_CHECKING:
    from tilewright.schedule.tree.structure import Node

LOADED = "loaded"  # by the lane that has loaded it
ARRIVED = "arrived"  # in shared memory, by the thread that has copied it there or by the engine


def find_rounding(nodes: Iterable[Node], of: Mapping[Tensor, Node]) -> None:
    """Tell each node when what it stores is rounded, and whether it is afterwards.

    of: the node of each tensor that has one
    Raises ScheduleError for a constant that is packed rounded and read by anything else.
    """
    for node in nodes:
        found = source_of(node.body)
        source = of.get(found[1].attr) if found is not None else None
        node.rounded = _packs_rounded(node) or (source is not None and source.rounded)
        if _is_operand(node):
            node.rounds = "" if node.rounded else LOADED
        elif node.rounded:
            _check_readers(node)
        elif _arrives(node):
            node.rounds = ARRIVED
            node.parts = max(_parts(read.reader) for read in node.reads)
            _check_engine(node)
        node.rounded = node.rounded or bool(node.rounds)


def _packs_rounded(node: Node) -> bool:
    packing = node.op.attrs.get("packing")
    return isinstance(packing, Packing) and packing.gives_rounded


def _is_operand(node: Node) -> bool:
    """Whether it is held for an atom that cuts."""
    other = node.product is not None or node.fold is not None
    return node.held is not None and not other and bool(node.held.atom.cut)


def _check_readers(node: Node) -> None:
    for read in node.reads:
        reader = read.reader
        atom = reader.product.atom if reader.product is not None else None
        if _is_operand(reader) or (atom is not None and atom.by_group and atom.cut):
            continue
        if source_of(reader.body) is None or not reader.reads:
            raise ScheduleError(
                f"pack({node.name}, rounded=True)",
                f"{reader.name} reads it, which no atom that rounds its operands does",
                "Leave rounded out.",
            )  # fmt: skip


def _parts(reader: Node) -> int:
    """Of the numbers that a group reads."""
    by_group = reader.product is not None and reader.product.atom.by_group
    return reader.product.atom.parts if by_group and reader.product is not None else 1


def _check_engine(node: Node) -> None:
    if node.view is not None and node.parts > 1:
        raise ScheduleError(
            f"bulk_copy({node.name})", "an engine takes no numbers apart, as 3xtf32 wants them",
            "Leave it out: threads that copy take apart what they copied.",
        )  # fmt: skip


def _arrives(node: Node) -> bool:
    """Whether threads copy it in the background, for groups of warps, or as a slab; or a copy
    engine does, which rounds what it brings, for atoms only."""
    if not node.stage.is_copied or not node.reads:
        return False
    if node.view is not None and all(_is_operand(read.reader) for read in node.reads):
        return True
    products = [read.reader.product for read in node.reads]
    if any(p is not None and p.atom.by_group and (p.atom.cut or p.atom.split) for p in products):
        return True
    return all(_is_slab_of(node, read.reader) for read in node.reads)


def _is_slab_of(node: Node, operand: Node) -> bool:
    """Whether `operand` is loaded from the tile several times: inside loops of the sum along no
    depth of its atom, a window."""
    reader = operand.parent
    if not _is_operand(operand) or operand.body.op != "read":
        return False
    if reader is None or reader is not node.parent or reader.product is None:
        return False
    leaves = reader.stage.leaf_iter_vars
    if node.attach_axis not in leaves or operand.attach_axis not in leaves:
        return False
    between = leaves[leaves.index(node.attach_axis) + 1 : leaves.index(operand.attach_axis) + 1]
    depth = reader.product.parts["k"].root
    return any(ax in reader.op.reduce_axis and ax is not depth and ax.size > 1 for ax in between)
