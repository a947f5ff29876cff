"""Helper functions in LLVM IR, written once for any number of lanes.

In: a body of lines ``a = op T x y``.  Out: the text of a function that LLVM inlines, for scalars or
vectors.  The letters of types are those of `_ELEMENTS`; ``poly(x; name)`` is a Horner chain of
fused multiply-adds, ``fma(...)`` and so on are intrinsics, ``exp(x)`` may be another helper.
Read next: `llvm_math.py`, `llvm_half.py`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence

from tilewright.codegen.llvm_text import Module, suffix

_ELEMENTS = {"F": "float", "I": "i32", "B": "i1", "H": "half", "S": "i16"}
_CONVERSIONS = ("bitcast", "sitofp", "zext", "trunc", "fpext", "fptrunc")


def letter(element: str) -> str:
    """What bodies call an LLVM type."""
    return next(k for k, name in _ELEMENTS.items() if name == element)


class Lanewise:
    """Expands one body.

    coefficients: of the polynomials that it names, constant term first
    helper:       the name of another helper function, which it adds to the module
    """

    def __init__(
        self,
        module: Module,
        lanes: int,
        coefficients: Mapping[str, Sequence[float]] | None = None,
        helper: Callable[[str], str] | None = None,
    ) -> None:
        self.module, self.lanes, self.helper = module, lanes, helper
        self.coefficients = coefficients or {}
        wide = "{}" if lanes == 1 else f"<{lanes} x {{}}>"
        self.types = {letter: wide.format(name) for letter, name in _ELEMENTS.items()}
        self.lines: list[str] = []

    def define(
        self, name: str, argument: str, result: str, body: str, linkage: str = "internal"
    ) -> str:
        """The function from `argument` to `result`, both letters of types.

        linkage: "linkonce_odr" where a module that is linked with the text may replace it
        """
        for line in body.strip().splitlines():
            self._line(line.strip(), result)
        text = "\n".join(self.lines)
        words = ("define", linkage, self.types[result], f"@{name}({self.types[argument]} %x)")
        head = " ".join(filter(None, words))
        return f"{head} alwaysinline nounwind memory(none) {{\n{text}\n}}\n"

    def _line(self, line: str, result: str) -> None:
        target, _, rhs = line.partition(" = ")
        if not rhs:
            operand = self._operand(target.split()[1], result)
            self.lines.append(f"  ret {self.types[result]} {operand}")
            return
        call = re.fullmatch(r"(\w+)\((.*)\)", rhs)
        if call is None:
            self.lines.append(f"  %{target} = {self._instruction(rhs)}")
        elif call[1] == "poly":
            x, name = call[2].split("; ")
            self._horner(target, x, self.coefficients[name])
        else:
            self.lines.append(f"  %{target} = {self._call(call[1], call[2].split(', '))}")

    def _instruction(self, rhs: str) -> str:
        """``op T a b`` with more types where LLVM wants them: select, bitcast, compare."""
        op, *words = rhs.split()
        if op in ("icmp", "fcmp"):
            test, t, a, b = words
            return f"{op} {test} {self.types[t]} {self._operand(a, t)}, {self._operand(b, t)}"
        if op == "select":
            c, t, a, b = words
            t_text = self.types[t]
            return (
                f"select {self.types['B']} %{c}, {t_text} {self._operand(a, t)}, "
                f"{t_text} {self._operand(b, t)}"
            )
        if op in _CONVERSIONS:
            source, a, to = words
            return f"{op} {self.types[source]} {self._operand(a, source)} to {self.types[to]}"
        t, *args = words
        return f"{op} {self.types[t]} {', '.join(self._operand(a, t) for a in args)}"

    def _call(self, name: str, args: Sequence[str]) -> str:
        f = self.types["F"]
        if name in _FLOAT_INTRINSICS:
            full = f"llvm.{_FLOAT_INTRINSICS[name]}.{suffix(f)}"
            self.module.declare(full, f, *[f] * len(args))
        else:
            assert self.helper is not None, name
            full = self.helper(name)
        operands = ", ".join(f"{f} {self._operand(a, 'F')}" for a in args)
        return f"call {f} @{full}({operands})"

    def _horner(self, target: str, x: str, coefficients: Sequence[float]) -> None:
        last = repr(coefficients[-1])
        for k, c in reversed(list(enumerate(coefficients[:-1]))):
            name = target if k == 0 else f"{target}.{k}"
            self.lines.append(f"  %{name} = {self._call('fma', [last, x, repr(c)])}")
            last = name

    def _operand(self, word: str, t: str) -> str:
        """A name, or a constant of the type `t` in every lane."""
        if not re.match(r"-?[\d.]|-?inf|nan", word):
            return f"%{word}"
        if t == "F":
            rounded = struct.unpack("f", struct.pack("f", float(word)))[0]
            text = f"0x{struct.pack('>d', rounded).hex().upper()}"
        else:
            text = str(int(word, 0))
        return text if self.lanes == 1 else f"splat ({_ELEMENTS[t]} {text})"


_FLOAT_INTRINSICS = {"fma": "fmuladd", "fabs": "fabs", "copysign": "copysign"}
