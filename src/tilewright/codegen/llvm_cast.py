"""Conversions between element types.

In: an operand and two types.  Out: the operand converted, for scalars and vectors.
Read next: `llvm_math.py`.
"""

from __future__ import annotations

from tilewright.base.dtype import BOOL, DType
from tilewright.codegen.llvm_text import FunctionText, typed, zeros


def convert(text: FunctionText, x: str, source: DType, target: DType, lanes: int) -> str:
    t = typed(source, lanes)
    if target is BOOL:
        test = "fcmp une" if source.is_float else "icmp ne"
        return text.pure(f"{test} {t} {x}, {zeros(source, lanes)}")
    return text.pure(f"{_instruction(source, target)} {t} {x} to {typed(target, lanes)}")


def _instruction(source: DType, target: DType) -> str:
    if source.is_float:
        if target.is_int:
            return "fptosi"
        return "fpext" if target == "float64" else "fptrunc"
    if target.is_float:
        return "uitofp" if source == "bool" else "sitofp"
    if source == "bool":
        return "zext"
    return "sext" if target == "int64" else "trunc"
