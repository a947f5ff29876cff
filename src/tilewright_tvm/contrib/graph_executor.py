"""`contrib.graph_executor.GraphModule`, where the tutorials look for it.

In: `lib["default"](dev)`.  Out: a module that runs.
Read next: `runtime/network/graph_executor.py`.
"""

from collections.abc import Sequence
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ModelError, absent
from tilewright.runtime.device import Device
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.runtime.network.library import Library
from tilewright.runtime.timing import BenchmarkResult

__all__ = ["BenchmarkResult", "GraphModule", "create"]


@door(ModelError)
def create(graph_json_str: str, libmod: Library, device: Device | Sequence[Device]) -> GraphModule:
    """`GraphModule(libmod["default"](device))`, as it was spelled before.

    graph_json_str: what `libmod.get_graph_json()` gives; the library has its graph with it
    """
    return GraphModule(libmod["default"](first_device(device)))


def first_device(device: Device | Sequence[Device]) -> Device:
    """TVM takes a list, of which a network needs one."""
    given = [device] if isinstance(device, Device) else list(device)
    if not given:
        raise ModelError("create(device=[])", "there is no device", "Use tilewright.cpu().")
    return given[0]


def __getattr__(name: str) -> Any:
    raise absent("contrib.graph_executor", name, {})
