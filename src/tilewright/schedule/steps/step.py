"""What all steps of the schedule language share: the frozen base class, relations, lookups, JSON.

In: a schedule and the names a step holds.  Out: its stages and axes, or a ScheduleError that says
which there are.  Read next: `steps.py` (loops), `stage_steps.py` (new stages).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from tilewright.base.errors import ScheduleError
from tilewright.ir.stmt import SCOPES
from tilewright.schedule.space.decision import Choice, from_json, to_json
from tilewright.te.tensor import IterVar, PlaceholderOp

if TYPE_CHECKING:
    from tilewright.schedule.schedule import Schedule, Stage

Size = int | Choice


@dataclass(frozen=True, eq=False)
class SplitRelation:
    """parent = outer * factor + inner; with `nparts` the factor is ceil_div(parent, nparts)."""

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: Size | None
    nparts: Size | None


@dataclass(frozen=True, eq=False)
class FuseRelation:
    """fused = outer * extent(inner) + inner."""

    outer: IterVar
    inner: IterVar
    fused: IterVar


@dataclass(frozen=True)
class Step:
    """One schedule primitive.

    `apply` checks legality, changes the schedule, returns what users get.
    """

    stage: str
    verb: ClassVar[str] = ""

    def apply(self, s: Schedule) -> Any:
        raise ScheduleError(self.verb, "an abstract step cannot be applied")

    def to_json(self) -> list[Any]:
        return [self.verb, *(plain(getattr(self, f.name)) for f in fields(self))]


def plain(value: Any) -> Any:
    """A field of a step as JSON."""
    if isinstance(value, Choice):
        return {"choice": to_json(value)}
    return [plain(v) for v in value] if isinstance(value, tuple) else value


def unplain(value: Any) -> Any:
    """The inverse of `plain`."""
    if isinstance(value, dict):
        return from_json(value.get("choice"))
    return tuple(unplain(v) for v in value) if isinstance(value, list) else value


def describe(stage: Stage) -> str:
    """The loops of a stage, for error messages."""
    return f"{stage.name} has axes {' '.join(map(repr, stage.leaf_iter_vars))}"


def leaf(step: Step, stage: Stage, name: str) -> IterVar:
    """The loop `name` of a stage.  Raises ScheduleError saying which loops there are."""
    for ax in stage.leaf_iter_vars:
        if ax.name == name:
            return ax
    known = any(ax.name == name for ax in stage.all_iter_vars)
    why = "was split or fused and is no loop any more" if known else f"is no axis of {stage.name}"
    raise ScheduleError(f"{step.verb}({stage.name}.{name})", f"{name} {why}", f"{describe(stage)}.")


def stage_of(step: Step, s: Schedule, name: str = "") -> Stage:
    """The computed stage that `step` names, or the one called `name`."""
    stage = s.find(name or step.stage)
    if isinstance(stage.op, PlaceholderOp):
        raise ScheduleError(
            f"{step.verb}({stage.name})",
            "an input has no loops to schedule",
            "Schedule its cache_read stage.",
        )
    return stage


def refuse_inlined(step: Step, stage: Stage) -> None:
    if stage.attach_kind == "inline":
        raise ScheduleError(
            f"{step.verb}({stage.name})", "the stage was inlined and has no loops",
            "Leave out compute_inline, or schedule its readers.",
        )  # fmt: skip


def refuse_host(step: Step, stage: Stage) -> None:
    """Refuse a step that replaces the loops of `stage` while another stage is computed in one."""
    for child in stage.schedule.stages:
        if child.attach is not None and child.attach[0] is stage:
            raise ScheduleError(
                f"{step.verb}({stage.name})",
                f"{child.name} is computed at {child.attach[1].name}, which goes away",
                f"Call compute_root on {child.name} first.",
            )


def check_scope(place: str, scope: str) -> None:
    if scope not in SCOPES:
        raise ScheduleError(place, "unknown scope", f"Use one of {', '.join(SCOPES)}.")
