"""Straight-line LLVM text with value numbering, and index arithmetic done while it is written.

In: integer expressions and what is known of loop variables.  Out: SSA names, pointers, alignments;
constant parts never become instructions, so an unrolled body addresses memory by constant offsets.
Read next: `llvm_value.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tilewright.base.dtype import DType
from tilewright.base.errors import InternalError
from tilewright.ir.expr import Expr, free_variables, rebuild
from tilewright.ir.stmt import Buffer

ALIGNMENT = 64  # bytes, of every buffer
REGISTER = {"float32": "float", "float64": "double", "int32": "i32", "int64": "i64", "bool": "i1"}
MEMORY = {**REGISTER, "bool": "i8"}
SUFFIX = {"float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64", "bool": "i1"}

# constant + sum of (SSA value, coefficient); values are numbered in the order they are made, so the
# outermost loops come first in every sum and the invariant part of it can be hoisted
Affine = tuple[int, tuple[tuple[int, int], ...]]
# constant, sum of (slot in `Facts.slots`, coefficient), step from one lane to the next
Linear = tuple[int, tuple[tuple[int, int], ...], int]

_UNSIGNED = {"floordiv": "udiv", "floormod": "urem"}
_PURE_INT = frozenset(("var", "const", "add", "sub", "mul", "floordiv", "floormod", "min", "max"))


def typed(dtype: DType, lanes: int, names: dict[str, str] = REGISTER) -> str:
    return names[dtype] if lanes == 1 else f"<{lanes} x {names[dtype]}>"


def suffix(dtype: DType, lanes: int) -> str:
    return SUFFIX[dtype] if lanes == 1 else f"v{lanes}{SUFFIX[dtype]}"


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


class Facts:
    """What is true of expressions wherever they are evaluated; kept per program.

    Tables are keyed by identity, the fastest key; `_alive` keeps every key from being reused.
    slots: the expressions that sums are made of, numbered in the order they were met
    """

    def __init__(self) -> None:
        self.slots: list[Expr] = []
        self._alive: list[Expr] = []
        self._slot: dict[int, int] = {}
        self._linear: dict[int, Linear | None] = {}
        self._uniform: dict[int, Expr | None] = {}
        self._loads: dict[int, bool] = {}
        self._risky: dict[int, bool] = {}
        self._dependents: dict[int, list[int]] = {}

    def slot(self, atom: Expr) -> int:
        found = self._slot.get(id(atom))
        if found is None:
            found = self._slot[id(atom)] = len(self.slots)
            self.slots.append(atom)
            if atom.op != "var":
                for v in free_variables(atom):
                    self._dependents.setdefault(self.slot(v), []).append(found)
        return found

    def dependents(self, variable: int) -> list[int]:
        """Slots of what is computed from the variable in this slot."""
        return self._dependents.get(variable, [])

    def linear(self, node: Expr) -> Linear | None:
        """An integer expression as a sum; scalars always have one, vectors if lanes are a ramp."""
        key = id(node)
        if key in self._linear:
            return self._linear[key]
        self._alive.append(node)
        found = self._linear[key] = self._find_linear(node)
        return found

    def uniform(self, node: Expr) -> Expr | None:
        """The scalar that every lane of `node` holds, if its form shows that they are equal."""
        if node.lanes == 1:
            return node
        key = id(node)
        if key in self._uniform:
            return self._uniform[key]
        self._alive.append(node)
        found = self._uniform[key] = self._find_uniform(node)
        return found

    def loads(self, node: Expr) -> bool:
        found = self._loads.get(id(node))
        if found is None:
            self._alive.append(node)
            found = self._loads[id(node)] = node.op == "load" or any(map(self.loads, node.args))
        return found

    def risky(self, node: Expr) -> bool:
        """Whether evaluating `node` where its value is not wanted could fault."""
        found = self._risky.get(id(node))
        if found is None:
            self._alive.append(node)
            divides = node.op in ("floordiv", "floormod") and node.dtype.is_index
            found = node.op == "load" or any(map(self.risky, node.args))
            found = self._risky[id(node)] = found or (divides and not self._constant(node.args[1]))
        return found

    def is_index(self, node: Expr) -> bool:
        """Whether 64-bit arithmetic gives its value; what comes from memory wraps at its width."""
        if not node.dtype.is_index or self.loads(node):
            return False
        return node.op in _PURE_INT or (node.op == "cast" and node.args[0].dtype.is_index)

    def _constant(self, node: Expr) -> bool:
        scalar = self.uniform(node)
        return scalar is not None and scalar.op == "const" and scalar.attr != 0

    def _find_uniform(self, node: Expr) -> Expr | None:
        if node.op == "broadcast":
            return node.args[0]
        if node.op == "ramp" or not node.args:
            return None
        args = tuple(s for a in node.args if (s := self.uniform(a)) is not None)
        return rebuild(node, args) if len(args) == len(node.args) else None

    def _find_linear(self, node: Expr) -> Linear | None:
        op, args = node.op, node.args
        if op == "const":
            return int(node.attr), (), 0
        if op == "broadcast":
            return self.linear(args[0])
        if op == "cast" and args[0].dtype.is_index:
            return self.linear(args[0])
        if op in ("add", "sub", "mul", "ramp"):
            a, b = self.linear(args[0]), self.linear(args[1])
            if a is None or b is None:
                return None
            if op == "ramp":
                if not b[1]:
                    return a[0], a[1], b[0]
            elif op != "mul":
                return _merge(a, b, 1 if op == "add" else -1)
            elif not b[1] and not b[2]:
                return _merge((0, (), 0), a, b[0])
            elif not a[1] and not a[2]:
                return _merge((0, (), 0), b, a[0])
        return (0, ((self.slot(node), 1),), 0) if node.lanes == 1 else None


def _merge(a: Linear, b: Linear, scale: int) -> Linear:
    merged = dict(a[1])
    for slot, k in b[1]:
        merged[slot] = merged.get(slot, 0) + scale * k
    terms = tuple((s, k) for s, k in merged.items() if k)
    return a[0] + scale * b[0], terms, a[2] + scale * b[2]


@dataclass
class Module:
    """What the functions of one text share: declarations, helper functions, loop metadata."""

    facts: Facts = field(default_factory=Facts)
    declarations: dict[str, str] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    helpers: dict[str, str] = field(default_factory=dict)
    loops: int = 2  # metadata nodes 0 and 1 say what LLVM must not do with any loop

    def declare(self, name: str, result: str, *args: str) -> str:
        self.declarations[name] = f"declare {result} @{name}({', '.join(args)})"
        return name

    def loop(self) -> int:
        self.loops += 1
        return self.loops - 1


class IndexEmitter:
    """The text of one function, in a dominating order: what a scope made is forgotten behind it.

    env:      slot -> the value of a variable, a constant in unrolled loops, or of what was
              computed from variables and still holds
    ranges:   SSA value -> inclusive bounds
    pointers: buffer -> SSA name of its first element
    """

    def __init__(self, module: Module, stored: set[Buffer]) -> None:
        self.module, self.facts, self.stored = module, module.facts, stored
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.label = "entry"
        self.env: dict[int, Affine] = {}
        self.ranges: dict[int, tuple[int, int]] = {}
        self.pointers: dict[Buffer, str] = {}
        self._count = 0
        self._known: dict[object, int] = {}
        self._addresses: dict[tuple[Buffer, Affine], tuple[str, int]] = {}
        self._memo: dict[int, str] = {}  # of the statement at hand, by identity of the expression
        self._made: list[tuple[dict[Any, Any], object]] = []

    def bind(self, variable: Expr, value: Affine | None) -> None:
        """Give a variable its value, or end its scope."""
        slot = self.facts.slot(variable)
        self.env.pop(slot, None)
        for dependent in self.facts.dependents(slot):
            self.env.pop(dependent, None)
        if value is not None:
            self.env[slot] = value

    # -- text ------------------------------------------------------------------------------------
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
        return f"%v{self._pure(rhs)}"

    def _pure(self, rhs: str) -> int:
        n = self._known.get(rhs)
        if n is None:
            n = self.number()
            self.lines.append(f"  %v{n} = {rhs}")
            self._remember(rhs, n)
        return n

    def _remember(self, key: object, n: int) -> None:
        self._known[key] = n
        self._made.append((self._known, key))

    def memoise(self, node: Expr, value: str) -> None:
        self._memo[id(node)] = value
        self._made.append((self._memo, id(node)))

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is computed inside does not reach, or is not valid, behind it."""
        mark = len(self._made)
        yield
        for table, key in self._made[mark:]:
            table.pop(key, None)
        del self._made[mark:]

    def new_labels(self, *stems: str) -> list[str]:
        n = self.number()
        return [f"{stem}{n}" for stem in stems]

    def begin(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.label = label

    # -- integers --------------------------------------------------------------------------------
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
        if node.op in _PURE_INT:
            return self._integer(node.op, self.lane(node.args[0], k), self.lane(node.args[1], k))
        scalar = self.facts.uniform(node)
        if scalar is not None:
            return self.affine(scalar)
        vector = self.value(node)
        t = typed(node.dtype, node.lanes)
        return self._widen(self.pure(f"extractelement {t} {vector}, i64 {k}"), node.dtype)

    def value(self, node: Expr) -> str:
        """The operand that holds `node` in its own type; see `llvm_value.py`."""
        raise InternalError(str(node), "no emitter of values was given")

    def atom(self, rhs: str, low: int, high: int) -> Affine:
        """The 64-bit value of `rhs`, known to be in low..high."""
        n = self._pure(rhs)
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
        if dtype == "int64" or not a[1]:
            return word
        return self.pure(f"trunc i64 {word} to i32")

    def _sum(self, terms: tuple[tuple[int, int], ...]) -> str:
        n = self._known.get(terms)
        if n is not None:
            return f"%v{n}"
        name, k = terms[-1]
        last = f"%v{name}" if k == 1 else self.pure(f"mul nsw i64 %v{name}, {k}")
        if len(terms) == 1:
            return last
        n = self._pure(f"add nsw i64 {self._sum(terms[:-1])}, {last}")
        self._remember(terms, n)
        return f"%v{n}"

    def _widen(self, value: str, dtype: DType) -> Affine:
        bits = 8 * dtype.bytes
        low, high = -(1 << bits - 1), (1 << bits - 1) - 1
        if dtype == "int32":
            if not value.startswith("%"):
                return constant(int(value))
            return self.atom(f"sext i32 {value} to i64", low, high)
        if not value.startswith("%"):
            return constant(int(value))
        n = int(value[2:])
        self.ranges.setdefault(n, (low, high))
        return 0, ((n, 1),)

    def _opaque(self, slot: int) -> Affine:
        """A scalar integer that is no sum."""
        node = self.facts.slots[slot]
        if node.op == "var":
            raise InternalError(f"generate, variable {node}", "it is used outside its loop")
        if node.op in _PURE_INT:
            value = self._integer(node.op, self.affine(node.args[0]), self.affine(node.args[1]))
            if not self.facts.loads(node):
                self.env[slot] = value
                self._made.append((self.env, slot))
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
        name = self.module.declare(f"llvm.s{op}.i64", "i64", "i64", "i64")
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
            rhs = self.floor_division(op, "i64", x, str(d), d)
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
        if a0 >= 0 and b0 >= 0:
            rhs = f"{_UNSIGNED[op]} i64 {self.word(a)}, {self.word(b)}"
            return self.atom(rhs, 0, a1 if op == "floordiv" else max(b1 - 1, 0))
        most = max(abs(a0), abs(a1)) + 1 if op == "floordiv" else max(abs(b0), abs(b1))
        return self.atom(self.floor_division(op, "i64", self.word(a), self.word(b)), -most, most)

    def floor_division(self, op: str, t: str, a: str, b: str, divisor: int = 0) -> str:
        """The last instruction of a division that rounds down.  divisor: its value, or 0."""
        r = self.pure(f"srem {t} {a}, {b}")
        if divisor > 0:
            bits = t.rstrip(">").rpartition("i")[2]
            shift = str(int(bits) - 1) if "x" not in t else f"splat (i{bits} {int(bits) - 1})"
            sign = self.pure(f"ashr {t} {r}, {shift}")  # -1 where the remainder is negative
            if op == "floormod":
                return f"add {t} {r}, {self.pure(f'and {t} {sign}, {b}')}"
            return f"add {t} {self.pure(f'sdiv {t} {a}, {b}')}, {sign}"
        condition = "i1" if "x" not in t else f"{t.rpartition(' ')[0]} i1>"
        zero = "0" if "x" not in t else "zeroinitializer"
        differ = self.pure(f"icmp slt {t} {self.pure(f'xor {t} {r}, {b}')}, {zero}")
        uneven = self.pure(f"icmp ne {t} {r}, {zero}")
        fix = self.pure(f"and {condition} {differ}, {uneven}")
        if op == "floormod":
            return f"add {t} {r}, {self.pure(f'select {condition} {fix}, {t} {b}, {t} {zero}')}"
        q = self.pure(f"sdiv {t} {a}, {b}")
        return f"add {t} {q}, {self.pure(f'sext {condition} {fix} to {t}')}"

    # -- addresses -------------------------------------------------------------------------------
    def address(self, buffer: Buffer, index: Affine) -> tuple[str, int]:
        """An element's pointer, and the bytes that it is known to be a multiple of."""
        key = buffer, index
        found = self._addresses.get(key)
        if found is None:
            steps = math.gcd(index[0], *(k for _, k in index[1])) * buffer.dtype.bytes
            align = min(steps & -steps, ALIGNMENT) if steps else ALIGNMENT
            found = self._addresses[key] = self._pointer(buffer, *index), align
            self._made.append((self._addresses, key))
        return found

    def _pointer(self, buffer: Buffer, offset: int, terms: tuple[tuple[int, int], ...]) -> str:
        base = self.pointers.get(buffer)
        if base is None:
            raise InternalError(
                f"generate, buffer {buffer!r}", "it is neither a parameter nor allocated here"
            )
        element, inbounds = MEMORY[buffer.dtype], "inbounds "
        if terms:
            low, high = self.bounds((0, terms))
            if low < 0 or high > buffer.size:  # the part without the constant may lie outside
                inbounds = ""
            total = self._sum(terms)
            base = self.pure(f"getelementptr {inbounds}{element}, ptr {base}, i64 {total}")
        if not offset:
            return base
        return self.pure(f"getelementptr {inbounds}{element}, ptr {base}, i64 {offset}")
