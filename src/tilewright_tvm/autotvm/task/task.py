"""`autotvm.task.task`: how much a schedule computes."""

from __future__ import annotations

from tilewright.base.doors import door
from tilewright.base.errors import ScheduleError
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.task import Task

__all__ = ["Task", "compute_flop"]


@door(ScheduleError, "autotvm.task.task.compute_flop")
def compute_flop(sch: Schedule) -> float:
    """The operations on numbers of all stages of a schedule.

    Raises ScheduleError where there are none, as where elements are only moved.
    """
    found = sch.dag.flop_ct
    if not found:
        raise ScheduleError(
            "compute_flop", "nothing is computed, elements are only moved",
            "Say how much it is with cfg.add_flop.",
        )  # fmt: skip
    return found
