"""AutoTVM's names over the one machinery: templates, tasks, tuners, callbacks, records.

In: what the AutoTVM tutorials type after `from tilewright import autotvm`.  What is AutoTVM's alone
lives here (`tuners.py`, `dispatch.py`); no room below knows its names.
Read next: `tuners.py`, `schedule/template.py`, `measure/database.py`.
"""

from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import SpaceError
from tilewright.measure.jobs import Builder, Runner
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.schedule.space.config_space import ConfigEntity, ConfigSpace, FallbackConfigEntity
from tilewright.schedule.template import get_config
from tilewright_tvm.autotvm import callback, database, feature, graph_tuner, record, task, tuner
from tilewright_tvm.autotvm import tophub as tophub
from tilewright_tvm.autotvm.dispatch import (
    GLOBAL_SCOPE,
    ApplyConfig,
    ApplyFixedConfig,
    ApplyGraphBest,
    ApplyHistoryBest,
    DispatchContext,
    FallbackContext,
    apply_fixed_config,
    apply_graph_best,
    apply_history_best,
)
from tilewright_tvm.autotvm.measure import MeasureErrorNo, RPCRunner
from tilewright_tvm.autotvm.results import MeasureInput, MeasureResult
from tilewright_tvm.autotvm.task import create, template
from tilewright_tvm.autotvm.topi_integration import (
    TaskExtractEnv,
    register_topi_compute,
    register_topi_schedule,
)
from tilewright_tvm.elsewhere import find

__all__ = [
    "GLOBAL_SCOPE", "ApplyConfig", "ApplyFixedConfig", "ApplyGraphBest", "ApplyHistoryBest",
    "ConfigEntity", "ConfigSpace", "DispatchContext", "FallbackConfigEntity", "FallbackContext",
    "LocalBuilder", "LocalRunner", "MeasureErrorNo", "MeasureInput", "MeasureResult", "RPCRunner",
    "TaskExtractEnv", "apply_fixed_config", "apply_graph_best", "apply_history_best", "callback",
    "create", "database", "feature", "get_config", "graph_tuner", "measure_option", "record",
    "register_topi_compute", "register_topi_schedule", "task", "template", "tophub", "tuner",
]  # fmt: skip

# Names of TVM whose time has not come, or never will: what to use instead.
_ELSEWHERE: dict[str, str] = {}


open_doors(
    globals(),
    (
        "ApplyConfig",
        "ApplyFixedConfig",
        "ApplyGraphBest",
        "ApplyHistoryBest",
        "LocalBuilder",
        "LocalRunner",
        "RPCRunner",
        "apply_fixed_config",
        "apply_graph_best",
        "apply_history_best",
    ),
    SpaceError,
)


def measure_option(builder: Any, runner: Any) -> dict[str, Any]:
    """How candidates are built and run; "local" stands for the defaults of either."""
    chosen = {
        "builder": LocalBuilder() if _is_local(builder) else builder,
        "runner": LocalRunner() if _is_local(runner) else runner,
    }
    for role, value in chosen.items():
        if not isinstance(value, Builder if role == "builder" else Runner):
            raise SpaceError(
                f"measure_option({role}={value!r})", f"not a {role}",
                'Use autotvm.LocalBuilder() and autotvm.LocalRunner(), or "local".',
            )  # fmt: skip
    return chosen


def _is_local(value: Any) -> bool:
    return isinstance(value, str) and value == "local"


def __getattr__(name: str) -> Any:
    return find(__name__, name, _ELSEWHERE)
