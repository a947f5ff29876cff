"""Where candidates are measured, by AutoTVM's names and with its defaults.

In: options.  Out: runners for `measure_option`.  Read next: `measure/local.py`, `farm/runner.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.farm.runner import FarmRunner
from tilewright.farm.session import request_remote
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright_tvm.autotvm.measure import executor as executor
from tilewright_tvm.autotvm.measure import local_executor as local_executor
from tilewright_tvm.autotvm.measure.executor import TimeoutError
from tilewright_tvm.autotvm.measure.local_executor import LocalExecutor
from tilewright_tvm.autotvm.measure.measure import BuildResult, MeasureErrorNo, Runner
from tilewright_tvm.autotvm.results import MeasureInput, MeasureResult
from tilewright_tvm.elsewhere import find

__all__ = [
    "BuildResult", "LocalBuilder", "LocalExecutor", "LocalRunner", "MeasureErrorNo", "MeasureInput",
    "MeasureResult", "RPCRunner", "Runner", "TimeoutError", "request_remote",
]  # fmt: skip


class RPCRunner(FarmRunner):
    """Measures on all devices that the tracker at host:port has for `key`, one candidate on each.

    host, port: default: TVM_TRACKER_HOST and TVM_TRACKER_PORT
    priority:   who has a higher one gets devices first
    timeout:    seconds for one trial; the rest: see `LocalRunner`
    n_parallel is accepted and not needed: there are as many trials as devices, also of those that
    join later.
    Raises DeviceError where the tracker cannot be reached.
    """

    def __init__(
        self, key: str, host: str | None = None, port: int | None = None, priority: int = 1,
        timeout: float = 10, n_parallel: int | None = None, number: int = 4, repeat: int = 3,
        min_repeat_ms: float = 0, cooldown_interval: float = 0.1,
        enable_cpu_cache_flush: bool = False, *, race: bool = True,
        certificates: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            key, host, port, priority=priority, timeout=timeout, number=number, repeat=repeat,
            min_repeat_ms=min_repeat_ms, cooldown_interval=cooldown_interval,
            enable_cpu_cache_flush=enable_cpu_cache_flush, race=race, certificates=certificates,
        )  # fmt: skip


_ELSEWHERE = {
    "Builder": 'Use LocalBuilder(build_func=...), or see CONTRIBUTING.md, "A runner".',
}


def __getattr__(name: str) -> Any:
    return find(__name__, name, _ELSEWHERE)
