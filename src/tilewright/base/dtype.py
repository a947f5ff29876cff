"""`DType`: an element type as a value, with everything the system must know of it.

A `DType` is its numpy name (a `str`), so it compares, hashes and prints as one: `"float32"`.
`DType("float16")` gives the value of a name; `TYPES` lists them.  To add an element type, add a row
here: the rooms read these fields and keep no tables of their own.

Arithmetic.  A float type rounds to nearest even.  `float16` and `bfloat16` are formats of memory:
their arithmetic happens in `compute` (float32) and rounds when a value is stored or cast, so one
expression may keep more than its type holds.  Integers wrap around in their own type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from tilewright.base.errors import ExpressionError

ml_dtypes: Any
try:
    import ml_dtypes
except ImportError:  # on a board that has only numpy: then there is no bfloat16
    ml_dtypes = None


@dataclass(frozen=True)
class Spelling:
    """The names of a type: of a value in C, CUDA C, OpenCL C and LLVM.

    Where a C has no such float without a header or an extension, the value is its bits.

    suffix: what follows a literal of it in the C family
    """

    c: str
    cuda: str
    opencl: str
    llvm: str
    suffix: str = ""


_SHORT = {"float": "float32", "int": "int32", "uint": "uint32", "uint1": "bool"}


class DType(str):
    """One element type, of the table below.

    kind:        "bool", "int" (signed), "uint" or "float"
    is_int:      signed or unsigned, not bool
    is_index:    an integer that indices are made of: its arithmetic counts as exact, it never wraps
    bits:        of one element in memory; a bool takes a byte
    digits:      bits of a float's significand, the hidden one included; 0 for others
    eps:         the gap between 1 and the next greater float; 0 for what is exact
    smallest:    the least positive number, of floats a subnormal one
    least, greatest: the finite range
    storage:     the numpy type of its elements
    compute:     the type its arithmetic is done in (itself where hardware has it)
    accumulator: the type in which sums and products of many values are kept unless asked otherwise
    spelling:    its names in generated text
    """

    kind: str
    bits: int
    digits: int
    eps: float
    smallest: float
    least: float | int
    greatest: float | int
    storage: np.dtype[Any]
    compute: DType
    accumulator: DType
    _links: tuple[str, str]  # the names of these two
    is_float: bool
    is_int: bool
    is_index: bool
    spelling: Spelling

    def __new__(cls, name: Any, place: str = "") -> DType:
        """The type called `name`: a `DType`, its name, or anything that numpy takes for a dtype;
        "float", "int" and "uint" are of 32 bits, "uint1" is bool, as in TVM.

        Raises ExpressionError, at `place`, for one that is not supported.
        """
        if not isinstance(name, str):
            try:
                name = np.dtype(name).name
            except (TypeError, ValueError):
                name = repr(name)
        found = _TYPES.get(_SHORT.get(name, name))
        if found is not None:
            return found
        raise ExpressionError(
            place or f"dtype({name!r})",
            f"dtype {str(name)!r} is not supported",
            f"Use one of {', '.join(TYPES)}.",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return DType, (str(self),)

    @property
    def bytes(self) -> int:
        return self.bits // 8

    @property
    def identity_of_max(self) -> float | int | bool:
        """-inf for floats, the least number otherwise."""
        return float("-inf") if self.is_float else self._own(self.least)

    @property
    def identity_of_min(self) -> float | int | bool:
        return float("inf") if self.is_float else self._own(self.greatest)

    def _own(self, value: float) -> float | int | bool:
        return bool(value) if self.kind == "bool" else int(value)

    def nearest(self, value: float) -> float:
        """The number of this float type nearest to `value`; infinity beyond the greatest."""
        if self.bits == 64:
            return float(value)
        with np.errstate(over="ignore"):
            return float(np.asarray(value, np.float64).astype(self.storage))

    def wrapped(self, value: int) -> int:
        """`value` modulo the size of this integer type, in its range."""
        low = int(self.least)
        return (value - low) % (1 << self.bits) + low

    def holds(self, number: float) -> bool:
        """Whether a bare number may take this type without losing more than rounding."""
        if isinstance(number, bool):
            return self.kind == "bool"
        if self.is_float:
            return not np.isfinite(number) or bool(np.isfinite(self.nearest(number)))
        if self.kind == "bool" or isinstance(number, float):
            return False
        return self.least <= number <= self.greatest


def _row(
    name: str,
    kind: str,
    bits: int,
    spelling: Spelling,
    *,
    digits: int = 0,
    storage: type[Any] | None = None,
    compute: str = "",
    accumulator: str = "",
) -> DType:
    new = str.__new__(DType, name)
    new.kind, new.bits, new.digits, new.spelling = kind, bits, digits, spelling
    new.storage = np.dtype(name if storage is None else storage)
    if kind == "float":
        info: Any = (ml_dtypes or np).finfo(new.storage)
        new.eps, new.smallest = float(info.eps), float(info.smallest_subnormal)
        new.least, new.greatest = float(info.min), float(info.max)
    else:
        new.eps, new.smallest = 0.0, 1
        new.greatest = 1 if kind == "bool" else 2 ** (bits - (kind == "int")) - 1
        new.least = -(2 ** (bits - 1)) if kind == "int" else 0
    new.is_float, new.is_int = kind == "float", kind in ("int", "uint")
    new.is_index = kind == "int" and bits >= 32
    new._links = compute or name, accumulator or compute or name
    return new


_TYPES: dict[str, DType] = {
    t: t
    for t in (
        _row("bool", "bool", 8, Spelling("bool", "bool", "bool", "i1"), accumulator="int32"),
        _row("int8", "int", 8, Spelling("signed char", "signed char", "char", "i8"),
             compute="int32"),
        _row("uint8", "uint", 8, Spelling("unsigned char", "unsigned char", "uchar", "i8"),
             compute="int32"),
        _row("int16", "int", 16, Spelling("short", "short", "short", "i16"), compute="int32"),
        _row("uint16", "uint", 16,
             Spelling("unsigned short", "unsigned short", "ushort", "i16"), compute="int32"),
        _row("int32", "int", 32, Spelling("int", "int", "int", "i32")),
        _row("uint32", "uint", 32, Spelling("unsigned int", "unsigned int", "uint", "i32", "u")),
        _row("int64", "int", 64, Spelling("long long", "long long", "long", "i64", "LL")),
        _row("uint64", "uint", 64,
             Spelling("unsigned long long", "unsigned long long", "ulong", "i64", "ULL")),
        _row("float16", "float", 16, Spelling("_Float16", "unsigned short", "ushort", "half"),
             digits=11, compute="float32"),
        *((_row("bfloat16", "float", 16,
                Spelling("unsigned short", "unsigned short", "ushort", "i16"),
                digits=8, storage=ml_dtypes.bfloat16, compute="float32"),) if ml_dtypes else ()),
        _row("float32", "float", 32, Spelling("float", "float", "float", "float", "f"), digits=24),
        _row("float64", "float", 64, Spelling("double", "double", "double", "double"), digits=53),
    )
}  # fmt: skip
for _type in _TYPES.values():
    _type.compute, _type.accumulator = (_TYPES[name] for name in _type._links)
TYPES = tuple(_TYPES)
BOOL, INT32, INT64, FLOAT32, FLOAT64 = map(DType, ("bool", "int32", "int64", "float32", "float64"))


def join(a: DType, b: DType, place: str = "") -> DType:
    """The type of an operation on `a` and `b`: the least that both fit.

    bool joins anything; an integer and a float give the float; integers of different signedness
    give the least signed type that holds both.  Raises ExpressionError for float16 with bfloat16,
    neither of which holds the other.
    """
    if a is b:
        return a
    if a.kind == "bool" or b.kind == "bool":
        return b if a.kind == "bool" else a
    if a.is_float and b.is_float:
        return _refuse(a, b, place) if a.bits == b.bits else max(a, b, key=lambda t: t.bits)
    if a.is_float or b.is_float:
        return a if a.is_float else b
    if a.kind == b.kind:
        return max(a, b, key=lambda t: t.bits)
    fits = (t for t in _TYPES.values() if t.kind == "int" and t.least <= min(a.least, b.least)
            and t.greatest >= max(a.greatest, b.greatest))  # fmt: skip
    found = min(fits, key=lambda t: t.bits, default=None)
    return found if found is not None else _refuse(a, b, place)


def json_name(value: Any) -> str:
    """msgspec's `enc_hook`: an element type is written as its name."""
    if isinstance(value, DType):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def _refuse(a: DType, b: DType, place: str) -> NoReturn:
    raise ExpressionError(
        place or f"{a} with {b}",
        f"{a} and {b} have no common type",
        "Cast one of them, for example x.astype('float32').",
    )
