"""Values as C text: scalar expressions and the vectors that one access of memory has.

In: expressions whose loops and buffers have C names, a `Dialect`.  Out: text, and the helpers and
types it needs.  Read next: `c_dialect.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from tilewright.base.dtype import BOOL, FLOAT32, FLOAT64, INT32, INT64, DType
from tilewright.base.errors import InternalError
from tilewright.codegen.byte_floats import BYTE, BYTE8, BYTES, FLOAT, WHOLE
from tilewright.codegen.c_dialect import (
    Dialect,
    conversion,
    float_literal,
    held_as_bits,
    instruction,
    int_literal,
    is_native,
    packed_bits,
)
from tilewright.codegen.maxima import MAXIMUM, OF_LANES
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Buffer
from tilewright.ir.swizzle import period

APART = "apart"  # a test of two arguments: whether they lie in different memory
WORD_WHERE = "word_where"  # (place, condition)
LANE_NAMES = "xyzw"
WORD_BYTES = 4  # of the vectors that smaller elements are packed in
ACCESS_BYTES = (8, 16)  # of a vector access
INDEX_LIMIT = 2**31  # buffers of so many elements are indexed with 64 bits

# How tightly a piece of text binds, loosest first.
TERNARY, OR, AND, EQUALITY, COMPARISON, SUM, PRODUCT, UNARY, ATOM = range(1, 10)

_BINARY: dict[str, tuple[str, int]] = {
    "or": ("||", OR), "and": ("&&", AND), "eq": ("==", EQUALITY), "ne": ("!=", EQUALITY),
    "lt": ("<", COMPARISON), "le": ("<=", COMPARISON), "gt": (">", COMPARISON),
    "ge": (">=", COMPARISON), "add": ("+", SUM), "sub": ("-", SUM), "mul": ("*", PRODUCT),
    "div": ("/", PRODUCT),
}  # fmt: skip

_BITWISE = {"bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>"}

_LEAVES = ("var", "load", "cast")  # of an index, as far as its width matters

# Floor division and modulo of integers of unknown sign.
_HELPERS = {
    "floordiv": "return a / b - ((a % b != 0) & ((a % b < 0) != (b < 0)));",
    "floormod": "return a % b + ((a % b != 0) & ((a % b < 0) != (b < 0))) * b;",
}


def _is_wide(node: Expr) -> bool:
    """Whether a vector has the size of an access: of words, or of one of several elements."""
    size = node.lanes * node.dtype.bytes
    return size in ACCESS_BYTES or (size == WORD_BYTES and node.lanes > 1)


def widened(index: Expr) -> Expr:
    """The index computed in 64 bits."""
    return E.transform(
        index,
        lambda n: E.cast(INT64, n) if n.op in _LEAVES and n.dtype == "int32" else None,
    )


def _through(source: DType, to: DType) -> DType | None:
    """The type between the two of a cast that C cannot do at once."""
    if held_as_bits(source) and to is not source.compute:
        return source.compute
    if held_as_bits(to) and source is not FLOAT64:
        return None if source is to.compute else to.compute
    if source.is_float and to.is_int and not to.is_index and to.bits < INT64.bits:
        return INT64 if is_native(to) else to.compute  # C leaves open what lies out of range
    return None


class ValuePrinter:
    """Prints the values of one kernel.  Statements fill `buffers` and `_variables` as they declare.

    ranges:          variable -> inclusive range, over all loops that bind it
    helpers, dtypes: what the text uses, complete when all of it is printed
    """

    def __init__(
        self,
        dialect: Dialect,
        name: str,
        buffers: Mapping[Buffer, str],
        ranges: Mapping[Expr, tuple[int, int]],
    ) -> None:
        self.dialect, self.name = dialect, name
        self.buffers = dict(buffers)
        self.helpers: dict[str, str] = {}
        self.dtypes: set[DType] = set()
        self.words: set[Buffer] = set()  # of bytes that come several at a time
        self._variables: dict[Expr, str] = {}
        self._texts: dict[Expr, tuple[str, int]] = {}
        self._simplify = Simplifier(dict(ranges))

    # -- vectors -----------------------------------------------------------------------------------
    def _is_access(self, node: Expr) -> bool:
        """Whether a load is one vector access in C."""
        index = node.args[0]
        return (
            _is_wide(node)
            and node.attr.scope != "local"
            and index.op == "ramp"
            and index.args[1].op == "const"
            and index.args[1].attr == 1
        )

    def _is_vector(self, node: Expr) -> bool:
        """Whether C can evaluate `node` as a vector, without taking it apart."""
        if node.op == "load":
            return self._is_access(node)
        if node.op in ("select", "if_then_else"):
            test, a, b = node.args
            return test.op == "broadcast" and self._is_vector(a) and self._is_vector(b)
        return node.op in ("broadcast", "var") and _is_wide(node)

    def _access(self, node: Expr, const: bool) -> str:
        buffer = node.attr
        base = self._index(buffer, node.args[0].args[0])
        space = self.dialect.spaces[buffer.scope]
        kind = f"{'const ' if const else ''}{space}{self._vector_type(node)}"
        address = f"{self._buffer(buffer)} + {self._print(base, SUM + 1)}"
        return "*" + self.dialect.pointer.format(type=kind, value=address)

    def _vector(self, node: Expr) -> tuple[str, int]:
        if node.op == "lanes":  # of `_store`
            return self._literal(node, node.args), ATOM
        if not self._is_vector(node):
            raise self._broken(f"the vector {node} is stored nowhere")
        if node.op == "load":
            return self._access(node, const=True), UNARY
        if node.op == "broadcast":
            return self._literal(node, node.args * node.lanes), ATOM
        test, a, b = node.args
        return self._word_where(test.args[0], a, b) or (
            self._choice(test.args[0], a, b), TERNARY
        )  # fmt: skip

    def _word_where(self, test: Expr, then: Expr, other: Expr) -> tuple[str, int] | None:
        """A word of shared memory, or zeros, without a branch; None where it is something else, or
        nothing loads it so."""
        (zero,) = other.args if other.op == "broadcast" else (other,)
        word = then.op == "load" and then.lanes * then.dtype.bytes == WORD_BYTES
        if not word or then.attr.scope != "shared" or zero.op != "const":
            return None
        if packed_bits([zero.attr], zero.dtype):
            return None
        if not self._packs(then.dtype) or (function := self._instruction(WORD_WHERE)) is None:
            return None
        base = self._print(self._index(then.attr, then.args[0].args[0]), SUM + 1)
        values = f"{function}({self._buffer(then.attr)} + {base}, {self._print(test)})"
        return self.dialect.literal.format(type=self._vector_type(then), values=values), ATOM

    def _literal(self, node: Expr, lanes: Sequence[Expr]) -> str:
        kind = self._vector_type(node)
        if self._packs(node.dtype):
            step = WORD_BYTES // node.dtype.bytes
            values = [self._word(lanes[i : i + step]) for i in range(0, len(lanes), step)]
        else:
            values = [self._print(lane) for lane in lanes]
        return self.dialect.literal.format(type=kind, values=", ".join(values))

    def _packs(self, dtype: DType) -> bool:
        return self.dialect.packs and dtype.bytes < WORD_BYTES

    def _word(self, lanes: Sequence[Expr]) -> str:
        """Elements in the bits of one word, the first in the lowest."""
        dtype = lanes[0].dtype
        if all(lane.op == "const" for lane in lanes):
            return f"0x{packed_bits([lane.attr for lane in lanes], dtype):08x}u"
        if (bytes_of := self._bytes(lanes)) is not None:
            return bytes_of
        texts = [self._print(lane, UNARY) for lane in lanes]
        if dtype.kind == "int":
            texts = [f"({text} & {2**dtype.bits - 1})" for text in texts]
        shifted = [f"(unsigned int){text} << {dtype.bits * k}" for k, text in enumerate(texts) if k]
        return " | ".join([texts[0], *shifted])

    def _bytes(self, lanes: Sequence[Expr]) -> str | None:
        """A word of the same byte of four words; None where it is none, or nothing finds it."""
        moved = [lane.args[0] for lane in lanes if lane.op == "cast" and lane.dtype == "int8"]
        if len(moved) < WORD_BYTES or any(m.op != "shr" or m.dtype is not INT32 for m in moved):
            return None
        shift = moved[0].args[1]
        if any(m.args[1] is not shift for m in moved):
            return None
        low, high = self._simplify.interval(shift)
        if low < 0 or high > 24 or not self._simplify.is_multiple(shift, 8):
            return None
        if (function := self._instruction(BYTES)) is None:
            return None
        words = ", ".join(self._print(m.args[0]) for m in moved)
        return f"{function}({words}, {self._print(shift)})"

    def _lane(self, node: Expr) -> tuple[str, int]:
        """One element of a vector that was read into a C variable."""
        (vector,), dtype, k = node.args, node.dtype, node.attr
        if not self._packs(dtype):
            name = LANE_NAMES[k] if vector.lanes <= len(LANE_NAMES) else f"s{k:x}"
            return f"{self._print(vector)}.{name}", ATOM
        word, place = divmod(k, WORD_BYTES // dtype.bytes)
        text = f"{self._print(vector)}.{LANE_NAMES[word]}"
        text = f"({text} >> {place * dtype.bits})" if place else text
        text = f"({text} & 1u)" if dtype is BOOL else text
        return f"({self._type(dtype)}){text}", UNARY

    def _vector_type(self, node: Expr) -> str:
        self.dtypes.add(node.dtype)
        return self.dialect.vector(node.dtype, node.lanes)

    # -- expressions -------------------------------------------------------------------------------
    def _print(self, node: Expr, binding: int = TERNARY) -> str:
        """The text, in parentheses if it binds less tightly than `binding`."""
        done = self._texts.get(node)
        if done is None:
            done = self._texts[node] = self._expression(node)
        text, tightness = done
        return text if tightness >= binding else f"({text})"

    def _expression(self, node: Expr) -> tuple[str, int]:
        if node.op == "var":
            if node not in self._variables:
                raise self._broken(f"{node.attr} is used outside the loop that binds it")
            return self._variables[node], ATOM
        if node.lanes > 1:
            return self._vector(node)
        scalar = self._SCALARS.get(node.op)
        if scalar is None:
            raise self._broken(f"a {node.op} expression reached code generation: {node}")
        if node.op in E.BINARY or node.op == "call":
            dtype = node.args[0].dtype
            if not is_native(dtype):
                raise self._broken(f"{node} computes in {dtype}, which is a format of memory")
        return scalar(self, node)

    def _load(self, node: Expr) -> tuple[str, int]:
        index = self._print(self._index(node.attr, node.args[0]))
        return f"{self._buffer(node.attr)}[{index}]", ATOM

    def _call(self, node: Expr) -> tuple[str, int]:
        name = node.attr if node.op == "call" else node.op
        function = (
            self._helper(name, node.dtype, self.dialect.product(node.dtype))
            if name == "product"
            else self._instruction(name) or self.dialect.function(name, node.dtype)
        )
        if function is None:
            raise self._broken(f"there is no {name} of {node.dtype}")
        return f"{function}({', '.join(map(self._print, node.args))})", ATOM

    def _instruction(self, name: str) -> str | None:
        """What the dialect has of its own for a function."""
        own = instruction(name)
        if own not in self.dialect.instructions:
            return None
        self.helpers[own] = self.dialect.instructions[own]
        return own

    def _conditional(self, node: Expr) -> tuple[str, int]:
        return self._choice(*node.args), TERNARY

    def _not(self, node: Expr) -> tuple[str, int]:
        return f"!{self._print(node.args[0], UNARY)}", UNARY

    def _apart(self, node: Expr) -> tuple[str, int]:
        a, b = (f"(const void*){self._buffer(buffer)}" for buffer in node.attr)
        return f"{a} != {b}", EQUALITY

    def _of_lanes(self, node: Expr) -> tuple[str, int]:
        self.helpers[MAXIMUM] = self.dialect.instructions[MAXIMUM]
        return f"{MAXIMUM}({self._print(node.args[0])})", ATOM

    def _cast(self, node: Expr) -> tuple[str, int]:
        """Integers wrap around in C; what it has no cast for goes through another type."""
        (value,), to = node.args, node.dtype
        if to is INT32 and value.op == "call" and value.attr == "nearest":
            function = self._instruction(WHOLE)
            if function is not None:
                return f"{function}({self._print(value.args[0])})", ATOM
        between = _through(value.dtype, to)
        if between is not None:
            return self._expression(E.make("cast", (E.cast(between, value),), None, to))
        if to is BOOL:
            return f"{self._print(value, COMPARISON)} != 0", EQUALITY
        if held_as_bits(value.dtype):
            return self._converted(value.dtype, to, self._print(value)), ATOM
        if held_as_bits(to):
            text = self._print(value)
            if value.dtype is not FLOAT32:  # rounding to float32 first would round twice
                text = self._converted(value.dtype, "odd", text)
            return self._converted(FLOAT32, to, text), ATOM
        return f"({self._type(to)}){self._print(value, UNARY)}", UNARY

    def _byte_float(self, node: Expr) -> tuple[str, int]:
        """A float of a byte that lies in a word."""
        (index, shift), (buffer, mask) = node.args, node.attr
        name = BYTE8 if mask is None else BYTE
        self.helpers[name] = self.dialect.instructions[name]
        given = [self._buffer(buffer), self._print(self._index(buffer, index))]
        if mask is not None:
            given += [self._print(shift), f"0x{mask:02x}u"]
        return f"{name}({', '.join(given)})", ATOM

    def _converted(self, source: DType, to: str, text: str) -> str:
        """A call of one of the dialect's conversions."""
        name, kind = conversion(source, to), self._type(DType(to) if to != "odd" else FLOAT32)
        body = self.dialect.conversions.get((source, to))
        if body is None:
            raise self._broken(f"there is no cast from {source} to {to}")
        self.helpers[name] = f"{self.dialect.inline} {kind} {name}{body}"
        return f"{name}({text})"

    def _constant(self, node: Expr) -> tuple[str, int]:
        if node.dtype.is_float:
            text = float_literal(node.attr, node.dtype, self.dialect)
        else:
            text = int_literal(int(node.attr), node.dtype, self.dialect)
        return text, UNARY if text.startswith("-") else ATOM

    def _binary(self, node: Expr) -> tuple[str, int]:
        left, right = node.args
        sign, binding = _BINARY[node.op]
        inner = binding
        if node.op == "or":
            inner = AND + 1  # compilers warn of a && b || c, and of a == b < c
        elif binding in (EQUALITY, COMPARISON):
            inner = SUM
        negative = right.op == "const" and -INDEX_LIMIT < right.attr < 0
        if node.op == "add" and negative and not node.dtype.is_float:
            sign, right = "-", E.const(-right.attr, node.dtype)
        text = f"{self._print(left, inner)} {sign} {self._print(right, max(inner, binding + 1))}"
        return text, binding

    def _bits(self, node: Expr) -> tuple[str, int]:
        """Both operands in parentheses, as compilers ask for."""
        left, right = (self._print(a, UNARY) for a in node.args)
        return f"{left} {_BITWISE[node.op]} {right}", OR

    def _choice(self, test: Expr, then: Expr, other: Expr) -> str:
        """C evaluates only the chosen side."""
        return f"{self._print(test, OR)} ? {self._print(then, OR)} : {self._print(other)}"

    def _floor(self, node: Expr) -> tuple[str, int]:
        """Division and modulo that round down: C's own where no operand can be negative."""
        a, b = node.args
        dtype, division = node.dtype, node.op == "floordiv"
        if dtype.is_float:
            if division:
                name = self._helper(node.op, dtype, self._floor_quotient(dtype))
                return f"{name}({self._print(a)}, {self._print(b)})", ATOM
            # C's remainder has the sign of a; where b has the other one, the next b is its own
            r, zero = E.call("fmod", a, b), E.const(0, dtype)
            astray = E.select(b < zero, r > zero, r < zero)
            return self._expression(E.select(astray, r + b, r))
        sign = "/" if division else "%"
        if dtype.kind == "uint":
            return f"{self._print(a, PRODUCT)} {sign} {self._print(b, UNARY)}", PRODUCT
        low, high = self._simplify.interval(a)
        if low >= 0 and self._simplify.interval(b)[0] > 0:
            return f"{self._print(a, PRODUCT)} {sign} {self._print(b, UNARY)}", PRODUCT
        if b.op == "const" and b.attr > 0 and low > -(2**30) and high < 2**30 - b.attr:
            steps = -(int(low) // b.attr)  # a + steps * b is not negative, and does not overflow
            moved = self._print(a + steps * b.attr, PRODUCT)
            if not division:
                return f"{moved} % {self._print(b, UNARY)}", PRODUCT
            return f"{moved} / {self._print(b, UNARY)} - {steps}", SUM
        name = self._helper(node.op, dtype, _HELPERS[node.op])
        return f"{name}({self._print(a)}, {self._print(b)})", ATOM

    def _floor_quotient(self, dtype: DType) -> str:
        """The body of the helper for floats: a / b may round up to a whole number above it."""
        kind, function = self._type(dtype), self.dialect.function
        zero, one = (float_literal(n, dtype, self.dialect) for n in (0.0, 1.0))
        lines = (
            f"{kind} r = {function('fmod', dtype)}(a, b);",
            f"{kind} q = (a - r) / b;",
            f"q = {function('round', dtype)}((b < {zero} ? r > {zero} : r < {zero}) ? "
            f"q - {one} : q);",
            f"q = q == {zero} ? a / b * {zero} : q;",  # the sign of a zero is that of a / b
            f"return b == {zero} ? a / b : q;",
        )
        return "\n  ".join(lines)

    def _helper(self, what: str, dtype: DType, body: str) -> str:
        """A function of two values a and b; its name."""
        kind, name = self._type(dtype), f"tw_{what}_{dtype}"
        self.helpers[name] = (
            f"{self.dialect.inline} {kind} {name}({kind} a, {kind} b) {{\n  {body}\n}}\n"
        )
        return name

    _SCALARS: ClassVar[dict[str, Callable[[ValuePrinter, Expr], tuple[str, int]]]] = {
        "const": _constant, "load": _load, "lane": _lane, "cast": _cast, "not": _not,
        APART: _apart, FLOAT: _byte_float, OF_LANES: _of_lanes,
        "select": _conditional, "if_then_else": _conditional,
        "call": _call, "min": _call, "max": _call, "floordiv": _floor, "floormod": _floor,
        **dict.fromkeys(_BINARY, _binary), **dict.fromkeys(_BITWISE, _bits),
    }  # fmt: skip

    # -- names and types ---------------------------------------------------------------------------
    def _index(self, buffer: Buffer, index: Expr) -> Expr:
        """Where memory has the element, or the vector that begins there."""
        large = not isinstance(buffer.size, Expr) and buffer.size >= INDEX_LIMIT
        if buffer.swizzle:
            index = self._swizzled(buffer, index)
        return widened(index) if large else index  # calls limit what they give the size of

    def _swizzled(self, buffer: Buffer, index: Expr) -> Expr:
        """What whole periods add stands outside, where compilers see that it is the same for all
        threads."""
        whole, rest, todo = E.const(0, index.dtype), E.const(0, index.dtype), [index]
        while todo:
            part = todo.pop()
            if part.op == "add":
                todo += part.args
            elif self._simplify.is_multiple(part, period(buffer.swizzle) // buffer.dtype.bytes):
                whole = whole + part
            else:
                rest = rest + part
        return whole + E.convert(buffer.at(rest), index)

    def _buffer(self, buffer: Buffer) -> str:
        if buffer not in self.buffers:
            raise self._broken(f"{buffer.name} is neither a parameter nor allocated here")
        return self.buffers[buffer]

    def _type(self, dtype: DType) -> str:
        self.dtypes.add(dtype)
        return self.dialect.type(dtype)

    def _storage(self, dtype: DType) -> str:
        self.dtypes.add(dtype)
        return self.dialect.storage(dtype)

    def _broken(self, reason: str) -> InternalError:
        return InternalError(f"generate({self.name})", reason)
