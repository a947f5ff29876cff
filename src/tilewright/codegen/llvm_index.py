"""Index arithmetic done while the text is written: sums with constants kept apart.

In: integer expressions and what is known of loop variables.  Out: `Affine` sums, i64 operands,
bounds; constant parts never become instructions, so an unrolled body addresses memory by constant
offsets.  Read next: `llvm_memory.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.base.dtype import DType
from tilewright.codegen.llvm_facts import EXACT_OPS, Linear
from tilewright.codegen.llvm_text import FunctionText, refusal, typed
from tilewright.ir.expr import Expr

# constant + sum of (SSA value, coefficient); values are numbered in the order they are made, so the
# outermost loops come first in every sum and the invariant part of it can be hoisted
Affine = tuple[int, tuple[tuple[int, int], ...]]

_UNSIGNED = {"floordiv": "udiv", "floormod": "urem"}


def constant(value: int) -> Affine:
    return value, ()


def plus(a: Affine, b: Affine, scale: int = 1) -> Affine:
    """`a + scale * b`."""
    if not b[1]:
        return a[0] + scale * b[0], a[1]
    merged = dict(a[1])
    for name, k in b[1]:
        merged[name] = merged.get(name, 0) + scale * k
    return a[0] + scale * b[0], tuple(sorted((n, k) for n, k in merged.items() if k))


def times(a: Affine, k: int) -> Affine:
    return (a[0] * k, tuple((n, c * k) for n, c in a[1])) if k else (0, ())


def floor_division(text: FunctionText, op: str, t: str, a: str, b: str, divisor: int = 0) -> str:
    """The last instruction of a signed division that rounds down.  divisor: its value, or 0."""
    r = text.pure(f"srem {t} {a}, {b}")
    if divisor > 0:
        bits = t.rstrip(">").rpartition("i")[2]
        shift = str(int(bits) - 1) if "x" not in t else f"splat (i{bits} {int(bits) - 1})"
        sign = text.pure(f"ashr {t} {r}, {shift}")  # -1 where the remainder is negative
        if op == "floormod":
            return f"add {t} {r}, {text.pure(f'and {t} {sign}, {b}')}"
        return f"add {t} {text.pure(f'sdiv {t} {a}, {b}')}, {sign}"
    condition = "i1" if "x" not in t else f"{t.rpartition(' ')[0]} i1>"
    zero = "0" if "x" not in t else "zeroinitializer"
    differ = text.pure(f"icmp slt {t} {text.pure(f'xor {t} {r}, {b}')}, {zero}")
    uneven = text.pure(f"icmp ne {t} {r}, {zero}")
    fix = text.pure(f"and {condition} {differ}, {uneven}")
    if op == "floormod":
        return f"add {t} {r}, {text.pure(f'select {condition} {fix}, {t} {b}, {t} {zero}')}"
    q = text.pure(f"sdiv {t} {a}, {b}")
    return f"add {t} {q}, {text.pure(f'sext {condition} {fix} to {t}')}"


class Indices:
    """Integers of one function.

    value:  the operand of what is no arithmetic of indices, such as a load
    env:    slot -> the value of a variable, a constant in unrolled loops, or of what was
            computed from variables and still holds
    ranges: SSA value -> inclusive bounds
    """

    def __init__(self, text: FunctionText, value: Callable[[Expr], str]) -> None:
        self.text, self.facts, self.pure = text, text.module.facts, text.pure
        self.value = value
        self.env: dict[int, Affine] = {}
        self.ranges: dict[int, tuple[int, int]] = {}

    def bind(self, variable: Expr, value: Affine | None) -> None:
        """Give a variable its value, or end its scope."""
        slot = self.facts.slot(variable)
        self.env.pop(slot, None)
        for dependent in self.facts.dependents(slot):
            self.env.pop(dependent, None)
        if value is not None:
            self.env[slot] = value

    def new_variable(self, low: int, high: int) -> tuple[int, Affine]:
        """A number for an SSA value in low..high, and the sum that it is."""
        n = self.text.number()
        self.ranges[n] = low, high
        return n, (0, ((n, 1),))

    # -- sums ------------------------------------------------------------------------------------
    def affine(self, node: Expr) -> Affine:
        """The value of a scalar integer expression."""
        linear = self.facts.linear(node)
        assert linear is not None and not linear[2], node
        return self.evaluate(linear)

    def evaluate(self, linear: Linear) -> Affine:
        """The value in lane 0."""
        total, env = linear[0], self.env
        sums: dict[int, int] = {}
        for slot, k in linear[1]:
            c, terms = env.get(slot) or self._opaque(slot)
            total += c * k
            for name, factor in terms:
                sums[name] = sums.get(name, 0) + factor * k
        if not sums:
            return total, ()
        return total, tuple(sorted((n, k) for n, k in sums.items() if k))

    def lane(self, node: Expr, k: int) -> Affine:
        """The value of an integer expression in lane `k`."""
        linear = self.facts.linear(node)
        if linear is not None:
            return plus(self.evaluate(linear), constant(linear[2] * k))
        if node.op == "ramp":
            step = self.affine(node.args[1])
            return plus(self.lane(node.args[0], 0), step, k)
        if node.op in EXACT_OPS and node.dtype.is_index:
            return self._integer(node.op, self.lane(node.args[0], k), self.lane(node.args[1], k))
        scalar = self.facts.uniform(node)
        if scalar is not None:
            return self.affine(scalar)
        if node.op == "cast" and self.facts.is_index(node):  # of one that is no linear form
            return self.lane(node.args[0], k)
        vector = self.value(node)
        t = typed(node.dtype, node.lanes)
        return self._widen(self.pure(f"extractelement {t} {vector}, i64 {k}"), node.dtype)

    def lanes(self, node: Expr) -> list[Affine]:
        return [self.lane(node, k) for k in range(node.lanes)]

    def vector(self, node: Expr) -> tuple[Affine, int | None]:
        """The value in lane 0, and the step between lanes where it is one constant."""
        linear = self.facts.linear(node)
        if linear is not None:
            return self.evaluate(linear), linear[2]
        first, second, *others = self.lanes(node)
        step = second[0] - first[0]
        numbered = enumerate([second, *others], 1)
        same = all(a == (first[0] + step * k, first[1]) for k, a in numbered)
        return first, step if same else None

    def atom(self, rhs: str, low: int, high: int) -> Affine:
        """The 64-bit value of `rhs`, known to be in low..high."""
        n = self.text.pure_number(rhs)
        self.ranges[n] = low, high
        return 0, ((n, 1),)

    def bounds(self, a: Affine) -> tuple[int, int]:
        low = high = a[0]
        for name, k in a[1]:
            least, most = self.ranges[name]
            low += k * (least if k > 0 else most)
            high += k * (most if k > 0 else least)
        return low, high

    def word(self, a: Affine) -> str:
        """`a` as an i64 operand."""
        if not a[1]:
            return str(a[0])
        total = self._sum(a[1])
        return total if not a[0] else self.pure(f"add nsw i64 {total}, {a[0]}")

    def narrow(self, a: Affine, dtype: DType) -> str:
        """`a` as an operand of the integer type `dtype`."""
        word = self.word(a)
        if dtype.bits == 64 or not a[1]:
            return word
        return self.pure(f"trunc i64 {word} to {typed(dtype, 1)}")

    def _sum(self, terms: tuple[tuple[int, int], ...]) -> str:
        n = self.text.known(terms)
        if n is not None:
            return f"%v{n}"
        name, k = terms[-1]
        last = f"%v{name}" if k == 1 else self.pure(f"mul nsw i64 %v{name}, {k}")
        if len(terms) == 1:
            return last
        n = self.text.pure_number(f"add nsw i64 {self._sum(terms[:-1])}, {last}")
        self.text.know(terms, n)
        return f"%v{n}"

    def _widen(self, value: str, dtype: DType) -> Affine:
        if not value.startswith("%"):
            return constant(int(value))
        low, high = int(dtype.least), int(dtype.greatest)
        if dtype.bits < 64:
            extend = "sext" if dtype.kind == "int" else "zext"
            return self.atom(f"{extend} {typed(dtype, 1)} {value} to i64", low, high)
        n = int(value[2:])
        self.ranges.setdefault(n, (low, high))
        return 0, ((n, 1),)

    def _opaque(self, slot: int) -> Affine:
        """A scalar integer that is no sum."""
        node = self.facts.slots[slot]
        if node.op == "var":
            raise refusal(f"variable {node}", "it is used outside its loop")
        if node.op in EXACT_OPS and node.dtype.is_index:
            value = self._integer(node.op, self.affine(node.args[0]), self.affine(node.args[1]))
            if not self.facts.loads(node):
                self.env[slot] = value
                self.text.made.append((self.env, slot))
            return value
        operand = self.value(node)
        if node.op == "cast" and node.args[0].dtype == "bool" and operand.startswith("%"):
            return self.atom(f"zext i1 {self.value(node.args[0])} to i64", 0, 1)
        return self._widen(operand, node.dtype)

    def _integer(self, op: str, a: Affine, b: Affine) -> Affine:
        if op in ("add", "sub"):
            return plus(a, b, 1 if op == "add" else -1)
        if op == "mul":
            if not b[1]:
                return times(a, b[0])
            if not a[1]:
                return times(b, a[0])
            corners = [x * y for x in self.bounds(a) for y in self.bounds(b)]
            rhs = f"mul nsw i64 {self.word(a)}, {self.word(b)}"
            return self.atom(rhs, min(corners), max(corners))
        if op in ("min", "max"):
            return self._extreme(op, a, b)
        return self._divide(op, a, b)

    def _extreme(self, op: str, a: Affine, b: Affine) -> Affine:
        low, high = self.bounds(plus(a, b, -1))
        if low >= 0:
            return b if op == "min" else a
        if high <= 0:
            return a if op == "min" else b
        pick = min if op == "min" else max
        (a0, a1), (b0, b1) = self.bounds(a), self.bounds(b)
        name = self.text.module.declare(f"llvm.s{op}.i64", "i64", "i64", "i64")
        rhs = f"call i64 @{name}(i64 {self.word(a)}, i64 {self.word(b)})"
        return self.atom(rhs, pick(a0, b0), pick(a1, b1))

    def _divide(self, op: str, a: Affine, b: Affine) -> Affine:
        """floordiv and floormod, the parts that divide exactly taken out first."""
        if b[1] or b[0] <= 0:
            return self._divide_any(op, a, b)
        d = b[0]
        exact: Affine = a[0] // d, tuple((n, k // d) for n, k in a[1] if k % d == 0)
        rest: Affine = a[0] % d, tuple((n, k) for n, k in a[1] if k % d)
        low, high = self.bounds(rest)
        if low // d == high // d:
            q = low // d
            return plus(exact, (q, ())) if op == "floordiv" else plus(rest, (-q * d, ()))
        x = self.word(rest)
        if low < 0:
            rhs = floor_division(self.text, op, "i64", x, str(d), d)
        elif high < 2**32:  # in 32 bits: cheaper, and on 32-bit processors no call of a library
            x = self.pure(f"trunc i64 {x} to i32")
            rhs = f"zext i32 {self.pure(f'{_UNSIGNED[op]} i32 {x}, {d}')} to i64"
        else:
            rhs = f"{_UNSIGNED[op]} i64 {x}, {d}"
        if op == "floormod":
            return self.atom(rhs, 0, min(d - 1, high) if low >= 0 else d - 1)
        return plus(exact, self.atom(rhs, low // d, high // d))

    def _divide_any(self, op: str, a: Affine, b: Affine) -> Affine:
        (a0, a1), (b0, b1) = self.bounds(a), self.bounds(b)
        divisor = self.word(b)
        if b0 <= 0 <= b1:  # by 0, which would end the process, as by 1
            zero = self.pure(f"icmp eq i64 {divisor}, 0")
            divisor = self.pure(f"select i1 {zero}, i64 1, i64 {divisor}")
        if a0 >= 0 and b0 >= 0:
            rhs = f"{_UNSIGNED[op]} i64 {self.word(a)}, {divisor}"
            return self.atom(rhs, 0, a1 if op == "floordiv" else max(b1 - 1, 0))
        most = max(abs(a0), abs(a1)) + 1 if op == "floordiv" else max(abs(b0), abs(b1))
        return self.atom(floor_division(self.text, op, "i64", self.word(a), divisor), -most, most)
