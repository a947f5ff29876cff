"""Names of TVM's `contrib` that tutorials import.

In: nothing.  Out: `contrib.graph_executor`, `contrib.debugger`, `contrib.ndk`, `contrib.utils`.
Read next: `runtime/network/graph_executor.py`.
"""

from importlib import import_module
from typing import Any

from tilewright.base.errors import absent

_ELSEWHERE = {
    "cc": "Use Module.save or Library.save: no compiler is needed.",
    "graph_runtime": "Use contrib.graph_executor.",
    "nvcc": "CUDA is compiled by NVRTC; nothing to call.",
}


def __getattr__(name: str) -> Any:
    if name in ("debugger", "graph_executor", "ndk", "utils"):
        return import_module(f"tilewright.contrib.{name}")
    raise absent("contrib", name, _ELSEWHERE)
