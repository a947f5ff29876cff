"""Blocks that wait for nobody: the last one of a tile does what is left.

In: a joined stage, its statements, what follows it.  Out: statements, indices of tiles.

rewrite:  C.rf of a tile, by 4 blocks; C of that tile
          ->   C.rf, each block its part
               barrier
               last of 4 blocks at C.rf.come[tile]: C
What a block stores to its part is behind the barrier, by which the first thread, which counts the
block, has seen it all.  Counters are zero between launches: the last block leaves it so, and
whoever runs the program makes them so at first.
Read next: `ir/stmt.py`, `Join`; `emission.py`, which puts it behind the stage.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tilewright.base.errors import LoweringError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Barrier, Buffer, Join, Stmt, seq
from tilewright.ir.symbols import plain
from tilewright.lowering.placement import Placement
from tilewright.schedule.tree import joins
from tilewright.schedule.tree.loop_tree import Node


def tile(node: Node, place: Placement) -> Expr:
    """The number of the tile that a block works on."""
    flat: Expr = E.const(0)
    for ax in joins.tile_axes(node, place.tree):
        flat = flat * place.extent(ax) + place.leaf[ax]
    return place.simplify(flat)


def finished(node: Node, place: Placement, counts: Buffer, made: Stmt, rest: Stmt) -> Stmt:
    """What a joined stage does, then, in the last block of its tile, the rest.

    Raises LoweringError where a call says how many blocks there are.
    """
    blocks: Any = plain(joins.group(node, place.bounds))
    if isinstance(blocks, Expr):
        raise LoweringError(
            f"join({node.name})", f"{blocks} blocks would share a tile, not a number of them",
            "Split the loop that is bound to blocks with nparts=.",
        )  # fmt: skip
    threads = prod(n for tag, n in place.launch.items() if tag.startswith("threadIdx"))
    between = Barrier() if threads > 1 else None
    return seq(made, between, Join(counts, tile(node, place), blocks, rest))
