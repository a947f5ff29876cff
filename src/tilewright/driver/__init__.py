"""Where text meets compilers and devices: `compile_source`, the kernel cache, `diagnose`.

In: `Source` from `codegen`.  Out: `Artifact` for `runtime`.  Read next: `compilers.py`.
"""

from importlib import import_module
from typing import Any

from tilewright.base.errors import absent
from tilewright.driver.compilers import compile_source

__all__ = ["compile_source"]


def __getattr__(name: str) -> Any:
    if name in ("build_module", "tvmc"):  # what has another name here (`base/elsewhere.py`)
        return import_module(f"tilewright.driver.{name}")
    raise absent("driver", name, {})
