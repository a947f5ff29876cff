"""What TVM's scripts ask of `target.codegen`: the version of LLVM.

In: nothing.  Out: numbers.  Read next: `driver/llvm.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import absent
from tilewright.driver.llvm import version

__all__ = ["llvm_version_major"]


def llvm_version_major(allow_none: bool = False) -> int:
    """Return the version of llvmlite's LLVM.  Raises TargetError where it is not installed."""
    return version()[0]


_ELSEWHERE = {
    "build_module": "Use build(s, args, target), or build(lower(s, args), target).",
    "llvm_lookup_intrinsic_id": "Intrinsics cannot be called; te has exp, log, popcount, ...",
    "target_has_features": "Processors are described by Target options: -mcpu and -mattr.",
}


def __getattr__(name: str) -> Any:
    raise absent("target.codegen", name, _ELSEWHERE)
