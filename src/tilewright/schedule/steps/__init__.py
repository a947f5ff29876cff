"""The vocabulary of schedules: one frozen step per primitive, with its check, effect and spelling.

In: names of stages and axes, numbers.  Out: a changed `ScheduleState`.  A step names stages and
axes by their unique names, so a list of steps replays on an equal DAG, prints as runnable Python
(`python.py`), and is what records store (`table.py`).  Numbers may be `Choice`s.
The `rewrite:` in a step's docstring is executed by tests/schedule/test_steps.py.
Read next: `step.py`, `loops.py` (loops of a stage), `atoms.py` (loops that a matrix instruction
runs), `places.py` (where a stage is computed), `joins.py` (by which blocks), `copies.py` (how
copies are made), `stages.py`, `layouts.py`, `products.py`, `quotients.py`, `matrices.py` (new
stages), `apart.py`
(factors), `groups.py` (of terms), `widening.py` (types).
"""

from tilewright.schedule.steps.apart import Apart
from tilewright.schedule.steps.atoms import Tensorize
from tilewright.schedule.steps.copies import AsyncCopy, BulkCopy, Pipeline
from tilewright.schedule.steps.digits import Digits
from tilewright.schedule.steps.groups import SumGroups
from tilewright.schedule.steps.joins import Join
from tilewright.schedule.steps.layouts import Pack
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
from tilewright.schedule.steps.matrices import AsProduct
from tilewright.schedule.steps.pieces import SplitSoftmax
from tilewright.schedule.steps.places import (
    AccumulateAt,
    ComputeAt,
    ComputeInline,
    ComputeRoot,
    SetScope,
    StorageAlign,
    StorageOrder,
    Swizzle,
)
from tilewright.schedule.steps.products import Pad
from tilewright.schedule.steps.quotients import DivideLast
from tilewright.schedule.steps.stages import CacheRead, CacheWrite, RFactor
from tilewright.schedule.steps.step import Step, describe
from tilewright.schedule.steps.table import STEPS, step_from_json
from tilewright.schedule.steps.widening import Widen

__all__ = [
    "ANNOTATIONS", "PRAGMAS", "STEPS", "AccumulateAt", "Annotate", "Apart", "AsProduct",
    "AsyncCopy", "Bind", "BulkCopy", "CacheRead", "CacheWrite", "ComputeAt", "ComputeInline",
    "ComputeRoot", "Digits",
    "DivideLast", "Fuse", "Join", "Pack", "Pad", "Pipeline", "Pragma", "RFactor", "Reorder",
    "SetScope", "Split", "SplitSoftmax", "Step", "StorageAlign", "StorageOrder", "SumGroups",
    "Swizzle",
    "Tensorize", "Widen", "describe", "step_from_json",
]  # fmt: skip
