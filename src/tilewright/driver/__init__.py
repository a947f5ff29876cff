"""Where text meets compilers and devices: `compile_source`, the kernel cache, `diagnose`.

In: `Source` from `codegen`.  Out: `Artifact` for `runtime`.  Read next: `compilers.py`.
"""

from importlib import import_module
from typing import Any

from tilewright.base.errors import absent
from tilewright.driver.compilers import compile_source

__all__ = ["compile_source"]


def __getattr__(name: str) -> Any:
    if name == "tvmc":  # the room above, under TVM's name for it
        return import_module("tilewright.driver.tvmc")
    raise absent("driver", name, {})
