"""What sketch rules of TVM's scripts, and who looks at sketches, ask about a state, by TVM's names.

In: a `SearchTask`, the state that a rule is given, the number of a stage.  Out: answers of
`search/rules/analysis.py`.  Read next: `search_policy.py`, that file.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import SpaceError, absent
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.steps import CacheRead, CacheWrite, RFactor, Step
from tilewright.search.rules import analysis
from tilewright.search.rules.state import RuleState
from tilewright.te.tensor import ComputeOp
from tilewright_tvm.auto_scheduler import loop_state as looked
from tilewright_tvm.auto_scheduler.loop_state import State

AnyState = State | Schedule | RuleState

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
    task: Any, state: AnyState, stage_id: int
) -> dict[int, list[tuple[int, int]]]:
    """The stages that need a stage, looking through inlined ones, by their number in `stages`;
    under each the pairs (reader, stage).  Raises SpaceError for a stage that is not there."""
    found = State(state, task.compute_dag)
    stage = _stage(found, stage_id)
    numbers = [_number(found, c) for c in analysis.consumers(found.schedule, stage)]
    return _Consumers({k: [(k, stage_id)] for k in sorted(numbers)})


@door(SpaceError, "SearchPolicyUtilsIsElementwiseMatch")
def SearchPolicyUtilsIsElementwiseMatch(
    task: Any, state: AnyState, stage_id: int, target_stage_id: int
) -> bool:
    """Whether the target stage takes the stage element for element, as its only consumer.

    Raises SpaceError for a stage that is not there.
    """
    found = State(state, task.compute_dag)
    stage, target = _stage(found, stage_id), _stage(found, target_stage_id)
    return analysis.matched_consumer(found.schedule, stage) is target


def SearchPolicyUtilsIsTiled(stage: looked.Stage) -> bool:
    """Whether loops of a stage, as `state.stages` has it, were split or fused."""
    op = stage.op
    return isinstance(op, ComputeOp) and len(stage.iters) != len(op.axis) + len(op.reduce_axis)


@door(SpaceError, "SearchPolicyUtilsHasCacheWriteStage")
def SearchPolicyUtilsHasCacheWriteStage(state: AnyState, stage_id: int) -> bool:
    """Whether a stage was made by cache_write: another one copies its results.

    This and the next ones raise SpaceError for a stage that is not there.
    """
    found = State(state)
    return _stage(found, stage_id).name in _made(found, CacheWrite)


@door(SpaceError, "SearchPolicyUtilsHasCacheReadStage")
def SearchPolicyUtilsHasCacheReadStage(state: AnyState, stage_id: int) -> bool:
    """Whether the next stage is a copy that cache_read made of this one."""
    found = State(state)
    stage, copies = _stage(found, stage_id), _made(found, CacheRead)
    if stage_id + 1 == len(found.stage_ops):
        return False
    return copies.get(_stage(found, stage_id + 1).name) == stage.name


@door(SpaceError, "SearchPolicyUtilsHasRfactorStage")
def SearchPolicyUtilsHasRfactorStage(state: AnyState, stage_id: int) -> bool:
    """Whether a stage was made by rfactor: it has the partial results of the next one."""
    found = State(state)
    return _stage(found, stage_id).name in _made(found, RFactor)


@door(SpaceError, "SearchPolicyUtilsHasCrossThreadReduction")
def SearchPolicyUtilsHasCrossThreadReduction(state: AnyState, stage_id: int) -> bool:
    """Whether threads share a reduction of a stage, or of one that is computed inside it."""
    found = State(state)
    stage = _stage(found, stage_id)
    return any(
        axis.kind == "reduce" and one.mark(axis) == "threadIdx.x"
        for one in (stage, *found.schedule.attached(stage)) for axis in one.leaf_iter_vars
    )  # fmt: skip


def _made(state: State, kind: type[Step]) -> dict[str, str]:
    """Stages that steps of a kind made, and of which stage each."""
    again, found = Schedule(state.schedule.dag), dict[str, str]()
    for step in state.steps:
        before = {s.name for s in again.stages}
        again.do(step)
        if isinstance(step, kind):
            found |= {s.name: step.stage for s in again.stages if s.name not in before}
    return found


def _stage(state: State, number: int) -> Stage:
    if not isinstance(number, int) or not 0 <= number < len(state.stage_ops):
        raise SpaceError(
            f"stage {number!r}", f"the state has {len(state.stage_ops)} stages",
            "Count from 0, as the state's `stages`.",
        )  # fmt: skip
    return state.own_stages[number]


def _number(state: State, stage: Stage) -> int:
    return state.stage_ops.index(stage.op)


def __getattr__(name: str) -> Any:
    raise absent("auto_scheduler._ffi_api", name, _ELSEWHERE)
