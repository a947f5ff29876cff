"""Values of expressions as LLVM operands: arithmetic, conditions, choices, fused multiply-add.

In: scalar and vector expressions.  Out: operands, typed as `llvm_text.typed` says.  Reads that a
condition guards happen only where it holds.  Minimum and maximum propagate NaN, as numpy's do.
Read next: `llvm_cast.py`, `llvm_math.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.base.dtype import BOOL, INT32, INT64
from tilewright.codegen import llvm_math
from tilewright.codegen.c_value import APART
from tilewright.codegen.llvm_bytes import Bytes
from tilewright.codegen.llvm_cast import convert
from tilewright.codegen.llvm_index import Affine, Indices, floor_division, plus
from tilewright.codegen.llvm_memory import Memory
from tilewright.codegen.llvm_text import (
    FunctionText,
    lane_literal,
    literal,
    refusal,
    typed,
    zeros,
)
from tilewright.ir.expr import ARITHMETIC, BITWISE, COMPARE, Expr
from tilewright.ir.stmt import Buffer

# Floats may be contracted to fused multiply-adds but never reordered: results stay reproducible.
_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INT_OPS = {"add": "add", "sub": "sub", "mul": "mul"}
_BITWISE = {"bitand": "and", "bitor": "or", "bitxor": "xor", "shl": "shl"}
_UNSIGNED_DIVISIONS = {"floordiv": "udiv", "floormod": "urem"}
_FLOAT_TESTS = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_SIGNED_TESTS = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
_UNSIGNED_TESTS = {"eq": "eq", "ne": "ne", "lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge"}
_CONSTANTS = ("true", "false")


def _always(op: str, low: int, high: int) -> bool | None:
    """What `x op 0` is for every x in low..high, if it is the same for all."""
    if op in ("gt", "le"):
        answer = True if low > 0 else False if high <= 0 else None
        return answer if op == "gt" or answer is None else not answer
    if op in ("lt", "ge"):
        answer = True if high < 0 else False if low >= 0 else None
        return answer if op == "lt" or answer is None else not answer
    answer = True if low == high == 0 else False if low > 0 or high < 0 else None
    return answer if op == "eq" or answer is None else not answer


class Values:
    """Expressions of one function; `index` and `memory` are its integers and buffers."""

    def __init__(self, text: FunctionText, stored: set[Buffer]) -> None:
        self.text, self.facts, self.pure = text, text.module.facts, text.pure
        self.index = Indices(text, self.value)
        self.memory = Memory(text, self.index, stored)
        self.bytes = Bytes(self)
        self._memo: dict[int, str] = {}  # by identity of the expression

    def forget(self) -> None:
        """A new statement begins: what loads gave before may have changed."""
        self._memo.clear()

    def value(self, node: Expr) -> str:
        """The operand of `node`, of the LLVM type `typed(node.dtype, node.lanes)`."""
        if node.op == "const":
            return literal(node.attr, node.dtype)
        if node.dtype is BOOL:
            return self._flags(self.condition(node), node.lanes)
        found = self._memo.get(id(node))
        if found is None:
            found = self._find(node)
            self._memoise(node, found)
        return found

    def condition(self, node: Expr) -> str:
        """A boolean: "true" or "false" where that is known whatever the lanes, else an operand."""
        found = self._memo.get(id(node))
        if found is None:
            found = self._test(node)
            self._memoise(node, found)
        return found

    def _memoise(self, node: Expr, value: str) -> None:
        self._memo[id(node)] = value
        self.text.made.append((self._memo, id(node)))

    def _flags(self, operand: str, lanes: int) -> str:
        return f"splat (i1 {operand})" if lanes > 1 and operand in _CONSTANTS else operand

    def _find(self, node: Expr) -> str:
        if node.lanes > 1:
            scalar = self.facts.uniform(node)
            if scalar is not None:
                return self.text.splat(self.value(scalar), typed(node.dtype, 1), node.lanes)
        if self.facts.is_index(node) or node.op == "ramp":
            return self._index_value(node)
        rule = _RULES.get(node.op)
        if rule is None:
            raise refusal(node, f"{node.op!r} has no form in LLVM IR at this stage")
        return rule(self, node)

    def _index_value(self, node: Expr) -> str:
        dtype, lanes = node.dtype, node.lanes
        if not dtype.is_index:
            raise refusal(node, f"a ramp must be of indices, not of {dtype}")
        if lanes == 1:
            return self.index.narrow(self.index.affine(node), dtype)
        linear = self.facts.linear(node)
        element, t = typed(dtype, 1), typed(dtype, lanes)
        if linear is None:
            parts = [self.index.narrow(self.index.lane(node, k), dtype) for k in range(lanes)]
            return self.text.pack(parts, element)
        offset, *_ = base = self.index.evaluate(linear)
        if not base[1]:
            return lane_literal([str(offset + linear[2] * k) for k in range(lanes)], element)
        first = self.text.splat(self.index.narrow(base, dtype), element, lanes)
        steps = lane_literal([str(linear[2] * k) for k in range(lanes)], element)
        return self.pure(f"add {t} {first}, {steps}")

    # -- arithmetic ------------------------------------------------------------------------------
    def _arithmetic(self, node: Expr) -> str:
        dtype = node.dtype
        if dtype.compute is not dtype:
            raise refusal(node, f"arithmetic in {dtype} must happen in {dtype.compute}")
        if dtype.is_float:
            return self._float_arithmetic(node)
        op, (a, b) = node.op, node.args
        t, signed = typed(dtype, node.lanes), dtype.kind == "int"
        if op in _INT_OPS:
            return self.pure(f"{_INT_OPS[op]} {t} {self.value(a)}, {self.value(b)}")
        if op in BITWISE:
            instruction = _BITWISE.get(op) or ("ashr" if signed else "lshr")
            return self.pure(f"{instruction} {t} {self.value(a)}, {self.value(b)}")
        if op in ("min", "max"):
            name = f"s{op}" if signed else f"u{op}"
            return self.text.intrinsic(name, t, [self.value(a), self.value(b)])
        divisor = self.facts.uniform(b)
        known = divisor.attr if divisor is not None and divisor.op == "const" else 0
        d = self.value(b)
        if not known:
            d = self._no_zero(node, self._safe_divisor(node, d, t), t)
        if not signed:
            return self.pure(f"{_UNSIGNED_DIVISIONS[op]} {t} {self.value(a)}, {d}")
        return self.pure(floor_division(self.text, op, t, self.value(a), d, max(known, 0)))

    def _no_zero(self, node: Expr, divisor: str, t: str) -> str:
        """1 in the place of 0, a division by which would end the process."""
        lanes, kind = node.lanes, typed(node.dtype, 1)
        one = self.text.splat("1", kind, lanes) if lanes > 1 else "1"
        zero = self.pure(f"icmp eq {t} {divisor}, {zeros(node.dtype, lanes)}")
        return self.pure(f"select {typed(BOOL, lanes)} {zero}, {t} {one}, {t} {divisor}")

    def _safe_divisor(self, node: Expr, divisor: str, t: str) -> str:
        """1 in lanes that do not run; of a number that all lanes share, where none does."""
        mask, lanes = self.memory.mask, node.lanes
        if mask is None:
            return divisor
        if lanes == 1:
            bits = f"i{self.memory.mask_lanes}"
            whole = self.pure(f"bitcast <{self.memory.mask_lanes} x i1> {mask} to {bits}")
            some = self.pure(f"icmp ne {bits} {whole}, 0")
            return self.pure(f"select i1 {some}, {t} {divisor}, {t} 1")
        one = self.text.splat("1", typed(node.dtype, 1), lanes)
        return self.pure(f"select <{lanes} x i1> {mask}, {t} {divisor}, {t} {one}")

    def _float_arithmetic(self, node: Expr) -> str:
        op, (a, b) = node.op, node.args
        t = typed(node.dtype, node.lanes)
        if op == "add" and "mul" in (a.op, b.op):
            product, other = (b, a) if b.op == "mul" else (a, b)
            return self._fma(product, self.value(other))
        if op == "sub" and b.op == "mul":
            return self._fma(b, self.value(a), negate=True)
        if op == "sub" and a.op == "mul":
            return self._fma(a, self.pure(f"fneg {t} {self.value(b)}"))
        x, y = self.value(a), self.value(b)
        if op in ("min", "max"):
            return self.text.intrinsic(f"{op}imum", t, [x, y], "nsz ")
        if op in _FLOAT_OPS:
            return self.pure(f"{_FLOAT_OPS[op]} contract {t} {x}, {y}")
        # the sign of the divisor, as in Python: add it where the remainder has the other one
        zero, flag = zeros(a.dtype, a.lanes), typed(BOOL, a.lanes)
        r = self.pure(f"frem {t} {x}, {y}")
        below = self.pure(f"fcmp olt {t} {r}, {zero}")
        above = self.pure(f"fcmp ogt {t} {r}, {zero}")
        negative = self.pure(f"fcmp olt {t} {y}, {zero}")
        wrong = self.pure(f"select {flag} {negative}, {flag} {above}, {flag} {below}")
        if op == "floormod":
            moved = self.pure(f"fadd {t} {r}, {y}")
            return self.pure(f"select {flag} {wrong}, {t} {moved}, {t} {r}")
        return self._floor_quotient(node, x, y, r, wrong)

    def _floor_quotient(self, node: Expr, x: str, y: str, r: str, wrong: str) -> str:
        """x // y from the rest r of x / y, one less where r is `wrong`, of the other sign than y.

        x / y itself may round up to a whole number that lies above it.
        """
        t, flag = typed(node.dtype, node.lanes), typed(BOOL, node.lanes)
        zero, one = zeros(node.dtype, node.lanes), literal(1.0, node.dtype)
        if node.lanes > 1:
            one = self.text.splat(one, typed(node.dtype, 1), node.lanes)
        whole = self.pure(f"fdiv {t} {self.pure(f'fsub {t} {x}, {r}')}, {y}")
        less = self.pure(f"fsub {t} {whole}, {one}")
        whole = self.pure(f"select {flag} {wrong}, {t} {less}, {t} {whole}")
        whole = self.text.intrinsic("rint", t, [whole])
        plain = self.pure(f"fdiv {t} {x}, {y}")  # of a zero the sign, and all of division by zero
        signed = self.text.intrinsic("copysign", t, [zero, plain])
        none = self.pure(f"fcmp oeq {t} {whole}, {zero}")
        whole = self.pure(f"select {flag} {none}, {t} {signed}, {t} {whole}")
        unbound = self.pure(f"fcmp oeq {t} {y}, {zero}")
        return self.pure(f"select {flag} {unbound}, {t} {plain}, {t} {whole}")

    def _fma(self, product: Expr, addend: str, negate: bool = False) -> str:
        """product + addend in one rounding where the processor can (elsewhere LLVM takes two)."""
        t = typed(product.dtype, product.lanes)
        x, y = self.bytes.factors(product) or map(self.value, product.args)
        if negate:
            x = self.pure(f"fneg {t} {x}")
        return self.text.intrinsic("fmuladd", t, [x, y, addend])

    def _function(self, node: Expr) -> str:
        operands = [self.value(a) for a in node.args]
        return llvm_math.function(self.text, node, operands)

    def _conversion(self, node: Expr) -> str:
        a = node.args[0]
        return convert(self.text, self.value(a), a.dtype, node.dtype, node.lanes)

    # -- conditions ------------------------------------------------------------------------------
    def _test(self, node: Expr) -> str:
        op, lanes = node.op, node.lanes
        if op == "const":
            return "true" if node.attr else "false"
        if lanes > 1:
            scalar = self.facts.uniform(node)
            if scalar is not None:
                c = self.condition(scalar)
                return c if c in _CONSTANTS else self.text.splat(c, "i1", lanes)
        rule = _CONDITIONS.get(op)
        if rule is None:
            raise refusal(node, f"{op!r} is no condition")
        return rule(self, node)

    def _apart(self, node: Expr) -> str:
        """Whether two buffers, which may be one, lie in different memory."""
        first, second = (self.memory.pointers[buffer] for buffer in node.attr)
        return self.pure(f"icmp ne ptr {first}, {second}")

    def _not(self, node: Expr) -> str:
        c = self.condition(node.args[0])
        if c in _CONSTANTS:
            return "false" if c == "true" else "true"
        return self.text.negate(c, node.lanes)

    def _connect(self, node: Expr) -> str:
        """and, or: both operands are evaluated."""
        op, (a, b) = node.op, node.args
        absorbing = "false" if op == "and" else "true"
        first = self.condition(a)
        if first in _CONSTANTS:
            return first if first == absorbing else self.condition(b)
        second = self.condition(b)
        if second in _CONSTANTS:
            return second if second == absorbing else first
        return self.pure(f"{op} {typed(BOOL, node.lanes)} {first}, {second}")

    def _compare(self, node: Expr) -> str:
        op, (a, b), lanes = node.op, node.args, node.lanes
        dtype, t = a.dtype, typed(a.dtype, lanes)
        if dtype.compute is not dtype:
            raise refusal(node, f"comparisons of {dtype} must happen in {dtype.compute}")
        if dtype.is_float:
            return self.pure(f"fcmp {_FLOAT_TESTS[op]} {t} {self.value(a)}, {self.value(b)}")
        if dtype.is_index and not self.facts.loads(a) and not self.facts.loads(b):
            la, lb = self.facts.linear(a), self.facts.linear(b)
            if la is not None and lb is not None:
                difference = plus(self.index.evaluate(la), self.index.evaluate(lb), -1)
                return self._compare_sum(op, difference, la[2] - lb[2], lanes)
        test = (_SIGNED_TESTS if dtype.kind == "int" else _UNSIGNED_TESTS)[op]
        return self.pure(f"icmp {test} {t} {self.value(a)}, {self.value(b)}")

    def _compare_sum(self, op: str, a: Affine, step: int, lanes: int) -> str:
        """`a + step * lane  op  0`."""
        low, high = self.index.bounds(a)
        low, high = low + min(step * (lanes - 1), 0), high + max(step * (lanes - 1), 0)
        known = _always(op, low, high)
        if known is not None:
            return "true" if known else "false"
        test = _SIGNED_TESTS[op]
        if lanes == 1:
            return self.pure(f"icmp {test} i64 {self.index.word((0, a[1]))}, {-a[0]}")
        dtype = INT32 if INT32.holds(low) and INT32.holds(high) else INT64
        element, t = typed(dtype, 1), typed(dtype, lanes)
        if not a[1]:
            vector = "zeroinitializer"
        else:
            vector = self.text.splat(self.index.narrow((0, a[1]), dtype), element, lanes)
        limits = lane_literal([str(-a[0] - step * k) for k in range(lanes)], element)
        return self.pure(f"icmp {test} {t} {vector}, {limits}")

    # -- choice ----------------------------------------------------------------------------------
    def _choice(self, node: Expr) -> str:
        """select and if_then_else."""
        test, a, b = node.args
        t = typed(node.dtype, node.lanes)
        scalar = self.facts.uniform(test)
        c = self.condition(test if scalar is None else scalar)
        if c in _CONSTANTS:
            return self.value(a if c == "true" else b)
        lazy = node.op == "if_then_else" and (self.facts.risky(a) or self.facts.risky(b))
        if not lazy:
            flag = typed(BOOL, 1 if scalar is not None else node.lanes)
            return self.pure(f"select {flag} {c}, {t} {self.value(a)}, {t} {self.value(b)}")
        if scalar is not None:
            return self.text.branch(c, t, lambda: self.value(a), lambda: self.value(b))
        return self._masked_choice(node, c, t)

    def _masked_choice(self, node: Expr, mask: str, t: str) -> str:
        _, a, b = node.args
        lanes = node.lanes
        if self.facts.risky(b):
            with self.memory.masked(self.text.negate(mask, lanes), lanes):
                other = self.value(b)
        else:
            other = self.value(b)
        with self.memory.masked(mask, lanes):
            linear = self.facts.linear(a.args[0]) if a.op == "load" else None
            if linear is not None and linear[2] == 1 and a.dtype is not BOOL:
                first = self.index.evaluate(linear)
                return self.memory.read_contiguous(a.attr, first, lanes, other)
            chosen = self.value(a)
        return self.pure(f"select <{lanes} x i1> {mask}, {t} {chosen}, {t} {other}")

    def _read(self, node: Expr) -> str:
        return self.memory.read(node.attr, node.args[0])


Rule = Callable[[Values, Expr], str]
_OF_ANY_TYPE: dict[str, Rule] = {
    "load": Values._read,
    "cast": Values._conversion,
    "select": Values._choice,
    "if_then_else": Values._choice,
}
_RULES: dict[str, Rule] = {
    **_OF_ANY_TYPE,
    **dict.fromkeys(ARITHMETIC, Values._arithmetic),
    "call": Values._function,
}
_CONDITIONS: dict[str, Rule] = {
    **_OF_ANY_TYPE,
    **dict.fromkeys(COMPARE, Values._compare),
    "and": Values._connect,
    "or": Values._connect,
    "not": Values._not,
    APART: Values._apart,
}
