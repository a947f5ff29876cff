"""Templates of the user's in two parts: a computation and a schedule, as TVM registers them.

`@register_topi_compute("conv2d_nchw.mine")` over `f(cfg, data, ...) -> Tensor` and
`@register_topi_schedule("conv2d_nchw.mine")` over `g(cfg, outs) -> Schedule` make a template: tasks
are created by its name, and `f(data, ...)` and `g(outs)` get the configuration that the dispatch
context has.  What stands before the dot is an operator: its kernels in networks have the template
among theirs; with a computation of its own it is another implementation of them, which is extracted
beside the operator's own, and built where its records are faster.
Read next: `dispatch.py`, `schedule/template.py`, `network/user_templates.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from typing import Any, ClassVar

from tilewright.base import context
from tilewright.base.doors import door
from tilewright.base.errors import ScheduleError, SpaceError, TilewrightError
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.space.config_space import ConfigSpace, FallbackConfigEntity
from tilewright.schedule.task import create
from tilewright.schedule.template import (
    MADE_BY,
    Anchored,
    anchor_key,
    anchor_template,
    find_anchor,
    get_config,
    template,
)
from tilewright.schedule.workload import arguments_of, plain
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import ComputeOp, Tensor
from tilewright_tvm.autotvm.dispatch import DispatchContext

Compute = Callable[..., Tensor]
Scheduled = Callable[..., Schedule]

# Kinds of devices by the last part of a name; any other is for all of them.
KINDS = {
    "cuda": ("cuda", "opencl"), "gpu": ("cuda", "opencl"), "opencl": ("opencl",),
    "mali": ("opencl",), "x86": ("llvm",), "cpu": ("llvm",), "llvm": ("llvm",),
    "arm_cpu": ("llvm",),
}  # fmt: skip
ALL = ("cuda", "opencl", "llvm")
_COMPUTES: dict[str, Compute] = {}
_SCHEDULES: dict[str, Scheduled] = {}
_SAME: dict[tuple[str, str], bool] = {}  # (template, anchor by structure): computed alike

logger = logging.getLogger("autotvm")


class TaskExtractEnv:
    """Collects the tasks of what is computed inside `with TaskExtractEnv.get():` by functions that
    are registered with `register_topi_compute`.  Each such block begins with none.

    allow_duplicate: equal tasks count each
    """

    current: ClassVar[TaskExtractEnv | None] = None

    def __init__(self, allow_duplicate: bool = False) -> None:
        self.allow_duplicate = allow_duplicate
        self.wanted: list[str] | None = None
        self._found: list[tuple[str, list[Any]]] = []
        self._tracing = 0

    @staticmethod
    def get(allow_duplicate: bool = False) -> TaskExtractEnv:
        """The one environment, for the option given."""
        if TaskExtractEnv.current is None:
            TaskExtractEnv.current = TaskExtractEnv()
        TaskExtractEnv.current.allow_duplicate = allow_duplicate
        return TaskExtractEnv.current

    def reset(self, wanted_relay_ops: Iterable[str] | None = None) -> None:
        """Forget what was found; keep only templates of these operators from now on."""
        self.wanted = None if wanted_relay_ops is None else [str(n) for n in wanted_relay_ops]
        self._found.clear()

    def add_task(self, task_name: str, args: Sequence[Any]) -> None:
        entry = task_name, plain(args)
        wanted = self.wanted is None or task_name.partition(".")[0] in self.wanted
        if wanted and (self.allow_duplicate or entry not in self._found):
            self._found.append(entry)

    def get_tasks(self) -> list[tuple[str, list[Any]]]:
        """(name, arguments) of each, in the order in which they were computed."""
        return list(self._found)

    def __enter__(self) -> TaskExtractEnv:
        if not self.tracing:
            self._found.clear()
        self._tracing += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._tracing -= 1

    @property
    def tracing(self) -> bool:
        return self._tracing > 0


@door(SpaceError)
def register_topi_compute(task_name: str, func: Compute | None = None) -> Any:
    """Register `func(cfg, *args) -> Tensor` as the computation of template `task_name`.

    A decorator where func is not given.  What is registered is called without `cfg`.
    """

    def register(function: Compute) -> Compute:
        _COMPUTES[task_name] = function
        _complete(task_name)
        if task_name in _SCHEDULES:
            _attach(task_name)

        @wraps(function)
        def computed(*args: Any) -> Tensor:
            env = TaskExtractEnv.current
            if env is not None and env.tracing:
                env.add_task(task_name, args)
            config = _configuration([task_name, *plain(args)])
            return _marked(task_name, function(config, *args), args)

        return computed

    return register if func is None else register(func)


@door(SpaceError)
def register_topi_schedule(task_name: str, func: Scheduled | None = None) -> Any:
    """Register `func(cfg, outs) -> Schedule` as the schedule of template `task_name`.

    A decorator where func is not given.  What is registered is called without `cfg`.
    """

    def register(function: Scheduled) -> Scheduled:
        _SCHEDULES[task_name] = function
        _complete(task_name)
        _attach(task_name)

        @wraps(function)
        def scheduled(outs: Any, *args: Any, **options: Any) -> Schedule:
            tensors = [outs] if isinstance(outs, Tensor) else list(outs)
            workload = get_workload(tensors, task_name)
            if workload is None:
                raise ScheduleError(
                    f"template {task_name!r}",
                    "nothing among its outputs was computed by the template of this name",
                    "Compute it by the function that register_topi_compute returned.",
                )  # fmt: skip
            return function(_configuration(workload), tensors, *args, **options)

        return scheduled

    return register if func is None else register(func)


@door(SpaceError)
def get_workload(outs: Tensor | Sequence[Tensor], task_name: str | None = None) -> list[Any] | None:
    """[name, *args] of the template that computed something behind `outs`; None where none did."""
    tensors = [outs] if isinstance(outs, Tensor) else list(outs)
    for op in reversed(ComputeDAG(tensors).compute_ops):
        found = op.attrs.get(MADE_BY)
        if found is not None and task_name in (None, found[0]):
            return list(found)
    return None


@door(SpaceError, "autotvm.task.serialize_args")
def serialize_args(args: Sequence[Any]) -> tuple[Any, ...]:
    """Arguments of a template as a workload has them: a tensor is ("TENSOR", shape, dtype)."""
    told: tuple[Any, ...] = _tuples(plain(list(args)))
    return told


@door(SpaceError, "autotvm.task.deserialize_args")
def deserialize_args(args: Sequence[Any]) -> list[Any]:
    """The inverse of `serialize_args`, with a new placeholder for each tensor."""
    return list(arguments_of(args))


@door(SpaceError, "autotvm.task.args_to_workload")
def args_to_workload(args: Sequence[Any], task_name: str | None = None) -> tuple[Any, ...]:
    """(task_name, *args), or the arguments alone, as `serialize_args` gives them."""
    return serialize_args(args) if task_name is None else (task_name, *serialize_args(args))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _configuration(workload: Sequence[Any]) -> Any:
    """What the running task asks for, else the dispatch contexts, else the usual."""
    if context.current("config") is not None:
        return get_config()
    target = Target.current()
    found = DispatchContext.current.query(target, workload) if target is not None else None
    return FallbackConfigEntity() if found is None else found


def _complete(task_name: str) -> None:
    """With both parts it is a function template: tasks can be created by its name."""
    _SAME.clear()
    if task_name not in _COMPUTES or task_name not in _SCHEDULES:
        return

    def whole(*args: Any) -> tuple[Schedule, Sequence[Tensor]]:
        config, given = get_config(), arguments_of(args)
        result = _COMPUTES[task_name](config, *given)
        inputs = [t for t in _flat(given) if isinstance(t, Tensor)]
        return _SCHEDULES[task_name](config, [result]), [*inputs, result]

    template(task_name)(whole)


def _flat(args: Iterable[Any]) -> Iterable[Any]:
    for value in args:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value


def _attach(task_name: str) -> None:
    """Offer the schedule to the kernels of its operator."""
    operator, _, last = task_name.partition(".")

    def schedule(cfg: Any, a: Anchored) -> None:
        if task_name in _COMPUTES and not (_made(task_name, a) or _same(task_name, a)):
            raise ScheduleError(
                f"template {task_name!r}", f"it computes {a.anchor.name} in another way",
                "What it computes itself is another implementation of the operator.",
            )  # fmt: skip
        made = _called(task_name, cfg, list(a.schedule.dag.outputs))
        for step in made.steps:
            a.schedule.do(step)

    compute = partial(_computed, task_name) if task_name in _COMPUTES else None
    anchor_template(
        task_name, kinds=KINDS.get(last, ALL), tags=[operator], compute=compute
    )(schedule)  # fmt: skip


def _computed(task_name: str, *args: Any) -> Tensor:
    """What is registered computes of these arguments, for any configuration."""
    space = ConfigSpace()
    result = _COMPUTES[task_name](space, *args)
    if space.space_map:
        raise ScheduleError(
            f"template {task_name!r}", "what it computes depends on knobs",
            "Kernels of networks need one computation; create its tasks by name.",
        )  # fmt: skip
    return _marked(task_name, result, args)


def _marked(task_name: str, result: Any, args: Sequence[Any]) -> Tensor:
    """The result, which says from now on which template computed it."""
    if not (isinstance(result, Tensor) and isinstance(result.op, ComputeOp)):
        raise ScheduleError(
            f"template {task_name!r}", f"it computed a {type(result).__name__}",
            "Return the tensor that te.compute or an operator gives.",
        )  # fmt: skip
    result.op.attrs[MADE_BY] = [task_name, *plain(args)]
    return result


def _made(task_name: str, a: Anchored) -> bool:
    """Whether the kernel was computed by what is registered."""
    ops = a.schedule.dag.compute_ops
    return any(op.attrs.get(MADE_BY, [None])[0] == task_name for op in ops)


def _called(task_name: str, cfg: Any, outs: list[Tensor]) -> Schedule:
    """The user's schedule of a kernel; ScheduleError, and a warning, where it fails."""
    try:
        made = _SCHEDULES[task_name](cfg, outs)
    except TilewrightError:
        raise
    except Exception as error:
        logger.warning("template %s failed on %s: %r", task_name, outs[0].name, error)
        raise ScheduleError(
            f"template {task_name!r}", f"it failed ({type(error).__name__}: {error})",
            "It must schedule whatever follows its operator.",
        ) from error  # fmt: skip
    if not isinstance(made, Schedule):
        raise ScheduleError(
            f"template {task_name!r}", f"it returned {type(made).__name__}", "Return a schedule."
        )
    return made


def _same(task_name: str, a: Anchored) -> bool:
    """Whether the computation that is registered is the anchor's own."""
    anchor = a.stage(a.anchor).op
    workload = anchor.attrs.get("workload") if isinstance(anchor, ComputeOp) else None
    if not isinstance(anchor, ComputeOp) or workload is None:
        return False
    structure = anchor_key(anchor)[0]
    if (task_name, structure) not in _SAME:
        try:
            found = find_anchor(create(task_name, workload[1:], a.target).dag)
            same = found is not None and anchor_key(found)[0] == structure
        except Exception as error:  # the computation is the user's
            logger.warning("template %s failed on %s: %r", task_name, workload, error)
            same = False
        _SAME[task_name, structure] = same
    return _SAME[task_name, structure]
