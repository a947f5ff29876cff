"""Types of values that are no tensors: of users' data types, of references, type variables.

In: other types.  Out: types; equal ones are equal, whatever the type variables that they bind are
called.  Read next: `graph/types.py` (those of networks), `nodes.py` (values of these types).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base.doors import door
from tilewright.base.errors import ModelError
from tilewright.graph.types import AnyType, OtherType, all_same, listed_types, same_type

if TYPE_CHECKING:
    from tilewright_tvm.relay.functional.nodes import Constructor


class TypeKind(enum.Enum):
    """What a type variable stands for: types of values, a data type."""

    Type = 0
    AdtHandle = 5


class DataType(OtherType):
    """What the types of this module are."""

    __slots__ = ()

    way_out = "Take a tensor out of it, with relay.Match or relay.RefRead."


class TypeVar(DataType):
    """A type that the caller of a function, or the user of a data type, chooses."""

    __slots__ = ("kind", "name")

    @door(ModelError)
    def __init__(self, name: str, kind: TypeKind = TypeKind.Type) -> None:
        self.name, self.kind = name, kind

    def is_same(self, other: Any, there: Mapping[Any, Any]) -> bool:
        return there.get(self, self) is other

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

    def is_same(self, other: Any, there: Mapping[Any, Any]) -> bool:
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

    def is_same(self, other: Any, there: Mapping[Any, Any]) -> bool:
        same = type(other) is TypeCall and self.func == other.func
        return same and all_same(self.args, other.args, there)

    def __str__(self) -> str:
        return f"{self.func}[{', '.join(map(str, self.args))}]" if self.args else str(self.func)

    __repr__ = __str__


class RefType(DataType):
    """Of a reference to a value of type `value`."""

    __slots__ = ("value",)

    def __init__(self, value: AnyType) -> None:
        (self.value,) = listed_types([value], "relay.RefType")

    def is_same(self, other: Any, there: Mapping[Any, Any]) -> bool:
        return type(other) is RefType and same_type(self.value, other.value, there)

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
            if not hasattr(constructor, "belong_to"):
                raise ModelError(
                    f"relay.TypeData({header})",
                    f"a {type(constructor).__name__} is no constructor",
                    f"Give relay.Constructor(name, types, {header}).",
                )  # fmt: skip
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
