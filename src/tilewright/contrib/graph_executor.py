"""`contrib.graph_executor.GraphModule`, where the tutorials look for it.

In: `lib["default"](dev)`.  Out: a module that runs.
Read next: `runtime/network/graph_executor.py`.
"""

from typing import Any

from tilewright.base.errors import absent
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.runtime.timing import BenchmarkResult

__all__ = ["BenchmarkResult", "GraphModule"]

_ELSEWHERE = {"create": 'Use GraphModule(lib["default"](dev)) with what relay.build returns.'}


def __getattr__(name: str) -> Any:
    raise absent("contrib.graph_executor", name, _ELSEWHERE)
