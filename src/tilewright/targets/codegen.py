"""`target.codegen`: what scripts of TVM ask about the code generators.

In: nothing.  Out: the version of LLVM that llvmlite brings.  Read next: `../driver/llvm.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import absent

__all__ = ["llvm_version_major"]


def llvm_version_major(allow_none: bool = False) -> int:
    """The first number of LLVM's version, which is always there; allow_none changes nothing."""
    import llvmlite.binding

    return int(llvmlite.binding.llvm_version_info[0])


_ELSEWHERE = {
    "build_module": "Use tilewright.build.",
    "llvm_lookup_intrinsic_id": "te.exp and the like call the intrinsics of LLVM by themselves.",
    "target_has_features": "Look at target.mattr and target.mcpu.",
}


def __getattr__(name: str) -> Any:
    raise absent("target.codegen", name, _ELSEWHERE)
