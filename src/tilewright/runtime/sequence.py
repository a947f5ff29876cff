"""`LaunchSequence`: many launches prepared once, then run with little overhead.

In: kernels of loaded modules with their arrays.  Out: `.run()` and `.time()`.  One CUDA graph on
CUDA, one native call on a CPU.  Read next: `module.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tilewright.base.concurrency import lock
from tilewright.base.errors import DeviceError
from tilewright.runtime import arguments
from tilewright.runtime.device import Device
from tilewright.runtime.drivers import Kernel, Launch
from tilewright.runtime.ndarray import NDArray
from tilewright.runtime.timing import BenchmarkResult, measure

KernelCall = tuple[Kernel, Sequence[NDArray]]


class LaunchSequence:
    """Launches in order, each after the one before it has finished.

    calls: (kernel, its arrays) pairs; `Module.launches(*arrays)` gives those of one module, so a
    network is ``LaunchSequence(device, [*first.launches(x, w, h), *second.launches(h, y)])``.
    The arrays and kernels are kept alive.  Threads that run one sequence take turns.  Raises
    DeviceError for an array that its kernel cannot take: another shape, element type or device, or
    memory that an output of the same launch has.

    constants: arrays whose memory nobody writes as long as this lives; they may be read ahead
    """

    def __init__(
        self, device: Device, calls: Iterable[KernelCall], constants: Iterable[NDArray] = ()
    ) -> None:
        self.device = device
        self.calls = tuple((kernel, tuple(arrays)) for kernel, arrays in calls)
        for kernel, arrays in self.calls:
            _check(device, kernel, arrays)
        launches = launches_of(self.calls, constants)
        self._plan = device.driver.plan(launches, capture=True)
        self._turn = lock()

    def run(self) -> None:
        """Enqueue all launches.  `device.sync()` or reading an array waits for them."""
        with self._turn:
            self._plan.run()

    def time(
        self, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0, **options: Any
    ) -> BenchmarkResult:
        """Seconds of one pass over the whole sequence; options as for `Module.time_evaluator`."""
        with self._turn:
            self._plan.run()
            self.device.sync()
            return measure(self._plan, number, repeat, min_repeat_ms, **options)

    def once(self) -> float:
        """Seconds of one pass, as the caches are that whatever ran before it has left."""
        with self._turn:
            return self._plan.seconds(1)

    def __len__(self) -> int:
        return len(self.calls)


def launches_of(calls: Iterable[KernelCall], constants: Iterable[NDArray]) -> tuple[Launch, ...]:
    """constants: as `LaunchSequence` takes them"""
    steady = {id(a.memory.whole) for a in constants}
    return tuple(
        Launch(kernel, memory, tuple(m for m in memory if id(m.whole) in steady))
        for kernel, memory in ((k, tuple(a.memory for a in arrays)) for k, arrays in calls)
    )


def _check(device: Device, kernel: Kernel, arrays: tuple[NDArray, ...]) -> None:
    place = f"LaunchSequence: {kernel.info.name}"
    kind = kernel.source.target.partition(" ")[0]
    if kind != device.device_kind.name:
        raise DeviceError(
            place, f"it is a kernel for {kind}, not for {device}", "Load its module there first."
        )
    if len(arrays) != len(kernel.info.args):
        raise DeviceError(
            place, f"{len(arrays)} arrays were given, the kernel takes {len(kernel.info.args)}",
            "Give one array for each entry of KernelInfo.args, workspaces included.",
        )  # fmt: skip
    arguments.check(place, kernel.source.arguments(kernel.info), arrays, device, packed=True)
