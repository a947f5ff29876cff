"""The vocabulary of schedules: one frozen step per primitive, with its check, effect and spelling.

In: names of stages and axes, numbers.  Out: a changed `ScheduleState`.  A step names stages and
axes by their unique names, so a list of steps replays on an equal DAG, prints as runnable Python
(`python.py`), and is what records store (`table.py`).  Numbers may be `Choice`s.
The `rewrite:` in a step's docstring is executed by tests/schedule/test_steps.py.
Read next: `step.py`, `loops.py` (loops of a stage), `places.py` (where a stage is computed),
`stages.py` (new stages), `copies.py` (how copies are made).
"""

from tilewright.schedule.steps.copies import AsyncCopy, Pipeline
from tilewright.schedule.steps.loops import (
    ANNOTATIONS,
    PRAGMAS,
    Annotate,
    Bind,
    Fuse,
    Pragma,
    Reorder,
    Split,
)
from tilewright.schedule.steps.places import (
    ComputeAt,
    ComputeInline,
    ComputeRoot,
    SetScope,
    StorageAlign,
)
from tilewright.schedule.steps.stages import CacheRead, CacheWrite, Pack, RFactor
from tilewright.schedule.steps.step import Step, describe
from tilewright.schedule.steps.table import STEPS, step_from_json

__all__ = [
    "ANNOTATIONS", "PRAGMAS", "STEPS", "Annotate", "AsyncCopy", "Bind", "CacheRead", "CacheWrite",
    "ComputeAt", "ComputeInline", "ComputeRoot", "Fuse", "Pack", "Pipeline", "Pragma", "RFactor",
    "Reorder", "SetScope", "Split", "Step", "StorageAlign", "describe", "step_from_json",
]  # fmt: skip
