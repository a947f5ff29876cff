"""Values of expressions as LLVM operands: arithmetic, guarded reads, vectors, fused multiply-add.

In: scalar and vector expressions.  Out: operands, typed as `llvm_index.REGISTER` says.  Reads that
a condition guards happen only where it holds: behind a branch for scalar conditions, masked lane by
lane for vectors.  Minimum and maximum propagate NaN, as numpy's do.  Read next: `llvm_math.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from tilewright.base.dtype import BOOL, INT32, INT64, DType
from tilewright.base.errors import InternalError
from tilewright.codegen.llvm_index import (
    MEMORY,
    Affine,
    IndexEmitter,
    plus,
    suffix,
    typed,
)
from tilewright.codegen.llvm_math import POLYNOMIALS, helper
from tilewright.ir.expr import COMPARE, Expr
from tilewright.ir.stmt import Buffer

# Floats may be contracted to fused multiply-adds but never reordered: results stay reproducible.
_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INT_OPS = {"add": "add", "sub": "sub", "mul": "mul"}
_FLOAT_TESTS = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_INT_TESTS = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
# Functions that LLVM lowers to instructions, or lane by lane to calls of the C library
_INTRINSICS = {
    "exp": "exp", "log": "log", "sqrt": "sqrt", "abs": "fabs", "floor": "floor", "ceil": "ceil",
    "round": "rint", "pow": "pow", "sin": "sin", "cos": "cos",
}  # fmt: skip
_LIBRARY = ("tanh", "erf")
_CONSTANTS = ("true", "false")
_MAX_SHUFFLED_STRIDE = 4  # further apart, gathering single elements reads less


@cache
def float_literal(value: float, dtype: DType) -> str:
    """LLVM's exact spelling: the bits of the double, for float32 of the rounded one."""
    if dtype == "float32":
        try:
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
    return f"0x{struct.pack('>d', value).hex().upper()}"


def lane_literal(values: list[str], element: str) -> str:
    return f"<{', '.join(f'{element} {v}' for v in values)}>"


def _conversion(source: DType, target: DType) -> str:
    if source.is_float:
        if target.is_int:
            return "fptosi"
        return "fpext" if target == "float64" else "fptrunc"
    if target.is_float:
        return "uitofp" if source == "bool" else "sitofp"
    if source == "bool":
        return "zext"
    return "sext" if target == "int64" else "trunc"


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


class ValueEmitter(IndexEmitter):
    """mask: the lanes for which the code at hand runs; None for all."""

    mask: str | None = None
    mask_lanes = 1
    arrays: dict[Buffer, str]  # allocated by this function

    def value(self, node: Expr) -> str:
        """The operand of `node`, of the LLVM type `typed(node.dtype, node.lanes)`."""
        if node.op == "const":
            return self._constant(node)
        if node.dtype == "bool":
            return self._literal(self.condition(node), node.lanes)
        found = self._memo.get(id(node))
        if found is None:
            found = self._find(node)
            self.memoise(node, found)
        return found

    def condition(self, node: Expr) -> str:
        """A boolean: "true" or "false" where that is known whatever the lanes, else an operand."""
        found = self._memo.get(id(node))
        if found is None:
            found = self._test(node)
            self.memoise(node, found)
        return found

    @contextmanager
    def masked(self, mask: str, lanes: int) -> Iterator[None]:
        """Inside, only the lanes of `mask` run; what is computed there is not used behind it."""
        outer = self.mask
        with self.scope():
            if outer is not None:
                mask = self.pure(f"and <{lanes} x i1> {outer}, {mask}")
            self.mask, self.mask_lanes = mask, lanes
            yield
            self.mask = outer

    # -- constants and vectors -------------------------------------------------------------------
    def _constant(self, node: Expr) -> str:
        if node.dtype.is_float:
            return float_literal(node.attr, node.dtype)
        return str(int(node.attr)) if node.dtype != "bool" else ("true" if node.attr else "false")

    def _literal(self, operand: str, lanes: int) -> str:
        return f"splat (i1 {operand})" if lanes > 1 and operand in _CONSTANTS else operand

    def _splat(self, operand: str, element: str, lanes: int) -> str:
        if not operand.startswith("%"):
            return f"splat ({element} {operand})"
        t = f"<{lanes} x {element}>"
        first = self.pure(f"insertelement {t} poison, {element} {operand}, i64 0")
        return self.pure(f"shufflevector {t} {first}, {t} poison, <{lanes} x i32> zeroinitializer")

    def _find(self, node: Expr) -> str:
        if node.lanes > 1:
            scalar = self.facts.uniform(node)
            if scalar is not None:
                return self._splat(self.value(scalar), typed(node.dtype, 1), node.lanes)
        if self.facts.is_index(node) or node.op == "ramp":
            return self._index_value(node)
        op = node.op
        if op in ("add", "sub", "mul", "div", "floordiv", "floormod", "min", "max"):
            return self._arithmetic(node)
        rule = _RULES.get(op)
        if rule is None:
            raise InternalError(f"generate, {node}", f"{op!r} has no form in LLVM IR at this stage")
        return rule(self, node)

    def _index_value(self, node: Expr) -> str:
        dtype, lanes = node.dtype, node.lanes
        if not dtype.is_int:
            raise InternalError(f"generate, {node}", "a ramp must be of integers")
        if lanes == 1:
            return self.narrow(self.affine(node), dtype)
        linear = self.facts.linear(node)
        element, t = typed(dtype, 1), typed(dtype, lanes)
        if linear is not None:
            offset, *_ = base = self.evaluate(linear)
            if not base[1]:
                return lane_literal([str(offset + linear[2] * k) for k in range(lanes)], element)
            first = self._splat(self.narrow(base, dtype), element, lanes)
            steps = lane_literal([str(linear[2] * k) for k in range(lanes)], element)
            return self.pure(f"add {t} {first}, {steps}")
        return self.pack([self.narrow(self.lane(node, k), dtype) for k in range(lanes)], element)

    def pack(self, operands: list[str], element: str) -> str:
        """The vector of scalar operands."""
        t = f"<{len(operands)} x {element}>"
        known = [o if not o.startswith("%") else "poison" for o in operands]
        vector = lane_literal(known, element)
        for k, operand in enumerate(operands):
            if operand.startswith("%"):
                vector = self.pure(f"insertelement {t} {vector}, {element} {operand}, i64 {k}")
        return vector

    # -- arithmetic ------------------------------------------------------------------------------
    def _arithmetic(self, node: Expr) -> str:
        op, (a, b) = node.op, node.args
        t = typed(node.dtype, node.lanes)
        if node.dtype.is_float:
            return self._float_arithmetic(op, a, b, t)
        if op in _INT_OPS:
            return self.pure(f"{_INT_OPS[op]} {t} {self.value(a)}, {self.value(b)}")
        if op in ("min", "max"):
            return self._call(f"s{op}", node, a, b)
        divisor = self.facts.uniform(b)
        known = divisor.attr if divisor is not None and divisor.op == "const" else 0
        d = self.value(b)
        if not known and self.mask is not None:
            if node.lanes == 1:
                raise InternalError(
                    f"generate, {node}", "a scalar division depends on a vector condition"
                )
            one = self._splat("1", typed(node.dtype, 1), node.lanes)
            d = self.pure(f"select <{node.lanes} x i1> {self.mask}, {t} {d}, {t} {one}")
        return self.pure(self.floor_division(op, t, self.value(a), d, max(known, 0)))

    def _float_arithmetic(self, op: str, a: Expr, b: Expr, t: str) -> str:
        if op == "add" and "mul" in (a.op, b.op):
            product, other = (b, a) if b.op == "mul" else (a, b)
            return self._fma(product, self.value(other))
        if op == "sub" and b.op == "mul":
            return self._fma(b, self.value(a), negate=True)
        if op == "sub" and a.op == "mul":
            return self._fma(a, self.pure(f"fneg {t} {self.value(b)}"))
        if op in ("min", "max"):
            return self._call(f"{op}imum", a, a, b, flags="nsz ")
        x, y = self.value(a), self.value(b)
        if op in _FLOAT_OPS:
            return self.pure(f"{_FLOAT_OPS[op]} contract {t} {x}, {y}")
        if op == "floordiv":
            return self._intrinsic("floor", a, [self.pure(f"fdiv {t} {x}, {y}")])
        # the sign of the divisor, as in Python: add it where the remainder has the other one
        zero = "zeroinitializer" if a.lanes > 1 else "0.0"
        flag = typed(BOOL, a.lanes)
        r = self.pure(f"frem {t} {x}, {y}")
        below = self.pure(f"fcmp olt {t} {r}, {zero}")
        above = self.pure(f"fcmp ogt {t} {r}, {zero}")
        negative = self.pure(f"fcmp olt {t} {y}, {zero}")
        wrong = self.pure(f"select {flag} {negative}, {flag} {above}, {flag} {below}")
        return self.pure(f"select {flag} {wrong}, {t} {self.pure(f'fadd {t} {r}, {y}')}, {t} {r}")

    def _fma(self, product: Expr, addend: str, negate: bool = False) -> str:
        """product + addend in one rounding where the processor can (elsewhere LLVM takes two)."""
        t = typed(product.dtype, product.lanes)
        x, y = self.value(product.args[0]), self.value(product.args[1])
        if negate:
            x = self.pure(f"fneg {t} {x}")
        return self._intrinsic("fmuladd", product, [x, y, addend])

    def _call(self, name: str, like: Expr, *args: Expr, flags: str = "") -> str:
        return self._intrinsic(name, like, [self.value(a) for a in args], flags)

    def _intrinsic(self, name: str, like: Expr, operands: list[str], flags: str = "") -> str:
        t = typed(like.dtype, like.lanes)
        full = f"llvm.{name}.{suffix(like.dtype, like.lanes)}"
        self.module.declare(full, t, *[t] * len(operands))
        return self.pure(f"call {flags}{t} @{full}({', '.join(f'{t} {o}' for o in operands)})")

    def function(self, node: Expr) -> str:
        name, a = node.attr, node.args[0]
        t = typed(node.dtype, node.lanes)
        if name == "rsqrt":
            one = float_literal(1.0, node.dtype)
            if node.lanes > 1:
                one = self._splat(one, typed(node.dtype, 1), node.lanes)
            return self.pure(f"fdiv {t} {one}, {self._call('sqrt', node, a)}")
        if node.dtype == "float32" and name in POLYNOMIALS:
            full = helper(self.module, name, node.lanes)
            return self.pure(f"call {t} @{full}({t} {self.value(a)})")
        if name in _INTRINSICS:
            return self._call(_INTRINSICS[name], node, *node.args)
        if name not in _LIBRARY:
            raise InternalError(f"generate, {node}", f"the function {name!r} is unknown")
        element = typed(node.dtype, 1)
        self.module.declare(name, element, element)
        x = self.value(a)
        if node.lanes == 1:
            return self.pure(f"call {element} @{name}({element} {x})")
        lanes = [self.pure(f"extractelement {t} {x}, i64 {k}") for k in range(node.lanes)]
        values = [self.pure(f"call {element} @{name}({element} {v})") for v in lanes]
        return self.pack(values, element)

    def conversion(self, node: Expr) -> str:
        a = node.args[0]
        x, source, target = self.value(a), typed(a.dtype, a.lanes), typed(node.dtype, node.lanes)
        if node.dtype == "bool":
            zero = "zeroinitializer" if a.lanes > 1 else ("0.0" if a.dtype.is_float else "0")
            test = "fcmp une" if a.dtype.is_float else "icmp ne"
            return self.pure(f"{test} {source} {x}, {zero}")
        return self.pure(f"{_conversion(a.dtype, node.dtype)} {source} {x} to {target}")

    # -- conditions ------------------------------------------------------------------------------
    def _test(self, node: Expr) -> str:
        op, lanes = node.op, node.lanes
        if op == "const":
            return "true" if node.attr else "false"
        if lanes > 1:
            scalar = self.facts.uniform(node)
            if scalar is not None:
                c = self.condition(scalar)
                return c if c in _CONSTANTS else self._splat(c, "i1", lanes)
        if op in ("and", "or"):
            return self._connect(node)
        if op == "not":
            c = self.condition(node.args[0])
            if c in _CONSTANTS:
                return "false" if c == "true" else "true"
            return self._negate(c, lanes)
        if op in COMPARE:
            return self._compare(node)
        rule = _RULES.get(op)
        if rule is None:
            raise InternalError(f"generate, {node}", f"{op!r} is no condition")
        return rule(self, node)

    def _negate(self, condition: str, lanes: int) -> str:
        return self.pure(f"xor {typed(BOOL, lanes)} {condition}, {self._literal('true', lanes)}")

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
        t = typed(a.dtype, lanes)
        if a.dtype.is_float:
            return self.pure(f"fcmp {_FLOAT_TESTS[op]} {t} {self.value(a)}, {self.value(b)}")
        if a.dtype.is_int and not self.facts.loads(a) and not self.facts.loads(b):
            la, lb = self.facts.linear(a), self.facts.linear(b)
            if la is not None and lb is not None:
                difference = plus(self.evaluate(la), self.evaluate(lb), -1)
                return self._compare_sum(op, difference, la[2] - lb[2], lanes)
        test = _INT_TESTS[op] if a.dtype != "bool" else _INT_TESTS[op].replace("s", "u")
        return self.pure(f"icmp {test} {t} {self.value(a)}, {self.value(b)}")

    def _compare_sum(self, op: str, a: Affine, step: int, lanes: int) -> str:
        """`a + step * lane  op  0`."""
        low, high = self.bounds(a)
        low, high = low + min(step * (lanes - 1), 0), high + max(step * (lanes - 1), 0)
        known = _always(op, low, high)
        if known is not None:
            return "true" if known else "false"
        test = _INT_TESTS[op]
        if lanes == 1:
            return self.pure(f"icmp {test} i64 {self.word((0, a[1]))}, {-a[0]}")
        dtype = INT32 if INT32.holds(low) and INT32.holds(high) else INT64
        element, t = typed(dtype, 1), typed(dtype, lanes)
        if not a[1]:
            vector = "zeroinitializer"
        else:
            vector = self._splat(self.narrow((0, a[1]), dtype), element, lanes)
        limits = lane_literal([str(-a[0] - step * k) for k in range(lanes)], element)
        return self.pure(f"icmp {test} {t} {vector}, {limits}")

    # -- choice ----------------------------------------------------------------------------------
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

    def choice(self, node: Expr) -> str:
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
            return self.branch(c, t, lambda: self.value(a), lambda: self.value(b))
        return self._masked_choice(node, c, t)

    def _masked_choice(self, node: Expr, mask: str, t: str) -> str:
        _, a, b = node.args
        lanes = node.lanes
        if self.facts.risky(b):
            with self.masked(self._negate(mask, lanes), lanes):
                other = self.value(b)
        else:
            other = self.value(b)
        with self.masked(mask, lanes):
            linear = self.facts.linear(a.args[0]) if a.op == "load" else None
            if linear is not None and linear[2] == 1 and a.dtype != "bool":
                return self._contiguous(a.attr, self.evaluate(linear), lanes, other)
            chosen = self.value(a)
        return self.pure(f"select <{lanes} x i1> {mask}, {t} {chosen}, {t} {other}")

    # -- reads -----------------------------------------------------------------------------------
    def read(self, node: Expr) -> str:
        buffer: Buffer = node.attr
        index, lanes = node.args[0], node.lanes
        if lanes == 1:
            value = self._read_scalar(buffer, self.affine(index))
        else:
            value = self._read_vector(buffer, index, lanes)
        if buffer.dtype != "bool":
            return value
        zero = "zeroinitializer" if lanes > 1 else "0"
        return self.pure(f"icmp ne {typed(BOOL, lanes, MEMORY)} {value}, {zero}")

    def _load(self, buffer: Buffer, t: str, pointer: str, align: int) -> str:
        rhs = f"load {t}, ptr {pointer}, align {align}"
        return self.emit(rhs) if buffer in self.stored else self.pure(rhs)

    def _read_scalar(self, buffer: Buffer, index: Affine) -> str:
        if self.mask is None:
            return self._load_scalar(buffer, index)
        zero = "0.0" if buffer.dtype.is_float else "0"
        t, test = MEMORY[buffer.dtype], self._any_lane()
        return self.branch(test, t, lambda: self._load_scalar(buffer, index), lambda: zero)

    def _load_scalar(self, buffer: Buffer, index: Affine) -> str:
        return self._load(buffer, MEMORY[buffer.dtype], *self.address(buffer, index))

    def _any_lane(self) -> str:
        lanes = self.mask_lanes
        bits = self.pure(f"bitcast <{lanes} x i1> {self.mask} to i{lanes}")
        return self.pure(f"icmp ne i{lanes} {bits}, 0")

    def vector_index(self, index: Expr) -> tuple[Affine, int | None]:
        """The index in lane 0, and the step between lanes where it is one constant."""
        linear = self.facts.linear(index)
        if linear is not None:
            return self.evaluate(linear), linear[2]
        first, second, *others = self.lane_indices(index)
        step = second[0] - first[0]
        lanes = enumerate([second, *others], 1)
        return first, step if all(a == (first[0] + step * k, first[1]) for k, a in lanes) else None

    def lane_indices(self, index: Expr) -> list[Affine]:
        return [self.lane(index, k) for k in range(index.lanes)]

    def _read_vector(self, buffer: Buffer, index: Expr, lanes: int) -> str:
        first, step = self.vector_index(index)
        if step == 1:
            return self._contiguous(buffer, first, lanes)
        element = MEMORY[buffer.dtype]
        t = f"<{lanes} x {element}>"
        if step == 0:
            return self._splat(self._read_scalar(buffer, first), element, lanes)
        if self.mask is not None:
            return self._gather_masked(buffer, self.lane_indices(index), t)
        if step == -1:
            vector = self._contiguous(buffer, plus(first, (1 - lanes, ())), lanes)
            order = lane_literal([str(lanes - 1 - k) for k in range(lanes)], "i32")
            return self.pure(f"shufflevector {t} {vector}, {t} poison, <{lanes} x i32> {order}")
        low, high = self.bounds(first)
        near = step if step is not None and 2 <= step <= _MAX_SHUFFLED_STRIDE else 0
        if near and low >= 0 and high + near * lanes <= buffer.size:
            return self._strided(buffer, first, near, lanes)
        values = [self._load_scalar(buffer, i) for i in self.lane_indices(index)]
        return self.pack(values, element)

    def _contiguous(
        self, buffer: Buffer, index: Affine, lanes: int, otherwise: str = "zeroinitializer"
    ) -> str:
        t, (pointer, align) = typed(buffer.dtype, lanes, MEMORY), self.address(buffer, index)
        if self.mask is None or self.holds(buffer, index, lanes):
            return self._load(buffer, t, pointer, align)
        name = f"llvm.masked.load.v{lanes}{memory_suffix(buffer.dtype)}.p0"
        flags = f"<{lanes} x i1>"
        self.module.declare(name, t, "ptr", "i32", flags, t)
        rhs = f"call {t} @{name}(ptr {pointer}, i32 {align}, {flags} {self.mask}, {t} {otherwise})"
        return self.emit(rhs) if buffer in self.stored else self.pure(rhs)

    def holds(self, buffer: Buffer, index: Affine, lanes: int) -> bool:
        """Whether all lanes lie in an array of this function: those that do not run may then be
        read and written back, so that registers take the array's place, which a mask forbids.
        """
        low, high = self.bounds(index)
        return buffer in self.arrays and low >= 0 and high + lanes <= buffer.size

    def _strided(self, buffer: Buffer, first: Affine, step: int, lanes: int) -> str:
        """Every step-th element of one wide vector that lies inside the buffer."""
        wide = self._contiguous(buffer, first, lanes * step)
        t = f"<{lanes * step} x {MEMORY[buffer.dtype]}>"
        order = lane_literal([str(step * k) for k in range(lanes)], "i32")
        return self.pure(f"shufflevector {t} {wide}, {t} poison, <{lanes} x i32> {order}")

    def addresses(self, buffer: Buffer, indices: list[Affine]) -> str:
        offsets = self.pack([self.word(i) for i in indices], "i64")
        element, start = MEMORY[buffer.dtype], self.pointers[buffer]
        return self.pure(f"getelementptr {element}, ptr {start}, <{len(indices)} x i64> {offsets}")

    def _gather_masked(self, buffer: Buffer, indices: list[Affine], t: str) -> str:
        lanes = len(indices)
        flags, pointers = f"<{lanes} x i1>", f"<{lanes} x ptr>"
        name = f"llvm.masked.gather.v{lanes}{memory_suffix(buffer.dtype)}.v{lanes}p0"
        self.module.declare(name, t, pointers, "i32", flags, t)
        where = self.addresses(buffer, indices)
        args = f"{pointers} {where}, i32 {buffer.dtype.bytes}, {flags} {self.mask}"
        rhs = f"call {t} @{name}({args}, {t} zeroinitializer)"
        return self.emit(rhs) if buffer in self.stored else self.pure(rhs)


def memory_suffix(dtype: DType) -> str:
    return "i8" if dtype == "bool" else suffix(dtype, 1)


_RULES: dict[str, Callable[[ValueEmitter, Expr], str]] = {
    "load": ValueEmitter.read,
    "call": ValueEmitter.function,
    "cast": ValueEmitter.conversion,
    "select": ValueEmitter.choice,
    "if_then_else": ValueEmitter.choice,
}
