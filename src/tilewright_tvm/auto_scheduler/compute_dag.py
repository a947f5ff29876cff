"""`ComputeDAG`: a computation with the auto-scheduler's questions about it.

In: tensors, a workload key or a schedule.  Out: its text, flops and key; schedules for states.
Read next: `loop_state.py`, `te/dag.py`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import SpaceError
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.steps.names import identifier
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.te.dag import ComputeDAG as Computation
from tilewright.te.dag import op_flops
from tilewright.te.tensor import ComputeOp, Tensor
from tilewright_tvm.auto_scheduler.layout_rewrite import applied, checked_option
from tilewright_tvm.auto_scheduler.loop_state import State, schedule_of
from tilewright_tvm.auto_scheduler.workload_registry import workload_key_to_tensors


class ComputeDAG(Computation):
    """compute: tensors (inputs and outputs), a workload key, a schedule, or another `ComputeDAG`.

    Printing it gives a line per stage.  A state is a `loop_state.State` or a `Schedule`; its steps
    apply to any equal computation.
    """

    door_words = ("a ComputeDAG", "te.ComputeDAG(tensors) makes one.")

    def __init__(self, compute: Sequence[Tensor] | str | Schedule | Computation) -> None:
        super().__init__(_tensors(compute))

    @property
    def flop_ct(self) -> float:
        """Operations as the auto-scheduler counts them: those on operands of the kind that a stage
        gives, so that the predicates of a padded float tensor do not count.  A stage with an
        attribute `FLOP` has that many."""
        return float(sum(_flops(op) for op in self.compute_ops))

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_json, (self.to_json(),)

    @property
    def tensors(self) -> list[Tensor]:
        """Inputs and outputs: what a built function takes."""
        return list(self.args)

    def get_init_state(self) -> State:
        """The state in which nothing is scheduled yet."""
        return State(Schedule(self), self)

    @property
    def init_state(self) -> State:
        return self.get_init_state()

    def hash_key(self) -> str:
        """The md5 in `workload_key`."""
        return str(json.loads(self.workload_key())[0])

    def print_dag(self, simple_mode: bool = False) -> str:
        """A line per stage; simple_mode: as `workload_key` hashes it."""
        return self.key_text() if simple_mode else str(self)

    @door(SpaceError, "ComputeDAG.infer_bound_from_state")
    def infer_bound_from_state(self, state: State | Schedule) -> State:
        """A state of the same steps whose loops know how often they run.

        Raises ScheduleError for a state that is not finished: a stage is not where it is read.
        """
        made = State(self.apply_steps_from_state(state)[0], self)
        LoopTree(made.schedule).bounds()
        return made.resumed(state) if isinstance(state, State) else made

    @door(SpaceError, "ComputeDAG.apply_steps_from_state")
    def apply_steps_from_state(
        self, state: State | Schedule, layout_rewrite: Any = None
    ) -> tuple[Schedule, list[Tensor]]:
        """(schedule, arguments) for `build`.

        layout_rewrite: a `LayoutRewriteOption`: how inputs that the state packs are stored;
        default: as when it was measured.  Raises SpaceError where the state does not go with it.
        """
        option = checked_option(layout_rewrite)
        schedule = applied(self, schedule_of(state), option)
        return schedule, list(schedule.dag.args)

    def print_python_code_from_state(self, state: State | Schedule) -> str:
        """Python that makes the schedule, given `tensors`: what the workload's function returns.

        Stages that share a name get one variable each (`compute`, `compute_1`), so it really runs.
        """
        schedule, _ = self.apply_steps_from_state(state)
        names = ", ".join(identifier(name) for name in self.unique_names().values())
        return (
            "# tensors: the inputs and outputs that the workload's function returns\n"
            "s = te.create_schedule(te.ComputeDAG(tensors))\n"
            f"[{names}] = [op.output_tensor for op in s.dag.ops]\n"
            f"{schedule.to_python()}"
        )


def _flops(op: ComputeOp) -> float:
    told = op.attrs.get("FLOP")
    return told if isinstance(told, (int, float)) else op_flops(op, op.dtype.kind)


def _from_json(data: Any) -> ComputeDAG:
    return ComputeDAG(Computation.from_json(data))


def _tensors(compute: Any) -> list[Tensor]:
    if isinstance(compute, str):
        return workload_key_to_tensors(compute)
    if isinstance(compute, Schedule):
        return list(compute.dag.args)
    if isinstance(compute, Computation):
        return list(compute.args)
    if isinstance(compute, Tensor):
        return [compute]
    if isinstance(compute, (list, tuple)) and all(isinstance(t, Tensor) for t in compute):
        return list(compute)
    raise SpaceError(
        f"ComputeDAG({compute!r})", "neither tensors nor a workload key",
        "Give the list of input and output tensors.",
    )  # fmt: skip
