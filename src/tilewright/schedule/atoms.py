"""Loops that a matrix instruction runs: how they were split off, and how long they are.

In: a stage and one of its loops.  Out: the axis of the computation that the loop is the innermost
part of, and the factors of the splits in between.  Read next: `steps/atoms.py`, `tree/products.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedule.space.decision import Size
from tilewright.schedule.state import SplitRelation, StageState
from tilewright.te.tensor import IterVar

LETTERS = "mnk"  # of the loops inside an atom, the outermost first


@dataclass(frozen=True)
class Part:
    """A loop that is the innermost part of a whole axis.

    root:   the axis
    splits: of it and of its parts, the outermost first; the loop is the inner one of the last
    """

    leaf: IterVar
    root: IterVar
    splits: tuple[SplitRelation, ...]

    @property
    def size(self) -> Size | None:
        """Iterations of the loop; None where they are not given."""
        return self.splits[-1].factor if self.splits else self.root.size


def innermost_part(stage: StageState, leaf: IterVar) -> Part | None:
    """The axis that ends in the loop `leaf`; None where the loop is a part of another kind."""
    made = {r.inner: r for r in stage.relations if isinstance(r, SplitRelation)}
    splits: list[SplitRelation] = []
    root = leaf
    while root in made:
        splits.append(made[root])
        root = made[root].parent
    if root not in (*stage.op.axis, *stage.op.reduce_axis):
        return None
    return Part(leaf, root, tuple(reversed(splits)))
