"""`tvmc.tune`: a model tuned for a target, its results in a log.

In: a `TVMCModel`, a target, a budget.  Out: the path of a log.
Read next: `network/tune_network.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ModelError, absent
from tilewright.base.terminal import say
from tilewright.graph.expr import IRModule
from tilewright.measure.database import Database
from tilewright.network.conversion import in_layout
from tilewright.network.tune import Measuring, as_described, with_layouts
from tilewright.network.tune_network import (
    RULES,
    chosen_tasks,
    network_tasks,
    task_lines,
    tune_network,
)
from tilewright.schedule.task import Task
from tilewright.search.progress import Progress
from tilewright.search.propose.named import tuner_name
from tilewright.search.report import Options
from tilewright.targets.target import Target
from tilewright_tvm.auto_scheduler.hardware import HardwareParams
from tilewright_tvm.auto_scheduler.relay_integration import extract_tasks
from tilewright_tvm.auto_scheduler.search_task import SearchTask
from tilewright_tvm.autotvm.task import extract_from_program
from tilewright_tvm.tvmc.common import devices_of
from tilewright_tvm.tvmc.model import TVMCModel
from tilewright_tvm.tvmc.target import chosen_target

TRIALS = 1000

_ELSEWHERE = {
    "drive_tune": "The command is `tilewright tune`; in Python use tvmc.tune.",
    "schedule_tasks": "Use tvmc.tune(enable_autoscheduler=True).",
    "tune_tasks": "Use tvmc.tune, or the tuners of autotvm.tuner task by task.",
}


def __getattr__(name: str) -> Any:
    raise absent("driver.tvmc.autotuner", name, _ELSEWHERE)


@door(ModelError)
def tune_model(
    tvmc_model: TVMCModel, target: Target | str,
    tuning_records: str | os.PathLike[str] | None = None,
    prior_records: str | os.PathLike[str] | None = None, enable_autoscheduler: bool = False,
    rpc_key: str | None = None, hostname: str | None = None, port: int | None = None,
    trials: int = TRIALS, target_host: Target | str | None = None, tuner: str = "xgb",
    min_repeat_ms: float | None = None, early_stopping: int | None = None,
    timeout: float | None = None, repeat: int | None = None, number: int | None = None,
    parallel: int | None = None, desired_layout: str | None = None,
    hardware_params: HardwareParams | None = None, include_simple_tasks: bool = False,
    additional_target_options: Mapping[str, Mapping[str, Any]] | None = None,
    tasks_filter: str | None = None,
) -> str:  # fmt: skip
    """Search for fast kernels for a model, and return the path of the log with every result.

    target:         such as "cuda"; with its host behind a comma or as `target_host`
    tuning_records: the log; more is added to what it holds, and the search goes on from there.
                    Default: beside the model, so that `TVMCModel.save` takes it along
    prior_records:  a log of other networks or devices that the search starts from
    enable_autoscheduler: tune every kernel by rules, not only those that have a template
    rpc_key, hostname, port: the key of a tracker's devices, which are used instead of this
                    machine's
    trials:         candidates for each task on average, given to those that gain most; with
                    enable_autoscheduler in all
    tuner:          how candidates of templates are chosen; see `tilewright tune --tuner`
    min_repeat_ms, repeat, number, timeout, parallel: how candidates are measured; see
                    `network.tune.Measuring`, with its defaults
    early_stopping: a task ends after so many candidates without a faster one
    desired_layout: of convolutions, such as "NHWC"
    hardware_params: limits for rules, where the device's are not meant
    include_simple_tasks: tune by rules also kernels without a reduction
    additional_target_options: by kind of target: {"llvm": {"mcpu": "skylake"}}
    tasks_filter:   "0,2-4": tasks by their numbers; "list" prints them, and tunes none
    Raises SearchError where every trial failed, DeviceError without a device.
    """
    if hardware_params is not None and not enable_autoscheduler:
        raise ModelError(
            "tune(hardware_params=)", "only rules look at them", "Set enable_autoscheduler=True."
        )
    if trials < 1:
        raise ModelError(f"tune(trials={trials})", "there is nothing to try", "Give 1 or more.")
    farm = devices_of(hostname, port, rpc_key)
    chosen = chosen_target(target, target_host, additional_target_options)
    chosen = as_described(chosen, farm)
    if hardware_params is not None:
        chosen = hardware_params.limited(chosen)
    mod, params = in_layout(tvmc_model.mod, desired_layout), tvmc_model.params
    way = RULES if enable_autoscheduler else tuner_name(tuner)
    found = network_tasks([mod], params, chosen, way, simple=include_simple_tasks, place="tune")
    options = Options(
        trials=trials if enable_autoscheduler else trials * len(found),
        tuner="xgb" if enable_autoscheduler else way, early_stopping=early_stopping,
    )  # fmt: skip
    path = Path(tuning_records or tvmc_model.default_tuning_records_path())
    every = found
    if tasks_filter is None and desired_layout is None:
        every = with_layouts(
            found, [mod], params, chosen, options, way == RULES, simple=include_simple_tasks
        )
    if tasks_filter == "list":
        for line in task_lines(found):
            say(line)
        return str(path)
    timing = {
        "min_repeat_ms": min_repeat_ms, "repeat": repeat, "number": number, "timeout": timeout,
        "parallel": parallel,
    }  # fmt: skip
    with Database(path) as database, Progress(options.trials) as progress:
        tune_network(
            _filtered(every, tasks_filter), database, options, networks=[mod], params=params,
            history=[] if prior_records is None else [Path(prior_records)], history_of=every,
            farm=farm, progress=progress,
            measuring=_measuring(timing),
        )  # fmt: skip
    return str(path)


@door(ModelError)
def autotvm_get_tuning_tasks(
    mod: IRModule, params: Mapping[str, Any], target: Target | str,
    target_host: Target | str | None = None, desired_layout: str | None = None,
) -> list[Task]:  # fmt: skip
    """The tasks that have templates, as autotvm.task.extract_from_program gives them."""
    chosen = chosen_target(target, target_host)
    return extract_from_program(in_layout(mod, desired_layout)["main"], params, chosen)


@door(ModelError)
def autoscheduler_get_tuning_tasks(
    mod: IRModule, params: Mapping[str, Any], target: Target | str,
    target_host: Target | str | None = None, desired_layout: str | None = None,
    include_simple_tasks: bool = False,
) -> tuple[list[SearchTask], list[int]]:  # fmt: skip
    """Tasks and weights, as auto_scheduler.extract_tasks gives them."""
    chosen = chosen_target(target, target_host)
    return extract_tasks(
        in_layout(mod, desired_layout)["main"], params, chosen,
        include_simple_tasks=include_simple_tasks,
    )  # fmt: skip


def _filtered(tasks: list[Task], text: str | None) -> list[Task]:
    try:
        return [tasks[k] for k in chosen_tasks(text or "all", len(tasks))]
    except ValueError as error:
        raise ModelError(
            f"tune(tasks_filter={text!r})", str(error), 'tasks_filter="list" shows them.'
        ) from None


def _measuring(given: Mapping[str, Any]) -> Measuring:
    for name, value in given.items():
        if value is not None and not value > 0:
            raise ModelError(f"tune({name}={value})", "it is not more than zero", "Leave it out.")
    return Measuring(**{name: value for name, value in given.items() if value is not None})
