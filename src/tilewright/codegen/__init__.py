"""Kernels as text: LLVM IR for CPUs, CUDA C and OpenCL C for GPUs.  No device, driver or compiler.

In: a lowered `Program` and a `Target`.  Out: `Source` for `driver.compile_source`.
Read next: `c_family.py` (the printer of both C dialects), `llvm.py`.
"""

from __future__ import annotations

from importlib import import_module

from tilewright.base.artifact import Source
from tilewright.base.target import Target
from tilewright.ir.stmt import Program

__all__ = ["generate"]

_MODULES = {"llvm": "llvm", "cuda": "cuda", "opencl": "opencl"}


def generate(program: Program, target: Target) -> Source:
    """The text of `program` for `target.kind`, with what a compiler and a launcher need to know.

    Raises InternalError for what lowering must have removed.
    """
    module = import_module(f"{__name__}.{_MODULES[target.kind]}")
    source: Source = module.generate(program, target)
    return source
