"""One computation for one target, as the auto-scheduler names it: what a policy searches.

In: a workload function with its arguments, a computation or a workload key, and a target.  Out: its
DAG, its key, the device's limits and the task of the search.  Read next: `search_policy.py`,
`schedule/task.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.errors import SpaceError
from tilewright.driver.build import resolve_target
from tilewright.schedule.task import task_of_dag
from tilewright.schedule.workload import arguments_of
from tilewright.targets.target import TargetLike
from tilewright.te.tensor import Tensor
from tilewright_tvm.auto_scheduler.compute_dag import ComputeDAG
from tilewright_tvm.auto_scheduler.hardware import HardwareParams
from tilewright_tvm.auto_scheduler.layout_rewrite import (
    LayoutRewriteOption,
    checked_option,
    with_weights,
    without_packing,
)
from tilewright_tvm.auto_scheduler.task_inputs import inputs_of
from tilewright_tvm.auto_scheduler.workload_registry import (
    declared,
    make_workload_key,
    normal,
    register_workload_tensors,
    workload_key_to_tensors,
)


class Computation:
    """`SearchTask` without what can be done with it; its docstring tells the arguments."""

    door_words = ("a SearchTask", "SearchTask(func=, args=) and extract_tasks make them.")

    def __init__(
        self, func: Callable[..., Sequence[Tensor]] | str | None = None,
        args: Sequence[Any] | None = None, compute_dag: Any = None,
        workload_key: str | None = None, target: TargetLike | None = None,
        target_host: Any = None, hardware_params: HardwareParams | None = None,
        layout_rewrite_option: Any = None, task_inputs: Any = None,
        task_inputs_overwrite: bool = False, task_inputs_save_to_file: bool = False,
        desc: str = "",
    ) -> None:  # fmt: skip
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
        option = checked_option(layout_rewrite_option)
        self.compute_dag = ComputeDAG(with_weights(self.compute_dag, option))
        name, *rest = json.loads(self.workload_key)
        hashed = self.workload_key == self.compute_dag.workload_key()
        label, values = ("", ()) if hashed else (name, arguments_of(rest))
        self.desc = desc or label
        self.weight = 1
        self.network: Any = None  # set by `extract_tasks`
        self.task = task_of_dag(self.compute_dag, self.target, label, values)
        if option is LayoutRewriteOption.NO_REWRITE:
            self.task.sketches = without_packing(self.task.sketches)
        held = any(op.constant for op in self.compute_dag.placeholders)
        usual = LayoutRewriteOption.get_target_default(self.target, held)
        self.layout_rewrite_option = usual if option is None else option
        self.task_input_names: list[str] = []
        if task_inputs is not None:
            self.task_input_names, self.task.inputs = inputs_of(
                self.compute_dag, self.workload_key, task_inputs, task_inputs_overwrite,
                task_inputs_save_to_file,
            )  # fmt: skip

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.workload_key}, target={self.target})"


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
    if workload_key is None:
        return dag, dag.workload_key()
    if not isinstance(workload_key, str) or workload_key.lstrip().startswith("["):
        return dag, normal(workload_key)
    return dag, register_workload_tensors(json.dumps([workload_key]), dag.tensors)
