"""`SearchTask`: one computation to tune on one target, by the auto-scheduler's names.

In: what `Computation` takes.  Out: a tuned log, and from a log the best schedule.  Read next:
`computation.py`, `search_policy.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.errors import RecordError, SpaceError, TargetError
from tilewright.codegen import generate
from tilewright.driver.build import payload_of, resolve_target
from tilewright.lowering.pipeline import lower_schedule
from tilewright.measure.database import Database
from tilewright.measure.jobs import Job
from tilewright.measure.local import LOG_SECONDS, LocalBuilder
from tilewright.runtime.device import local_target
from tilewright.schedule.schedule import Schedule
from tilewright.search.jobs import task_id
from tilewright.search.report import Report
from tilewright.targets.target import TargetLike
from tilewright.te.tensor import Tensor
from tilewright_tvm.auto_scheduler.compatible import Compatible
from tilewright_tvm.auto_scheduler.computation import Computation
from tilewright_tvm.auto_scheduler.hardware import HardwareParams
from tilewright_tvm.auto_scheduler.measure import TuningOptions, checked_options
from tilewright_tvm.auto_scheduler.records import Path, best_record, dag_of
from tilewright_tvm.auto_scheduler.results import replayed
from tilewright_tvm.auto_scheduler.search_policy import SketchPolicy
from tilewright_tvm.auto_scheduler.task_inputs import (
    TASK_INPUT_BUFFER_TABLE as TASK_INPUT_BUFFER_TABLE,
)


class SearchTask(Computation):
    """func, args:    a workload function (or the name it is registered by) and its arguments
    compute_dag:     instead of them, the computation
    workload_key:    instead of them, its key; beside a computation: how to call it, a key or a word
    target:          default: that of the innermost `with target:`
    hardware_params: limits, where the target's are not the device's
    desc:            for the tables
    task_inputs:     values with which candidates are verified and timed, by the names of inputs or
                     those that `prepare_input_map` gives; or names of registered buffers
    task_inputs_overwrite, task_inputs_save_to_file: see `register_task_input_buffer`
    layout_rewrite_option: a `LayoutRewriteOption`; default: weights are what the computation says,
                     and a template may pack inputs in the kernel where it sees that that pays
    target_host is accepted and not needed.

    `compute_dag`, `workload_key`, `target`, `hardware_params`, `desc`, `task_input_names` and
    `layout_rewrite_option` are attributes.
    """

    door_words = ("a SearchTask", "SearchTask(func=, args=) and extract_tasks make them.")

    def tune(
        self, tuning_options: TuningOptions, search_policy: SketchPolicy | None = None,
        adaptive_training: bool = False,
    ) -> Report:  # fmt: skip
        """Search within the budget; results go where `tuning_options` says.

        search_policy: default: a `SketchPolicy` that starts from nothing
        adaptive_training is accepted and not needed.  Ctrl-C ends it; what was measured is written.
        """
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
        self, log_file: Path, include_compatible: bool = False, layout_rewrite_option: object = None
    ) -> tuple[Schedule, list[Tensor]]:
        """(schedule, arguments) of the best record, for `build`.

        include_compatible:    where it has no record, that of the same computation of smaller sizes
                               of which the task has multiples, whose steps apply
        layout_rewrite_option: see `ComputeDAG.apply_steps_from_state`
        What a log proposes may crash a compiler, or keep it busy for ever: it is compiled once in a
        process of its own, and `build` finds the kernel in the cache.
        Raises RecordError where the log has no valid schedule of the task for its target, and where
        its kernel does not compile in ten seconds.
        """
        schedule, args = self.compute_dag.apply_steps_from_state(
            self._best(log_file, include_compatible), layout_rewrite_option
        )
        self._try_build(schedule, log_file)
        return schedule, args

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

    def _try_build(self, schedule: Schedule, log_file: Path) -> None:
        """Raises RecordError where that fails; nothing where the compiler is not there."""
        target, _ = local_target(resolve_target(self.target))
        job = Job(task_id(self.task), payload_of(schedule), None, target=target)
        with LocalBuilder(LOG_SECONDS, 1) as builder:
            try:
                built = builder.submit(job).result()
            except TargetError:  # the schedule may be wanted for itself
                return
        if built.error is not None and built.cause != "machine":
            raise RecordError(
                f"the best record of {self.workload_key} in {log_file}", built.message.strip(),
                "Leave that record out, or tune the task again.",
            )  # fmt: skip

    def _best(self, log_file: Path, include_compatible: bool = False) -> Schedule:
        database, key = Database.load(log_file), {self.compute_dag.hash}
        what = f"workload key {self.workload_key}"
        here = local_target(self.target)[0]
        try:
            record = best_record(database, log_file, key, str(self.target), what, here.device)
        except RecordError:
            source = Compatible(database) if include_compatible else None
            other = None if source is None else source.lookup(self.compute_dag, here)
            if other is None:
                raise
            return other
        measured = dag_of(database, record.task.dag)  # the same, perhaps with other names
        own = self.compute_dag
        return replayed(record, own if measured is None else own.named_as(measured.to_json()))


def create_task(
    func: Callable[..., Sequence[Tensor]] | str, args: Sequence[Any], target: TargetLike | None,
    target_host: Any = None, hardware_params: HardwareParams | None = None,
) -> SearchTask:  # fmt: skip
    """An older name of `SearchTask(func=, args=, target=)`."""
    return SearchTask(
        func=func, args=args, target=target, target_host=target_host,
        hardware_params=hardware_params,
    )  # fmt: skip


def auto_schedule(
    task: SearchTask, search_policy: SketchPolicy | None = None,
    tuning_options: TuningOptions | None = None,
) -> tuple[Schedule, list[Tensor]]:  # fmt: skip
    """(schedule, arguments) for `build` of the best that `task.tune` finds: its older name.

    Raises RecordError where no trial succeeds.
    """
    report = task.tune(checked_options("auto_schedule", tuning_options), search_policy)
    best = report.tasks[0].best
    if best is None:
        raise RecordError(
            f"auto_schedule({task.workload_key})", f"none of {report.trials} trials succeeded",
            "Give more of them; what failed was told above.",
        )  # fmt: skip
    return task.compute_dag.apply_steps_from_state(replayed(best, task.compute_dag))
