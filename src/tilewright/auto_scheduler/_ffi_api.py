"""What sketch rules of TVM's scripts ask about a state, by the names they have there.

In: a `SearchTask`, the state that a rule is given, the number of a stage.  Out: answers of
`search/rules/analysis.py`.  Read next: `search_policy.py`, that file.
"""

from __future__ import annotations

from typing import Any

from tilewright.auto_scheduler.loop_state import State
from tilewright.base.doors import door
from tilewright.base.errors import SpaceError, absent
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.search.rules import analysis
from tilewright.search.rules.state import State as RuleState

_RULES = "SketchPolicy.generate_sketches() shows what the rules derive; print a sketch."
_ELSEWHERE = {
    "SerializeSearchTask": "Use pickle.dumps(task).",
    "DeserializeSearchTask": "Use pickle.loads of what pickle.dumps(task) gave.",
}


class _Consumers(dict[int, list[tuple[int, int]]]):
    """Whose `items()` can be counted off, as a map of TVM's can."""

    def items(self) -> list[tuple[int, list[tuple[int, int]]]]:  # type: ignore[override]
        return list(super().items())


@door(SpaceError, "SearchPolicyUtilsGetConsumers")
def SearchPolicyUtilsGetConsumers(
    task: Any, state: State | Schedule | RuleState, stage_id: int
) -> dict[int, list[tuple[int, int]]]:
    """The stages that need a stage, looking through inlined ones, by their number in `stages`;
    under each the pairs (reader, stage).  Raises SpaceError for a stage that is not there."""
    found = State(state, task.compute_dag)
    stage = _stage(found, stage_id)
    numbers = [_number(found, c) for c in analysis.consumers(found.schedule, stage)]
    return _Consumers({k: [(k, stage_id)] for k in sorted(numbers)})


@door(SpaceError, "SearchPolicyUtilsIsElementwiseMatch")
def SearchPolicyUtilsIsElementwiseMatch(
    task: Any, state: State | Schedule | RuleState, stage_id: int, target_stage_id: int
) -> bool:
    """Whether the target stage takes the stage element for element, as its only consumer.

    Raises SpaceError for a stage that is not there.
    """
    found = State(state, task.compute_dag)
    stage, target = _stage(found, stage_id), _stage(found, target_stage_id)
    return analysis.matched_consumer(found.schedule, stage) is target


def _stage(state: State, number: int) -> Stage:
    if not isinstance(number, int) or not 0 <= number < len(state.stage_ops):
        raise SpaceError(
            f"stage {number!r}", f"the state has {len(state.stage_ops)} stages",
            "Count from 0, as the state's `stages`.",
        )  # fmt: skip
    return state.schedule[state.stage_ops[number]]


def _number(state: State, stage: Stage) -> int:
    return state.stage_ops.index(stage.op)


def __getattr__(name: str) -> Any:
    raise absent("auto_scheduler._ffi_api", name, _ELSEWHERE)
