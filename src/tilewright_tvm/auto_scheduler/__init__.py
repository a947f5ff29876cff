"""TVM's auto-scheduler by its names: search without templates, for one operator or a network.

In: what the auto-scheduler tutorials type after `from tilewright import auto_scheduler`.  It
translates and holds no logic.  Read next: `search/rules/derive.py`, `search/loop.py`,
`measure/database.py`; here `search_task.py` and `task_scheduler.py`.
"""

from importlib import import_module
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import RecordError, SpaceError
from tilewright_tvm.auto_scheduler import _ffi_api as _ffi_api
from tilewright_tvm.auto_scheduler import feature as feature
from tilewright_tvm.auto_scheduler.compute_dag import ComputeDAG
from tilewright_tvm.auto_scheduler.cost_model import PythonBasedModel, RandomModel, XGBModel
from tilewright_tvm.auto_scheduler.dispatcher import ApplyHistoryBest
from tilewright_tvm.auto_scheduler.hardware import HardwareParams
from tilewright_tvm.auto_scheduler.layout_rewrite import LayoutRewriteOption
from tilewright_tvm.auto_scheduler.measure import (
    LocalBuilder,
    LocalRPCMeasureContext,
    LocalRunner,
    MeasureInput,
    MeasureResult,
    PythonBasedMeasureCallback,
    RPCRunner,
    TuningOptions,
)
from tilewright_tvm.auto_scheduler.pairs import (
    RecordReader,
    distill_record_file,
    load_best,
    load_best_record,
    load_records,
    save_records,
)
from tilewright_tvm.auto_scheduler.records import RecordToFile
from tilewright_tvm.auto_scheduler.relay_integration import (
    extract_tasks,
    is_auto_scheduler_enabled,
)
from tilewright_tvm.auto_scheduler.search_policy import (
    EmptyPolicy,
    PreloadCustomSketchRule,
    PreloadMeasuredStates,
    SketchPolicy,
)
from tilewright_tvm.auto_scheduler.search_task import SearchTask, auto_schedule, create_task
from tilewright_tvm.auto_scheduler.task_inputs import (
    get_task_input_buffer,
    prepare_input_map,
    register_task_input_buffer,
    register_task_input_check_func,
)
from tilewright_tvm.auto_scheduler.task_scheduler import (
    LogEstimatedLatency,
    PrintTableInfo,
    TaskScheduler,
    TaskSchedulerCallback,
)
from tilewright_tvm.auto_scheduler.workload_registry import (
    make_workload_key,
    register_workload,
    register_workload_tensors,
    workload_key_to_tensors,
)
from tilewright_tvm.elsewhere import find

__all__ = [
    "ApplyHistoryBest", "ComputeDAG", "EmptyPolicy", "HardwareParams", "LayoutRewriteOption",
    "LocalBuilder", "LocalRPCMeasureContext", "LocalRunner", "LogEstimatedLatency", "MeasureInput",
    "MeasureResult", "PreloadCustomSketchRule", "PreloadMeasuredStates", "PrintTableInfo",
    "PythonBasedMeasureCallback", "PythonBasedModel", "RPCRunner", "RandomModel", "RecordReader",
    "RecordToFile", "SearchTask", "SketchPolicy", "TaskScheduler", "TaskSchedulerCallback",
    "TuningOptions", "XGBModel", "auto_schedule", "create_task", "distill_record_file",
    "extract_tasks", "get_task_input_buffer", "is_auto_scheduler_enabled", "load_best",
    "load_best_record", "load_records", "make_workload_key", "prepare_input_map",
    "register_task_input_buffer", "register_task_input_check_func", "register_workload",
    "register_workload_tensors", "save_records", "workload_key_to_tensors",
]  # fmt: skip

open_doors(
    globals(),
    (
        "ComputeDAG", "LocalBuilder", "LocalRunner", "RPCRunner", "SearchTask", "TaskScheduler",
        "TuningOptions", "XGBModel", "auto_schedule", "create_task", "extract_tasks",
        "get_task_input_buffer", "prepare_input_map", "register_task_input_buffer",
        "register_task_input_check_func",
        "register_workload_tensors", "workload_key_to_tensors",
    ), SpaceError,
)  # fmt: skip
open_doors(
    globals(),
    (
        "ApplyHistoryBest", "LogEstimatedLatency", "MeasureResult", "PreloadMeasuredStates",
        "RecordReader",
        "RecordToFile", "distill_record_file", "load_best", "load_best_record", "load_records",
        "save_records",
    ), RecordError,
)  # fmt: skip

# Names of TVM whose time has not come, or never will: what to use instead.
_ELSEWHERE = {
    "ApplyHistoryBestOrSample": "Use ApplyHistoryBest: untuned kernels have default schedules.",
    "DispatchContext": "Enter ApplyHistoryBest(log); its .query answers.",
    "FallbackContext": "Untuned kernels have default schedules; relay.build's report names them.",
    "dynamic_gradient_search": "Use a SketchPolicy; TuningOptions(seconds=) limits its time.",
    "enable_relay_integration": "Not needed: relay.build uses what ApplyHistoryBest(log) knows.",
    "load_from_file": "Use load_records.",
    "get_shape_from_rewritten_layout": "Constants of a network keep their shapes in its graph.",
    "remove_index_check": "Indices are checked where they are data; leave it out.",
    "rewrite_tensor_shape": "Leave it out: constants of a network are packed where that pays.",
    "rewrite_compute_body": "Leave it out: constants of a network are packed where that pays.",
    "write_to_file": "Use save_records.",
}


def __getattr__(name: str) -> Any:
    if name in ("measure_record", "utils"):  # imported when asked for: `python -m` runs the one
        return import_module(f"tilewright_tvm.auto_scheduler.{name}")
    return find(__name__, name, _ELSEWHERE)
