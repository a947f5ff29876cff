"""Where text meets compilers and devices: `compile_source`, the kernel cache, `diagnose`.

In: `Source` from `codegen`.  Out: `Artifact` for `runtime`.  Read next: `compilers.py`.
"""

from typing import Any

from tilewright.base import forward
from tilewright.driver.compilers import compile_source

__all__ = ["compile_source"]


def __getattr__(name: str) -> Any:
    return forward.find(__name__, name)
