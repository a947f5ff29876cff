"""Names of TVM's `contrib.debugger`.

In: nothing.  Out: `debug_executor`.  Read next: `debug_executor.py`.
"""

from importlib import import_module
from typing import Any

from tilewright_tvm.elsewhere import find

_ELSEWHERE = {"debug_result": "Use GraphModuleDebug.profile(), which is printable, CSV and JSON."}


def __getattr__(name: str) -> Any:
    if name == "debug_executor":
        return import_module("tilewright_tvm.contrib.debugger.debug_executor")
    return find(__name__, name, _ELSEWHERE)
