"""LLVM as the CPU's driver and compiler share it: opened once, whole at every fork.

In: nothing.  Out: llvmlite's `binding`.  Read next: `cpu.py`, `cpu_features.py`.
"""

from __future__ import annotations

import sys
from typing import Any

from tilewright.base.concurrency import finish_first, importing, once
from tilewright.base.errors import TargetError
from tilewright.base.extras import installing

_MATH = {"linux": "libm.so.6", "darwin": "libm.dylib"}


@once
def llvm_library() -> Any:
    """llvmlite's binding, ready for this machine.  Raises TargetError."""
    try:
        with importing:
            from llvmlite import binding
    except ImportError as error:
        raise TargetError(
            "cpu(0)", f"llvmlite is not installed ({error})",
            f"Try {installing('llvmlite')}, or export the library to a file that ends in .so, "
            "which needs none.",
        ) from None  # fmt: skip
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    prepare_library(binding)
    return binding


@once
def prepare_library(binding: Any) -> None:
    """Make expf and its like known to LLVM, whether or not this Python was linked with libm; and
    let forks wait until no thread is inside LLVM, which llvmlite enters under one lock."""
    finish_first(binding.ffi.lib._lock)
    libm = _MATH.get(sys.platform, "")
    if libm:
        binding.load_library_permanently(libm)
