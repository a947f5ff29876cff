"""Modules with data types.

In: functions, names and definitions.  Out: constructors by name.
Read next: `data_types.py`, `graph/expr.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, overload

from tilewright.base.doors import door
from tilewright.base.errors import ModelError
from tilewright.graph import expr as nodes
from tilewright.graph.expr import Expr, GlobalVar, free_vars
from tilewright_tvm.relay.functional.data_types import GlobalTypeVar, TypeData
from tilewright_tvm.relay.functional.nodes import make_function


@door(ModelError, "IRModule.get_global_var")
def _global_var(self: nodes.IRModule, name: str) -> GlobalVar:
    """Name a function that is there.  Raises ModelError."""
    return GlobalVar(name, self[name])


def _global_vars(self: nodes.IRModule) -> list[GlobalVar]:
    """Name all functions."""
    return [GlobalVar(name, function) for name, function in self.functions.items()]


@door(ModelError, "IRModule.update_func")
def _update_func(self: nodes.IRModule, var: str, func: nodes.Function) -> None:
    """Put a function in the place of the one called `var`.  Raises ModelError without one."""
    self[var]
    self[var] = func


def _update(self: nodes.IRModule, other: nodes.IRModule | Mapping[str, nodes.Function]) -> None:
    """Add the functions of another module, which replace those of the same names."""
    mapping = other if isinstance(other, nodes.IRModule) else type(self)(other)
    self.functions.update(mapping.functions)


def _shallow_copy(self: nodes.IRModule) -> nodes.IRModule:
    """Make another module with the same functions."""
    return self.with_functions(self.functions)


# Names that TVM has on modules.
OF_MODULES: dict[str, Any] = {
    "get_global_var": _global_var,
    "get_global_vars": _global_vars,
    "shallow_copy": _shallow_copy,
    "update": _update,
    "update_func": _update_func,
}


class _Module(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, nodes.IRModule)


class IRModule(nodes.IRModule, metaclass=_Module):
    """Functions by name, and data types; a network is the function called "main".

    type_definitions: by name
    on_demand: told of a data type that is asked for and not there, which it may add
    """

    on_demand: Callable[[str], None] | None = None

    @door(ModelError)
    def __init__(
        self,
        functions: Mapping[str, nodes.Function] | None = None,
        type_definitions: Mapping[GlobalTypeVar, TypeData] | None = None,
    ) -> None:
        self.type_definitions = dict(type_definitions or {})
        super().__init__(functions)

    @classmethod
    @door(ModelError)
    def from_expr(
        cls, expr: Expr, functions: Mapping[str, nodes.Function] | None = None
    ) -> nodes.IRModule:
        return super().from_expr(expr, functions)

    @staticmethod
    def function_of(expr: Expr) -> nodes.Function:
        if isinstance(expr, nodes.Function):
            return expr
        return make_function(free_vars(expr), expr)

    def with_functions(self, functions: Mapping[str, nodes.Function]) -> nodes.IRModule:
        return IRModule(functions, self.type_definitions)

    @overload
    def __getitem__(self, name: str) -> nodes.Function: ...
    @overload
    def __getitem__(self, name: GlobalTypeVar) -> TypeData: ...

    @door(ModelError)
    def __getitem__(self, name: str | GlobalTypeVar) -> nodes.Function | TypeData:
        """The function of this name; the definition of a data type.  Raises ModelError."""
        if isinstance(name, GlobalTypeVar):
            return self.type_definition(name)
        return super().__getitem__(name)

    def __setitem__(self, name: str | GlobalTypeVar, value: Any) -> None:
        if isinstance(name, GlobalTypeVar):
            return self.define(name, value)
        super().__setitem__(name, value)

    def __str__(self) -> str:
        return "\n\n".join(
            filter(None, [*map(str, self.type_definitions.values()), super().__str__()])
        )

    get_global_var, get_global_vars = _global_var, _global_vars
    update_func, shallow_copy = _update_func, _shallow_copy

    def update(self, other: nodes.IRModule | Mapping[str, nodes.Function]) -> None:
        _update(self, other)
        self.type_definitions.update(types_of(other))

    @door(ModelError)
    def define(self, name: GlobalTypeVar, data: TypeData) -> None:
        """Add a data type, as `mod[name] = data` does.  Raises ModelError for another's name."""
        if data.header != name:
            raise ModelError(f"mod[{name}]", f"it defines {data.header}", "Use that name.")
        self.type_definitions[name] = data

    @door(ModelError)
    def type_definition(self, name: GlobalTypeVar) -> TypeData:
        """Of the data type of this name.  Raises ModelError."""
        if name not in self.type_definitions and self.on_demand is not None:
            self.on_demand(name.name_hint)
        if name in self.type_definitions:
            return self.type_definitions[name]
        raise ModelError(
            f"mod[{name}]", "there is no such data type",
            f"It has {', '.join(map(str, self.type_definitions)) or 'none'}.",
        )  # fmt: skip

    @door(ModelError)
    def get_global_type_var(self, name: str) -> GlobalTypeVar:
        """The data type called `name`.  Raises ModelError."""
        return self.type_definition(GlobalTypeVar(name)).header

    @door(ModelError)
    def get_type(self, type_name: str) -> tuple[Any, ...]:
        """The data type called `type_name`, and its constructors.  Raises ModelError."""
        data = self.type_definition(GlobalTypeVar(type_name))
        return data.header, *data.constructors

    def get_global_type_vars(self) -> list[GlobalTypeVar]:
        """The names of all data types."""
        return list(self.type_definitions)

    @door(ModelError)
    def get_constructor(self, adt: str, cons: str) -> Any:
        """A constructor of the data type `adt`, by its name.  Raises ModelError."""
        _, *constructors = self.get_type(adt)
        for constructor in constructors:
            if constructor.name_hint == cons:
                return constructor
        raise ModelError(
            f"mod.get_constructor({adt!r}, {cons!r})", "there is no such constructor",
            f"It has {', '.join(c.name_hint for c in constructors)}.",
        )  # fmt: skip

    @door(ModelError)
    def import_from_std(self, file_name: str) -> None:
        """Add functions and data types that come with Relay: "prelude.rly", "nat.rly".

        Raises ModelError for another file.
        """
        known = import_module("tilewright_tvm.relay.functional.standard").FILES
        if file_name not in known:
            raise ModelError(
                f"mod.import_from_std({file_name!r})", "there is no such file",
                f"Use one of {', '.join(known)}.",
            )  # fmt: skip
        known[file_name](self)


def types_of(mod: object) -> dict[GlobalTypeVar, TypeData]:
    """The data types of a module; of a network there are none."""
    return getattr(mod, "type_definitions", {})


@door(ModelError, "IRModule._add")
def add(mod: nodes.IRModule, var: str | GlobalTypeVar, val: Any, update: bool = False) -> None:
    """Add a function or a data type, as `mod[var] = val` does.

    update: there may be one of that name
    Raises ModelError where there is one, and it may not.
    """
    taken = var in types_of(mod) if isinstance(var, GlobalTypeVar) else var in mod
    if taken and not update:
        raise ModelError(
            f"mod._add({var})", "there is one of that name", "Pass True as the third argument."
        )
    mod[var] = val  # type: ignore[index]
