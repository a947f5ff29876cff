"""Values that are no tensors: calls of functions that are values, data of types that users define,
`match`, references, and names for what must be computed in order.

In: graph values.  Out: nodes; their types wait, and `checked_type` asks inference
(`../functional/infer.py`).  A function with such nodes in it is functional, as is one that reads
variables of an outer function, which makes it a closure.
Read next: `data_types.py`; `../functional/machine.py`, which runs them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ModelError
from tilewright.graph import expr as nodes
from tilewright.graph.attrs import Attrs
from tilewright.graph.expr import Expr, GlobalVar, Var, children, free_vars, post_order
from tilewright.graph.types import WAITING, AnyType, holds_other, listed_types
from tilewright_tvm.relay.functional.data_types import GlobalTypeVar, TypeVar
from tilewright_tvm.relay.functional.later import CallByName


class Functional(Expr):
    """A node of this module; inferred: what inference has found, which is asked again and
    again."""

    __slots__ = ("inferred",)
    inferred: AnyType

    def __init__(self) -> None:
        self._type = WAITING


class Constructor(Functional):
    """One of the forms of a data type: `constructor(values)` makes such a value.

    inputs: the types of its fields; belong_to: the data type
    tag: which of its constructors it is, from 0, since `relay.TypeData` has it
    """

    __slots__ = ("belong_to", "inputs", "name_hint", "tag")

    @door(ModelError)
    def __init__(self, name_hint: str, inputs: Sequence[AnyType], belong_to: GlobalTypeVar) -> None:
        super().__init__()
        self.name_hint, self.belong_to = name_hint, belong_to
        self.inputs = listed_types(inputs, f"relay.Constructor({name_hint})")
        self.tag = -1


class NamedFunction(Functional):
    """A function of a module as a value, where its name is given for one."""

    __slots__ = ("name",)

    def __init__(self, name: GlobalVar) -> None:
        super().__init__()
        self.name = name

    @property
    def function(self) -> nodes.Function | None:
        """What it is called with, since `mod[name] = function`."""
        return self.name.function


class Apply(Functional):
    """A call of a value: of a closure, a parameter, a constructor, a functional function.

    op: as it was given; callee: what it is as a node, None where a name says it
    """

    __slots__ = ("args", "attrs", "callee", "op", "parts")

    def __init__(self, op: Any, args: Sequence[Any]) -> None:
        super().__init__()
        self.op: Any = op.name if isinstance(op, NamedFunction) else op
        self.callee: Expr | None = None if isinstance(self.op, GlobalVar) else op
        self.args, self.attrs = tuple(map(as_value, args)), Attrs({})
        self.parts = self.args if self.callee is None else (self.callee, *self.args)

    def with_parts(self, parts: Sequence[Expr]) -> Expr:
        if self.callee is None:
            return Apply(self.op, parts)
        return make_call(parts[0], parts[1:])


class LetNode(Functional):
    """`body`, in which `var` is `value`, which is computed first."""

    __slots__ = ("binds", "body", "parts", "value", "var")

    def __init__(self, var: Var, value: Expr, body: Expr) -> None:
        super().__init__()
        self.var, self.value, self.body = var, value, body
        self.parts, self.binds = (value, body), (var,)

    def with_parts(self, parts: Sequence[Expr]) -> Expr:
        return LetNode(self.var, *parts)


class RefCreate(Functional):
    """A reference that holds `value`; each time that it is computed another one."""

    __slots__ = ("parts", "value")

    @door(ModelError)
    def __init__(self, value: Expr) -> None:
        super().__init__()
        self.value, self.parts = value, (value,)

    def with_parts(self, parts: Sequence[Expr]) -> Expr:
        return RefCreate(*parts)


class RefRead(Functional):
    """What a reference holds."""

    __slots__ = ("parts", "ref")

    @door(ModelError)
    def __init__(self, ref: Expr) -> None:
        super().__init__()
        self.ref, self.parts = ref, (ref,)

    def with_parts(self, parts: Sequence[Expr]) -> Expr:
        return RefRead(*parts)


class RefWrite(Functional):
    """A reference holds another value from here on; it gives the empty tuple."""

    __slots__ = ("parts", "ref", "value")

    @door(ModelError)
    def __init__(self, ref: Expr, value: Expr) -> None:
        super().__init__()
        self.ref, self.value, self.parts = ref, value, (ref, value)

    def with_parts(self, parts: Sequence[Expr]) -> Expr:
        return RefWrite(*parts)


# -- match
class Pattern:
    """What a value may look like."""

    patterns: tuple[Pattern, ...] = ()

    def variables(self) -> Iterator[Var]:
        """Those that it gives values."""
        for pattern in self.patterns:
            yield from pattern.variables()


class PatternWildcard(Pattern):
    """Any value."""


class PatternVar(Pattern):
    """Any value, which `var` is in the clause's result."""

    @door(ModelError)
    def __init__(self, var: Var) -> None:
        self.var = var

    def variables(self) -> Iterator[Var]:
        yield self.var


class PatternConstructor(Pattern):
    """A value that `constructor` made of fields that look like `patterns`."""

    @door(ModelError)
    def __init__(self, constructor: Constructor, patterns: Sequence[Pattern] | None = None) -> None:
        self.constructor, self.patterns = constructor, tuple(patterns or ())
        if len(self.patterns) != len(constructor.inputs):
            raise ModelError(
                f"relay.PatternConstructor({constructor.name_hint})",
                f"{len(self.patterns)} patterns for {len(constructor.inputs)} fields",
                "Give one for each, perhaps relay.PatternWildcard().",
            )  # fmt: skip


class PatternTuple(Pattern):
    """A tuple of values that look like `patterns`."""

    @door(ModelError)
    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self.patterns = tuple(patterns)


class Clause:
    """One case of a `Match`: a pattern, and the result where the value looks like it."""

    @door(ModelError)
    def __init__(self, lhs: Pattern, rhs: Expr) -> None:
        self.lhs, self.rhs = lhs, rhs


class Match(Functional):
    """The result of the first of `clauses` that `data` looks like; others are not computed.

    complete: whether inference refuses it where data that no clause looks like is possible
    """

    __slots__ = ("binds", "clauses", "complete", "data", "parts")

    @door(ModelError)
    def __init__(self, data: Expr, clauses: Sequence[Clause], complete: bool = True) -> None:
        super().__init__()
        self.data, self.clauses, self.complete = data, tuple(clauses), complete
        self.parts = (data, *(c.rhs for c in self.clauses))
        self.binds = tuple(v for c in self.clauses for v in c.lhs.variables())

    def with_parts(self, parts: Sequence[Expr]) -> Expr:
        data, *results = parts
        patterns = (c.lhs for c in self.clauses)
        clauses = [Clause(p, r) for p, r in zip(patterns, results, strict=True)]
        return Match(data, clauses, self.complete)


# -- names for values
def as_value(value: Any) -> Expr:
    """`value` as a node: the name of a function is the function."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, GlobalVar):
        return NamedFunction(value)
    raise ModelError(
        f"call of a {type(value).__name__}", "it is no value of a graph", "Use relay.const."
    )


# -- which calls, functions and values are functional
class _Kind(type):
    """Of a class by TVM's name that makes nodes of networks where these do, which are its
    instances, too."""

    kinds: tuple[type, ...]
    make: Callable[..., Any]

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.kinds)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.make(*args, **kwargs)

    @property
    def __signature__(cls) -> inspect.Signature:
        return inspect.signature(cls.make)


class GeneralFunction(nodes.Function):
    """A function with other values than tensors: its body has some, reads variables of an outer
    function, which makes it a closure, or its types are variables.

    told_ret_type: checked where it is known what the body gives
    type_params: type variables that each call may put other types for
    free: variables of an outer function, or of a network, that the body reads
    """

    __slots__ = ("free", "told_ret_type", "type_params")

    def __init__(
        self, params: Sequence[Var], body: Expr, ret_type: AnyType | None,
        type_params: Sequence[TypeVar], attrs: Mapping[str, Any] | None, free: Sequence[Var],
    ) -> None:  # fmt: skip
        super().__init__(params, body, attrs)
        self.told_ret_type, self.type_params, self.free = ret_type, tuple(type_params), tuple(free)
        self._type = WAITING

    def with_body(self, body: Expr, more: Mapping[str, Any] | None = None) -> nodes.Function:
        attrs = {**self.attrs, **(more or {})}
        return make_function(self.params, body, self.told_ret_type, self.type_params, attrs)


@door(ModelError, "Function")
def make_function(
    params: Sequence[Var],
    body: Expr,
    ret_type: AnyType | None = None,
    type_params: Sequence[TypeVar] | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> nodes.Function:
    """`params -> body`.

    ret_type: checked where it is known what the body gives
    type_params: type variables that each call may put other types for
    Raises ModelError for a parameter listed twice.
    """
    known = set(params)
    free = [v for v in free_vars(body) if v not in known]
    inside = any(map(_is_functional, (*params, *post_order(body))))
    if free or type_params or inside:
        return GeneralFunction(params, body, ret_type, type_params or (), attrs, free)
    function = nodes.Function(params, body, attrs)
    if ret_type is not None and not function.waits and ret_type != function._type:
        raise ModelError(
            f"Function({', '.join(p.name_hint for p in params)})",
            f"the body has type {function._type}, not {ret_type}", "Leave ret_type out.",
        )  # fmt: skip
    return function


class Function(nodes.Function, metaclass=_Kind):
    __doc__ = make_function.__doc__
    __slots__ = ()
    kinds = (nodes.Function,)
    make = staticmethod(make_function)


def type_params(function: nodes.Function) -> tuple[TypeVar, ...]:
    """The type variables that each call may put other types for."""
    return function.type_params if isinstance(function, GeneralFunction) else ()


def told_ret_type(function: nodes.Function) -> AnyType | None:
    """The type of the result that was told; None where nobody did, and where it is known."""
    return function.told_ret_type if isinstance(function, GeneralFunction) else None


def _is_functional(node: Expr) -> bool:
    if isinstance(node, Var):
        return holds_other(node._type)
    return isinstance(node, (Functional, nodes.Function))


@door(ModelError, "Call")
def make_call(
    op: Any,
    args: Sequence[Any],
    attrs: Mapping[str, Any] | None = None,
    type_args: Sequence[Any] | None = None,
    span: object = None,
) -> Expr:
    """An operator, a function or any other value, applied to arguments.

    type_args, span: accepted for TVM's spelling: types are inferred, places in texts not kept
    """
    found = called(op, args)
    return nodes.Call(op, args, attrs) if found is None else found


class Call(Expr, metaclass=_Kind):
    __doc__ = make_call.__doc__
    __slots__ = ("args", "attrs", "op")
    op: Any
    args: tuple[Expr, ...]
    attrs: Attrs
    kinds = (nodes.Call, Apply)
    make = staticmethod(make_call)


def called(op: Any, args: Sequence[Any]) -> Expr | None:
    """What calls a value, or a name; None for the call of a function of tensors with tensors."""
    if not isinstance(op, (GlobalVar, Expr)):
        return None
    known = op.function if isinstance(op, (GlobalVar, NamedFunction)) else op
    ordinary = isinstance(known, nodes.Function) and not isinstance(known, GeneralFunction)
    if (known is None or ordinary) and not any(map(_is_other, args)):
        if ordinary:
            return None
        assert isinstance(op, (GlobalVar, NamedFunction))
        return CallByName(op.name if isinstance(op, NamedFunction) else op, args)
    return Apply(op, args)


def _is_other(value: Any) -> bool:
    if isinstance(value, (GlobalVar, nodes.Function)):
        return True
    return isinstance(value, Expr) and is_functional(value)


def is_functional(value: Expr) -> bool:
    """Whether functional nodes are among what `value` is made of."""
    if not value.waits:
        return holds_other(value._type)
    stack, done = [value], set[Expr]()
    while stack:
        node = stack.pop()
        if isinstance(node, (Functional, nodes.Function)) or holds_other(node._type):
            return True
        done.add(node)
        stack += [c for c in children(node) if c not in done and (c.waits or holds_other(c._type))]
    return False


def must_be_named(value: Expr, itself: Var) -> bool:
    """Whether it has to be computed where a name says so: it makes or uses references, or calls
    functions that may; or it is a function that calls itself by the name."""
    if isinstance(value, nodes.Function):
        return itself in value.free
    if not is_functional(value):
        return False
    stack, done = [value], set[Expr]()
    while stack:
        node = stack.pop()
        if isinstance(node, Apply):
            if not isinstance(node.callee, Constructor):
                return True
        elif isinstance(node, Functional) and not isinstance(node, (Constructor, NamedFunction)):
            return True
        done.add(node)
        stack += [c for c in children(node) if c not in done]
    return False
