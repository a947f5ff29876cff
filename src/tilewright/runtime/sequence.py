"""`LaunchSequence`: many launches prepared once, then run with little overhead.

In: kernels of loaded modules with their arrays.  Out: `.run()` and `.time()`.  One CUDA graph on
CUDA, one native call on a CPU.  Read next: `module.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tilewright.base.errors import DeviceError
from tilewright.runtime.device import Device
from tilewright.runtime.drivers import Kernel, Launch
from tilewright.runtime.ndarray import NDArray
from tilewright.runtime.timing import BenchmarkResult, measure

KernelCall = tuple[Kernel, Sequence[NDArray]]


class LaunchSequence:
    """Launches in order, each after the one before it has finished.

    calls: (kernel, its arrays) pairs; `Module.launches(*arrays)` gives those of one module, so a
    network is ``LaunchSequence(device, [*first.launches(x, w, h), *second.launches(h, y)])``.
    The arrays and kernels are kept alive.  Raises DeviceError when an array lives elsewhere.
    """

    def __init__(self, device: Device, calls: Iterable[KernelCall]) -> None:
        self.device = device
        self.calls = tuple((kernel, tuple(arrays)) for kernel, arrays in calls)
        for kernel, arrays in self.calls:
            _check(device, kernel, arrays)
        launches = tuple(Launch(k, tuple(a.memory for a in arrays)) for k, arrays in self.calls)
        self._plan = device.driver.plan(launches, capture=True)

    def run(self) -> None:
        """Enqueue all launches.  `device.sync()` or reading an array waits for them."""
        self._plan.run()

    def time(
        self, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0, **options: Any
    ) -> BenchmarkResult:
        """Seconds of one pass over the whole sequence; options as for `Module.time_evaluator`."""
        self._plan.run()
        self.device.sync()
        return measure(self._plan, number, repeat, min_repeat_ms, **options)

    def __len__(self) -> int:
        return len(self.calls)


def _check(device: Device, kernel: Kernel, arrays: tuple[NDArray, ...]) -> None:
    place = f"LaunchSequence: {kernel.info.name}"
    if len(arrays) != len(kernel.info.args):
        raise DeviceError(
            place, f"{len(arrays)} arrays were given, the kernel takes {len(kernel.info.args)}",
            "Give one array for each entry of KernelInfo.args, workspaces included.",
        )  # fmt: skip
    for index, a in enumerate(arrays):
        if a.device != device:
            raise DeviceError(
                place, f"argument {index} lives on {a.device}, not on {device}",
                f"Copy it there with .copyto({device}).",
            )  # fmt: skip
