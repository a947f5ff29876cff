"""`_ffi`, where old scripts of TVM have its error from: `_ffi.base.TVMError`.

In: nothing.  Out: `base`.  There is no other language behind the package.
"""

from typing import Any

from tilewright._ffi import base
from tilewright.base.errors import absent

__all__ = ["base"]

_ELSEWHERE = dict.fromkeys(
    ("get_global_func", "register_func", "register_object", "registry", "runtime_ctypes"),
    "There is no registry of functions; call Python functions directly.",
)


def __getattr__(name: str) -> Any:
    raise absent("_ffi", name, _ELSEWHERE)
