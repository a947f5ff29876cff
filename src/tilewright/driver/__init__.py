"""Where text meets compilers and devices: `compile_source`, the kernel cache, `diagnose`.

In: `Source` from `codegen`.  Out: `Artifact` for `runtime`.  Read next: `compilers.py`.
"""

from typing import Any

from tilewright.driver.compilers import compile_source
from tilewright_tvm.elsewhere import find

__all__ = ["compile_source"]


def __getattr__(name: str) -> Any:
    return find(__name__, name, {})
