"""`te.schedule`, TVM's name for what a schedule is made of.

In: stages.  Out: the classes that old scripts compare with, and what a stage says of a loop under
TVM's names.  Read next: `state.py`, `schedule.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import absent
from tilewright.schedule.schedule import Schedule, Stage, create_schedule
from tilewright.schedule.state import FuseRelation as Fuse
from tilewright.schedule.state import SplitRelation as Split
from tilewright.te.ir_builder import BufferVar as Buffer
from tilewright.te.tensor import IterVar

__all__ = ["Buffer", "Fuse", "IterVar", "Schedule", "Split", "Stage", "create_schedule"]

_ELSEWHERE = {
    "InferBound": "lower(s, args) shows the loops, print(s) those of an unfinished schedule.",
    "ScheduleOps": "lower(s, args) shows the loops.",
    "SpecializedCondition": "Extents that are numbers need none; te.var is guarded where it must.",
}


def __getattr__(name: str) -> Any:
    raise absent("te.schedule", name, _ELSEWHERE)
