"""All steps by their verbs: the table behind the JSON of a schedule.

In: a step's verb and fields as lists.  Out: the step.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from tilewright.base.errors import ScheduleError, SpaceError
from tilewright.schedule.space.decision import Choice
from tilewright.schedule.steps.apart import Apart
from tilewright.schedule.steps.atoms import Tensorize
from tilewright.schedule.steps.copies import AsyncCopy, BulkCopy, Pipeline
from tilewright.schedule.steps.digits import Digits
from tilewright.schedule.steps.groups import SumGroups
from tilewright.schedule.steps.joins import Join
from tilewright.schedule.steps.layouts import Pack
from tilewright.schedule.steps.loops import Annotate, Bind, Fuse, Pragma, Reorder, Split
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
from tilewright.schedule.steps.step import Step, unplain
from tilewright.schedule.steps.widening import Widen

STEPS: dict[str, type[Step]] = {
    cls.verb: cls
    for cls in (
        Split, Fuse, Reorder, Bind, Annotate, Pragma, ComputeAt, ComputeInline, ComputeRoot,
        SetScope, CacheRead, CacheWrite, RFactor, StorageAlign, StorageOrder, Pack, Pad, AsProduct,
        Tensorize, AsyncCopy, Pipeline, Swizzle, BulkCopy, Join, AccumulateAt, DivideLast, Widen,
        SplitSoftmax, Apart, SumGroups, Digits,
    )
}  # fmt: skip


LARGEST = 1 << 31  # no number in a step is larger: extents are not, and products stay exact


def step_from_json(data: Any) -> Step:
    """The step behind `Step.to_json`; anything else is a ScheduleError."""
    try:
        return _step(data)
    except (RecursionError, SpaceError) as error:
        raise ScheduleError("step_from_json", f"not a step ({error})") from None


def _step(data: Any) -> Step:
    verb = data[0] if isinstance(data, list) and data else None
    cls = STEPS.get(verb) if isinstance(verb, str) else None
    if cls is None or not _required(cls) <= len(data) - 1 <= len(fields(cls)):
        raise ScheduleError(
            "step_from_json", f"not a step: {data!r:.200}", f"Verbs: {', '.join(STEPS)}."
        )
    values = list(map(unplain, data[1:]))
    for field, value in zip(fields(cls), values, strict=False):
        if not _holds(str(field.type), value):
            raise ScheduleError(
                f"step_from_json({data!r:.200})",
                f"{field.name} must be {field.type}, not {value!r:.200}",
                f"Numbers are at most {LARGEST}.",
            )
    return cls(*values)


def _required(cls: type[Step]) -> int:
    """How many fields a step of this class must have; those with defaults come last."""
    return sum(field.default is MISSING for field in fields(cls))


_FIELD_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "bool": (bool,), "Size": (int, Choice),
    "Size | None": (int, Choice, type(None)),
}  # fmt: skip


def _holds(annotation: str, value: Any) -> bool:
    """Whether a field of a step may be `value`."""
    if annotation == "Block":  # of one dimension; see `layouts.py`
        return _holds("tuple[Size, ...]" if isinstance(value, tuple) else "Size", value)
    item = annotation.removeprefix("tuple[").removesuffix(", ...]")
    if item != annotation:
        return isinstance(value, tuple) and all(_holds(item, v) for v in value)
    if isinstance(value, int) and abs(value) > LARGEST:
        return False
    return isinstance(value, _FIELD_TYPES[annotation])
