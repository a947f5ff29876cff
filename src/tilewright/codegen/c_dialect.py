"""How a dialect of C is spelled: the shape of its table, its literals, its identifiers.

In: tables from `cuda.py` and `opencl.py`.  Out: what the printer writes.  Read next: `c_family.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.base.dtype import DType
from tilewright.ir.atoms import Atom

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
_FLOAT_FUNCTIONS = {
    "exp": "exp", "log": "log", "sqrt": "sqrt", "rsqrt": "rsqrt", "tanh": "tanh", "erf": "erf",
    "abs": "fabs", "floor": "floor", "ceil": "ceil", "round": "rint", "nearest": "rint",
    "pow": "pow", "sin": "sin", "cos": "cos", "min": "fmin", "max": "fmax",
    **{name: name for name in (
        "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "fmod",
    )},
}  # fmt: skip
_INT_FUNCTIONS = ("min", "max")


@dataclass(frozen=True)
class Dialect:
    """How one member of the C family spells what the printer needs.

    Values of float16 and bfloat16 are their bits, in an unsigned integer: `conversions` lead to
    float32 and back.

    language:       the field of `DType.spelling` with its names of types
    stored, suffixes: where an element in memory, or what follows a literal, is spelled otherwise
    special:        (infinity or NaN, dtype) -> constant
    float_function: format of the function of a float type: name, suffix of the type
    product:        (dtype) -> body of a function that gives a * b, rounded by itself
    conversions:    (from, to) -> text of the function called `conversion(from, to)`
    vector:         (dtype, lanes) -> type of an access of 8 or 16 bytes
    packs:          whether elements of 8 and 16 bits lie in vectors of 32-bit words
    spaces:         scope -> address space qualifier with a space behind it, or ""
    threads:        thread tag -> index
    head:           format of a kernel's head: name, params, threads, x, y, z
    literal:        format of a vector of given lanes: type, values
    pointer:        format of a pointer cast: type, value
    arena, array:   formats of all shared memory as bytes and of one shared array; array is "" where
                    the launch gives the memory
    restrict, barrier, unroll, inline: words, statements and lines of that meaning
    preamble:       what a text uses ("" for every text, or a dtype) -> first lines
    words:          what no identifier may be, besides the words of C, separated by spaces
    instructions:   what statements call that C has no words for, name -> its text; without them
                    there are no asynchronous copies (`async_copy(bytes)` for each of ASYNC_BYTES,
                    "tw_commit", "tw_wait_copies"), no bulk copies (`bulk_copy(dimensions)`,
                    TENSOR_MAP, "tw_make_gates", "tw_fence", "tw_expect", "tw_arrive",
                    "tw_await_gate"), no `multiply(atom)` of that name, no SHOW, MMA_BEGIN and
                    MMA_END, no waiting for the kernel before (`artifact.AWAIT_ONLY` and FRESH)
    """

    language: str
    stored: Mapping[str, str]
    suffixes: Mapping[str, str]
    special: Callable[[float, DType], str]
    float_function: str
    product: Callable[[DType], str]
    conversions: Mapping[tuple[str, str], str]
    vector: Callable[[DType, int], str]
    packs: bool
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
    instructions: Mapping[str, str] = field(default_factory=dict)

    def type(self, dtype: DType) -> str:
        """Of a value."""
        return str(getattr(dtype.spelling, self.language))

    def storage(self, dtype: DType) -> str:
        """Of an element in memory."""
        return self.stored.get(dtype) or self.type(dtype)

    def suffix(self, dtype: DType) -> str:
        return self.suffixes.get(dtype, dtype.spelling.suffix)

    def function(self, name: str, dtype: DType) -> str | None:
        """Of a name in ir's FUNCTIONS, or "min" or "max"; None where there is none."""
        if not dtype.is_float:
            return name if name in _INT_FUNCTIONS else None
        found = _FLOAT_FUNCTIONS.get(name)
        suffix = dtype.spelling.suffix
        return found and self.float_function.format(name=found, suffix=suffix)


def is_native(dtype: DType) -> bool:
    """Whether C computes in this type; lowering has left only moves and casts of the others."""
    return dtype.compute is dtype


def held_as_bits(dtype: DType) -> bool:
    """Whether a C value of this float type is its bits."""
    return dtype.is_float and not is_native(dtype)


def conversion(source: str, to: str) -> str:
    """The function in `Dialect.conversions`; to "odd" is a float32 that is odd unless exact."""
    return f"tw_{source}_to_{to}"


def async_copy(nbytes: int) -> str:
    """The function (to, from, whether it is wanted) of `Dialect.instructions`."""
    return f"tw_copy_{nbytes}"


def bulk_copy(dimensions: int) -> str:
    """The function (to, map, gate, coordinates, the innermost first) of `Dialect.instructions`."""
    return f"{BULK}{dimensions}"


def multiply(atom: str) -> str:
    """The function (sum, a, b: the elements of a lane) of `Dialect.instructions`."""
    return f"tw_mma_{atom.replace('.', '_')}"


def multiplies(atom: Atom) -> str:
    """The same of any atom; one of a thread has a name that asks for no warp."""
    if not atom.texts:
        return multiply(atom.name)
    word = "dot" if atom.by_thread else "mma_own"
    return f"tw_{word}_{atom.name.replace('.', '_')}"


def load_rows(matrices: int, bits: int, transposed: bool) -> str:
    """The function (to, row) of `Dialect.instructions`, for elements of so many bits."""
    return f"tw_rows_{matrices}_{bits}{'_columns' if transposed else ''}"


def instruction(function: str) -> str:
    """That of `Dialect.instructions` for a function of numbers."""
    return f"tw_{function}"


UNIFORM = "tw_uniform"  # (condition that is the same in all lanes of a warp)
SHOW, MMA_BEGIN, MMA_END = "tw_show", "tw_mma_begin", "tw_mma_end"  # of `Dialect.instructions`
BULK, TENSOR_MAP = "tw_bulk_", "tw_map"  # begins of names; the type of a parameter
UNIFORM = "tw_uniform"  # (index): the same in all lanes of a warp, and the compiler knows
LET_IN = "tw_let_next_in"  # (): kernels behind may begin, of which `AWAIT_ONLY` says nothing
LAST = "tw_last_to_come"  # (counter, blocks - 1): whether all others of as many came before
FRESH = "tw_fresh"  # (pointer): the same one, of which nothing is known from before the wait


def float_literal(value: float, dtype: DType, dialect: Dialect) -> str:
    """A decimal literal that reads back as exactly the `dtype` nearest to `value`, or its bits."""
    if held_as_bits(dtype):
        return f"0x{packed_bits([value], dtype):0{dtype.bits // 4}x}"
    with np.errstate(over="ignore"):
        rounded = dtype.storage.type(value)
    if not np.isfinite(rounded):
        text = dialect.special(abs(rounded), dtype)
        return f"-{text}" if rounded < 0 else text
    text = str(rounded)  # numpy prints the shortest digits that read back
    return (text if "." in text or "e" in text else f"{text}.0") + dialect.suffix(dtype)


def int_literal(value: int, dtype: DType, dialect: Dialect) -> str:
    """C reads the least integer as minus something too large, hence as a wider type."""
    suffix = dialect.suffix(dtype)
    if dtype.is_index and value == dtype.least:
        return f"({value + 1}{suffix} - 1)"
    return f"{value}{suffix}"


def packed_bits(values: Sequence[float], dtype: DType) -> int:
    """The elements side by side, the first in the lowest bits."""
    with np.errstate(over="ignore"):
        return int.from_bytes(np.array(values).astype(dtype.storage).tobytes(), "little")


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
