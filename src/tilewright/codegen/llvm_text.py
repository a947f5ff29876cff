"""The text of LLVM functions: names of types, literals, values that are numbered and made once.

In: right-hand sides of instructions.  Out: operands (SSA names or literals), and in the end lines.
Names of types come from `DType.spelling`; in memory a bool is a byte.  Read next: `llvm_index.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from tilewright.base.dtype import BOOL, DType
from tilewright.base.errors import InternalError
from tilewright.codegen.llvm_facts import Facts
from tilewright.codegen.llvm_foreign import DEFINED

ALIGNMENT = 64  # bytes, of every buffer
_FLOATS = {"half": "f16", "float": "f32", "double": "f64"}  # LLVM's, in the names of intrinsics


def refusal(what: object, reason: str) -> InternalError:
    """The error for what lowering must not hand to this printer."""
    return InternalError(f"LLVM printer, {what}", reason)


# -- types and literals ----------------------------------------------------------------------------


@cache
def element_in_memory(dtype: DType) -> str:
    return f"i{dtype.bits}" if dtype is BOOL else dtype.spelling.llvm


@cache
def typed(dtype: DType, lanes: int) -> str:
    """The type of a value."""
    element = dtype.spelling.llvm
    return element if lanes == 1 else f"<{lanes} x {element}>"


@cache
def typed_in_memory(dtype: DType, lanes: int) -> str:
    element = element_in_memory(dtype)
    return element if lanes == 1 else f"<{lanes} x {element}>"


@cache
def suffix(t: str) -> str:
    """What the names of overloaded intrinsics call a type: v8f32 for <8 x float>."""
    lanes, _, element = t.strip("<>").rpartition(" x ")
    return (f"v{lanes}" if lanes else "") + _FLOATS.get(element, element)


def float_literal(value: float, dtype: DType) -> str:
    """LLVM's exact spelling: the bits; for float32 of the double that equals it."""
    return _float_literal(struct.pack(">d", value), dtype)


@cache
def _float_literal(double: bytes, dtype: DType) -> str:
    """By the bits: as numbers, 0.0 and -0.0 are the same key."""
    (value,) = struct.unpack(">d", double)
    if dtype.bits == 16:
        bits = int(np.array(dtype.nearest(value), dtype.storage).view(np.uint16))
        return f"0xH{bits:04X}" if _is_float(dtype) else str(bits)
    return f"0x{struct.pack('>d', dtype.nearest(value)).hex().upper()}"


def literal(value: float, dtype: DType) -> str:
    """A constant of one lane."""
    if dtype.is_float:
        return float_literal(value, dtype)
    return str(int(value)) if dtype is not BOOL else ("true" if value else "false")


def zero(dtype: DType) -> str:
    return "0.0" if _is_float(dtype) else "0"


def _is_float(dtype: DType) -> bool:
    """Whether it is a float to LLVM, which bfloat16 here is not."""
    return dtype.spelling.llvm in _FLOATS


def zeros(dtype: DType, lanes: int) -> str:
    return "zeroinitializer" if lanes > 1 else zero(dtype)


def lane_literal(values: Sequence[str], element: str) -> str:
    return f"<{', '.join(f'{element} {v}' for v in values)}>"


# -- modules and functions -------------------------------------------------------------------------


@dataclass
class Module:
    """What the functions of one text share: declarations, helper functions, loop metadata."""

    facts: Facts = field(default_factory=Facts)
    declarations: dict[str, str] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    helpers: dict[str, str] = field(default_factory=dict)
    included: list[str] = field(default_factory=list)  # modules of others that define functions
    loops: int = 2  # metadata nodes 0 and 1 say what LLVM must not do with any loop

    def declare(self, name: str, result: str, *args: str) -> str:
        self.declarations[name] = f"declare {result} @{name}({', '.join(args)})"
        return name

    def include(self, name: str) -> None:
        """Take the module that defines a function of others, where there is one."""
        if name in DEFINED:
            self.included.append(DEFINED[name])

    def loop(self) -> int:
        self.loops += 1
        return self.loops - 1


class FunctionText:
    """The text of one function, in a dominating order: what a scope made is forgotten behind it.

    made: (table, key) of every entry that holds only until the end of its scope
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.label = "entry"
        self._count = 0
        self._known: dict[object, int] = {}
        self.made: list[tuple[dict[Any, Any], object]] = []

    # -- values ----------------------------------------------------------------------------------
    def number(self) -> int:
        self._count += 1
        return self._count

    def emit(self, rhs: str) -> str:
        """A new value that depends on when it is computed."""
        n = self.number()
        self.lines.append(f"  %v{n} = {rhs}")
        return f"%v{n}"

    def pure(self, rhs: str) -> str:
        """The value of `rhs`, which depends on its operands only: computed once per scope."""
        return f"%v{self.pure_number(rhs)}"

    def pure_number(self, rhs: str) -> int:
        n = self._known.get(rhs)
        if n is None:
            n = self.number()
            self.lines.append(f"  %v{n} = {rhs}")
            self.know(rhs, n)
        return n

    def known(self, key: object) -> int | None:
        return self._known.get(key)

    def know(self, key: object, n: int) -> None:
        self._known[key] = n
        self.made.append((self._known, key))

    # -- scopes and blocks -----------------------------------------------------------------------
    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is computed inside does not reach, or is not valid, behind it."""
        mark = len(self.made)
        yield
        for table, key in self.made[mark:]:
            table.pop(key, None)
        del self.made[mark:]

    def new_labels(self, *stems: str) -> list[str]:
        n = self.number()
        return [f"{stem}{n}" for stem in stems]

    def begin(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.label = label

    def branch(self, test: str, t: str, then: Callable[[], str], orelse: Callable[[], str]) -> str:
        """A value of type `t` from the side that `test` chooses; the other side does not run."""
        yes, no, end = self.new_labels("yes", "no", "end")
        self.lines.append(f"  br i1 {test}, label %{yes}, label %{no}")
        incoming = []
        for label, side in ((yes, then), (no, orelse)):
            self.begin(label)
            with self.scope():
                operand = side()
            incoming.append(f"[ {operand}, %{self.label} ]")
            self.lines.append(f"  br label %{end}")
        self.begin(end)
        return self.emit(f"phi {t} {', '.join(incoming)}")

    # -- calls and vectors -----------------------------------------------------------------------
    def intrinsic(self, name: str, t: str, operands: Sequence[str], flags: str = "") -> str:
        """``llvm.name`` of operands of the type `t`, which is that of the result too."""
        full = f"llvm.{name}.{suffix(t)}"
        self.module.declare(full, t, *[t] * len(operands))
        return self.pure(f"call {flags}{t} @{full}({', '.join(f'{t} {o}' for o in operands)})")

    def splat(self, operand: str, element: str, lanes: int) -> str:
        if not operand.startswith("%"):
            return f"splat ({element} {operand})"
        t = f"<{lanes} x {element}>"
        first = self.pure(f"insertelement {t} poison, {element} {operand}, i64 0")
        return self.pure(f"shufflevector {t} {first}, {t} poison, <{lanes} x i32> zeroinitializer")

    def pack(self, operands: Sequence[str], element: str) -> str:
        """The vector of scalar operands."""
        t = f"<{len(operands)} x {element}>"
        literals = [o if not o.startswith("%") else "poison" for o in operands]
        vector = lane_literal(literals, element)
        for k, operand in enumerate(operands):
            if operand.startswith("%"):
                vector = self.pure(f"insertelement {t} {vector}, {element} {operand}, i64 {k}")
        return vector

    def negate(self, condition: str, lanes: int) -> str:
        true = "true" if lanes == 1 else "splat (i1 true)"
        return self.pure(f"xor {typed(BOOL, lanes)} {condition}, {true}")
