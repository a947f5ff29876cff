"""`extract_tasks`: the kernels of a network as search tasks.

In: a network, its parameters, a target.  Out: tasks and how often each occurs.
Read next: `network/extract.py`, `task_scheduler.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.base.errors import DeviceError, ModelError, SpaceError
from tilewright.driver.build import resolve_target
from tilewright.graph.expr import Function, IRModule
from tilewright.graph.pass_options import PassOptions
from tilewright.measure.database import Database
from tilewright.network.build import build
from tilewright.network.extract import fused_tasks
from tilewright.runtime.device import device
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.targets.target import Target, TargetLike
from tilewright_tvm.auto_scheduler.hardware import HardwareParams
from tilewright_tvm.auto_scheduler.records import Path, writing
from tilewright_tvm.auto_scheduler.search_task import SearchTask
from tilewright_tvm.auto_scheduler.workload_registry import register_workload_tensors
from tilewright_tvm.relay.contextual import pass_options
from tilewright_tvm.transform import PassContext

REPEATS = 10  # of the whole network


@dataclass(frozen=True)
class Network:
    """Where tasks come from, so that the whole can be timed when they are tuned."""

    mod: IRModule | Function
    params: Mapping[str, Any] | None
    target: Target
    opt_level: int

    def seconds(self, schedules: Database) -> float:
        """Latency with the best of `schedules`.  Raises DeviceError where no device is there."""
        dev = device(self.target.kind)
        if not dev.exist:
            raise DeviceError(f"device {dev}", "it is not there", "Time the network on its device.")
        options = PassOptions(self.opt_level)
        library = build(self.mod, self.target, self.params, schedules, pass_options=options)
        module = GraphModule(library["default"](dev))
        return module.benchmark(dev, repeat=REPEATS).median


def extract_tasks(
    mod: IRModule | Function, params: Mapping[str, Any] | None = None,
    target: TargetLike | None = None, target_host: Any = None,
    hardware_params: HardwareParams | None = None, include_simple_tasks: bool = False,
    dump_workload_to_dag_log: Path | None = None, opt_level: int = 3,
    other_targets: Sequence[Any] | None = None,
) -> tuple[list[SearchTask], list[int]]:  # fmt: skip
    """Tasks and weights: one for each distinct kernel that `relay.build` compiles.

    include_simple_tasks: also kernels without a reduction
    dump_workload_to_dag_log: a file that gets the text of each task by its key
    target_host is accepted and not needed; other_targets is refused: a network is built for one.
    """
    if other_targets is not None and len(other_targets):
        raise SpaceError(
            f"extract_tasks(other_targets={other_targets!r})", "a network is built for one target",
            "Extract the tasks of each target by itself.",
        )  # fmt: skip
    if not isinstance(mod, (IRModule, Function)):
        raise ModelError(
            f"extract_tasks({mod!r})", "not a network",
            'Pass mod["main"] of what relay.frontend.from_onnx or relay.testing gives.',
        )  # fmt: skip
    options = replace(pass_options(), opt_level=opt_level)
    found = fused_tasks(mod, params, target, include_simple_tasks, pass_options=options)
    tasks, network = [], Network(mod, params, resolve_target(target), opt_level)
    for each in found:
        task = SearchTask(
            compute_dag=each.dag, target=each.target, hardware_params=hardware_params,
            desc=each.name,
        )  # fmt: skip
        task.task.name, task.task.args, task.weight = each.name, each.args, each.weight
        task.network = network
        register_workload_tensors(task.workload_key, task.compute_dag.tensors)
        tasks.append(task)
    if dump_workload_to_dag_log is not None:
        texts = {task.workload_key: str(task.compute_dag) for task in tasks}
        with writing(dump_workload_to_dag_log) as f:
            json.dump(texts, f)
    return tasks, [task.weight for task in tasks]


def is_auto_scheduler_enabled() -> bool:
    """Whether the PassContext says `relay.backend.use_auto_scheduler`.

    `relay.build` uses what `ApplyHistoryBest(log)` knows, whatever it says.
    """
    config = PassContext.current().config or {}
    return bool(config.get("relay.backend.use_auto_scheduler", False))
