"""What all steps of the schedule language share: the frozen base class, lookups, JSON of fields.

In: a `ScheduleState` and the names a step holds.  Out: its stages and axes, or a ScheduleError that
says which there are.  Read next: `names.py`, `loops.py`, `places.py`, `stages.py`.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from tilewright.base.errors import ScheduleError
from tilewright.schedule.scopes import SCOPES
from tilewright.schedule.space.decision import (
    Assignment,
    Choice,
    evaluate,
    from_json,
    to_json,
    variables,
)
from tilewright.schedule.state import ScheduleState, StageState
from tilewright.schedule.steps.names import PythonNames
from tilewright.te.opaque import OpaqueOp
from tilewright.te.recurrence import ScanOp
from tilewright.te.tensor import ComputeOp, IterVar, PlaceholderOp

AnyState = ScheduleState[StageState]


@dataclass(frozen=True)
class Step:
    """One schedule primitive: what it does to a state, and how it is spelled.

    Its fields are its JSON: strings, sizes (int or `Choice`), None, and tuples of those.
    """

    stage: str
    verb: ClassVar[str] = ""

    def apply(self, s: AnyState) -> Any:
        """Check legality, change the state, return what users get.

        Raises ScheduleError, the state then being as it was.
        """
        raise ScheduleError(self.verb, "an abstract step cannot be applied")

    def python(self, names: PythonNames) -> str:
        """The call that makes this step, printed before it is applied."""
        return f"{names.stage(self.stage)}.{self.verb}()"

    def decisions(self) -> tuple[str, ...]:
        """Names of the decisions that are still open in its sizes."""
        values = [v for f in fields(self) for v in _listed(getattr(self, f.name))]
        return tuple(name for v in values for name in variables(v))

    def under(self, assignment: Assignment) -> Step:
        """The step with what `assignment`, of ints, decides."""
        own = [getattr(self, f.name) for f in fields(self)]
        closed = [_closed(value, assignment) for value in own]
        return self if all(map(operator.is_, own, closed)) else type(self)(*closed)

    def to_json(self) -> list[Any]:
        """Fields at the end that have their defaults are left out."""
        values = [(getattr(self, f.name), f.default) for f in fields(self)]
        while values and values[-1][0] == values[-1][1]:
            values.pop()
        return [self.verb, *(plain(value) for value, _ in values)]


def plain(value: Any) -> Any:
    """A field of a step as JSON."""
    if isinstance(value, Choice):
        return {"choice": to_json(value)}
    return [plain(v) for v in value] if isinstance(value, tuple) else value


def _closed(value: Any, assignment: Assignment) -> Any:
    """A field of a step without open decisions."""
    if isinstance(value, Choice):
        return evaluate(value, assignment)
    if not isinstance(value, tuple):
        return value
    parts = tuple(_closed(v, assignment) for v in value)
    return value if all(map(operator.is_, value, parts)) else parts


def _listed(value: Any) -> tuple[Any, ...]:
    """A field without its tuples."""
    return sum(map(_listed, value), ()) if isinstance(value, tuple) else (value,)


def unplain(value: Any) -> Any:
    """The inverse of `plain`."""
    if isinstance(value, dict):
        return from_json(value.get("choice"))
    return tuple(unplain(v) for v in value) if isinstance(value, list) else value


def describe(stage: StageState) -> str:
    """The loops of a stage, for error messages."""
    return f"{stage.name} has axes {' '.join(map(repr, stage.leaf_iter_vars))}"


def leaf(step: Step, stage: StageState, name: str) -> IterVar:
    """The loop `name` of a stage.  Raises ScheduleError saying which loops there are."""
    for ax in stage.leaf_iter_vars:
        if ax.name == name:
            _refuse_time(step, stage, ax)
            return ax
    refuse_opaque(step, stage)
    known = any(ax.name == name for ax in stage.all_iter_vars)
    why = "was split or fused and is no loop any more" if known else f"is no axis of {stage.name}"
    raise ScheduleError(f"{step.verb}({stage.name}.{name})", f"{name} {why}", f"{describe(stage)}.")


def stage_of(step: Step, s: AnyState, name: str = "") -> StageState:
    """The computed stage that `step` names, or the one called `name`."""
    stage = s.find(name or step.stage)
    if isinstance(stage.op, PlaceholderOp):
        raise ScheduleError(
            f"{step.verb}({stage.name})",
            "an input has no loops to schedule",
            "Schedule its cache_read stage.",
        )
    return stage


def refuse_inside(step: Step, stage: StageState, axis: IterVar) -> None:
    """Refuse a step on a loop that a matrix instruction runs."""
    if stage.atom is not None and stage.inside_atom(axis):
        raise ScheduleError(
            f"{step.verb}({stage.name}.{axis.name})",
            f"the loop is inside {stage.atom[0]}, which runs it",
            "Leave m, n and k as they are; tensorize comes after all splits of these axes.",
        )


def refuse_inlined(step: Step, stage: StageState) -> None:
    if stage.attach_kind == "inline":
        raise ScheduleError(
            f"{step.verb}({stage.name})", "the stage was inlined and has no loops",
            "Leave out compute_inline, or schedule its readers.",
        )  # fmt: skip


def refuse_fixed(step: Step, stage: StageState) -> None:
    """Refuse a step on a stage whose place and order of iterations are its own."""
    why = stage.op.why_fixed if isinstance(stage.op, ComputeOp) else None
    if why is not None:
        raise ScheduleError(f"{step.verb}({stage.name})", *why)


def refuse_opaque(step: Step, stage: StageState) -> None:
    """Refuse a step on a stage that statements compute."""
    if isinstance(stage.op, OpaqueOp):
        refuse_fixed(step, stage)


def refuse_read_by_opaque(step: Step, s: AnyState, stage: StageState) -> None:
    """Refuse a step after which statements would not find the tensors of `stage`."""
    for reader in s.readers(stage):
        if isinstance(reader.op, OpaqueOp):
            who = f"{reader.op.words.name} {reader.name}"
            raise ScheduleError(
                f"{step.verb}({stage.name})",
                f"the statements of {who} read the whole tensor, row by row",
                "Leave it where it is; schedule its loops.",
            )  # fmt: skip


_OF_TIME = ("compute_at", "reorder")  # what may name the time of a scan


def _refuse_time(step: Step, stage: StageState, axis: IterVar) -> None:
    if not isinstance(stage.op, ScanOp) or step.verb in _OF_TIME:
        return
    if axis == stage.op.scan_axis:
        raise ScheduleError(
            f"{step.verb}({stage.name}.{axis.name})",
            "the steps of a scan are computed one after the other",
            "Leave this loop outermost and as it is; split and bind the others.",
        )


def refuse_host(step: Step, s: AnyState, stage: StageState) -> None:
    """Refuse a step that replaces the loops of `stage` while another stage is computed in one."""
    for child in s.attached(stage):
        assert child.attach is not None
        raise ScheduleError(
            f"{step.verb}({stage.name})",
            f"{child.name} is computed at {child.attach[1].name}, which goes away",
            f"Call compute_root on {child.name} first.",
        )


def check_scope(place: str, scope: str) -> None:
    if scope not in SCOPES:
        way_out = f"Use one of {', '.join(SCOPES)}; what matrix instructions hold is in fragment."
        raise ScheduleError(place, "unknown scope", way_out)
