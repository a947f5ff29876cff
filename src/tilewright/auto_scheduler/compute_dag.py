"""`ComputeDAG`: a computation with the auto-scheduler's questions about it.

In: tensors, a workload key or a schedule.  Out: its text, flops and key; schedules for states,
which are schedules themselves.  Read next: `te/dag.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.auto_scheduler.workload_registry import workload_key_to_tensors
from tilewright.base.errors import SpaceError
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.steps.names import identifier
from tilewright.te.dag import ComputeDAG as Computation
from tilewright.te.dag import op_flops
from tilewright.te.tensor import Tensor


class ComputeDAG(Computation):
    """compute: tensors (inputs and outputs), a workload key, a schedule, or another `ComputeDAG`.

    Printing it gives a line per stage.  A state of the search is a `Schedule`; its `steps` apply to
    any equal computation.
    """

    def __init__(self, compute: Sequence[Tensor] | str | Schedule | Computation) -> None:
        super().__init__(_tensors(compute))

    @property
    def flop_ct(self) -> float:
        """Operations as the auto-scheduler counts them: those on operands of the kind that a stage
        gives, so that the predicates of a padded float tensor do not count."""
        return float(sum(op_flops(op, op.dtype.kind) for op in self.compute_ops))

    @property
    def tensors(self) -> list[Tensor]:
        """Inputs and outputs: what a built function takes."""
        return list(self.args)

    def get_init_state(self) -> Schedule:
        """The state in which nothing is scheduled yet."""
        return Schedule(self)

    def apply_steps_from_state(
        self, state: Schedule, layout_rewrite: Any = None
    ) -> tuple[Schedule, list[Tensor]]:
        """(schedule, arguments) for `build`; layout_rewrite is accepted and has no effect."""
        return Schedule.replay(self, state.steps), self.tensors

    def print_python_code_from_state(self, state: Schedule) -> str:
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
