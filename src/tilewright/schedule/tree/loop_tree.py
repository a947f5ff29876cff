"""The loop tree: the structure of a schedule with its numbers and its text.

In: a schedule, its decisions open or closed.  Out: `LoopTree`; `LoopTree.bounds` gives its numbers
under an assignment, so one tree serves a whole population.
Read next: `structure.py`, `bounds.py`, `printer.py`; `resources.py` (what bounds ask of a device).
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.base.errors import SpaceError
from tilewright.schedule.scopes import SCOPE_RANK as SCOPE_RANK
from tilewright.schedule.scopes import tag_rank as tag_rank
from tilewright.schedule.space.decision import Number
from tilewright.schedule.state import ScheduleState, StageState
from tilewright.schedule.tree.bounds import Base as Base
from tilewright.schedule.tree.bounds import Bounds as Bounds
from tilewright.schedule.tree.bounds import Quotient as Quotient
from tilewright.schedule.tree.joins import check_joins
from tilewright.schedule.tree.open_bounds import OpenBounds
from tilewright.schedule.tree.printer import nest_text
from tilewright.schedule.tree.recurrence import check_scan, steps_of
from tilewright.schedule.tree.structure import Node as Node
from tilewright.schedule.tree.structure import Read as Read
from tilewright.schedule.tree.structure import Structure


class LoopTree(Structure):
    """The structure of a schedule, analysed once for many calls of `bounds`."""

    def __init__(self, schedule: ScheduleState[StageState]) -> None:
        super().__init__(schedule)
        for scan in steps_of(self).scans:
            check_scan(self, scan)
        check_joins(self)

    def bounds(self, assignment: Mapping[str, Number] | None = None) -> Bounds:
        """All numbers under `assignment` (decision name -> int or int64 vector)."""
        kind = OpenBounds if self.schedule.dag.symbols else Bounds
        return kind(self, assignment if assignment is not None else {})

    def __str__(self) -> str:
        """The loop nests, with all numbers where no decision is open; see `printer.py`."""
        try:
            bounds = self.bounds()
        except SpaceError:  # a decision is open
            bounds = None
        return nest_text(self.schedule, self, bounds)

    def __repr__(self) -> str:
        kernels = ", ".join(node.name for node in self.roots)
        return f"LoopTree(kernels: {kernels}; {len(self.nodes)} stored stages)"
