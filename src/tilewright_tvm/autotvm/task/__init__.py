"""`autotvm.task`: tasks from templates and from networks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import SpaceError
from tilewright.schedule.space.config_space import ConfigEntity, ConfigSpace, FallbackConfigEntity
from tilewright.schedule.task import Task
from tilewright.schedule.template import get_config
from tilewright.targets.target import TargetLike
from tilewright_tvm.autotvm import dispatch as dispatcher
from tilewright_tvm.autotvm.dispatch import (
    ApplyConfig,
    ApplyFixedConfig,
    ApplyGraphBest,
    ApplyHistoryBest,
    DispatchContext,
    FallbackContext,
    clear_fallback_cache,
)
from tilewright_tvm.autotvm.task import space as space
from tilewright_tvm.autotvm.task import task as task
from tilewright_tvm.autotvm.task.templates import create, register, template
from tilewright_tvm.autotvm.topi_integration import (
    TaskExtractEnv,
    args_to_workload,
    deserialize_args,
    get_workload,
    register_topi_compute,
    register_topi_schedule,
    serialize_args,
)
from tilewright_tvm.elsewhere import find

__all__ = [
    "ApplyConfig", "ApplyFixedConfig", "ApplyGraphBest", "ApplyHistoryBest", "ConfigEntity",
    "ConfigSpace", "DispatchContext", "FallbackConfigEntity", "FallbackContext", "Task",
    "TaskExtractEnv", "args_to_workload", "clear_fallback_cache", "create", "deserialize_args",
    "dispatcher", "extract_from_multiple_program", "extract_from_program", "get_config",
    "get_workload", "register", "register_topi_compute", "register_topi_schedule", "serialize_args",
    "template",
]  # fmt: skip


def extract_from_program(
    mod: Any,
    params: Mapping[str, Any] | None = None,
    target: TargetLike | None = None,
    target_host: Any = None,
    ops: Any = None,
) -> list[Task]:
    """The distinct anchors (convolutions, dense, ...) of a network as tasks; `ops` keeps only some.

    A convolution that Winograd's algorithm fits is one task, whose tuner tries both.
    mod: an IRModule or a Function; target_host is accepted and not needed.
    ops: rows of the table, names, or functions: `relay.op.get("nn.conv2d")`, `relay.nn.conv2d`
    """
    from tilewright_tvm.autotvm.contractions import extract_from_program as extract
    from tilewright_tvm.relay.contextual import instruments

    if ops is not None:
        ops = [ops] if isinstance(ops, str) or not isinstance(ops, Iterable) else ops
        ops = [getattr(op, "door_name", op) if callable(op) else op for op in ops]
        ops = [op.removeprefix("relay.") if isinstance(op, str) else op for op in ops]
    return extract(mod, params, target, ops, instruments())


def extract_from_multiple_program(
    mods: Iterable[Any],
    params: Iterable[Mapping[str, Any] | None] | None = None,
    target: TargetLike | None = None,
    target_host: Any = None,
    ops: str | Iterable[Any] | None = None,
) -> list[Task]:
    """The distinct anchors of several networks, in their order; weights are of all together.

    params: of each of `mods`; the rest: see `extract_from_program`
    """
    networks = list(mods)
    given = [None] * len(networks) if params is None else list(params)
    if len(given) != len(networks):
        raise SpaceError(
            "extract_from_multiple_program",
            f"{len(networks)} networks, and parameters for {len(given)}",
            "Give as many of both.",
        )
    wanted = ops if ops is None or isinstance(ops, str) else list(ops)
    found: dict[str, Task] = {}
    for mod, own in zip(networks, given, strict=True):
        for made in extract_from_program(mod, own, target, target_host, wanted):
            known = found.setdefault(made.key, made)
            if known is not made:
                for each in (known, *known.others):
                    each.weight += made.weight
    return list(found.values())


open_doors(
    globals(),
    (
        "clear_fallback_cache",
        "create",
        "extract_from_multiple_program",
        "extract_from_program",
        "register",
        "template",
    ),
    SpaceError,
)


def __getattr__(name: str) -> Any:
    return find(__name__, name, {})
