"""Values as C text: scalar expressions and the vectors that one access of memory has.

In: expressions whose loops and buffers have C names, a `Dialect`.  Out: text, and the helpers and
types it needs.  Read next: `c_dialect.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.base.errors import InternalError
from tilewright.codegen.c_dialect import Dialect, float_literal, int_literal
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Buffer

LANE_NAMES = "xyzw"
INDEX_LIMIT = 2**31  # buffers of so many elements are indexed with 64 bits

# How tightly a piece of text binds, loosest first.
TERNARY, OR, AND, EQUALITY, COMPARISON, SUM, PRODUCT, UNARY, ATOM = range(1, 10)

_BINARY: dict[str, tuple[str, int]] = {
    "or": ("||", OR), "and": ("&&", AND), "eq": ("==", EQUALITY), "ne": ("!=", EQUALITY),
    "lt": ("<", COMPARISON), "le": ("<=", COMPARISON), "gt": (">", COMPARISON),
    "ge": (">=", COMPARISON), "add": ("+", SUM), "sub": ("-", SUM), "mul": ("*", PRODUCT),
    "div": ("/", PRODUCT),
}  # fmt: skip

# Floor division and modulo of integers of unknown sign.
_HELPERS = {
    "floordiv": "return a / b - ((a % b != 0) & ((a % b < 0) != (b < 0)));",
    "floormod": "return a % b + ((a % b != 0) & ((a % b < 0) != (b < 0))) * b;",
}


def widened(index: Expr) -> Expr:
    """The index computed in 64 bits."""
    return E.transform(
        index,
        lambda n: E.cast("int64", n) if n.op in ("var", "load") and n.dtype == "int32" else None,
    )


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
        self.dtypes: set[str] = set()
        self._variables: dict[Expr, str] = {}
        self._texts: dict[Expr, tuple[str, int]] = {}
        self._simplify = Simplifier(dict(ranges))

    # -- vectors -----------------------------------------------------------------------------------
    def _is_access(self, node: Expr) -> bool:
        """Whether a load is one vector access in C."""
        index = node.args[0]
        return (
            (node.dtype, node.lanes) in self.dialect.vectors
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
        return node.op in ("broadcast", "var") and (node.dtype, node.lanes) in self.dialect.vectors

    def _access(self, node: Expr, const: bool) -> str:
        buffer = node.attr
        base = self._index(buffer, node.args[0].args[0])
        space = self.dialect.spaces[buffer.scope]
        kind = f"{'const ' if const else ''}{space}{self._vector_type(node)}"
        address = f"{self._buffer(buffer)} + {self._print(base, SUM + 1)}"
        return "*" + self.dialect.pointer.format(type=kind, value=address)

    def _vector(self, node: Expr) -> tuple[str, int]:
        if node.op == "lanes":  # of `_store`
            return self._literal(node, list(map(self._print, node.args))), ATOM
        if not self._is_vector(node):
            raise self._broken(f"the vector {node} is stored nowhere")
        if node.op == "load":
            return self._access(node, const=True), UNARY
        if node.op == "broadcast":
            return self._literal(node, [self._print(node.args[0])] * node.lanes), ATOM
        test, a, b = node.args
        return self._choice(test.args[0], a, b), TERNARY

    def _literal(self, node: Expr, lanes: list[str]) -> str:
        kind = self._vector_type(node)
        return self.dialect.literal.format(type=kind, values=", ".join(lanes))

    def _vector_type(self, node: Expr) -> str:
        self.dtypes.add(node.dtype)
        return self.dialect.vectors[node.dtype, node.lanes]

    # -- expressions -------------------------------------------------------------------------------
    def _print(self, node: Expr, binding: int = TERNARY) -> str:
        """The text, in parentheses if it binds less tightly than `binding`."""
        done = self._texts.get(node)
        if done is None:
            done = self._texts[node] = self._expression(node)
        text, tightness = done
        return text if tightness >= binding else f"({text})"

    def _expression(self, node: Expr) -> tuple[str, int]:
        op, args = node.op, node.args
        if op == "var":
            if node not in self._variables:
                raise self._broken(f"{node.attr} is used outside the loop that binds it")
            return self._variables[node], ATOM
        if node.lanes > 1:
            return self._vector(node)
        if op == "const":
            return self._constant(node)
        if op == "load":
            index = self._print(self._index(node.attr, args[0]))
            return f"{self._buffer(node.attr)}[{index}]", ATOM
        if op in ("floordiv", "floormod"):
            return self._floor(node)
        if op in ("min", "max", "call"):
            function = self.dialect.functions[node.attr if op == "call" else op, node.dtype]
            return f"{function}({', '.join(map(self._print, args))})", ATOM
        if op in _BINARY:
            return self._binary(node)
        if op in ("select", "if_then_else"):
            return self._choice(*args), TERNARY
        if op == "cast":
            if node.dtype == "bool":
                return f"{self._print(args[0], COMPARISON)} != 0", EQUALITY
            return f"({self._type(node.dtype)}){self._print(args[0], UNARY)}", UNARY
        if op == "not":
            return f"!{self._print(args[0], UNARY)}", UNARY
        if op == "lane":
            return f"{self._print(args[0])}.{LANE_NAMES[node.attr]}", ATOM
        raise self._broken(f"a {op} expression reached code generation: {node}")

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

    def _choice(self, test: Expr, then: Expr, other: Expr) -> str:
        """C evaluates only the chosen side."""
        return f"{self._print(test, OR)} ? {self._print(then, OR)} : {self._print(other)}"

    def _floor(self, node: Expr) -> tuple[str, int]:
        """Division and modulo that round down: C's own where no operand can be negative."""
        a, b = node.args
        dtype, division = node.dtype, node.op == "floordiv"
        if dtype.is_float:
            whole = E.call("floor", E.binary("div", a, b))
            return self._expression(whole if division else E.binary("sub", a, b * whole))
        low, high = self._simplify.interval(a)
        sign = "/" if division else "%"
        if low >= 0 and self._simplify.interval(b)[0] > 0:
            return f"{self._print(a, PRODUCT)} {sign} {self._print(b, UNARY)}", PRODUCT
        if b.op == "const" and b.attr > 0 and low > -(2**30) and high < 2**30 - b.attr:
            steps = -(int(low) // b.attr)  # a + steps * b is not negative, and does not overflow
            moved = self._print(a + steps * b.attr, PRODUCT)
            if not division:
                return f"{moved} % {self._print(b, UNARY)}", PRODUCT
            return f"{moved} / {self._print(b, UNARY)} - {steps}", SUM
        kind, name = self._type(dtype), f"tw_{node.op}_{dtype}"
        body = _HELPERS[node.op]
        self.helpers[name] = (
            f"{self.dialect.inline} {kind} {name}({kind} a, {kind} b) {{\n  {body}\n}}\n"
        )
        return f"{name}({self._print(a)}, {self._print(b)})", ATOM

    # -- names and types ---------------------------------------------------------------------------
    def _index(self, buffer: Buffer, index: Expr) -> Expr:
        return widened(index) if buffer.size >= INDEX_LIMIT else index

    def _buffer(self, buffer: Buffer) -> str:
        if buffer not in self.buffers:
            raise self._broken(f"{buffer.name} is neither a parameter nor allocated here")
        return self.buffers[buffer]

    def _type(self, dtype: str) -> str:
        self.dtypes.add(dtype)
        return self.dialect.types[dtype]

    def _storage(self, dtype: str) -> str:
        self.dtypes.add(dtype)
        return self.dialect.storage[dtype]

    def _broken(self, reason: str) -> InternalError:
        return InternalError(f"generate({self.name})", reason)
