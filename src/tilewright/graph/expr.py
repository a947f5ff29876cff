"""The graph of a network: the few kinds of node a graph is made of, and modules of functions.

In: operators from the table and Python values.  Out: immutable, typed nodes; a shared node is a
value that is read several times.  Read next: `types.py`, `traversal.py` (walks and rewrites),
`printer.py`, `op/row.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from tilewright.base.doors import door
from tilewright.base.dtype import DType
from tilewright.base.errors import ModelError
from tilewright.graph.arithmetic import Arithmetic
from tilewright.graph.attrs import Attrs as Attrs
from tilewright.graph.data_types import (
    AnyType,
    DataType,
    GlobalTypeVar,
    TypeData,
    TypeVar,
    holds_data,
)
from tilewright.graph.definitions import Definitions
from tilewright.graph.global_var import GlobalVar as GlobalVar
from tilewright.graph.global_var import name_apart
from tilewright.graph.printed import Printed
from tilewright.graph.types import WAITING, Waiting
from tilewright.graph.types import Array as Array
from tilewright.graph.types import FuncType as FuncType
from tilewright.graph.types import Held as Held
from tilewright.graph.types import IncompleteType as IncompleteType
from tilewright.graph.types import TensorType as TensorType
from tilewright.graph.types import TupleType as TupleType
from tilewright.graph.types import Type as Type
from tilewright.graph.types import as_array as as_array
from tilewright.graph.types import check_dtype as check_dtype
from tilewright.graph.types import oversize as oversize
from tilewright.graph.types import static_shape as static_shape

if TYPE_CHECKING:
    from tilewright.graph.op.row import Op


class Expr(Arithmetic, Printed):
    """A value of the graph.  Nodes compare by identity; `checked_type` is known once built.

    parts: what a node of no other kind reads (`later.py`)
    origin: of a value whose extents are open, how it is made for numbers (`later.made_again`)
    """

    __slots__ = ("__weakref__", "_type", "origin")

    _type: Type | Waiting | None
    origin: Expr
    parts: tuple[Expr, ...] = ()
    binds: tuple[Var, ...] = ()  # variables that have a value in some of its parts only
    is_functional = False  # whether it is one of the nodes of `functional.py`

    @property
    def waits(self) -> bool:
        """Whether its type is not known yet: values decide it, or variables have none."""
        return self._type is WAITING or self._type is None

    @property
    def checked_type(self) -> Type:
        """Its type.  Of a value that waits, what can be told: `relay.Any()` stands for extents that
        values decide (`partial.py`).

        Raises NotYet where not even the rank can.
        """
        if not self.waits:
            return self.known_type
        from tilewright.graph.partial import told

        return told(self)

    @property
    def known_type(self) -> Type:
        """Its type, with which things are computed.  Raises NotYet where it waits."""
        if self._type is None or isinstance(self._type, Waiting):
            from tilewright.graph.later import type_of

            known: Type = type_of(self)
            return known
        return self._type

    @property
    def tensor_type(self) -> TensorType:
        """The type of a single tensor; ModelError for a tuple."""
        found: Type | FuncType = self.known_type
        if isinstance(found, TensorType):
            return found
        if isinstance(found, FuncType):
            raise ModelError(
                str(self), "a function where a tensor is needed", "Call it: f(x), or use its body."
            )
        if not isinstance(found, TupleType):
            raise ModelError(
                str(self), f"a value of type {found} where a tensor is needed",
                "Take a tensor out of it, with relay.Match or relay.RefRead.",
            )  # fmt: skip
        raise ModelError(
            str(self), f"a tuple of {len(found.fields)} values where one tensor is needed",
            "Pick one with [0].",
        )  # fmt: skip

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor_type.shape

    @property
    def dtype(self) -> DType:
        return self.tensor_type.dtype

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._type}>"

    def __getitem__(self, index: int) -> Expr:
        return TupleGetItem(self, index)

    def __iter__(self) -> Iterator[Expr]:
        held = self.checked_type
        if not isinstance(held, TupleType):
            raise ModelError(
                f"iteration over a {type(self).__name__} of type {held}",
                "it is one tensor, not a tuple", "List several in Python: [a, b].",
            )  # fmt: skip
        return (TupleGetItem(self, i) for i in range(len(held.fields)))

    def __contains__(self, value: object) -> bool:
        return any(value is part for part in self)

    def __len__(self) -> int:
        """How many values it has."""
        held = self.checked_type
        if not isinstance(held, TupleType):
            raise ModelError(
                f"len of a {type(self).__name__} of type {held}",
                "it is one tensor, not a tuple", "Its extents are in .shape.",
            )  # fmt: skip
        return len(held.fields)

    def __bool__(self) -> bool:
        return True  # it is there; what it holds is not known before it runs

    def __call__(self, *args: Any) -> Expr:
        """A call of it, which is a function."""
        made: Expr = Call(self, args)
        return made

    def astuple(self) -> Expr:
        """Itself: what TVM needs for operators with several results."""
        return self

    def as_numbers(self) -> Any:
        """A number, or a list of them, where the value is known before anything runs; else None."""
        from tilewright.graph.evaluate import known_value

        return known_value(self)

    def await_numbers(self, fits: Callable[[Any], bool]) -> None:
        """Raises NotYet where `fits` takes such numbers: they are known when the network runs."""
        from tilewright.graph.later import NotYet, like

        if any(map(fits, like(self))):
            raise NotYet(self, by_value=True)

    def astype(self, dtype: str) -> Expr:
        """Converted, as by `relay.cast`."""
        from tilewright.graph.op import call

        return call("cast", self, dtype=str(check_dtype(dtype, "astype")))

    @property
    def span(self) -> None:
        """Where in a source text it was written, which is not kept."""
        return None


def _any_waits(values: Sequence[Any]) -> bool:
    return any(isinstance(v, Expr) and v.waits for v in values)


class Var(Expr):
    """A parameter of a function.  Without a type it takes the one its first operator asks for, or
    its function's caller (`untyped.py`).

    open_extents: names by axis of extents for which others stand until the network is built
    """

    __slots__ = ("name_hint", "open_extents")

    def __init__(
        self,
        name_hint: str,
        type_annotation: Type | DataType | IncompleteType | None = None,
        open_extents: Mapping[int, str] | None = None,
    ) -> None:
        told: Any = None if isinstance(type_annotation, IncompleteType) else type_annotation
        self.name_hint, self._type = name_hint, told
        named = told.open_extents if isinstance(told, TensorType) else {}
        self.open_extents: Mapping[int, str] = open_extents or named

    @property
    def is_typed(self) -> bool:
        return self._type is not None

    @property
    def type_annotation(self) -> Type | None:
        """The type, None where it is still open."""
        return None if isinstance(self._type, Waiting) else self._type

    def settle(self, wanted: TensorType) -> None:
        """Take the type `wanted` if none was given."""
        if self._type is None:
            self._type = wanted


class Constant(Expr):
    """A value known at build time, in this machine's byte order.  `data` is never written to."""

    __slots__ = ("data",)

    @door(ModelError)
    def __init__(self, data: Any) -> None:
        data = as_array(data)
        native = data.astype(data.dtype.newbyteorder("="), copy=False)
        self.data: Held = native.view(Held)
        self._type = TensorType(
            tuple(map(int, data.shape)), check_dtype(data.dtype.name, "relay.const")
        )


class Call(Expr):
    """An operator, or a fused function, applied to arguments."""

    __slots__ = ("args", "attrs", "op")

    callee: Expr | None = None  # what it calls, where that is a value (`functional.py`)

    def __new__(cls, op: Any = None, args: Sequence[Any] = (), *_: Any, **__: Any) -> Any:
        if isinstance(op, (GlobalVar, Expr)):
            from tilewright.graph.functional import called

            return called(cls, op, args)
        return super().__new__(cls)

    def __init__(
        self, op: Any, args: Sequence[Any], attrs: Mapping[str, Any] | None = None
    ) -> None:
        op = getattr(op, "function", op)  # of a name
        if not hasattr(op, "infer"):
            raise ModelError(
                f"relay.Call({op!r})", "it is no operator",
                "Use the functions of relay and relay.nn, or a relay.Function.",
            )  # fmt: skip
        self.op: Op | Function = op
        self.args: tuple[Expr, ...] = tuple(args)
        self.attrs = attrs if isinstance(attrs, Attrs) else Attrs(attrs or {})
        for arg, param in zip(self.args, getattr(op, "params", ()), strict=False):
            if isinstance(arg, Var) and isinstance(param._type, TensorType):
                arg.settle(param._type)
        if _any_waits(self.args) or getattr(op, "waits", False):
            self._type = WAITING
            return
        if isinstance(op, Function) and any(p.open_extents for p in op.params):
            from tilewright.graph.passes.extents import for_arguments

            self.op = op = for_arguments(op, self.args)
        self._type = op.infer(self.args, self.attrs)
        follows = getattr(op, "follows", None)
        if follows is not None:
            self.attrs = Attrs(self.attrs, follows([a.tensor_type for a in self.args], self.attrs))

    def with_args(self, args: Sequence[Expr]) -> Expr:
        """The same of other arguments."""
        return Call(self.op, args, self.attrs)


class Tuple(Expr):
    """Several values as one: what `concatenate` takes, what a function may return."""

    __slots__ = ("fields",)

    @door(ModelError)
    def __init__(self, fields: Sequence[Expr]) -> None:
        self.fields = tuple(fields)
        if _any_waits(self.fields):
            self._type = WAITING
        else:
            self._type = TupleType(tuple(f.checked_type for f in self.fields))

    def __getitem__(self, index: int) -> Expr:
        """The value itself; relay.TupleGetItem makes a node that picks it."""
        return self.fields[TupleGetItem(self, index).index]

    def __iter__(self) -> Iterator[Expr]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    @property
    def tuple_value(self) -> Expr:
        """Itself: what TVM's operators with several results wrap."""
        return self


class TupleGetItem(Expr):
    """One value of a tuple."""

    __slots__ = ("index", "tuple_value")

    @door(ModelError)
    def __init__(self, tuple_value: Expr, index: int) -> None:
        self.tuple_value, self.index = tuple_value, index
        if tuple_value.waits:
            self._type = WAITING
            return
        held = tuple_value.checked_type
        if not isinstance(held, TupleType):
            raise ModelError(
                f"[{index}]", f"a value of type {held} is not a tuple", "Use it without an index."
            )
        if not -len(held.fields) <= index < len(held.fields):
            raise ModelError(
                f"[{index}]", f"the tuple has {len(held.fields)} values", "Count from 0."
            )
        self.index = index % len(held.fields)
        self._type = held.fields[self.index]


class Function(Expr):
    """`params -> body`.

    params: one whose name an earlier one has is called NAME_1 from here on
    attrs: of a fused group its `name`; otherwise empty.
    ret_type: checked where it is known what the body gives
    type_params: type variables that each call may put other types for
    free: variables of an outer function, or of a network, that the body reads
    is_functional: whether it is more than operators of tensors (`functional.py`)
    Raises ModelError for a parameter listed twice.
    """

    __slots__ = ("attrs", "body", "free", "is_functional", "params", "told_ret_type", "type_params")

    @door(ModelError)
    def __init__(
        self,
        params: Sequence[Var],
        body: Expr,
        ret_type: AnyType | None = None,
        type_params: Sequence[TypeVar] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> None:
        self.params, self.body = tuple(params), body
        self.told_ret_type, self.type_params = ret_type, tuple(type_params or ())
        self.attrs = attrs if isinstance(attrs, Attrs) else Attrs(attrs or {})
        names = [p.name_hint for p in self.params]
        place = f"Function({', '.join(names)})"
        if len(set(names)) < len(names):
            name_apart(self.params, place)
        known = set(self.params)
        nodes = post_order(body)
        self.free = tuple(v for v in _free_among(nodes) if v not in known)
        self.is_functional = bool(self.free or self.type_params) or any(
            map(_is_functional, (*self.params, *nodes))
        )
        open_ = self.is_functional or body.waits or _any_waits(self.params)
        self._type = WAITING if open_ else body.checked_type
        if ret_type is not None and ret_type != self._type and not open_:
            raise ModelError(
                place, f"the body has type {self._type}, not {ret_type}", "Leave ret_type out."
            )

    def with_attr(self, attr_key: str, attr_value: Any) -> Function:
        """The same function with one more attribute, which makes it a group of its own."""
        return self.with_body(self.body, {attr_key: attr_value})

    def with_body(self, body: Expr, more: Mapping[str, Any] | None = None) -> Function:
        """The same of another body, with more attributes."""
        told = self.told_ret_type if self.is_functional else None
        return Function(self.params, body, told, self.type_params, {**self.attrs, **(more or {})})

    @property
    def checked_type(self) -> Any:
        """What it takes and gives."""
        if self.waits:
            from tilewright.graph.later import inferred

            if (found := inferred(self)) is not None:
                return found
        return FuncType(tuple(p.checked_type for p in self.params), self.ret_type)

    @property
    def known_type(self) -> Any:
        """What it takes and gives.  Raises NotYet where that waits."""
        return FuncType(tuple(p.known_type for p in self.params), self.body.known_type)

    @property
    def ret_type(self) -> Type:
        return self.body.checked_type

    def __call__(self, *args: Any) -> Expr:
        """A call of this function; relay.build puts its body in the call's place."""
        made: Expr = Call(self, args)
        return made

    def closed(self) -> Function:
        """Itself.  Raises ModelError where its body reads variables of others."""
        if self.free:
            params, free = (", ".join(v.name_hint for v in vs) for vs in (self.params, self.free))
            raise ModelError(
                f"Function({params})", f"the body reads {free}, which is no parameter",
                "List it in params, or use relay.analysis.free_vars(body).",
            )  # fmt: skip
        return self

    def infer(self, args: tuple[Expr, ...], attrs: Attrs) -> Type:
        """The type of a call of this function; ModelError unless the arguments fit."""
        self.check(args)
        return self.ret_type

    def check(self, args: Sequence[Expr]) -> None:
        """Raise ModelError unless the arguments fit."""
        place = f"call of {self.attrs.get('name', 'a function')}"
        if len(args) != len(self.params):
            raise ModelError(
                place, f"{len(args)} arguments for {len(self.params)} parameters",
                f"Give {', '.join(p.name_hint for p in self.params)}.",
            )  # fmt: skip
        for arg, p in zip(args, self.params, strict=True):
            if not isinstance(arg, Expr):
                raise ModelError(
                    place, f"a {type(arg).__name__} is not a graph value", "Use relay.const."
                )
            if arg.checked_type != p.checked_type:
                raise ModelError(
                    place,
                    f"{p.name_hint} has type {p.checked_type}, the argument {arg.checked_type}",
                    "Convert with relay.reshape or relay.cast.",
                )


class IRModule(Definitions, Printed):
    """Functions by name, and data types; a network is the function called "main"."""

    @door(ModelError)
    def __init__(
        self,
        functions: Mapping[str, Function] | None = None,
        type_definitions: Mapping[GlobalTypeVar, TypeData] | None = None,
    ) -> None:
        super().__init__(type_definitions)
        self.functions: dict[str, Function] = {}
        for name, function in (functions or {}).items():
            self[name] = function

    @staticmethod
    @door(ModelError)
    def from_expr(expr: Expr, functions: Mapping[str, Function] | None = None) -> IRModule:
        """A module whose main is `expr`, a function or an expression over variables."""
        main = expr if isinstance(expr, Function) else Function(free_vars(expr), expr)
        return IRModule({**(functions or {}), "main": main})

    @overload
    def __getitem__(self, name: str) -> Function: ...
    @overload
    def __getitem__(self, name: GlobalTypeVar) -> TypeData: ...

    @door(ModelError)
    def __getitem__(self, name: str | GlobalTypeVar) -> Function | TypeData:
        """The function of this name; the definition of a data type.  Raises ModelError."""
        if isinstance(name, GlobalTypeVar):
            return self.type_definition(name)
        if name in self.functions:
            return self.functions[name]
        raise ModelError(
            f"mod[{name!r}]",
            "there is no such function",
            f"It has {', '.join(self.functions) or 'none'}.",
        )

    def __setitem__(self, name: str | GlobalTypeVar, function: Any) -> None:
        if isinstance(name, GlobalTypeVar):
            return self.define(name, function)
        if not isinstance(function, Function):
            function = Function(free_vars(function), function)
        self.functions[GlobalVar(name)] = function.closed()
        if isinstance(name, GlobalVar) and name.function is None:  # what passes make is for builds
            name.function = function

    def __contains__(self, name: object) -> bool:
        return name in self.functions

    def __len__(self) -> int:
        return len(self.functions)

    @door(ModelError)
    def get_global_var(self, name: str) -> GlobalVar:
        """The name of a function that is there.  Raises ModelError."""
        return GlobalVar(name, self[name])

    def get_global_vars(self) -> list[GlobalVar]:
        """The names of all functions."""
        return [self.get_global_var(name) for name in self.functions]

    @door(ModelError)
    def update_func(self, var: str, func: Function) -> None:
        """Put a function in the place of the one called `var`.  Raises ModelError without one."""
        self[var]
        self[var] = func

    def update(self, other: IRModule | Mapping[str, Function]) -> None:
        """Add the functions of another module, which replace those of the same names."""
        mapping = other.functions if isinstance(other, IRModule) else IRModule(other).functions
        self.functions.update(mapping)
        if isinstance(other, IRModule):
            self.type_definitions.update(other.type_definitions)

    def shallow_copy(self) -> IRModule:
        """Another module with the same functions."""
        return IRModule(self.functions, self.type_definitions)


# -- the order of a graph; `traversal.py` has what is built on it
def children(node: Expr) -> tuple[Expr, ...]:
    """The values `node` reads, in order; a repeated one is repeated."""
    if isinstance(node, Call):
        return node.args if node.callee is None else (node.callee, *node.args)
    if isinstance(node, Tuple):
        return node.fields
    if isinstance(node, TupleGetItem):
        return (node.tuple_value,)
    return node.parts


def post_order(root: Expr, read: Callable[[Expr], Sequence[Expr]] = children) -> list[Expr]:
    """Every node under `root`, each once, arguments before their reader, left to right.

    read: what of a node counts
    """
    done: dict[Expr, None] = {}
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        node, entered = stack.pop()
        if node in done:
            continue
        if entered:
            done[node] = None
            continue
        stack.append((node, True))
        stack.extend((c, False) for c in reversed(read(node)) if c not in done)
    return list(done)


def free_vars(expr: Expr) -> list[Var]:
    """The variables under `expr` that get no value in it, in the order they are reached."""
    return _free_among(post_order(expr))


def _free_among(nodes: Sequence[Expr]) -> list[Var]:
    found: dict[Var, None] = {}
    bound = {v for n in nodes for v in n.binds}
    for n in nodes:
        if isinstance(n, Var):
            found[n] = None
        elif isinstance(n, Function):
            found.update(dict.fromkeys(n.free))
    return [v for v in found if v not in bound] if bound else list(found)


def _is_functional(node: Expr) -> bool:
    if isinstance(node, Var):
        return holds_data(node._type)
    return node.is_functional or isinstance(node, Function)
