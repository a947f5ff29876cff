"""Templates registered and tasks created in all the ways that AutoTVM has had for it.

`@template("name")`, `@template` over a function whose own name it then has, `create("name", ...)`,
`create(function, ...)`.  In: a function that declares tensors and schedules them; its arguments.
Out: the function, registered; a `Task`.  Read next: `schedule/template.py`, `schedule/task.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from tilewright.base.errors import SpaceError
from tilewright.schedule import task as one_task
from tilewright.schedule import template as templates
from tilewright.schedule.task import Task
from tilewright.schedule.template import FunctionTemplate
from tilewright.targets.target import TargetLike

_NAME = "func_name"  # attribute of what a template became: the name that it is registered by
# Implementations of TVM 0.6, which had no name of their own.
_DIRECT = (None, "", "direct")


def template(
    task_name: str | FunctionTemplate, func: FunctionTemplate | None = None
) -> Callable[..., Any]:
    """Register a function template; inside it, `autotvm.get_config()` gives the configuration.

    task_name: its name; or the function itself, whose own name it then has
    func:      the function; None gives a decorator
    Returns the function, or the decorator; called, it schedules by the best record that is known.
    """
    if callable(task_name):
        return _registered(_name_of(task_name), task_name)
    if func is not None:
        return _registered(task_name, func)
    return lambda function: _registered(task_name, function)


def register(
    name: str | FunctionTemplate, func: FunctionTemplate | None = None, override: bool = False
) -> Callable[..., Any]:
    """Register a function template by TVM 0.6's name for `template`; override: accepted, a later
    one always takes the place of an earlier one."""
    return template(name, func)


def create(
    task_name: str | Callable[..., Any],
    args: Sequence[Any],
    target: TargetLike,
    target_host: Any = None,
    template_key: str | None = None,
) -> Task:
    """Create the task of a template.

    task_name:    of a function template, or that function itself; or a template by TVM's name
                  ("conv2d_nchw.cuda"), whose arguments are those of its computation
    args:         a tensor may be ("TENSOR", shape, dtype)
    target_host:  accepted and not needed: `Target(target, host=)` says it
    template_key: TVM 0.6's word for implementations of one operator; "direct" is the usual one
    Raises SpaceError for a name that is not registered, and for other template keys.
    """
    if template_key not in _DIRECT:
        raise SpaceError(
            f"autotvm.task.create(template_key={template_key!r})",
            "implementations have names of their own",
            'Create "conv2d_nchw_winograd.cuda" for Winograd\'s, for example.',
        )
    name = _name_of(task_name) if callable(task_name) else task_name
    return one_task.create(name, args, target)


def _registered(name: str, function: FunctionTemplate) -> FunctionTemplate:
    scheduled = templates.template(name)(function)
    vars(scheduled)[_NAME] = name
    return scheduled


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, _NAME, getattr(function, "__name__", ""))
    if not name:
        raise SpaceError(
            f"template {function!r:.60}", "it has no name", 'Use @autotvm.template("name").'
        )
    return cast(str, name)
