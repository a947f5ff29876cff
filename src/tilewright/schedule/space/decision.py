"""Polymorphic numbers: integers, int64 vectors over a population, and integers still open.

In: ints, numpy vectors, `Choice` expressions; extents that calls give (`ir/symbols.py`).  Out: the
same, from one set of operators; `evaluate` turns a Choice into a number under an `Assignment`.
Read next: `trace.py`, `entities.py`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Union
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from tilewright.base import context
from tilewright.base.concurrency import lock
from tilewright.base.errors import SpaceError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr

Vector = npt.NDArray[Any]  # int64, or bool where a comparison made it: one entry per candidate
Number = int | Vector
Size = Union[int, "Choice"]  # a number that may still be open


# Functions of two ints, of vectors, or of Choices.  Ints stay Python ints.


def ceil_div(a: Any, b: Any) -> Any:
    """a / b rounded up, for b >= 1."""
    if isinstance(a, Choice) or isinstance(b, Choice):
        return _node("ceil_div", a, b)
    if isinstance(a, Expr) or isinstance(b, Expr):
        return (a + (b - 1)) // b
    if isinstance(b, np.ndarray):
        return (a + b - 1) // b
    return -(-a // b) if not isinstance(a, np.ndarray) else (a + (b - 1)) // b


def minimum(a: Any, b: Any) -> Any:
    if isinstance(a, Choice) or isinstance(b, Choice):
        return _node("min", a, b)
    if isinstance(a, Expr) or isinstance(b, Expr):
        return E.minimum(a, b)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.minimum(a, b)
    return a if a <= b else b


def maximum(a: Any, b: Any) -> Any:
    if isinstance(a, Choice) or isinstance(b, Choice):
        return _node("max", a, b)
    if isinstance(a, Expr) or isinstance(b, Expr):
        return E.maximum(a, b)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.maximum(a, b)
    return a if a >= b else b


def where(condition: Any, a: Any, b: Any) -> Any:
    """`a` where the condition holds, `b` elsewhere; both sides are evaluated."""
    if isinstance(condition, Choice):
        return _where(condition, a, b)
    if isinstance(condition, np.ndarray):
        return np.where(condition, a, b)
    return a if condition else b


def logical_and(a: Any, b: Any) -> Any:
    """Both hold; the operands are conditions (`and` asks for a decision, this does not)."""
    if isinstance(a, Choice) or isinstance(b, Choice):
        return _node("and", _condition(a), _condition(b))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.logical_and(a, b)
    return bool(a) and bool(b)


def logical_or(a: Any, b: Any) -> Any:
    if isinstance(a, Choice) or isinstance(b, Choice):
        return _node("or", _condition(a), _condition(b))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.logical_or(a, b)
    return bool(a) or bool(b)


def logical_not(a: Any) -> Any:
    if isinstance(a, Choice):
        a = _condition(a)
        return a.args[0] if a.op == "not" else _intern("not", (a,))
    return np.logical_not(a) if isinstance(a, np.ndarray) else not a


def gcd(a: Number, b: Number) -> Number:
    """Greatest common divisor of ints or vectors, never negative; gcd(0, 0) is 0.  Of an
    expression only 1 is known, and that it divides itself and 0."""
    if isinstance(a, Expr) or isinstance(b, Expr):
        if a is b:
            return a
        return a if isinstance(b, int) and b == 0 else 1
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.gcd(a, b)
    return math.gcd(a, b)


def var(name: str) -> Choice:
    """The decision called `name`; the same name is the same object."""
    return _intern("var", (name,))


def same(a: Any, b: Any) -> bool:
    """True when both are the same int or the same expression; unlike `==` it decides nothing.

    What is open and differs may be the same once it is closed: a tracer takes note of it.
    """
    if isinstance(a, Choice) or isinstance(b, Choice):
        if a is not b and (tracer := context.current("tracer")) is not None:
            tracer.note(_node("eq", a, b))
        return a is b
    return bool(a == b)


def variables(expr: Size) -> tuple[str, ...]:
    """Names of the decisions in `expr`, in order of first appearance."""
    if not isinstance(expr, Choice):
        return ()
    return tuple(dict.fromkeys(node.args[0] for node in _walk(expr) if node.op == "var"))


def evaluate(expr: Size, assignment: Mapping[str, Number]) -> Number:
    """The number `expr` stands for: an int where every decision used is an int, else a vector.

    Values are kept in an `Assignment`, so common subexpressions cost once per population.  Divisors
    must not be zero.  Raises SpaceError for a decision that the assignment lacks.
    """
    if not isinstance(expr, Choice):
        return expr
    if isinstance(assignment, Assignment):
        return _evaluate(expr, assignment, assignment.cache)
    return _evaluate(expr, assignment, {})


def to_json(expr: Size) -> Any:
    """Nested lists of the form [op, arg, ...]; ints stay ints."""
    if not isinstance(expr, Choice):
        return int(expr)
    if expr.op == "var":
        return ["var", expr.args[0]]
    return [expr.op, *(to_json(arg) for arg in expr.args)]


def from_json(data: Any) -> Size:
    """Inverse of `to_json`; raises SpaceError for anything else."""
    try:
        return _read(data)
    except (TypeError, ArithmeticError, RecursionError) as error:
        raise SpaceError("from_json", f"not an expression ({error})") from None


def _read(data: Any) -> Size:
    if isinstance(data, int):
        return int(data)
    place = f"from_json({data!r:.200})"
    if not isinstance(data, list) or not data or data[0] not in _ARITY:
        raise SpaceError(place, "not an expression", f"Known operators: {', '.join(_ARITY)}.")
    op, args = data[0], data[1:]
    if len(args) != _ARITY[op]:
        raise SpaceError(place, f"{op} takes {_ARITY[op]} arguments and got {len(args)}")
    if op == "var":
        return var(args[0])
    return _BUILD[op](*(_read(arg) for arg in args))  # type: ignore[no-any-return]


class Assignment(dict[str, Number]):
    """Decision name -> int or int64 vector (one entry per candidate), and what was derived so far.

    Changing an entry forgets what was derived.
    """

    __slots__ = ("cache",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # keyed by identity; the expression is kept so that its id cannot be taken by another one
        self.cache: dict[int, tuple[Choice, Number]] = {}

    @property
    def rows(self) -> int:
        """Candidates in the population: the length of its vectors, 1 where all entries are ints."""
        return next((len(v) for v in self.values() if isinstance(v, np.ndarray)), 1)

    def take(self, rows: Vector) -> Assignment:
        """The candidates `rows` (int64 indices) alone; ints are shared by all."""
        if len(rows) == self.rows and np.array_equal(rows, np.arange(len(rows))):
            return self
        return Assignment(
            (name, v[rows] if isinstance(v, np.ndarray) else v) for name, v in self.items()
        )

    def row(self, index: int) -> Assignment:
        """One candidate, as ints."""
        return Assignment(
            (name, int(v[index]) if isinstance(v, np.ndarray) else v) for name, v in self.items()
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Assignment, (dict(self),)

    @staticmethod
    def _forgetting(method: Callable[..., Any]) -> Callable[..., Any]:
        def changed(self: Assignment, *args: Any, **kwargs: Any) -> Any:
            self.cache.clear()
            return method(self, *args, **kwargs)

        return changed

    __setitem__ = _forgetting(dict.__setitem__)
    __delitem__ = _forgetting(dict.__delitem__)
    __ior__ = _forgetting(dict.__ior__)
    update = _forgetting(dict.update)
    setdefault = _forgetting(dict.setdefault)
    pop = _forgetting(dict.pop)
    popitem = _forgetting(dict.popitem)
    clear = _forgetting(dict.clear)


_Method = Callable[[Any, Any], Any]


def _operator(op: str) -> tuple[_Method, _Method]:
    """`self op other` and `other op self` of Choice."""
    return (
        lambda self, other: _binary(op, self, other),
        lambda self, other: _binary(op, other, self),
    )


def _asking(function: _Method) -> tuple[_Method, _Method]:
    """The same for an operator that needs the value of self."""
    return (
        lambda self, other: function(int(self), other),
        lambda self, other: function(other, int(self)),
    )


class Choice:
    """An integer the search still decides, or an expression over such.

    ================ =========================== ==============================================
    op               args                        meaning
    ================ =========================== ==============================================
    var              name                        the decision of that name
    add sub mul      a, b                        arithmetic; an operand may be a Python int
    floordiv mod     a, b                        Python's: rounded down, sign of the divisor
    ceil_div min max a, b
    eq ne lt le ...  a, b                        conditions
    and or / not     conditions
    where            condition, a, b             both sides are evaluated
    ================ =========================== ==============================================

    Equal expressions are the same object.  `==` builds an expression; `same` compares.  `if x`,
    `range(x)` or `int(x)` ask the active tracer, which partitions the population by the answer.
    So does looking it up in a set or a dict: `x in {1, 2, 4}` means what it says.  Where identity
    is meant, key by `id(x)` or by `str(x)`.
    """

    __slots__ = ("__weakref__", "args", "op")
    __array_ufunc__ = None  # numpy leaves operators with a Choice to us

    op: str
    args: tuple[Any, ...]

    def __new__(cls) -> Choice:
        raise SpaceError("Choice()", "expressions are interned", "Use var(name) and operators.")

    def __reduce__(self) -> tuple[Any, ...]:
        return from_json, (to_json(self),)

    def __copy__(self) -> Choice:
        return self

    def __deepcopy__(self, memo: Any) -> Choice:
        return self

    # Asking for a value.

    def __bool__(self) -> bool:
        question = _condition(self)
        return bool(_ask(question) if isinstance(question, Choice) else question)

    def __index__(self) -> int:
        return _ask(self)

    __int__ = __index__

    def __hash__(self) -> int:
        return hash(_ask(self))

    # Operators.  Those in the last group have no vector form worth having: they ask for the value.

    __add__, __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("sub")
    __mul__, __rmul__ = _operator("mul")
    __floordiv__, __rfloordiv__ = _operator("floordiv")
    __mod__, __rmod__ = _operator("mod")
    __lt__, __gt__ = _operator("lt")[0], _operator("gt")[0]
    __le__, __ge__ = _operator("le")[0], _operator("ge")[0]
    __eq__, __ne__ = _operator("eq")[0], _operator("ne")[0]

    __truediv__, __rtruediv__ = _asking(operator.truediv)
    __pow__, __rpow__ = _asking(operator.pow)
    __lshift__, __rlshift__ = _asking(operator.lshift)
    __rshift__, __rrshift__ = _asking(operator.rshift)
    __xor__, __rxor__ = _asking(operator.xor)

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __neg__(self) -> Any:
        return 0 - self

    def __abs__(self) -> Any:
        return maximum(self, -self)

    def __pos__(self) -> Choice:
        return self

    def __round__(self, digits: int = 0) -> Choice:
        return self

    __floor__ = __ceil__ = __trunc__ = __pos__

    # & | ~ combine conditions; on other numbers they are bit operations.

    def __and__(self, other: Any) -> Any:
        return logical_and(self, other) if _are_conditions(self, other) else int(self) & other

    def __or__(self, other: Any) -> Any:
        return logical_or(self, other) if _are_conditions(self, other) else int(self) | other

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> Any:
        return logical_not(self) if self.op in CONDITIONS else ~int(self)

    def __str__(self) -> str:
        return choice_text(self, 0)

    __repr__ = __str__


# What each operator does to numbers; `where` comes from above.
_EVALUATE: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "ceil_div": ceil_div,
    "min": minimum,
    "max": maximum,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "and": logical_and,
    "or": logical_or,
    "not": logical_not,
    "where": where,
}
_BUILD = _EVALUATE  # the same functions build nodes when an operand is a Choice
_ARITY = {**dict.fromkeys(_EVALUATE, 2), "not": 1, "where": 3, "var": 1}
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
CONDITIONS = frozenset((*COMPARE, "and", "or", "not"))

# op -> (spelling between its operands, binding strength as in Python)
_INFIX = {
    "eq": (" == ", 1), "ne": (" != ", 1), "lt": (" < ", 1), "le": (" <= ", 1), "gt": (" > ", 1),
    "ge": (" >= ", 1), "or": (" | ", 2), "and": (" & ", 3), "add": (" + ", 4), "sub": (" - ", 4),
    "mul": ("*", 5), "floordiv": (" // ", 5), "mod": (" % ", 5),
}  # fmt: skip

_INTERNED: WeakValueDictionary[tuple[Any, ...], Choice] = WeakValueDictionary()
_interning = lock()


def _ask(expr: Choice) -> int:
    tracer = context.current("tracer")
    if tracer is None:
        raise SpaceError(
            f"value of {expr}",
            "the search has not decided it here",
            "Evaluate it under an assignment, or run the code that needs it under trace().",
        )
    return int(tracer.ask(expr))


def _intern(op: str, args: tuple[Any, ...]) -> Choice:
    # keyed by identity of operands: comparing two Choices would build a third
    key = (op, *(("", id(a)) if isinstance(a, Choice) else a for a in args))
    node = _INTERNED.get(key)
    if node is None:
        made = object.__new__(Choice)
        made.op, made.args = op, args
        with _interning:  # another thread may just have made it
            node = _INTERNED.setdefault(key, made)
    return node


def _binary(op: str, a: Any, b: Any) -> Any:
    """One operator of Choice: anything but an integer operand is refused or asks for the value."""
    other = b if isinstance(a, Choice) else a
    if isinstance(other, (int, np.integer, np.bool_, Choice)):
        return _node(op, a, b)
    if isinstance(other, (float, np.floating)):
        a, b = (int(x) if isinstance(x, Choice) else x for x in (a, b))
        return _EVALUATE[op](a, b)
    return NotImplemented


def _node(op: str, a: Any, b: Any) -> Size:
    """The folded expression `a op b`."""
    if op not in ("and", "or"):
        a, b = _integer(a), _integer(b)
    a_is_choice, b_is_choice = isinstance(a, Choice), isinstance(b, Choice)
    if not a_is_choice and not b_is_choice:
        return _EVALUATE[op](a, b)  # type: ignore[no-any-return]
    if a is b and op in _OF_EQUALS:
        return _OF_EQUALS[op](a)  # type: ignore[no-any-return]
    if not b_is_choice and (op, b) in _RIGHT:
        return _RIGHT[op, b](a)  # type: ignore[no-any-return]
    if not a_is_choice and (op, a) in _LEFT:
        return _LEFT[op, a](b)  # type: ignore[no-any-return]
    if not b_is_choice and b == 0 and op in ("floordiv", "mod", "ceil_div"):
        raise SpaceError(f"{op}({a}, 0)", "division by zero")
    return _intern(op, (a, b))


def _where(condition: Choice, a: Any, b: Any) -> Size:
    chosen = _condition(condition)
    if not isinstance(chosen, Choice):
        return _integer(a if chosen else b)
    a, b = _integer(a), _integer(b)
    return a if same(a, b) else _intern("where", (chosen, a, b))


def _keep(x: Any) -> Any:
    return x


def _constant(value: int) -> Callable[[Any], int]:
    return lambda _: value


# (op, constant operand) -> the expression in terms of the other operand
_RIGHT: dict[tuple[str, Any], Callable[[Any], Any]] = {
    ("add", 0): _keep, ("sub", 0): _keep, ("mul", 1): _keep, ("mul", 0): _constant(0),
    ("floordiv", 1): _keep, ("ceil_div", 1): _keep, ("mod", 1): _constant(0),
    ("and", True): _keep, ("and", False): _constant(False),
    ("or", False): _keep, ("or", True): _constant(True),
}  # fmt: skip
_LEFT: dict[tuple[str, Any], Callable[[Any], Any]] = {
    ("add", 0): _keep, ("mul", 1): _keep, ("mul", 0): _constant(0),
    ("floordiv", 0): _constant(0), ("ceil_div", 0): _constant(0), ("mod", 0): _constant(0),
    ("and", True): _keep, ("and", False): _constant(False),
    ("or", False): _keep, ("or", True): _constant(True),
}  # fmt: skip
_OF_EQUALS: dict[str, Callable[[Any], Any]] = {
    "sub": _constant(0), "min": _keep, "max": _keep, "and": _keep, "or": _keep,
    "eq": _constant(True), "le": _constant(True), "ge": _constant(True),
    "ne": _constant(False), "lt": _constant(False), "gt": _constant(False),
}  # fmt: skip


def _integer(x: Any) -> Size:
    """`x` as an operand of arithmetic: a condition counts 1 where it holds."""
    if isinstance(x, Choice):
        return _intern("where", (x, 1, 0)) if x.op in CONDITIONS else x
    return operator.index(x) if not isinstance(x, (bool, np.bool_)) else int(x)


def _condition(x: Any) -> Size:
    """`x` as an operand of logic: a number holds where it is not zero."""
    if not isinstance(x, Choice):
        return bool(x)
    if x.op == "where" and same(x.args[1], 1) and same(x.args[2], 0):
        return x.args[0]  # type: ignore[no-any-return]
    if x.op in CONDITIONS:
        return x
    return _node("ne", x, 0)


def _are_conditions(*values: Any) -> bool:
    return all(
        v.op in CONDITIONS if isinstance(v, Choice) else isinstance(v, (bool, np.bool_))
        for v in values
    )


def _evaluate(
    expr: Choice, assignment: Mapping[str, Number], cache: dict[int, tuple[Choice, Number]]
) -> Number:
    known = cache.get(id(expr))
    if known is not None:
        return known[1]
    op, args = expr.op, expr.args
    if op == "var":
        try:
            return assignment[args[0]]
        except KeyError:
            raise SpaceError(
                f"evaluate({args[0]})", "the assignment lacks this decision",
                f"It has {', '.join(assignment) or 'none'}.",
            ) from None  # fmt: skip
    value: Number = _EVALUATE[op](
        *(_evaluate(a, assignment, cache) if isinstance(a, Choice) else a for a in args)
    )
    cache[id(expr)] = expr, value
    return value


def _walk(expr: Choice) -> Iterator[Choice]:
    """Every distinct node below `expr`, operands in order, before their users."""
    seen: set[int] = set()

    def visit(node: Choice) -> Iterator[Choice]:
        if id(node) in seen:
            return
        seen.add(id(node))
        for arg in node.args:
            if isinstance(arg, Choice):
                yield from visit(arg)
        yield node

    return visit(expr)


def choice_text(expr: Any, strength: int = 0) -> str:
    """`expr` in parentheses where it binds weaker than `strength`: 0 for never, 9 for always."""
    if not isinstance(expr, Choice):
        return str(expr)
    op, args = expr.op, expr.args
    if op == "var":
        return str(args[0])
    if op == "not":
        return f"~{choice_text(args[0], 9)}"
    if op not in _INFIX:
        return f"{op}({', '.join(choice_text(a, 0) for a in args)})"
    sign, own = _INFIX[op]
    left = own + 1 if op in COMPARE else own  # a < b < c would chain
    text = choice_text(args[0], left) + sign + choice_text(args[1], own + 1)
    return f"({text})" if own < strength else text
