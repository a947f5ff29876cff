"""Modules of which Python functions are a part: kernels and calls, each after the one before it.

In: a `Source` with calls, the arrays of one call of its module.  Out: a `Plan` that runs both, in
the process and the thread that called the module.  Read next: `module.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.base.artifact import HostCall
from tilewright.base.dtype import DType
from tilewright.base.extent import value_of
from tilewright.runtime.device import Device
from tilewright.runtime.drivers import Launch, Memory, Plan
from tilewright.runtime.function_table import get_global_func
from tilewright.runtime.ndarray import NDArray


class MixedPlan:
    """Plans of kernels, and functions between them."""

    def __init__(self, parts: Sequence[Callable[[], object]]) -> None:
        self._parts = tuple(parts)

    def run(self) -> None:
        for part in self._parts:
            part()

    def run_apart(self, written: Sequence[Memory], seconds: float) -> bool | None:
        return None  # nobody knows what functions write

    def seconds(self, number: int, flush_bytes: int = 0) -> float:
        """By the clock of the host, functions included."""
        other = np.zeros(flush_bytes, np.uint8)
        total = 0.0
        for k in range(number):
            if flush_bytes:
                other.fill(k % 251)
            begin = time.perf_counter()
            self.run()
            total += time.perf_counter() - begin
        return total / number


def mixed_plan(
    calls: Sequence[HostCall],
    launches: Sequence[Launch],
    buffers: Sequence[NDArray],
    values: Mapping[str, int],
    device: Device,
) -> Plan:
    """Plan what one call of a module runs.  values: of variables.

    Raises DeviceError for a function that nobody registered here.
    """
    parts: list[Callable[[], object]] = []
    done = 0
    for call in calls:
        if call.before > done:
            parts.append(device.driver.plan(tuple(launches[done : call.before])).run)
            done = call.before
        parts.append(_bound(call, buffers, values))
    if done < len(launches):
        parts.append(device.driver.plan(tuple(launches[done:])).run)
    return MixedPlan(parts)


def _bound(
    call: HostCall, buffers: Sequence[NDArray], values: Mapping[str, int]
) -> Callable[[], object]:
    """The call with its arguments: arrays over the memory of the module, numbers, texts."""
    function = get_global_func(call.name)
    assert function is not None
    given: list[Any] = []
    for kind, *what in call.args:
        if kind == "array":
            at, shape = what
            given.append(_array(buffers[at], tuple(value_of(n, values) for n in shape)))
        else:
            given.append(value_of(what[0], values) if kind == "extent" else what[0])
    return lambda: function(*given)


def _array(whole: NDArray, shape: tuple[int, ...]) -> NDArray:
    """The array by the shape of its tensor: workspaces are flat where they have room behind."""
    if whole.shape == shape:
        return whole
    return NDArray(shape, DType(whole.dtype), whole.device, whole.memory)
