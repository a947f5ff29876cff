"""`Functions`: what is below a `GraphModule`, as TVM has it: functions by name, and their time.

    module.module.time_evaluator("run", dev, number=10, repeat=3)().mean

In: a module that runs a network, and what it runs.  Out: its methods by name, seconds of a run.
Read next: `graph_executor.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import DeviceError
from tilewright.runtime.device import Device
from tilewright.runtime.timing import BenchmarkResult

BY_NAME = (
    "set_input", "set_input_zero_copy", "run", "get_output", "get_input", "get_num_inputs",
    "get_num_outputs", "get_input_index", "get_input_info", "load_params", "share_params",
)  # fmt: skip


class Functions:
    """loaded: the network on its device; all other attributes are those of it."""

    def __init__(self, runs: Any, loaded: Any) -> None:
        self._runs, self.loaded = runs, loaded

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loaded, name)

    def __getitem__(self, name: str) -> Any:
        """Give a method of the module by its name."""
        return by_name(self._runs, name)

    @door(DeviceError, "module.get_function")
    def get_function(self, name: str, query_imports: bool = False) -> Any:
        """Give a method of the module by its name."""
        return by_name(self._runs, name)

    @door(DeviceError, "module.time_evaluator")
    def time_evaluator(
        self,
        func_name: str,
        dev: Device,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
    ) -> Callable[[], BenchmarkResult]:
        """Give a function that times runs, as `GraphModule.benchmark` does; in seconds.

        func_name: "run"; dev: where the network is; the rest: as of `benchmark`
        """

        def evaluate() -> BenchmarkResult:
            timed: BenchmarkResult = self._runs.benchmark(
                dev, func_name, repeat, number, min_repeat_ms, limit_zero_time_iterations,
                cooldown_interval_ms=cooldown_interval_ms, repeats_to_cooldown=repeats_to_cooldown,
            )  # fmt: skip
            return timed

        return evaluate

    def __repr__(self) -> str:
        return repr(self.loaded)


def by_name(module: Any, name: str) -> Any:
    """Give a method of a graph module.  Raises DeviceError for what is none of those."""
    if isinstance(name, str) and name in BY_NAME:
        return getattr(module, name)
    raise DeviceError(
        f"GraphModule[{name!r}]", "there is no such function", f"It has {', '.join(BY_NAME)}."
    )
