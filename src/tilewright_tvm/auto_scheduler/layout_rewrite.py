"""`LayoutRewriteOption`: whether weights are stored anew for a kernel, and who does it.

In: a computation, an option, the steps of a schedule.  Out: the computation in which weights are
constants or ordinary inputs, and the schedule with them packed where the option says.
Read next: `schedule/steps/stages.py` (`Pack`), `compute_dag.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from enum import IntEnum
from typing import Any

from tilewright.base.errors import ScheduleError, SpaceError
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.space.trace import REFUSALS
from tilewright.schedule.steps import CacheRead, Pack, Step
from tilewright.schedule.template import find_anchor
from tilewright.schedule.thread_loops import over_blocks
from tilewright.targets.target import Target, TargetLike
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import ComputeOp, PlaceholderOp

FREE_ATTR = "layout_free_placeholders"  # of an operation: names of inputs that may be stored anew
_LOOKED_AT = 16  # members of a sketch


class LayoutRewriteOption(IntEnum):
    """NO_REWRITE:                  kernels read weights as they are
    INSERT_TRANSFORM_STAGE:      kernels may store weights in a layout of their own, at every run
    REWRITE_FOR_PRE_TRANSFORMED: weights are constants: they are packed before the program runs, in
                                 a network when it is built

    Weights are the inputs that an operation's attribute `layout_free_placeholders` names; where
    none does, those that the largest reduction reads beside its first operand.
    """

    NO_REWRITE = 0
    INSERT_TRANSFORM_STAGE = 1
    REWRITE_FOR_PRE_TRANSFORMED = 2

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise SpaceError(
            f"layout rewrite option {value!r}", "there is no such option",
            f"Use LayoutRewriteOption.{' or '.join(cls.__members__)}.",
        )  # fmt: skip

    @staticmethod
    def get_target_default(
        target: TargetLike, in_relay_integration: bool = False
    ) -> LayoutRewriteOption:
        """What tasks for a target begin with; in_relay_integration: tasks of a network."""
        chosen = Target(target)
        if in_relay_integration:
            return LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED
        if chosen.has_threads and not chosen.is_mali:
            return LayoutRewriteOption.NO_REWRITE
        return LayoutRewriteOption.INSERT_TRANSFORM_STAGE


def checked_option(option: Any) -> LayoutRewriteOption | None:
    """`option`, also as a number.  Raises SpaceError for anything else."""
    if hasattr(option, "tolist"):  # numpy's numbers and arrays
        option = option.tolist()
    return None if option is None else LayoutRewriteOption(option)


def weights_of(dag: ComputeDAG) -> set[str]:
    """Names of the inputs that may be stored anew."""
    named = [op.attrs[FREE_ATTR] for op in dag.compute_ops if FREE_ATTR in op.attrs]
    inputs = {op.name for op in dag.placeholders}
    if named:
        return {str(name) for names in named for name in names} & inputs
    anchor = find_anchor(dag)
    operands = [] if anchor is None else anchor.input_tensors[1:]
    return {t.name for t in operands if isinstance(t.op, PlaceholderOp)}


def with_weights(dag: ComputeDAG, option: LayoutRewriteOption | None) -> ComputeDAG:
    """The computation in which its weights are constants, or none of its inputs is."""
    if option is LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED:
        return _with_constants(dag, {*weights_of(dag), *_constants(dag)})
    if option is LayoutRewriteOption.INSERT_TRANSFORM_STAGE:
        return _with_constants(dag, set())
    return dag


def without_packing(sketches: Iterable[Sketch]) -> list[Sketch]:
    """Those whose schedules store no input anew."""
    return [sketch for sketch in sketches if not _packs(sketch)]


def applied(dag: ComputeDAG, state: Schedule, option: LayoutRewriteOption | None) -> Schedule:
    """The steps of `state` on `dag`, with inputs packed as the option says; None: as in `state`.

    Raises SpaceError where other steps of the state depend on what the option takes away.
    """
    if option is None:
        return Schedule.replay(dag, state.steps)
    packed = {s.name: s.op.input_tensors[0].name for s in state.stages if _is_packed(s)}
    steps: list[Step] = list(state.steps)
    if option is not LayoutRewriteOption.INSERT_TRANSFORM_STAGE:  # then nothing computes it
        steps = [s for s in steps if s.stage not in packed or isinstance(s, CacheRead)]
    if option is LayoutRewriteOption.NO_REWRITE:
        steps = [s for s in steps if not isinstance(s, Pack)]
        constants = _constants(dag) - set(packed.values())
    elif option is LayoutRewriteOption.INSERT_TRANSFORM_STAGE:
        constants = _constants(dag) - set(packed.values())
    else:
        constants = _constants(dag) | set(packed.values())
    try:
        schedule = Schedule.replay(_with_constants(dag, constants), steps)
    except ScheduleError as error:
        raise SpaceError(
            f"layout_rewrite={option.name}", f"the state does not go without its packing ({error})",
            "Leave layout_rewrite out, or search with SearchTask(layout_rewrite_option=).",
        ) from None  # fmt: skip
    if option is LayoutRewriteOption.INSERT_TRANSFORM_STAGE:
        for stage in [s for s in schedule.stages if _is_packed(s) and not s.relations]:
            _spread(schedule, stage)
    return schedule


def _spread(schedule: Schedule, stage: Stage) -> None:
    """A packed stage that nothing schedules: over blocks of threads where others are, or cores."""
    if stage.annotations:
        return
    if not any(s.binds for s in schedule.stages):
        stage.parallel(stage.op.axis[0])
        return
    over_blocks(stage, stage.op.axis, 128)


def _packs(sketch: Sketch) -> bool:
    """Whether schedules of a sketch pack: all of them do, or none."""
    for index in range(min(_LOOKED_AT, sketch.space.range_length)):
        with suppress(*REFUSALS):
            return any(isinstance(step, Pack) for step in sketch.close(index).steps)
    return False


def _is_packed(stage: Stage) -> bool:
    return isinstance(stage.op, ComputeOp) and stage.op.tag == "pack"


def _constants(dag: ComputeDAG) -> set[str]:
    return {op.name for op in dag.placeholders if op.constant}


def _with_constants(dag: ComputeDAG, names: set[str]) -> ComputeDAG:
    """`dag` in which these inputs are constants and no others."""
    if names == _constants(dag):
        return dag
    data = dag.to_json()
    for op in data["ops"]:
        if op[0] == "placeholder":
            op[4] = int(op[1] in names)
    return ComputeDAG.from_json(data)
