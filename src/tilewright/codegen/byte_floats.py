"""Bytes as floats where four of them lie in a word of registers: as fast as floats are multiplied.

In: casts of bytes to float32, of local buffers that accesses of whole words fill; or of all bytes
of an access, to halves that are stored side by side.  Out: a call of a function that finds its byte
in the word, or makes two words of halves of it; a bit pattern in the digits of a power of two is a
float but for a subtraction.  Conversions of single bytes have an eighth of the rate of arithmetic.
Read next: `c_value.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

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


def may_be_halves(buffer: Buffer, index: Expr, value: Expr) -> bool:
    """Whether a store is one of halves, side by side in registers, that something is cast to."""
    beside = index.op == "ramp" and index.args[1].op == "const" and index.args[1].attr == 1
    known = any(kind == str(buffer.dtype) for kind, _ in HALVES) and buffer.scope == "local"
    return beside and known and value.op == "cast" and value.lanes % WORD == 0


def halves_of(
    lanes: Sequence[Expr], simplify: Simplifier
) -> tuple[Buffer, Expr, Expr, str] | None:  # fmt: skip
    """Where the first of neighbouring bytes lies, of which `lanes` are halves, their shift, and the
    function (of `HALVES`) of four of them; None of all others."""
    found: list[Expr] = []
    for lane in lanes:
        loads = {n.attr for n in E.walk(lane) if n.op == "load"}
        number = of_words(E.cast(FLOAT32, _inner(lane)), loads, simplify)
        if lane.op != "cast" or number.op != FLOAT:
            return None
        found.append(number)
    (index, _), (buffer, mask) = found[0].args, found[0].attr
    shift = simplify(found[0].args[1])
    for k, number in enumerate(found):
        apart = simplify(number.args[0] - index - k)
        alike = number.attr == found[0].attr and simplify(number.args[1]) is shift
        if not alike or apart.op != "const" or apart.attr:
            return None
    name = HALVES.get((str(lanes[0].dtype), mask))
    return None if name is None or len(found) % WORD else (buffer, index, shift, name)


def _inner(value: Expr) -> Expr:
    """What is converted to a float, perhaps by way of a wider one, or cut out of a byte."""
    while value.op == "cast" and (value.dtype.is_float or value.args[0].op == "bitand"):
        value = value.args[0]
    return value


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

# Two words of halves of four bytes, of which every other one is in one word: so these are a mask
# apart.  Of bfloat16 the digits of 128 have room for seven bits: the eighth makes of what is taken
# off 128 or 256.  Numbers of eight bits have the digits and exponents of bfloat16, but for what the
# exponent counts from; what is no number loses its sign.
_HALVES_TEXT = """static __device__ __forceinline__
void {name}(unsigned short* to, unsigned int word, int shift) {{
{body}
  to[0] = (unsigned short)low;
  to[1] = (unsigned short)high;
  to[2] = (unsigned short)(low >> 16);
  to[3] = (unsigned short)(high >> 16);
}}
"""
_FMA = """  asm("fma.rn.{kind}x2 %0, %1, %2, %3;" : "=r"(low) : "r"({low}), "r"({by}), "r"({plus}));
  asm("fma.rn.{kind}x2 %0, %1, %2, %3;" : "=r"(high) : "r"({high}), "r"({by}), "r"({more}));"""


def _fma(kind: str, value: str, by: int, plus: str) -> str:
    """value, plus: of either half, with its name for `{}`"""
    low, high = (value.replace("{}", half) for half in ("low", "high"))
    first, more = (plus.replace("{}", half) for half in ("low", "high"))
    return _FMA.format(
        kind=kind, low=low, high=high, by=f"0x{by:04x}{by:04x}u", plus=first, more=more
    )


# Of two constants of an instruction the assembler would load one anew each time.  No block has a
# number of 32 bits, which compilers know, but not the assembler.
def _held(name: str, value: int) -> str:
    """A constant in a register: a bit that it lacks might be there."""
    zero = (~value & value + 1).bit_length() - 1
    return f"""  unsigned int {name};
  asm("{{ .reg .u32 t; mov.u32 t, %%ctaid.x; shr.u32 t, t, 31; shl.b32 t, t, {zero};"
      " or.b32 %0, t, 0x{value:08x}; }}" : "=r"({name}));
"""


_PAIRS = "  unsigned int low = {0};\n  unsigned int high = {0} >> 8;\n"
_NIBBLES = (
    _held("four", 0x000F000F)
    + "  const unsigned int bits = word >> (4 - shift);\n"
    + _PAIRS.format("bits")
)
_BODIES = {
    ("bfloat16", 0xF0): _NIBBLES
    + _fma("bf16", "({} & four) ^ 0x43084308u", 0x4180, "0xc508c508u"),
    ("float16", 0xF0): _NIBBLES
    + _fma("f16", "({} & four) ^ 0x64086408u", 0x4C00, "0xf408f408u"),
    ("bfloat16", 0xFF): _held("digits", 0x43004300) + _held("less", 0xC300C300)
    + _PAIRS.format("word")
    + _fma("bf16", "({} & 0x007f007fu) | digits", 0x3F80, "({} & 0x00800080u) | less"),
    ("float16", 0xFF): _held("eight", 0x00FF00FF) + _PAIRS.format("word")
    + _fma("f16", "({} & eight) ^ 0x64806480u", 0x3C00, "0xe480e480u"),
    ("bfloat16", None): """  const unsigned int next = (word & 0x7f7f7f7fu) + 0x01010101u;
  const unsigned int bits = word ^ (next & word & 0x80808080u);
  unsigned int low = bits << 8;
  unsigned int high = bits;
  low = (low >> 4 & 0x07f007f0u) | (low & 0x80008000u);
  high = (high >> 4 & 0x07f007f0u) | (high & 0x80008000u);
"""
    + _fma("bf16", "{}", 0x7F00, "0x80008000u") + "\n"
    + _fma("bf16", "{}", 0x4080, "0x80008000u"),
}  # fmt: skip
_WORDS = {0xFF: "int8", 0xF0: "int4", None: "float8"}
HALVES = {key: f"tw_{key[0]}_of_{_WORDS[key[1]]}" for key in _BODIES}  # by type and mask
HALVES_TEXTS = {
    HALVES[key]: _HALVES_TEXT.format(name=HALVES[key], body=body) for key, body in _BODIES.items()
}
# Bytes of the upper halves of bytes, or of the lower ones.
HALVES["int8", 0xF0] = "tw_int8_of_int4"
HALVES_TEXTS["tw_int8_of_int4"] = """static __device__ __forceinline__
void tw_int8_of_int4(signed char* to, unsigned int word, int shift) {
  const unsigned int bytes = word << shift & 0xf0f0f0f0u;
  to[0] = (signed char)bytes;
  to[1] = (signed char)(bytes >> 8);
  to[2] = (signed char)(bytes >> 16);
  to[3] = (signed char)(bytes >> 24);
}
"""
# A number up to 2**22 as an integer, by its bits beside those of 1.5 * 2**23: conversions have an
# eighth of the rate of arithmetic.
WHOLE = "whole"
WHOLE_TEXT = f"""static __device__ __forceinline__ int tw_{WHOLE}(float x) {{
  return __float_as_int(x + 12582912.0f) - 0x4b400000;
}}
"""
# The same byte of each of four words.
BYTES = "bytes"  # (four words, shift)
BYTES_TEXT = f"""static __device__ __forceinline__
unsigned int tw_{BYTES}(int a, int b, int c, int d, int shift) {{
  const unsigned int pair = (shift >> 3) * 0x11u + 0x40u;
  return __byte_perm(__byte_perm(a, b, pair), __byte_perm(c, d, pair), 0x5410u);
}}
"""
