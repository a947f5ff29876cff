"""Default schedules by a target's keys, as TVM's tests of operators ask for them.

In: a target.  Out: functions from outputs to schedules, or what a table has for the target.
Read next: `topi/by_target.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tilewright import te
from tilewright.base.doors import door
from tilewright.base.errors import ExpressionError
from tilewright.driver.build import build
from tilewright.targets.target import Target, TargetLike
from tilewright.te.tensor import Tensor
from tilewright.topi import nn
from tilewright_tvm import nd
from tilewright_tvm.topi.by_target import Outputs, scheduling

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


@door(ExpressionError, "topi.testing.compare_numpy_tvm")
def compare_numpy_tvm(
    inputs: Sequence[Any], output: Any, target: TargetLike, device: Any,
    compute: Callable[..., Tensor], schedule: Scheduling,
) -> None:  # fmt: skip
    """Build an operator, run it on `inputs`, and compare what it gives with `output`.

    inputs, output: arrays; compute: of a tensor for each input; schedule: of its result
    Raises AssertionError where the numbers differ by more than 1e-4 of them, and 1e-4.
    """
    arrays = [np.asarray(a) for a in inputs]
    tensors = [
        te.placeholder(a.shape, dtype=str(a.dtype), name=f"i{k}") for k, a in enumerate(arrays)
    ]
    with Target(target):
        out = compute(*tensors)
        function = build(schedule([out]), [*tensors, out], name="func")
    result = nd.empty(out.shape, str(out.dtype), device)
    function(*(nd.array(a, device) for a in arrays), result)
    np.testing.assert_allclose(result.numpy(), output, rtol=1e-4, atol=1e-4)
