"""`SearchTask`: one computation to tune on one target, by the auto-scheduler's names.

In: a workload function with its arguments, a computation or a workload key, and a target.  Out: a
tuned log, and from a log the best schedule.  Read next: `search_policy.py`, `schedule/task.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.auto_scheduler.compute_dag import ComputeDAG
from tilewright.auto_scheduler.hardware import HardwareParams
from tilewright.auto_scheduler.measure import TuningOptions
from tilewright.auto_scheduler.records import Path, best_pair
from tilewright.auto_scheduler.workload_registry import (
    declared,
    make_workload_key,
    normal,
    workload_key_to_tensors,
)
from tilewright.base.errors import SpaceError
from tilewright.codegen import generate
from tilewright.driver.build import resolve_target
from tilewright.foreign.tvm_logs import arguments_of
from tilewright.lowering.pipeline import lower_schedule
from tilewright.measure.database import Database
from tilewright.runtime.device import local_target
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.task import task_of_dag
from tilewright.search.jobs import task_id
from tilewright.search.report import Report
from tilewright.targets.target import Target
from tilewright.te.tensor import Tensor

if TYPE_CHECKING:
    from tilewright.auto_scheduler.search_policy import SketchPolicy


class SearchTask:
    """func, args:    a workload function (or the name it is registered by) and its arguments
    compute_dag:     instead of them, the computation
    workload_key:    instead of them, its key; beside a computation: how to call it
    target:          default: that of the innermost `with target:`
    hardware_params: limits, where the target's are not the device's
    desc:            for the tables
    target_host, layout_rewrite_option, task_inputs_overwrite and task_inputs_save_to_file are
    accepted and not needed.

    `compute_dag`, `workload_key`, `target`, `hardware_params` and `desc` are attributes.
    """

    def __init__(
        self, func: Callable[..., Sequence[Tensor]] | str | None = None,
        args: Sequence[Any] | None = None, compute_dag: Any = None,
        workload_key: str | None = None, target: str | Target | None = None,
        target_host: Any = None, hardware_params: HardwareParams | None = None,
        layout_rewrite_option: Any = None, task_inputs: Any = None,
        task_inputs_overwrite: bool = False, task_inputs_save_to_file: bool = False,
        desc: str = "",
    ) -> None:  # fmt: skip
        if task_inputs is not None:
            raise SpaceError(
                "SearchTask(task_inputs=)", "inputs are drawn at random", "Leave it out."
            )
        if func is None and compute_dag is None and workload_key is None:
            raise SpaceError(
                "SearchTask", "there is no computation",
                "Give func= and args=, or compute_dag=, or workload_key=.",
            )  # fmt: skip
        given = HardwareParams() if hardware_params is None else hardware_params
        if not isinstance(given, HardwareParams):
            raise SpaceError(
                f"SearchTask(hardware_params={given!r})", "not HardwareParams",
                "Use HardwareParams(num_cores=4, vector_unit_bytes=32), or leave it out.",
            )  # fmt: skip
        asked = resolve_target(target)
        self.target = given.limited(asked)
        self.hardware_params = given.completed(asked)
        self.hardware = given.hardware(asked)  # what sketch rules are told
        self.compute_dag, self.workload_key = _computation(func, args, compute_dag, workload_key)
        name, *rest = json.loads(self.workload_key)
        hashed = self.workload_key == self.compute_dag.workload_key()
        label, values = ("", ()) if hashed else (name, arguments_of(rest))
        self.desc = desc or label
        self.weight = 1
        self.network: Any = None  # set by `extract_tasks`
        self.task = task_of_dag(self.compute_dag, self.target, label, values)

    def tune(
        self, tuning_options: TuningOptions, search_policy: SketchPolicy | None = None,
        adaptive_training: bool = False,
    ) -> Report:  # fmt: skip
        """Search within the budget; results go where `tuning_options` says.

        search_policy: default: a `SketchPolicy` that starts from nothing
        adaptive_training is accepted and not needed.  Ctrl-C ends it; what was measured is written.
        """
        from tilewright.auto_scheduler.search_policy import SketchPolicy

        policy = SketchPolicy(self) if search_policy is None else search_policy
        if not isinstance(policy, SketchPolicy):
            raise SpaceError(
                f"SearchTask.tune(search_policy={policy!r})", "not a policy",
                "Make it with SketchPolicy(task).",
            )  # fmt: skip
        if task_id(policy.search_task.task).key != task_id(self.task).key:
            raise SpaceError(
                "SearchTask.tune", "the policy is of another task",
                "Make it with SketchPolicy(task).",
            )  # fmt: skip
        return policy.search(tuning_options)

    def apply_best(
        self, log_file: Path, include_compatible: bool = False, layout_rewrite_option: Any = None
    ) -> tuple[Schedule, list[Tensor]]:
        """(schedule, arguments) of the best record, for `build`.

        Raises RecordError where the log has no valid schedule of the task for its target.
        """
        if include_compatible:
            raise SpaceError(
                "SearchTask.apply_best(include_compatible=True)", "schedules fit one shape only",
                "Tune this task.",
            )  # fmt: skip
        return self.compute_dag.apply_steps_from_state(self._best(log_file))

    def print_best(self, log_file: Path, print_mode: str = "schedule") -> str:
        """The best record as text: "schedule": Python; "cuda" (or another kind): generated code."""
        if print_mode not in ("schedule", self.target.kind):
            raise SpaceError(
                f"print_best(print_mode={print_mode!r})", f"the task is for {self.target.kind}",
                f'Use "schedule" or "{self.target.kind}".',
            )  # fmt: skip
        state = self._best(log_file)
        if print_mode == "schedule":
            return self.compute_dag.print_python_code_from_state(state)
        schedule, args = self.compute_dag.apply_steps_from_state(state)
        return generate(lower_schedule(schedule, self.target, "main", args), self.target).text

    def _best(self, log_file: Path) -> Schedule:
        database, key = Database.load(log_file), {self.compute_dag.hash}
        what = f"workload key {self.workload_key}"
        device = local_target(self.target)[0].device
        return best_pair(database, log_file, key, str(self.target), what, device)[0].state

    def __repr__(self) -> str:
        return f"SearchTask({self.workload_key}, target={self.target})"


def _computation(
    func: Any, args: Any, compute_dag: Any, workload_key: str | None
) -> tuple[ComputeDAG, str]:
    """The computation and its key."""
    if func is not None:
        if not callable(func) and not isinstance(func, str):
            raise SpaceError(f"SearchTask(func={func!r})", "not a function", "Give a function.")
        tensors = declared(func, args if args is not None else ())
        return ComputeDAG(tensors), make_workload_key(func, args or ())
    if compute_dag is None:
        assert workload_key is not None
        return ComputeDAG(workload_key_to_tensors(workload_key)), normal(workload_key)
    dag = compute_dag if isinstance(compute_dag, ComputeDAG) else ComputeDAG(compute_dag)
    return dag, dag.workload_key() if workload_key is None else normal(workload_key)
