"""The vocabulary of schedules: one frozen step per primitive, with its check, effect and spelling.

In: names of stages and axes, numbers.  Out: a changed schedule.  Read next: `step.py`, `loops.py`
(steps on the loops of a stage), `stages.py` (steps that make stages).
"""

from tilewright.schedule.steps.loops import (
    ANNOTATIONS,
    PRAGMAS,
    Annotate,
    Bind,
    ComputeAt,
    ComputeInline,
    ComputeRoot,
    Fuse,
    Pragma,
    Reorder,
    SetScope,
    Split,
    StorageAlign,
)
from tilewright.schedule.steps.stages import CacheRead, CacheWrite, Pack, RFactor
from tilewright.schedule.steps.step import Step

__all__ = [
    "ANNOTATIONS", "PRAGMAS", "Annotate", "Bind", "CacheRead", "CacheWrite", "ComputeAt",
    "ComputeInline", "ComputeRoot", "Fuse", "Pack", "Pragma", "RFactor", "Reorder", "SetScope",
    "Split", "Step", "StorageAlign",
]  # fmt: skip
