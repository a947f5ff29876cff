"""How a dialect of C is spelled: the shape of its table, its literals, its identifiers.

In: tables from `cuda.py` and `opencl.py`.  Out: what the printer writes.  Read next: `c_family.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.base.dtype import DType

_TYPE_NAME = re.compile(r"(u?(char|short|int|long|longlong)|float|double|half|bool)\d*|\w+_t")
_C_WORDS = """
    asm auto break case catch class const const_cast continue default delete do dynamic_cast
    else enum explicit export extern false for friend goto if inline mutable namespace new
    operator private protected public register reinterpret_cast restrict return short signed
    sizeof static static_cast struct switch template this throw true try typedef typeid typename
    union unsigned using virtual void volatile while alignas alignof and bitand bitor compl
    constexpr decltype noexcept not nullptr or static_assert thread_local xor complex imaginary
    main linux unix NULL NAN INFINITY MAXFLOAT HUGE_VAL assert printf malloc free memcpy memset
    abort exit rand abs div min max fmin fmax exp exp2 exp10 expm1 log log2 log10 log1p logb
    sqrt rsqrt cbrt rcbrt hypot sin cos tan asin acos atan atan2 sincos sinh cosh tanh asinh
    acosh atanh sinpi cospi erf erfc lgamma tgamma pow floor ceil round rint trunc nearbyint
    fabs fma fmod remainder remquo modf frexp ldexp scalbn ilogb copysign nextafter fdim nan
    isnan isinf isfinite signbit
"""
_REFUSED = frozenset(_C_WORDS.split())


# What CUDA C and OpenCL C spell alike.
VALUE_TYPES = {"float32": "float", "float64": "double", "int32": "int", "bool": "bool"}
SUFFIXES = {"float32": "f", "float64": "", "int32": "", "bool": ""}
FLOAT_FUNCTIONS = {
    "exp": "exp", "log": "log", "sqrt": "sqrt", "rsqrt": "rsqrt", "tanh": "tanh", "erf": "erf",
    "abs": "fabs", "floor": "floor", "ceil": "ceil", "round": "rint", "pow": "pow", "sin": "sin",
    "cos": "cos", "min": "fmin", "max": "fmax",
}  # fmt: skip
INT_FUNCTIONS = {(name, t): name for name in ("min", "max") for t in ("int32", "int64")}
VECTORS = {
    ("float32", 2): "float2", ("float32", 4): "float4", ("float64", 2): "double2",
    ("int32", 2): "int2", ("int32", 4): "int4",
}  # fmt: skip


@dataclass(frozen=True)
class Dialect:
    """How one member of the C family spells what the printer needs.

    types, storage: dtype -> type of a value, and of an element in memory
    suffixes:       dtype -> what follows a literal
    specials:       (dtype, "inf" or "nan") -> constant
    functions:      (name in ir FUNCTIONS or "min" or "max", dtype) -> function
    vectors:        (dtype, lanes) -> type, for accesses of at most VECTOR_BYTES
    spaces:         scope -> address space qualifier with a space behind it, or ""
    threads:        thread tag -> index
    head:           format of a kernel's head: name, params, threads, x, y, z
    literal:        format of a vector of given lanes: type, values
    pointer:        format of a pointer cast: type, value
    arena, array:   formats of all shared memory as bytes, of one shared array; array is "" where
                    the launch gives the memory
    restrict, barrier, unroll, inline: words, statements and lines of that meaning
    preamble:       what a text uses ("" for every text, or a dtype) -> first lines
    words:          what no identifier may be, besides the words of C, separated by spaces
    """

    types: Mapping[str, str]
    storage: Mapping[str, str]
    suffixes: Mapping[str, str]
    specials: Mapping[tuple[str, str], str]
    functions: Mapping[tuple[str, str], str]
    vectors: Mapping[tuple[str, int], str]
    spaces: Mapping[str, str]
    threads: Mapping[str, str]
    head: str
    literal: str
    pointer: str
    arena: str
    array: str
    restrict: str
    barrier: str
    unroll: str
    inline: str
    preamble: Mapping[str, str]
    words: str


def float_literal(value: float, dtype: DType, dialect: Dialect) -> str:
    """A decimal literal that reads back as exactly the `dtype` nearest to `value`."""
    with np.errstate(over="ignore"):
        rounded = np.float32(value) if dtype == "float32" else np.float64(value)
    if not np.isfinite(rounded):
        text = dialect.specials[dtype, "nan" if np.isnan(rounded) else "inf"]
        return f"-{text}" if rounded < 0 else text
    text = str(rounded)  # numpy prints the shortest digits that read back
    return (text if "." in text or "e" in text else f"{text}.0") + dialect.suffixes[dtype]


def int_literal(value: int, dtype: DType, dialect: Dialect) -> str:
    """C reads the least integer as minus something too large, hence as a wider type."""
    suffix = dialect.suffixes[dtype]
    if value == -(2 ** (8 * dtype.bytes - 1)):
        return f"({value + 1}{suffix} - 1)"
    return f"{value}{suffix}"


class Names:
    """Unique identifiers that are legal in a dialect."""

    def __init__(self, dialect: Dialect, taken: Iterable[str] = ()) -> None:
        self.taken = set(taken)
        self.words = _REFUSED | frozenset(dialect.words.split())

    def claim(self, wanted: str) -> str:
        """`wanted`, or something like it."""
        base = re.sub(r"\W", "_", wanted, flags=re.ASCII)
        if not base[:1].isalpha():
            base = f"v{base}"
        name, n = base, 0
        while self._refused(name):
            n += 1
            name = f"{base}_{n}"
        self.taken.add(name)
        return name

    def _refused(self, name: str) -> bool:
        return (
            name in self.taken
            or name in self.words
            or name.startswith("tw_")  # ours
            or _TYPE_NAME.fullmatch(name) is not None
        )
