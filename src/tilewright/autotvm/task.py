"""`autotvm.task`: tasks from templates and from networks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import SpaceError, absent
from tilewright.schedule.space.config_space import ConfigEntity, ConfigSpace, FallbackConfigEntity
from tilewright.schedule.task import Task, create
from tilewright.schedule.template import get_config, template
from tilewright.targets.target import TargetLike

__all__ = [
    "ConfigEntity", "ConfigSpace", "FallbackConfigEntity", "Task", "create", "extract_from_program",
    "get_config", "template",
]  # fmt: skip

_ELSEWHERE = {
    "DispatchContext": "Enter autotvm.apply_history_best(log); its .query answers.",
    "TaskExtractEnv": "Use extract_from_program.",
    "extract_from_multiple_program": "Call extract_from_program for each network.",
    "register_topi_compute": "Use tilewright.schedule.template.anchor_template.",
    "register_topi_schedule": "Use tilewright.schedule.template.anchor_template.",
}


def extract_from_program(
    mod: Any,
    params: Mapping[str, Any] | None = None,
    target: TargetLike | None = None,
    target_host: Any = None,
    ops: str | Iterable[Any] | None = None,
) -> list[Task]:
    """The distinct anchors (convolutions, dense, ...) of a network as tasks; `ops` keeps only some.

    mod: an IRModule or a Function; target_host is accepted and not needed.
    """
    from tilewright.relay.compile.extract import extract_from_program as extract

    return extract(mod, params=params, target=target, ops=ops)


open_doors(globals(), ("create", "extract_from_program"), SpaceError)


def __getattr__(name: str) -> Any:
    raise absent("autotvm.task", name, _ELSEWHERE)
