"""Types of values that are no tensors: of functions, of users' data types, of references.

In: other types.  Out: types; equal ones are equal, whatever the type variables that they bind are
called.  Read next: `types.py` (tensors and tuples), `functional.py` (values of these types).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base.doors import door
from tilewright.base.errors import ModelError

if TYPE_CHECKING:
    from tilewright.graph.functional import Constructor

# A type of any value; `types.Type` are those of tensors and tuples.
AnyType = Any


class TypeKind(enum.Enum):
    """What a type variable stands for: types of values, a data type."""

    Type = 0
    AdtHandle = 5


class DataType:
    """What the types of this module are: types of values that are no tensors."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DataType) and same_type(self, other)

    def __hash__(self) -> int:
        return hash(type(self).__name__)


class FuncType(DataType):
    """What a function takes and gives; `relay.Function.checked_type`.

    type_params: the variables that each call may put other types for
    """

    __slots__ = ("arg_types", "ret_type", "type_params")

    def __init__(
        self,
        arg_types: Sequence[AnyType],
        ret_type: AnyType,
        type_params: Sequence[TypeVar] | None = None,
        type_constraints: Sequence[Any] | None = None,
    ) -> None:
        if type_constraints:
            raise ModelError(
                "relay.FuncType", "type_constraints are given", "Leave them out: operators have "
                "rules of their own.",
            )  # fmt: skip
        self.arg_types = listed_types(arg_types, "relay.FuncType")
        self.ret_type: AnyType = ret_type
        self.type_params = tuple(type_params or ())

    def __str__(self) -> str:
        bound = f"[{', '.join(map(str, self.type_params))}]" if self.type_params else ""
        return f"fn {bound}({', '.join(map(str, self.arg_types))}) -> {self.ret_type}"

    __repr__ = __str__


class TypeVar(DataType):
    """A type that the caller of a function, or the user of a data type, chooses."""

    __slots__ = ("kind", "name")

    @door(ModelError)
    def __init__(self, name: str, kind: TypeKind = TypeKind.Type) -> None:
        self.name, self.kind = name, kind

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


class GlobalTypeVar(DataType):
    """The name of a data type.  `name(types)` is the type with types for its variables.

    data: its definition, since there is one
    """

    __slots__ = ("data", "kind", "name_hint")

    @door(ModelError)
    def __init__(self, name_hint: str, kind: TypeKind = TypeKind.AdtHandle) -> None:
        self.name_hint, self.kind = name_hint, kind
        self.data: TypeData | None = None

    def __call__(self, *args: AnyType) -> TypeCall:
        return TypeCall(self, args)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalTypeVar) and other.name_hint == self.name_hint

    def __hash__(self) -> int:
        return hash(self.name_hint)

    def __str__(self) -> str:
        return self.name_hint

    __repr__ = __str__


class TypeCall(DataType):
    """A data type with types for its variables: List[int32].

    Raises ModelError where it is given another number of them than it has.
    """

    __slots__ = ("args", "func")

    @door(ModelError)
    def __init__(self, func: GlobalTypeVar, args: Sequence[AnyType]) -> None:
        self.func, self.args = func, listed_types(args, f"{func}")
        count = len(func.data.type_vars) if func.data is not None else len(self.args)
        if len(self.args) != count:
            raise ModelError(
                f"{func}({', '.join(map(str, self.args))})",
                f"{len(self.args)} types are given, it has {count} variables", "Give one for each.",
            )  # fmt: skip

    def __str__(self) -> str:
        return f"{self.func}[{', '.join(map(str, self.args))}]" if self.args else str(self.func)

    __repr__ = __str__


class RefType(DataType):
    """Of a reference to a value of type `value`."""

    __slots__ = ("value",)

    def __init__(self, value: AnyType) -> None:
        (self.value,) = listed_types([value], "relay.RefType")

    def __str__(self) -> str:
        return f"ref({self.value})"

    __repr__ = __str__


class TypeData:
    """The definition of a data type: one of several constructors, each with its fields.

    header: its name; type_vars: variables that fields may have as types
    A module has it by `mod[header] = data`.
    """

    @door(ModelError)
    def __init__(
        self,
        header: GlobalTypeVar,
        type_vars: Sequence[TypeVar],
        constructors: Sequence[Constructor],
    ) -> None:
        self.header, self.type_vars = header, tuple(type_vars)
        self.constructors = tuple(constructors)
        for k, constructor in enumerate(self.constructors):
            if constructor.belong_to != header:
                raise ModelError(
                    f"relay.TypeData({header})",
                    f"{constructor.name_hint} belongs to {constructor.belong_to}",
                    f"Give relay.Constructor(name, types, {header}).",
                )  # fmt: skip
            constructor.tag = k
        header.data = self

    def __str__(self) -> str:
        bound = f"[{', '.join(map(str, self.type_vars))}]" if self.type_vars else ""
        cases = [
            f"{c.name_hint}({', '.join(map(str, c.inputs))})" if c.inputs else c.name_hint
            for c in self.constructors
        ]
        lines = "".join(f"  {case},\n" for case in cases)
        return f"type {self.header}{bound} {{\n{lines}}}"


def listed_types(types: Any, place: str) -> tuple[AnyType, ...]:
    """Types as a tuple; one alone is one.  Raises ModelError for what is none."""
    found = tuple(types) if isinstance(types, Sequence) and not isinstance(types, str) else (types,)
    if wrong := [t for t in found if not is_type(t)]:
        raise ModelError(
            f"{place}({wrong[0]!r})", "it is no type of a value",
            "Give a list of relay.TensorType(shape, dtype), or of other types of relay.",
        )  # fmt: skip
    return found


def is_type(value: object) -> bool:
    """Whether it is the type of a value, of a tensor or of another one."""
    return isinstance(value, DataType) or hasattr(value, "concrete_shape") or _is_tuple(value)


def holds_data(kind: object) -> bool:
    """Whether values of this type are, or have in them, something that is no tensor."""
    if _is_tuple(kind):
        return any(map(holds_data, kind.fields))  # type: ignore[attr-defined]
    return isinstance(kind, DataType)


def same_type(a: AnyType, b: AnyType, there: dict[TypeVar, TypeVar] | None = None) -> bool:
    """Whether they are one type; there: which bound variable of `b` stands for one of `a`."""
    there = there or {}
    if isinstance(a, TypeVar) or isinstance(b, TypeVar):
        return there.get(a, a) is b
    if _is_tuple(a) and _is_tuple(b):
        return _all_same(a.fields, b.fields, there)
    if type(a) is not type(b):
        return False
    if isinstance(a, FuncType):
        if len(a.type_params) != len(b.type_params):
            return False
        there = {**there, **dict(zip(a.type_params, b.type_params, strict=True))}
        return _all_same((*a.arg_types, a.ret_type), (*b.arg_types, b.ret_type), there)
    if isinstance(a, TypeCall):
        return bool(a.func == b.func) and _all_same(a.args, b.args, there)
    if isinstance(a, RefType):
        return same_type(a.value, b.value, there)
    return bool(a == b)


def _all_same(
    some: Sequence[AnyType], others: Sequence[AnyType], there: dict[TypeVar, TypeVar]
) -> bool:
    pairs = zip(some, others, strict=False)
    return len(some) == len(others) and all(same_type(a, b, there) for a, b in pairs)


def _is_tuple(value: object) -> bool:
    """Whether it is the type of a tuple, which `types.py` has; a tuple itself has one."""
    return hasattr(value, "fields") and not hasattr(value, "checked_type")
