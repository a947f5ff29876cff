"""Default schedules by a target's keys, as TVM's tests of operators ask for them.

In: a target.  Out: functions from outputs to schedules, or what a table has for the target.
Read next: `topi/by_target.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tilewright.base.doors import door
from tilewright.base.errors import ExpressionError
from tilewright.targets.target import Target, TargetLike
from tilewright.topi import nn
from tilewright.topi.by_target import Outputs, scheduling

T = TypeVar("T")
Scheduling = Callable[[Outputs], Any]


@door(ExpressionError, "topi.testing.dispatch")
def dispatch(target: TargetLike, dispatch_map: Mapping[str, T]) -> T:
    """The entry of the narrowest of the target's keys, or that of "generic"."""
    for key in Target(target).keys:
        if key in dispatch_map:
            return dispatch_map[key]
    if "generic" not in dispatch_map:
        raise ExpressionError(
            f"dispatch({target})", f"there is no entry for any of {list(Target(target).keys)}",
            'Add one, or "generic".',
        )  # fmt: skip
    return dispatch_map["generic"]


@door(ExpressionError, "topi.testing.get_injective_schedule")
def get_injective_schedule(target: TargetLike) -> Scheduling:
    """A function from outputs to their default schedule on `target`."""
    return scheduling(Target(target), "llvm", "topi.schedule")


get_broadcast_schedule = get_elemwise_schedule = get_reduce_schedule = get_injective_schedule


@door(ExpressionError, "topi.testing.get_conv2d_nchw_implement")
def get_conv2d_nchw_implement(target: TargetLike) -> tuple[Callable[..., Any], Scheduling]:
    """The computation, which is the same everywhere, and its default schedule on `target`."""
    return nn.conv2d_nchw, get_injective_schedule(target)
