"""The data types of a module.

In: names and definitions.  Out: constructors by name.  Read next: `data_types.py`, `expr.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ModelError
from tilewright.graph.data_types import GlobalTypeVar, TypeData


class Definitions:
    """What `IRModule` has of it.

    type_definitions: by name
    on_demand: told of a data type that is asked for and not there, which it may add
    """

    type_definitions: dict[GlobalTypeVar, TypeData]
    on_demand: Callable[[str], None] | None = None

    def __init__(self, type_definitions: Mapping[GlobalTypeVar, TypeData] | None = None) -> None:
        self.type_definitions = dict(type_definitions or {})

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
        known = import_module("tilewright.functional.standard").FILES
        if file_name not in known:
            raise ModelError(
                f"mod.import_from_std({file_name!r})", "there is no such file",
                f"Use one of {', '.join(known)}.",
            )  # fmt: skip
        known[file_name](self)
