"""Scalar and vector expressions: one interned, slotted node class.

In: Python operators and the builders below.  Out: `Expr` nodes for which equality is identity.
Constants fold at construction, and what `identities.py` lists; everything cleverer is in
`affine.py`.  Read next: `stmt.py`.

NaN: `min` and `max` of floats give NaN if either operand is NaN, and so do the interpreter, the
reference and CPU kernels.  On GPUs they are fmin and fmax, which give the operand that is not NaN:
what reaches min or max as NaN may differ there.  Comparisons with NaN are false, except `ne`.
A NaN stays one in every cast between floats, is True as a bool, and has no integer.
Infinity: what rounds beyond the greatest number of its type, be it by a cast to float16 or
bfloat16; where those are computed in float32 (see `base/dtype.py`), only once it is stored.
Zeros: below half of its type's smallest number a value rounds to a zero of its sign.  `-x` is
0 - x, so that -x of 0.0 is 0.0; `min` and `max` of two zeros may give either.
These hold alike in all float types (`tests/ir/test_special_values.py`).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import Any, Union

from tilewright.base.concurrency import lock
from tilewright.base.dtype import BOOL, FLOAT32, INT32, INT64, DType, join
from tilewright.base.errors import ExpressionError, TruthError
from tilewright.base.printed import Printed
from tilewright.ir.identities import folds
from tilewright.ir.numbers import are_bits as _are_bits
from tilewright.ir.numbers import checked_shift as _shift
from tilewright.ir.numbers import overflow as _overflow
from tilewright.ir.numbers import plain as _plain
from tilewright.ir.operations import ARITHMETIC as ARITHMETIC
from tilewright.ir.operations import BINARY as BINARY
from tilewright.ir.operations import BITWISE as BITWISE
from tilewright.ir.operations import COMPARE as COMPARE
from tilewright.ir.operations import FUNCTIONS as FUNCTIONS
from tilewright.ir.operations import LOGIC as LOGIC

Value = Union["Expr", int, float, bool]


class Expr(Printed):
    """One node.  op: see the tables; args: sub-expressions; attr: what else it holds.

    ============== ======================== =========================================
    op             args                     attr
    ============== ======================== =========================================
    var            -                        its name (every variable is its own node)
    const          -                        a Python number
    add ... ge     a, b                     -
    and or not     conditions               -
    cast           a                        -  (the dtype is the node's)
    select         condition, then, else    -  (both sides are safe to evaluate)
    if_then_else   condition, then, else    -  (only the chosen side is evaluated)
    call           arguments                name in FUNCTIONS
    read           indices                  te.Tensor (before lowering)
    reduce         value                    (combiner, axes)  (before lowering)
    load           flat index               Buffer (after lowering)
    ramp           base, stride             -  (lanes consecutive values, stride apart)
    broadcast      value                    -  (and tuple, which tuples.py makes)
    ============== ======================== =========================================
    """

    __slots__ = ("__weakref__", "args", "attr", "dtype", "lanes", "op")

    op: str
    args: tuple[Expr, ...]
    attr: Any
    dtype: DType
    lanes: int

    # -- operators -------------------------------------------------------------------------------
    def __add__(self, other: Value) -> Expr:
        return NotImplemented if _whole(other) else binary("add", self, other)

    def __radd__(self, other: Value) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: Value) -> Expr:
        return NotImplemented if _whole(other) else binary("sub", self, other)

    def __rsub__(self, other: Value) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: Value) -> Expr:
        return NotImplemented if _whole(other) else binary("mul", self, other)

    def __rmul__(self, other: Value) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: Value) -> Expr:
        return NotImplemented if _whole(other) else binary("div", self, other)

    def __rtruediv__(self, other: Value) -> Expr:
        return binary("div", other, self)

    def __floordiv__(self, other: Value) -> Expr:
        return NotImplemented if _whole(other) else binary("floordiv", self, other)

    def __rfloordiv__(self, other: Value) -> Expr:
        return binary("floordiv", other, self)

    def __mod__(self, other: Value) -> Expr:
        return NotImplemented if _whole(other) else binary("floormod", self, other)

    def __rmod__(self, other: Value) -> Expr:
        return binary("floormod", other, self)

    def __neg__(self) -> Expr:
        return binary("sub", const(0, self.dtype), self)

    def __pow__(self, other: Value) -> Expr:
        return call("pow", self, other)

    def __lt__(self, other: Value) -> Expr:
        return binary("lt", self, other)

    def __le__(self, other: Value) -> Expr:
        return binary("le", self, other)

    def __gt__(self, other: Value) -> Expr:
        return binary("gt", self, other)

    def __ge__(self, other: Value) -> Expr:
        return binary("ge", self, other)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return binary("eq", self, other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return binary("ne", self, other)  # type: ignore[arg-type]

    def __and__(self, other: Value) -> Expr:
        return binary("bitand" if _are_bits(self, other) else "and", self, other)

    def __or__(self, other: Value) -> Expr:
        return binary("bitor" if _are_bits(self, other) else "or", self, other)

    def __xor__(self, other: Value) -> Expr:
        return binary("bitxor", self, other)

    def __lshift__(self, other: Value) -> Expr:
        return binary("shl", self, _shift(self, other))

    def __rshift__(self, other: Value) -> Expr:
        return binary("shr", self, _shift(self, other))

    def __invert__(self) -> Expr:
        return binary("bitxor", self, -1) if self.dtype.kind == "int" else logical_not(self)

    __hash__ = object.__hash__  # by identity

    def __bool__(self) -> bool:
        if self.op == "const":
            return bool(self.attr)
        if self.op in ("eq", "ne"):  # nodes are interned, so dicts and `in` compare by identity
            return (self.args[0] is self.args[1]) == (self.op == "eq")
        raise TruthError(
            str(self), "an expression has no truth value before it runs",
            "Use te.if_then_else, te.all or te.any.",
        )  # fmt: skip

    def __int__(self) -> int:
        if self.op == "const":
            return int(self.attr)
        raise ExpressionError(str(self), "only a constant expression converts to int")

    __index__ = __int__

    def __iter__(self) -> Iterator[Expr]:
        raise ExpressionError(
            str(self), "an expression cannot be iterated", "List several in Python: [a, b]."
        )

    def __getitem__(self, index: Any) -> Expr:
        raise ExpressionError(
            f"{self}[{index}]", "an expression has no parts to index", "Give all indices at once."
        )

    # -- the names TVM users know ------------------------------------------------------------------
    @property
    def name(self) -> str:
        """The name of a variable or the spelling of anything else."""
        return self.attr if self.op == "var" else str(self)

    @property
    def value(self) -> int | float | bool:
        """The number of a constant."""
        if self.op != "const":
            raise ExpressionError(str(self), "only a constant has a value")
        return self.attr  # type: ignore[no-any-return]

    @property
    def a(self) -> Expr:
        """The left operand."""
        return self._operand(0)

    @property
    def b(self) -> Expr:
        """The right operand."""
        return self._operand(1)

    def _operand(self, which: int) -> Expr:
        if self.op in BINARY:
            return self.args[which]
        raise ExpressionError(str(self), "only an operation on two values has operands")

    def same_as(self, other: object) -> bool:
        return other is self

    def astype(self, dtype: str) -> Expr:
        return cast(dtype, self)

    def equal(self, other: Value) -> Expr:
        return binary("eq", self, other)

    __repr__ = Printed.__str__

    def __reduce__(self) -> tuple[Any, ...]:
        if self.op == "var":
            return var, (self.attr, self.dtype)
        return make, (self.op, self.args, self.attr, self.dtype, self.lanes)


def _whole(value: object) -> bool:
    """A tensor with dimensions, whose own arithmetic (topi's) takes an expression, too."""
    return bool(getattr(value, "ndim", 0)) and hasattr(value, "as_expr")


_INTERNED: weakref.WeakValueDictionary[tuple[Any, ...], Expr] = weakref.WeakValueDictionary()
_interning = lock()


def make(
    op: str, args: tuple[Expr, ...], attr: Any = None, dtype: str = INT32, lanes: int = 1
) -> Expr:
    """The one constructor: the existing equal node, or a new one.  It neither checks nor folds."""
    kind = dtype if type(dtype) is DType else DType(dtype)
    # repr of a float separates 0.0 from -0.0 and keeps nan equal to itself
    tag = repr(attr) if isinstance(attr, float) else attr
    key = (op, tuple(map(id, args)), tag if op != "const" else (type(attr), tag), kind, lanes)
    node = _INTERNED.get(key)
    if node is None:
        made = _new(op, args, attr, kind, lanes)
        with _interning:  # another thread may just have made it
            node = _INTERNED.setdefault(key, made)
    return node


def _new(op: str, args: tuple[Expr, ...], attr: Any, dtype: DType, lanes: int) -> Expr:
    node = object.__new__(Expr)
    node.op, node.args, node.attr, node.dtype, node.lanes = op, args, attr, dtype, lanes
    return node


def var(name: str, dtype: str = "int32") -> Expr:
    """A fresh variable; two variables are equal only if they are the same object."""
    return _new("var", (), name, DType(dtype, f"var({name!r})"), 1)


def const(value: float, dtype: str | None = None) -> Expr:
    """Make a constant; without a dtype a bool, int32 (int64 when it does not fit) or float32.

    A float takes the value that its dtype holds (float32 0.1 is 0.100000001490116...), so that
    folding and comparing constants gives what a device computes.  Raises ExpressionError for a
    finite number beyond the range of its dtype.
    """
    if type(value) is int and (dtype is None or dtype is INT32):  # most of them are of indices
        known = _INDICES.get(value)
        if known is not None:
            return known
    value = _plain(value)
    if not isinstance(value, (bool, int, float)):
        raise ExpressionError(
            f"const({value!r})", f"a {type(value).__name__} is not a number", "Give a number."
        )
    if dtype is not None:
        kind = dtype if type(dtype) is DType else DType(dtype, f"const({value!r}, {dtype!r})")
    elif isinstance(value, bool):
        kind = BOOL
    elif isinstance(value, int):
        kind = INT32 if INT32.holds(int(value)) else INT64
    else:
        kind = FLOAT32
    if kind.is_float:
        number = kind.nearest(value)
        if math.isinf(number) and math.isfinite(value):
            raise _overflow(value, kind)
        return make("const", (), number, kind)
    if kind is BOOL:
        return make("const", (), bool(value), kind)
    if not kind.least <= int(value) <= kind.greatest:
        raise _overflow(value, kind)
    return make("const", (), int(value), kind)


_INDICES = {n: make("const", (), n, INT32) for n in range(-64, 2049)}


def _literal(number: float, like: DType) -> DType | None:
    """The type that a bare number takes beside an operand of type `like`; None for its own.

    A float type takes any number, an integer type those that fit.  A narrow integer refuses larger
    ones instead of widening the whole expression.
    """
    if isinstance(number, bool) or like is BOOL:
        return None
    if like.is_float:
        return like
    if isinstance(number, float):
        return None
    return like if like.holds(number) or not like.is_index else None


def convert(value: Any, like: Expr | None = None) -> Expr:
    """`value` as an expression; a bare number takes the dtype of `like` when it loses nothing."""
    if isinstance(value, Expr):
        return value
    if hasattr(value, "as_expr"):  # te.IterVar, zero-dimensional te.Tensor
        return value.as_expr()  # type: ignore[no-any-return]
    number = _plain(value)
    if isinstance(number, (bool, int, float)):
        return const(number, None if like is None else _literal(number, like.dtype))
    raise ExpressionError(
        f"convert({value!r})", f"a {type(value).__name__} is not an expression",
        "Use a number, a variable, an axis or a tensor element.",
    )  # fmt: skip


def binary(op: str, a: Value, b: Value) -> Expr:
    """`a op b` with type promotion and folding: of constants, and by the table of identities."""
    left = a if isinstance(a, Expr) else convert(a, b if isinstance(b, Expr) else None)
    right = b if isinstance(b, Expr) else convert(b, left)
    if left.lanes != right.lanes:
        left, right = _same_lanes(left, right)
    if op in LOGIC:
        left, right = _as_bool(left), _as_bool(right)
    elif left.dtype is not right.dtype:
        common = join(left.dtype, right.dtype, f"{left} {BINARY[op][0]} {right}")
        left, right = cast(common, left), cast(common, right)
    elif left.dtype is BOOL and op in ARITHMETIC:
        left, right = cast(INT32, left), cast(INT32, right)
    if op == "div" and not left.dtype.is_float:
        raise ExpressionError(
            f"{left} / {right}", "true division of integers is ambiguous",
            "Use // for floor division or cast to float32.",
        )  # fmt: skip
    if op in BITWISE and not left.dtype.is_int:
        place = f"{left} {BINARY[op][0]} {right}"
        raise ExpressionError(place, f"operations on bits are of integers, not of {left.dtype}")
    dtype = BOOL if op not in ARITHMETIC else left.dtype
    folded = _fold(op, left, right, dtype)
    if folded is not None:
        return folded
    return make(op, (left, right), None, dtype, left.lanes)


def _fold(op: str, a: Expr, b: Expr, dtype: DType) -> Expr | None:
    """What `a op b` is without a node of its own, or None."""
    if b.op == "const":
        if op in ("floordiv", "floormod") and b.attr == 0 and not dtype.is_float:
            raise ExpressionError(f"{a} {BINARY[op][0]} {b}", "division by zero")
        if a.op == "const":
            return _fold_constants(op, a, b, dtype)
    fold = _FOLDS[dtype.kind].get(op)
    return fold(a, b) if fold is not None else None


def _fold_constants(op: str, a: Expr, b: Expr, dtype: DType) -> Expr | None:
    if dtype.is_float:
        return None  # rounding belongs to the device
    return _number(BINARY[op][1](a.attr, b.attr), dtype)


def _number(value: int | bool, dtype: DType) -> Expr:
    """The constant that exact arithmetic of that type gives."""
    return const(dtype.wrapped(value) if dtype.is_int and not dtype.is_index else value, dtype)


_FOLDS = folds({
    "binary": lambda op, a, b: binary(op, a, b),
    "number": lambda value, like: broadcast(_number(value, like.dtype), like.lanes),
})  # fmt: skip


def _same_lanes(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    if a.lanes == 1:
        return broadcast(a, b.lanes), b
    if b.lanes == 1:
        return a, broadcast(b, a.lanes)
    raise ExpressionError(f"{a} with {b}", f"vectors of {a.lanes} and {b.lanes} lanes do not mix")


def _as_bool(a: Expr) -> Expr:
    if a.dtype is BOOL:
        return a
    raise ExpressionError(str(a), f"a condition must be bool, not {a.dtype}", "Compare it first.")


def cast(dtype: str, value: Value) -> Expr:
    """Convert `value`: floats round to nearest even, or towards zero to integers; integers wrap
    around; anything but zero is True."""
    node = convert(value)
    kind = DType(dtype, f"cast({str(dtype)!r})")
    if node.dtype is kind:
        return node
    if node.op == "const":
        number = node.attr
        if kind.is_int and math.isfinite(number):
            return const(kind.wrapped(int(number)), kind)
        if not kind.is_int and (math.isfinite(number) or not node.dtype.is_float):
            return make("const", (), kind.nearest(number) if kind.is_float else bool(number), kind)
    return make("cast", (node,), None, kind, node.lanes)


def logical_not(a: Expr) -> Expr:
    a = _as_bool(a)
    if a.op == "const":
        return const(not a.attr, BOOL)
    return a.args[0] if a.op == "not" else make("not", (a,), None, BOOL, a.lanes)


def all_of(*conditions: Value) -> Expr:
    """Give the conjunction, left to right; `True` for none."""
    result = const(True)
    for c in conditions:
        result = binary("and", result, c)
    return result


def any_of(*conditions: Value) -> Expr:
    result = const(False)
    for c in conditions:
        result = binary("or", result, c)
    return result


def _choose(op: str, condition: Value, a: Value, b: Value) -> Expr:
    test = _as_bool(convert(condition))
    left = convert(a, b if isinstance(b, Expr) else None)
    right = convert(b, left)
    if left.dtype is not right.dtype:
        common = join(left.dtype, right.dtype, f"{op} of {left} and {right}")
        left, right = cast(common, left), cast(common, right)
    if test.op == "const":
        return left if test.attr else right
    lanes = max(test.lanes, left.lanes, right.lanes)
    test, left, right = (broadcast(e, lanes) for e in (test, left, right))
    return left if left is right else make(op, (test, left, right), None, left.dtype, lanes)


def select(condition: Value, a: Value, b: Value) -> Expr:
    """Give `a` where the condition holds, else `b`; both sides may be evaluated."""
    return _choose("select", condition, a, b)


def if_then_else(condition: Value, a: Value, b: Value) -> Expr:
    """Give `a` where the condition holds, else `b`; only that side is evaluated (guards reads)."""
    return _choose("if_then_else", condition, a, b)


def minimum(a: Value, b: Value) -> Expr:
    return binary("min", a, b)


def maximum(a: Value, b: Value) -> Expr:
    return binary("max", a, b)


def call(name: str, *args: Value) -> Expr:
    """A mathematical function from FUNCTIONS; its arguments join, integers become float32."""
    if name not in FUNCTIONS:
        raise ExpressionError(
            f"call({name!r})", "no such function", f"Known: {', '.join(sorted(FUNCTIONS))}."
        )
    if len(args) != FUNCTIONS[name]:
        raise ExpressionError(
            f"call({name!r})", f"takes {FUNCTIONS[name]} argument(s), got {len(args)}"
        )
    nodes = [convert(a) for a in args]
    dtype = reduce(lambda a, n: join(a, n.dtype, f"call({name!r})"), nodes, nodes[0].dtype)
    dtype = dtype if dtype.is_float else FLOAT32
    if name == "abs" and nodes[0].dtype.is_int:
        return nodes[0] if nodes[0].dtype.kind == "uint" else maximum(nodes[0], -nodes[0])
    lanes = max(n.lanes for n in nodes)
    nodes = [broadcast(cast(dtype, n), lanes) for n in nodes]
    return make("call", tuple(nodes), name, dtype, lanes)


def ramp(base: Expr, stride: Value, lanes: int) -> Expr:
    """The vector base, base + stride, ...; `base` itself for one lane."""
    if lanes == 1:
        return base
    return make("ramp", (base, convert(stride, base)), None, base.dtype, lanes)


def broadcast(value: Expr, lanes: int) -> Expr:
    if value.lanes == lanes:
        return value
    if value.lanes != 1:
        raise ExpressionError(str(value), f"a vector of {value.lanes} lanes cannot become {lanes}")
    return make("broadcast", (value,), None, value.dtype, lanes)


# -- walking ---------------------------------------------------------------------------------------


def rebuild(node: Expr, args: tuple[Expr, ...]) -> Expr:
    """`node` with new arguments, through the folding builders; itself if nothing changed."""
    if all(a is b for a, b in zip(args, node.args, strict=True)):
        return node
    op = node.op
    if op in BINARY:
        return binary(op, *args)
    if op in ("select", "if_then_else"):
        return _choose(op, *args)
    if op == "cast":
        return cast(node.dtype, args[0])
    if op == "not":
        return logical_not(args[0])
    if op == "ramp":
        return ramp(args[0], args[1], node.lanes)
    if op == "broadcast":
        return broadcast(args[0], node.lanes)
    if op == "call":
        return call(node.attr, *args)
    lanes = max((a.lanes for a in args), default=1) if op == "load" else node.lanes
    return make(op, args, node.attr, node.dtype, lanes)


def transform(root: Expr, rule: Callable[[Expr], Expr | None]) -> Expr:
    """Rewrite bottom-up: `rule` sees each node after its arguments and may return a replacement."""
    memo: dict[Expr, Expr] = {}

    def visit(node: Expr) -> Expr:
        done = memo.get(node)
        if done is None:
            new = rebuild(node, tuple(visit(a) for a in node.args)) if node.args else node
            replaced = rule(new)
            done = memo[node] = new if replaced is None else replaced
        return done

    return visit(root)


def substitute(root: Expr, mapping: Mapping[Expr, Value]) -> Expr:
    """Replace variables (or any whole nodes) by `mapping`, simultaneously."""
    if not mapping:
        return root
    memo: dict[Expr, Expr] = {}

    def visit(node: Expr) -> Expr:
        done = memo.get(node)
        if done is None:
            if node in mapping:
                done = convert(mapping[node], node)
            else:
                done = rebuild(node, tuple(visit(a) for a in node.args)) if node.args else node
            memo[node] = done
        return done

    return visit(root)


def walk(*roots: Expr) -> Iterator[Expr]:
    """Every distinct node under `roots`, arguments before their users."""
    seen: set[int] = set()
    todo: list[tuple[Expr, bool]] = [(root, False) for root in reversed(roots)]
    while todo:
        node, ready = todo.pop()
        if ready:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            if node.args:
                todo.append((node, True))
                todo.extend((a, False) for a in reversed(node.args))
            else:
                yield node


def free_variables(*roots: Expr) -> set[Expr]:
    return {n for n in walk(*roots) if n.op == "var"}


def conjuncts(condition: Expr) -> Iterable[Expr]:
    """The parts of a conjunction, left to right."""
    if condition.op != "and":
        yield condition
        return
    for part in condition.args:
        yield from conjuncts(part)
