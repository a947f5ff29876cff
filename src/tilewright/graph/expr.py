"""The graph of a network: the few kinds of node a graph is made of, and modules of functions.

In: operators from the table and Python values.  Out: immutable, typed nodes; a shared node is a
value that is read several times.  Read next: `types.py`, `deferred.py` (nodes whose types values
decide), `traversal.py` (walks and rewrites), `printer.py`, `op/row.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base.doors import door
from tilewright.base.dtype import DType
from tilewright.base.errors import ModelError
from tilewright.base.printed import Printed
from tilewright.graph.attrs import Attrs as Attrs
from tilewright.graph.extension import extension
from tilewright.graph.left_out import left_out
from tilewright.graph.types import WAITING, Waiting
from tilewright.graph.types import Array as Array
from tilewright.graph.types import FuncType as FuncType
from tilewright.graph.types import Held as Held
from tilewright.graph.types import IncompleteType as IncompleteType
from tilewright.graph.types import OtherType as OtherType
from tilewright.graph.types import TensorType as TensorType
from tilewright.graph.types import TupleType as TupleType
from tilewright.graph.types import Type as Type
from tilewright.graph.types import as_array as as_array
from tilewright.graph.types import check_dtype as check_dtype
from tilewright.graph.types import oversize as oversize
from tilewright.graph.types import static_shape as static_shape

if TYPE_CHECKING:
    from tilewright.graph.deferred import Deferred
    from tilewright.graph.op.row import Op


class Expr(Printed):
    """A value of the graph.  Nodes compare by identity; `checked_type` is known once built.

    parts:  the values it reads, in order; a repeated one is repeated
    binds:  variables that have a value in some of its parts only
    free:   variables that it reads and that are not among its parts
    origin: of a value whose extents are open, how it is made for numbers
    layers: names of the layers of a model that it is of; see `layers.py`
    """

    door_words = ("a value of a graph", "var and const make them.")

    __slots__ = ("__weakref__", "_type", "layers", "origin")

    _type: Type | Waiting | None
    origin: Deferred
    layers: tuple[str, ...]
    parts: tuple[Expr, ...] = ()
    binds: tuple[Var, ...] = ()
    free: tuple[Var, ...] = ()

    def with_parts(self, parts: Sequence[Expr]) -> Expr:
        """Make the same of other parts."""
        return self

    @property
    def waits(self) -> bool:
        """Whether its type is not known yet: values decide it, or variables have none."""
        return self._type is WAITING or self._type is None

    @property
    def checked_type(self) -> Type:
        """Its type.  Of a value that waits, what can be told: `relay.Any()` stands for extents that
        values decide.

        Raises NotYet where not even the rank can.
        """
        return self._told(partly=True) if self.waits else self.known_type

    @property
    def known_type(self) -> Type:
        """Its type, with which things are computed.  Raises NotYet where it waits."""
        if self._type is None or isinstance(self._type, Waiting):
            return self._told(partly=False)
        return self._type

    def _told(self, partly: bool) -> Type:
        found: Type | None = extension().type_of(self, partly)
        if found is None:
            raise extension().not_typed(self)
        return found

    @property
    def tensor_type(self) -> TensorType:
        """The type of a single tensor; ModelError for a tuple."""
        found: Type | OtherType = self.known_type
        if isinstance(found, TensorType):
            return found
        if isinstance(found, OtherType):
            raise ModelError(str(self), f"{found.words} where a tensor is needed", found.way_out)
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
        return call_of(self, args)

    def as_numbers(self) -> Any:
        """A number, or a list of them, where the value is known before anything runs; else None."""
        return extension().numbers(self)

    def await_numbers(self, fits: Callable[[Any], bool]) -> None:
        """Raises NotYet where `fits` takes such numbers: they are known when the network runs."""
        extension().await_numbers(self, fits)

    def astype(self, dtype: str) -> Expr:
        """Converted, as by `relay.cast`."""
        return extension().call("cast", self, dtype=str(check_dtype(dtype, "astype")))

    # -- `a + b`: one of them may be a number
    def __add__(self, other: Any) -> Expr:
        return extension().operation("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return extension().operation("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return extension().operation("subtract", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return extension().operation("subtract", other, self)

    def __mul__(self, other: Any) -> Expr:
        return extension().operation("multiply", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return extension().operation("multiply", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return extension().operation("divide", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return extension().operation("divide", other, self)

    def __lt__(self, other: Any) -> Expr:
        return extension().operation("less", self, other)

    def __le__(self, other: Any) -> Expr:
        return extension().operation("less_equal", self, other)

    def __gt__(self, other: Any) -> Expr:
        return extension().operation("greater", self, other)

    def __ge__(self, other: Any) -> Expr:
        return extension().operation("greater_equal", self, other)

    def __neg__(self) -> Expr:
        return extension().call("negative", self)


def call_of(function: Any, args: Sequence[Any]) -> Expr:
    """Make the call of a function, or of its name."""
    made = extension().called(function, args)
    return Call(function, args) if made is None else made


def _any_waits(values: Sequence[Any]) -> bool:
    return any(isinstance(v, Expr) and v.waits for v in values)


class Var(Expr):
    """A parameter of a function.  Without a type it takes the one its first operator asks for.

    open_extents: names by axis of extents for which others stand until the network is built
    """

    __slots__ = ("name_hint", "open_extents")

    def __init__(
        self,
        name_hint: str,
        type_annotation: Type | OtherType | IncompleteType | None = None,
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
    """An operator, or a function of tensors, applied to arguments."""

    __slots__ = ("args", "attrs", "op")

    def __init__(
        self, op: Any, args: Sequence[Any], attrs: Mapping[str, Any] | None = None
    ) -> None:
        op = getattr(op, "function", op)  # of a name
        if not hasattr(op, "infer"):
            raise ModelError(
                f"relay.Call({op!r})", "it is no operator",
                "Give a row of the operator table or a Function.",
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
            self.op = op = extension().for_arguments(op, self.args)
        self._type = op.infer(self.args, self.attrs)
        follows = getattr(op, "follows", None)
        if follows is not None:
            self.attrs = Attrs(self.attrs, follows([a.tensor_type for a in self.args], self.attrs))

    @property
    def parts(self) -> tuple[Expr, ...]:  # type: ignore[override]
        return self.args

    def with_parts(self, parts: Sequence[Expr]) -> Expr:
        if isinstance(self.op, Function) and (made := extension().called(self.op, parts)):
            return made
        return Call(self.op, parts, self.attrs)

    @property
    def usual(self) -> Mapping[str, Any]:
        """The attributes that its text leaves out."""
        return {} if isinstance(self.op, Function) else left_out(self.op.name, self.op.attrs)


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

    @property
    def parts(self) -> tuple[Expr, ...]:  # type: ignore[override]
        return self.fields

    def with_parts(self, parts: Sequence[Expr]) -> Expr:
        return Tuple(parts)

    def __getitem__(self, index: int) -> Expr:
        """The value itself; relay.TupleGetItem makes a node that picks it."""
        return self.fields[TupleGetItem(self, index).index]

    def __iter__(self) -> Iterator[Expr]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)


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

    @property
    def parts(self) -> tuple[Expr, ...]:  # type: ignore[override]
        return (self.tuple_value,)

    def with_parts(self, parts: Sequence[Expr]) -> Expr:
        return TupleGetItem(parts[0], self.index)


class Function(Expr):
    """`params -> body`, of tensors.

    params: one whose name an earlier one has is called NAME_1 from here on
    attrs: of a fused group its `name`; otherwise empty.
    Raises ModelError for a parameter listed twice.
    """

    door_words = ("a Function", "Function(params, body) makes one.")

    __slots__ = ("attrs", "body", "params")

    def __init__(
        self, params: Sequence[Var], body: Expr, attrs: Mapping[str, Any] | None = None
    ) -> None:
        self.params, self.body = tuple(params), body
        self.attrs = attrs if isinstance(attrs, Attrs) else Attrs(attrs or {})
        if len({p.name_hint for p in self.params}) < len(self.params):
            _name_apart(self.params)
        waits = body.waits or _any_waits(self.params)
        self._type = WAITING if waits else body.checked_type

    def with_attr(self, attr_key: str, attr_value: Any) -> Function:
        """The same function with one more attribute, which makes it a group of its own."""
        return self.with_body(self.body, {attr_key: attr_value})

    def with_body(self, body: Expr, more: Mapping[str, Any] | None = None) -> Function:
        """The same of another body, with more attributes."""
        return Function(self.params, body, {**self.attrs, **(more or {})})

    @property
    def checked_type(self) -> Any:
        """What it takes and gives."""
        if self.waits and (found := extension().type_of(self, partly=False)) is not None:
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
        return call_of(self, args)

    def closed(self) -> Function:
        """Itself.  Raises ModelError where its body reads variables of others."""
        if free := [v for v in free_vars(self.body) if v not in set(self.params)]:
            params, names = (", ".join(v.name_hint for v in vs) for vs in (self.params, free))
            raise ModelError(
                f"Function({params})", f"the body reads {names}, which is no parameter",
                "List it in params.",
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
                    place, f"a {type(arg).__name__} is not a graph value", "Wrap it: const(x)."
                )
            if arg.checked_type != p.checked_type:
                raise ModelError(
                    place,
                    f"{p.name_hint} has type {p.checked_type}, the argument {arg.checked_type}",
                    "Reshape or cast it.",
                )


def _name_apart(params: Sequence[Var]) -> None:
    """Give parameters with names of others names of their own: values are given by name."""
    if len(set(params)) < len(params):
        names = ", ".join(p.name_hint for p in params)
        raise ModelError(
            f"Function({names})", "a parameter is listed twice", "List each variable once."
        )
    taken: set[str] = set()
    for p in params:
        name, k = p.name_hint, 0
        while name in taken:
            k += 1
            name = f"{p.name_hint}_{k}"
        p.name_hint = name
        taken.add(name)


class GlobalVar(str):
    """The name of a function in a module.

    function: what it is called with, since `mod[name] = function`
    """

    function: Function | None

    def __new__(cls, name_hint: str, function: Function | None = None) -> GlobalVar:
        if not isinstance(name_hint, str):
            raise ModelError(f"relay.GlobalVar({name_hint!r})", "it is no name", 'Give "main".')
        name = super().__new__(cls, name_hint)
        name.function = function
        return name

    @property
    def name_hint(self) -> str:
        return str(self)

    def __call__(self, *args: Any) -> Expr:
        """A call of the function."""
        return call_of(self, args)


class IRModule(Printed):
    """Functions by name; a network is the function called "main"."""

    door_words = ("a module", "IRModule.from_expr(function) makes one.")

    @door(ModelError)
    def __init__(self, functions: Mapping[str, Function] | None = None) -> None:
        self.functions: dict[str, Function] = {}
        for name, function in (functions or {}).items():
            self[name] = function

    @classmethod
    def from_expr(cls, expr: Expr, functions: Mapping[str, Function] | None = None) -> IRModule:
        """A module whose main is `expr`, a function or an expression over variables."""
        return cls({**(functions or {}), "main": cls.function_of(expr)})

    @staticmethod
    def function_of(expr: Expr) -> Function:
        """A function as it is; of an expression the function of its variables."""
        return expr if isinstance(expr, Function) else Function(free_vars(expr), expr)

    def with_functions(self, functions: Mapping[str, Function]) -> IRModule:
        """A module of these functions, with all else that this one has."""
        return IRModule(functions)

    @door(ModelError)
    def __getitem__(self, name: str) -> Function:
        """The function of this name.  Raises ModelError."""
        if name in self.functions:
            return self.functions[name]
        raise ModelError(
            f"mod[{name!r}]",
            "there is no such function",
            f"It has {', '.join(self.functions) or 'none'}.",
        )

    def __setitem__(self, name: str, function: Expr) -> None:
        if not isinstance(function, Expr):
            raise ModelError(
                f"mod[{name!r}]", f"a {type(function).__name__} is no function",
                "Give a function, or a value over variables.",
            )  # fmt: skip
        made = self.function_of(function)
        self.functions[GlobalVar(name)] = made.closed()
        if isinstance(name, GlobalVar) and name.function is None:  # what passes make is for builds
            name.function = made

    def __contains__(self, name: object) -> bool:
        return name in self.functions

    def __len__(self) -> int:
        return len(self.functions)


# -- the order of a graph; `traversal.py` has what is built on it
def children(node: Expr) -> tuple[Expr, ...]:
    """The values `node` reads, in order; a repeated one is repeated."""
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
    found: dict[Var, None] = {}
    nodes = post_order(expr)
    for n in nodes:
        found.update(dict.fromkeys((n,) if isinstance(n, Var) else n.free))
    bound = {v for n in nodes for v in n.binds}
    return [v for v in found if v not in bound] if bound else list(found)
