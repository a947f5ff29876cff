"""Kernels as text: LLVM IR for CPUs, CUDA C and OpenCL C for GPUs.  No device, driver or compiler.

Which printer a kind of device has is part of its registration (`targets/`).

CPU kernels are LLVM IR text with explicit vectors; LLVM may neither vectorise nor unroll their
loops, because the schedule has decided.  GPU kernels are C: one printer and a table per dialect.
Loops stay loops in the IR; printers unroll.  Compiled artefacts are cached on disk by everything
they depend on (`driver/cache.py`).

NaN: `min` and `max` propagate it in the interpreter, the reference and on CPUs, and not on GPUs,
whose instructions return the other operand (`ir/expr.py`).  Constants hold what their type can, so
folding gives what a device computes.

In: a lowered `Program` and a `Target`.  Out: `Source` for `driver.compile_source`.
Read next: `c_family.py` (the printer of both C dialects), `llvm.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base import forward
from tilewright.base.artifact import Source
from tilewright.base.errors import part_of
from tilewright.ir.stmt import Program
from tilewright.targets.kind import resolve
from tilewright.targets.target import Target

__all__ = ["generate"]


def generate(program: Program, target: Target) -> Source:
    """The text of `program` for `target.kind`, with what a compiler and a launcher need to know.

    Raises InternalError for what lowering must have removed, and for CPUs LegalityError when local
    buffers exceed the stack.
    """
    with part_of(f"generate({program.name}, {target.kind})"):
        made: Source = resolve(target.device_kind.printer)(program, target)
        return made


def __getattr__(name: str) -> Any:
    return forward.find(__name__, name)
