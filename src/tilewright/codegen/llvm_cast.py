"""Conversions between all element types.

In: an operand and two types.  Out: the operand converted as `ir.expr.cast` says, for scalars and
vectors.  A float beyond the range of an integer type gives some integer, never poison; for integers
of 8 and 16 bits it is the one that wraps around, if it fits 32 bits.  bfloat16 goes through float32
from everything, as numpy's does.  Read next: `llvm_half.py`, `llvm_math.py`.
"""

from __future__ import annotations

from tilewright.base.dtype import BOOL, FLOAT32, FLOAT64, INT32, DType
from tilewright.codegen import llvm_half
from tilewright.codegen.llvm_text import FunctionText, typed, zeros


def convert(text: FunctionText, x: str, source: DType, target: DType, lanes: int) -> str:
    """`x` of type `source` as one of type `target`."""
    if source is target:
        return x
    if _is_half(source):
        x = llvm_half.widen(text, x, source, lanes)
        return convert(text, x, FLOAT32, target, lanes)
    if _is_half(target):
        if source is FLOAT64 and target == "float16":
            x = _to_odd(text, x, lanes)
        else:
            x = convert(text, x, source, FLOAT32, lanes)
        return llvm_half.narrow(text, x, target, lanes)
    t = typed(source, lanes)
    if target is BOOL:
        test = "fcmp une" if source.is_float else "icmp ne"
        return text.pure(f"{test} {t} {x}, {zeros(source, lanes)}")
    if source.is_float and target.is_int:
        return _truncate(text, x, source, target, lanes)
    op = _instruction(source, target)
    return text.pure(f"{op} {t} {x} to {typed(target, lanes)}") if op else x


def _is_half(dtype: DType) -> bool:
    """Whether it is a float of memory only."""
    return dtype.is_float and dtype.compute is not dtype


def _instruction(source: DType, target: DType) -> str:
    """The one instruction, or "" where the bits stay; not for floats to integers, nor to bool."""
    if source.is_float:
        return "fpext" if source.bits < target.bits else "fptrunc"
    if target.is_float:
        return "sitofp" if source.kind == "int" else "uitofp"
    if source is BOOL:
        return "zext"
    if source.bits == target.bits:
        return ""
    if source.bits > target.bits:
        return "trunc"
    return "sext" if source.kind == "int" else "zext"


def _truncate(text: FunctionText, x: str, source: DType, target: DType, lanes: int) -> str:
    """A float towards zero.  What LLVM makes of one out of range is frozen, or it would spread."""
    if target.bits < 32:
        x = _truncate(text, x, source, INT32, lanes)
        return convert(text, x, INT32, target, lanes)
    op, t = "fptosi" if target.kind == "int" else "fptoui", typed(target, lanes)
    return text.pure(f"freeze {t} {text.pure(f'{op} {typed(source, lanes)} {x} to {t}')}")


def _to_odd(text: FunctionText, x: str, lanes: int) -> str:
    """float64 to float32 so that rounding again, to float16, rounds as if once: what lies between
    two numbers gives the one whose last bit is 1."""
    wide, t, i = typed(FLOAT64, lanes), typed(FLOAT32, lanes), typed(INT32, lanes)
    flag = typed(BOOL, lanes)
    near = text.pure(f"fptrunc {wide} {x} to {t}")
    back = text.pure(f"fpext {t} {near} to {wide}")
    size, size_back = (text.intrinsic("fabs", wide, [v]) for v in (x, back))
    above = text.pure(f"fcmp ogt {wide} {size_back}, {size}")
    inexact = text.pure(f"fcmp one {wide} {back}, {x}")
    bits = text.pure(f"bitcast {t} {near} to {i}")
    down = text.pure(f"add {i} {bits}, {text.pure(f'sext {flag} {above} to {i}')}")
    odd = text.pure(f"or {i} {down}, {text.pure(f'zext {flag} {inexact} to {i}')}")
    return text.pure(f"bitcast {i} {odd} to {t}")
