"""Products with weights of eight or four bits: how vectors become floats quickly.

In: a product of a float with `topi.nn.narrow`'s number of a byte, over lanes.  Out: both factors as
operands, times powers of two whose product is 1: exact as long as the first factor is far from the
ends of its range, which rows are.  Four bits at the upper end of a word are a whole number as they
are, and e4m3 moved into the place of a float16 is a number of its exponents.
Read next: `llvm_value.py`, which asks for it; `byte_floats.py`, the same on GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.base.dtype import FLOAT32, INT32, DType
from tilewright.codegen import llvm_half
from tilewright.codegen.byte_floats import eighth
from tilewright.codegen.llvm_text import literal, typed
from tilewright.ir import expr as E
from tilewright.ir import float8
from tilewright.ir.expr import Expr

if TYPE_CHECKING:
    from tilewright.codegen.llvm_value import Values

FLOAT16 = DType("float16")
NIBBLE, LANES = "tilewright.nibble.v16", 16  # of words the number of the lower four bits, times 16
_UPPER = 28  # bits below the upper four of a word
_BIAS = 8  # of exponents: float16's are as much greater

_DEFINE = f"""define {{linkage}}<16 x float> @{NIBBLE}(<16 x i32> %x) alwaysinline nounwind {{{{
{{body}}  ret <16 x float> %y
}}}}
"""
_BY_ARITHMETIC = f"""  %upper = shl <16 x i32> %x, splat (i32 {_UPPER})
  %whole = sitofp <16 x i32> %upper to <16 x float>
  %y = fmul <16 x float> %whole, splat (float {literal(2.0 ** (4 - _UPPER), FLOAT32)})
"""
_NUMBERS = ", ".join(f"float {literal(16.0 * (k - 16 * (k > 7)), FLOAT32)}" for k in range(16))
_PERMUTE = "<16 x float> @llvm.x86.avx512.permvar.sf.512(<16 x float>{}, <16 x i32>{})"
_BY_TABLE = f"  %y = call {_PERMUTE.format(f' <{_NUMBERS}>', ' %x')}\n"


def by_table() -> str:
    """A text that defines `NIBBLE` for processors with an instruction that looks up 16 floats."""
    declared = f"declare {_PERMUTE.format('', '')}\n"
    return declared + _DEFINE.format(linkage="", body=_BY_TABLE)


class Bytes:
    """Of one function.  known: factors that were looked at, by identity, with what they are"""

    def __init__(self, values: Values) -> None:
        self.values, self.text, self.pure = values, values.text, values.text.pure
        self.known: dict[int, tuple[Expr, Expr | None, Expr | None]] = {}

    def factors(self, product: Expr) -> tuple[str, str] | None:
        """Both factors where the second one is such a number, and is not had by one instruction."""
        row, number = product.args
        if number.op != "cast" or number.lanes == 1 or number.dtype is not FLOAT32:
            return None
        if id(number) not in self.known:
            self.known[id(number)] = number, *self._number_of(number.args[0])
        _, load, shift = self.known[id(number)]
        if load is None:
            return None
        lanes = number.lanes
        words = typed(INT32, lanes)
        if shift is None:
            made = self._of_eight(load, lanes)
            return self._times(row, 2.0**_BIAS / float8.UNIT), made
        moved, terms = self.values.index.affine(shift)
        if terms or moved not in (0, 4):
            return None
        wide = self.values.value(E.cast("int32", load))
        if lanes == LANES:
            return self.values.value(row), self._looked_up(wide, moved)
        if moved == 0:
            whole = self.pure(f"and {words} {wide}, {self._splat('-16', lanes)}")
        else:
            whole = self.pure(f"shl {words} {wide}, {self._splat(str(_UPPER), lanes)}")
        made = self.pure(f"sitofp {words} {whole} to {typed(FLOAT32, lanes)}")
        factor = self.values.value(row) if moved == 0 else self._times(row, 2.0 ** (4 - _UPPER))
        return factor, made

    def _looked_up(self, wide: str, moved: int) -> str:
        """By a function, in whose place the compiler's driver may have a better one."""
        define = _DEFINE.format(linkage="linkonce_odr ", body=_BY_ARITHMETIC)
        self.text.module.helpers[NIBBLE] = define
        words = typed(INT32, LANES)
        low = wide if moved else self.pure(f"lshr {words} {wide}, {self._splat('4', LANES)}")
        return self.pure(f"call {typed(FLOAT32, LANES)} @{NIBBLE}({words} {low})")

    def _number_of(self, value: Expr) -> tuple[Expr | None, Expr | None]:
        """The byte, and of four bits by how many they are moved to its upper end."""
        if value.op == "select":
            load = eighth(value)
            fits = load is not None and float8.whole_number(E.cast("int32", load)) is value
            return (load if fits else None), None
        if value.op == "bitand" and self._is(value.args[1], -16):
            value = value.args[0]
            value = value.args[0] if value.op == "cast" and value.dtype == "int32" else value
            if value.op == "cast" and value.dtype == "int8" and value.args[0].op == "shl":
                byte, shift = value.args[0].args
                byte = byte.args[0] if byte.op == "cast" and byte.dtype == "int32" else byte
                scalar = self.values.facts.uniform(shift)
                if byte.op == "load" and byte.dtype == "int8" and scalar is not None:
                    return byte, scalar
        return None, None

    def _is(self, node: Expr, number: int) -> bool:
        scalar = self.values.facts.uniform(node)
        return scalar is not None and scalar.op == "const" and scalar.attr == number

    def _of_eight(self, load: Expr, lanes: int) -> str:
        """Its number times 2**-_BIAS: the sign, four bits of exponent behind a zero, and digits."""
        short, pure = f"<{lanes} x i16>", self.pure
        wide = pure(f"sext <{lanes} x i8> {self.values.value(load)} to {short}")
        digits = pure(f"shl {short} {wide}, {self._splat('7', lanes, 'i16')}")
        size = pure(f"and {short} {digits}, {self._splat(str(0x3F80), lanes, 'i16')}")
        less = pure(f"add {short} {wide}, {self._splat('1', lanes, 'i16')}")  # 0xff has no sign
        sign = pure(f"and {short} {less}, {self._splat(str(-0x8000), lanes, 'i16')}")
        bits = pure(f"or {short} {size}, {sign}")
        half = pure(f"bitcast {short} {bits} to <{lanes} x half>")
        return llvm_half.widen(self.text, half, FLOAT16, lanes)

    def _times(self, row: Expr, factor: float) -> str:
        t = typed(FLOAT32, row.lanes)
        scale = self._splat(literal(factor, FLOAT32), row.lanes, "float")
        return self.pure(f"fmul {t} {self.values.value(row)}, {scale}")

    def _splat(self, constant: str, lanes: int, element: str = "i32") -> str:
        return self.text.splat(constant, element, lanes)
