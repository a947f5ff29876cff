"""Bytes as floats where four of them lie in a word of registers: as fast as floats are multiplied.

In: casts of bytes to float32, of local buffers that accesses of whole words fill.  Out: a call of
a function that finds its byte in the word; a bit pattern in the digits of 2**23 is a float but for
a subtraction.  Conversions of single bytes have an eighth of the rate of arithmetic.
Read next: `c_value.py`.
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.base.dtype import FLOAT32
from tilewright.ir import expr as E
from tilewright.ir import float8
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Buffer

BYTE = "tw_byte"  # (bytes, which, shift, mask) of `Dialect.instructions`
BYTE8 = "tw_byte_float8"  # (bytes, which)
FLOAT = "byte_float"  # of expressions: (index, shift), its attribute (buffer, mask or None)
WORD = 4


def of_words(value: Expr, words: Collection[Buffer], simplify: Simplifier) -> Expr:
    """`value` with casts of bytes of `words` as expressions `FLOAT`, whose bits stay in their byte:
    float32(int8(buffer[index] << shift) & mask), or the float of eight bits that it is."""

    def rule(node: Expr) -> Expr | None:
        if node.op != "cast" or node.dtype is not FLOAT32 or node.lanes > 1:
            return None
        value, mask, shift = _wide(node.args[0]), -1, E.const(0)
        if value.op == "select" and (load := eighth(value)) is not None:
            if load.attr not in words or float8.whole_number(E.cast("int32", load)) is not value:
                return None
            return E.make(FLOAT, (load.args[0], shift), (load.attr, None), FLOAT32)
        if value.op == "bitand" and value.args[1].op == "const":
            mask, value = int(value.args[1].attr), _wide(value.args[0])
        if value.op == "cast" and value.dtype == "int8" and value.args[0].op == "shl":
            value, shift = value.args[0].args
            value = _wide(value)
        if value.op != "load" or value.dtype != "int8" or value.attr not in words:
            return None
        low, high = simplify.interval(shift)
        if low < 0 or high > WORD or mask & ((1 << int(high)) - 1):
            return None
        return E.make(FLOAT, (value.args[0], shift), (value.attr, mask & 0xFF), FLOAT32)

    return E.transform(value, rule)


def eighth(value: Expr) -> Expr | None:
    """The one byte that a choice is made of."""
    loads = {n for n in E.walk(value) if n.op == "load"}
    found = loads.pop() if len(loads) == 1 else None
    return found if found is not None and found.dtype == "int8" else None


def _wide(value: Expr) -> Expr:
    """What becomes an int32."""
    return value.args[0] if value.op == "cast" and value.dtype == "int32" else value


def in_words(buffer: Buffer, lanes: int) -> bool:
    """Whether so many bytes, that come to registers at once, are whole words there."""
    local = buffer.scope == "local" and buffer.dtype == "int8"
    return local and lanes % WORD == 0 and buffer.size % WORD == 0


# Compilers see the word through the shifts, and then nothing of its bytes.  Of two constants the
# assembler would hold the wrong one in a register: no block has a number of 32 bits.
TEXT = f"""static __device__ __forceinline__
float {BYTE}(const signed char* from, int k, int shift, unsigned int mask) {{
  const signed char* const b = from + (k & ~3);
  const unsigned int whole = (unsigned int)(unsigned char)b[0]
      | (unsigned int)(unsigned char)b[1] << 8 | (unsigned int)(unsigned char)b[2] << 16
      | (unsigned int)(unsigned char)b[3] << 24;
  unsigned int word;
  asm("mov.b32 %0, %1;" : "=r"(word) : "r"(whole));
  word = (word << shift & mask * 0x01010101u) ^ 0x80808080u;
  const unsigned int digits = blockIdx.x >> 31 | 0x4b000000u;
  return __uint_as_float(__byte_perm(word, digits, 0x7440u | (k & 3))) - 8388736.0f;
}}
"""

# Two at a time, which are one instruction.  What is no number becomes 480, as everywhere.
TEXT8 = f"""static __device__ __forceinline__
float {BYTE8}(const signed char* from, int k) {{
#if __CUDA_ARCH__ >= 890
  const signed char* const b = from + (k & ~1);
  const unsigned short pair = (unsigned short)((unsigned int)(unsigned char)b[0]
      | (unsigned int)(unsigned char)b[1] << 8);
  float low, high;
  asm("{{ .reg .b32 both; .reg .f16 l, h; cvt.rn.f16x2.e4m3x2 both, %2; min.f16x2 both, both, %3;"
      " mov.b32 {{l, h}}, both; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }}"
      : "=f"(low), "=f"(high) : "h"(pair), "r"(0x5f805f80u));
  return (k & 1 ? high : low) * 512.0f;
#else
  const unsigned int bits = (unsigned char)from[k];
  const unsigned int sign = bits == 255u ? 0u : bits & 128u;
  return __uint_as_float(sign << 24 | (bits & 127u) << 20) * 1.3292279957849159e+36f * 512.0f;
#endif
}}
"""
