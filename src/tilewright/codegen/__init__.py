"""Kernels as text: LLVM IR for CPUs, CUDA C and OpenCL C for GPUs.  No device, driver or compiler.

In: a lowered `Program` and a `Target`.  Out: `Source` for `driver.compile_source`.
Read next: `c_family.py` (the printer of both C dialects), `llvm.py`.
"""

from __future__ import annotations

from tilewright.base.artifact import Source
from tilewright.base.errors import part_of
from tilewright.codegen import cuda, llvm, opencl
from tilewright.ir.stmt import Program
from tilewright.targets.target import Target

__all__ = ["generate"]

_PRINTERS = {"llvm": llvm.generate, "cuda": cuda.generate, "opencl": opencl.generate}


def generate(program: Program, target: Target) -> Source:
    """The text of `program` for `target.kind`, with what a compiler and a launcher need to know.

    Raises InternalError for what lowering must have removed, and for CPUs LegalityError when local
    buffers exceed the stack.
    """
    with part_of(f"generate({program.name}, {target.kind})"):
        return _PRINTERS[target.kind](program, target)
