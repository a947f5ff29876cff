"""float16 and bfloat16 to float32 and back, as helper functions of a text.

In: an operand of either type.  Out: one of the other.  Narrowing rounds to nearest even; NaN stays
NaN and becomes quiet.  bfloat16, the upper half of a float32, is integers to LLVM.  float16 is its
`half`: the text says ``fpext`` and ``fptrunc``, and where the processor has no such instructions
the compiler's driver puts `in_integers` in their place, since LLVM would call functions of
compiler-rt, which nothing provides.  Read next: `llvm_lanewise.py`, `driver/llvm.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.base.dtype import FLOAT32, DType
from tilewright.codegen.llvm_lanewise import Lanewise, letter
from tilewright.codegen.llvm_text import FunctionText, Module, typed

_PREFIX = "tilewright.convert."  # then source.target.vLANES


def widen(text: FunctionText, x: str, source: DType, lanes: int) -> str:
    """`x`, of a 16-bit float type, as float32: exact."""
    return _convert(text, x, source, FLOAT32, lanes)


def narrow(text: FunctionText, x: str, target: DType, lanes: int) -> str:
    """`x`, of float32, rounded to a 16-bit float type."""
    return _convert(text, x, FLOAT32, target, lanes)


def is_half_helper(function: str) -> bool:
    """Whether `in_integers` can define this function of a text."""
    return function.startswith(_PREFIX) and _types(function) in _IN_INTEGERS


def in_integers(functions: Iterable[str]) -> str:
    """A text that defines these helpers for processors without instructions for float16."""
    return "\n".join(
        _define(Module(), name, _IN_INTEGERS[_types(name)], linkage="") for name in functions
    )


def _convert(text: FunctionText, x: str, source: DType, target: DType, lanes: int) -> str:
    name = f"{_PREFIX}{source}.{target}.v{lanes}"
    helpers = text.module.helpers
    if name not in helpers:
        types = _types(name)
        linkage = "linkonce_odr" if types in _IN_INTEGERS else "internal"  # may be replaced, or not
        helpers[name] = _define(text.module, name, _BODIES[types], linkage)
    return text.pure(f"call {typed(target, lanes)} @{name}({typed(source, lanes)} {x})")


def _types(function: str) -> tuple[str, str]:
    source, target, _ = function.removeprefix(_PREFIX).split(".")
    return source, target


def _define(module: Module, name: str, body: str, linkage: str) -> str:
    argument, result = (letter(DType(t).spelling.llvm) for t in _types(name))
    lanes = int(name.rpartition(".v")[2])
    return Lanewise(module, lanes).define(name, argument, result, body, linkage)


_BODIES = {
    ("float16", "float32"): """
        y = fpext H x F
        ret y
    """,
    ("float32", "float16"): """
        y = fptrunc F x H
        ret y
    """,
    ("bfloat16", "float32"): """
        wide = zext S x I
        bits = shl I wide 16
        y = bitcast I bits F
        ret y
    """,
    # adding a half of the last place, or one less where that place is even, carries into it
    ("float32", "bfloat16"): """
        bits = bitcast F x I
        upper = lshr I bits 16
        odd = and I upper 1
        half = add I odd 0x7FFF
        sum = add I bits half
        rounded = lshr I sum 16
        quiet = or I upper 0x40
        nan = fcmp uno F x x
        chosen = select nan I quiet rounded
        y = trunc I chosen S
        ret y
    """,
}

_IN_INTEGERS = {
    # The exponent moves from a bias of 15 to one of 127.  Where it is 31 (infinity, NaN) it moves
    # to 255.  Where it is 0, the number is 2^-14 (1 + fraction) - 2^-14, without subnormal floats.
    ("float16", "float32"): """
        half = bitcast H x S
        bits = zext S half I
        magnitude = and I bits 0x7FFF
        minus = and I bits 0x8000
        sign = shl I minus 16
        moved = shl I magnitude 13
        normal = add I moved 0x38000000
        special = icmp sge I magnitude 0x7C00
        further = select special I 0x38000000 0
        large = add I normal further
        nan = icmp sgt I magnitude 0x7C00
        quiet = select nan I 0x400000 0
        upper = or I large quiet
        one = add I moved 0x38800000
        above = bitcast I one F
        lower = fsub F above 6.103515625e-05
        small = bitcast F lower I
        subnormal = icmp slt I magnitude 0x400
        unsigned = select subnormal I small upper
        signed = or I unsigned sign
        y = bitcast I signed F
        ret y
    """,
    # From 2^-14 the bits are rounded and the exponent moves by -112; what rounds beyond the range
    # becomes infinity by its carry.  Below, adding 0.5 rounds to multiples of 2^-24.
    ("float32", "float16"): """
        bits = bitcast F x I
        magnitude = and I bits 0x7FFFFFFF
        moved = lshr I magnitude 13
        odd = and I moved 1
        half = add I odd -939520001
        sum = add I magnitude half
        normal = lshr I sum 13
        positive = bitcast I magnitude F
        shifted = fadd F positive 0.5
        fixed = bitcast F shifted I
        small = sub I fixed 0x3F000000
        subnormal = icmp slt I magnitude 0x38800000
        finite = select subnormal I small normal
        beyond = icmp sge I magnitude 0x47800000
        bounded = select beyond I 0x7C00 finite
        payload = and I moved 0x3FF
        quiet = or I payload 0x7E00
        nan = icmp sgt I magnitude 0x7F800000
        unsigned = select nan I quiet bounded
        upper = lshr I bits 16
        sign = and I upper 0x8000
        signed = or I unsigned sign
        short = trunc I signed S
        y = bitcast S short H
        ret y
    """,
}
