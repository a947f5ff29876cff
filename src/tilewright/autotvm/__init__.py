"""AutoTVM's names over the one machinery: templates, tasks, tuners, callbacks, records.

In: what the AutoTVM tutorials type after `from tilewright import autotvm`.  What is AutoTVM's alone
lives here (`tuners.py`, `dispatch.py`); no room below knows its names.
Read next: `tuners.py`, `schedule/template.py`, `measure/database.py`.
"""

from typing import Any

from tilewright.autotvm import callback, record, task, tuner
from tilewright.autotvm.dispatch import ApplyHistoryBest, apply_history_best
from tilewright.autotvm.measure import RPCRunner
from tilewright.autotvm.results import MeasureInput, MeasureResult
from tilewright.base.doors import open_doors
from tilewright.base.errors import SpaceError, absent
from tilewright.measure.jobs import Builder, Runner
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.schedule.space.config_space import ConfigEntity, ConfigSpace, FallbackConfigEntity
from tilewright.schedule.template import get_config, template

__all__ = [
    "ApplyHistoryBest", "ConfigEntity", "ConfigSpace", "FallbackConfigEntity", "LocalBuilder",
    "LocalRunner", "MeasureInput", "MeasureResult", "RPCRunner", "apply_history_best", "callback",
    "get_config", "measure_option", "record", "task", "template", "tuner",
]  # fmt: skip

# Names of TVM whose time has not come, or never will: what to use instead.
_ELSEWHERE = {
    "ApplyConfig": "Call task.sketches[0].close(index) for the schedule of one configuration.",
    "ApplyGraphBest": "Use ApplyHistoryBest: schedules are chosen per kernel.",
    "DispatchContext": "Enter apply_history_best(log); its .query answers.",
    "FallbackContext": "Untuned operators have default schedules; relay.build's report names them.",
    "apply_graph_best": "Use apply_history_best: schedules are chosen per kernel.",
    "create": "Use autotvm.task.create.",
    "database": "Use log_to_file: a log holds any number of tasks, several runs may write to it.",
    "feature": "Features come from the loop tree: tilewright.cost.features.",
    "graph_tuner": "Layouts are not chosen over the graph yet; constants are packed per kernel.",
    "register_topi_compute": "Use tilewright.schedule.template.anchor_template.",
    "register_topi_schedule": "Use tilewright.schedule.template.anchor_template.",
    "tophub": "There are no published records; tune, or share a log file.",
}


open_doors(
    globals(),
    ("ApplyHistoryBest", "LocalBuilder", "LocalRunner", "RPCRunner", "apply_history_best"),
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
    raise absent("autotvm", name, _ELSEWHERE)
