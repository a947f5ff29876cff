"""`_ffi`, where old scripts of TVM have its error from: `_ffi.base.TVMError`.

In: nothing.  Out: `base`, and functions by names.  There is no other language behind the package.
"""

from typing import Any

from tilewright.runtime.function_table import get_global_func, register_func
from tilewright_tvm._ffi import base
from tilewright_tvm.elsewhere import find

__all__ = ["base", "get_global_func", "register_func"]

_ELSEWHERE = dict.fromkeys(
    ("register_object", "registry", "runtime_ctypes"),
    "There are no objects of another language; use Python's.",
)


def __getattr__(name: str) -> Any:
    return find(__name__, name, _ELSEWHERE)
