"""`contrib.cudnn`: whether that library can be used, as scripts of TVM ask before they do.

In: nothing.  Out: no.  Read next: `nvcc.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import absent

__all__ = ["exists"]

_WORDS = "Libraries are not called from kernels; topi.nn is tuned instead."


def exists() -> bool:
    """False: kernels are compiled, and call no library."""
    return False


def __getattr__(name: str) -> Any:
    known = name.startswith(("conv", "softmax", "log_softmax"))
    raise absent("contrib.cudnn", name, {name: _WORDS} if known else {})
