"""Stages that several blocks compute for one: which are, how many blocks, where their tiles lie.

In: a node of a loop tree, its bounds.  Out: numbers, which are ints or int64 vectors.  Masks, facts
and lowering all ask here; `structure.py` has checked what must hold.

The kernel of a joined stage has a group of blocks for each tile: tiles are the blocks of the loops
around the stage, the blocks of a group those of its own loops.  Each tile has a region of the
buffer, one after the other, and a counter: the block that finds it full goes on with what follows
the stage.  All block indices of the kernel are of one of both kinds.
Read next: `lowering/joins.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.ir.stmt import BLOCK_TAGS
from tilewright.schedule.tree.bounds import Bounds
from tilewright.schedule.tree.structure import Node, Structure
from tilewright.te.tensor import IterVar


def joined_in(nodes: Iterable[Node]) -> Node | None:
    """The joined stage of a kernel, if it has one."""
    return next((node for node in nodes if node.joined), None)


def tile_axes(node: Node, tree: Structure) -> list[IterVar]:
    """The loops over blocks around a joined stage, outermost first."""
    return [ax for _, ax in reversed(tree.path(node))]


def tiles(node: Node, bounds: Bounds) -> Any:
    """Groups of blocks, each with a counter."""
    count: Any = 1
    for ax in tile_axes(node, bounds.tree):
        count = count * bounds.extent[ax]
    return count


def group(node: Node, bounds: Bounds) -> Any:
    """Blocks of a group: those that are counted."""
    count: Any = 1
    for ax, tag in node.stage.binds.items():
        if tag in BLOCK_TAGS:
            count = count * bounds.extent[ax]
    return count


def check_joins(tree: Structure) -> None:
    """Raise ScheduleError for a joined stage whose blocks do not come apart into tiles and groups.

    Steps cannot know: loops may be bound, and stages moved, afterwards.
    """
    for node in tree.nodes:
        if node.joined:
            _check(node, tree)


def _check(node: Node, tree: Structure) -> None:
    assert node.parent is not None and node.attach_axis is not None
    place = f"join({node.name}, {node.parent.name}.{node.attach_axis.name})"
    if node.stage.scope != "global":
        raise ScheduleError(
            place, f"its buffer is {node.stage.scope}, which other blocks do not see",
            'Leave it in scope "global", or use compute_at.',
        )  # fmt: skip
    around = dict.fromkeys(tile_axes(node, tree))
    for ax in around:
        if tree.tag_of.get(ax) not in BLOCK_TAGS:
            raise ScheduleError(
                place, f"{ax.name}, around it, is no loop over blocks",
                "Bind all loops of the reader, down to that one, to blockIdx, or fuse them.",
            )  # fmt: skip
    taken = {tree.tag_of[ax]: ax for ax in around}
    for ax, tag in node.stage.binds.items():
        if tag in taken:
            raise ScheduleError(
                place, f"{ax.name} is {tag}, as {taken[tag].name} around it: each block would"
                " compute a part of another tile",
                "Bind it to an index that the loops around it leave free.",
            )  # fmt: skip
    for other in tree.subtree(node.root):
        if other is not node and other.joined:
            raise ScheduleError(
                place, f"{other.name} is joined in the same kernel", "Join one of them."
            )
        for ax, tag in other.stage.binds.items():
            if tag in BLOCK_TAGS and other is not node and ax not in around:
                raise ScheduleError(
                    place, f"{other.name}.{ax.name} is {tag} inside that loop, where one block of a"
                    " tile is left",
                    f"Join it at {ax.name}, or leave the loop unbound.",
                )  # fmt: skip
