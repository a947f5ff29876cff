"""`Modules`: several functions that were built by one call.

In: modules.  Out: each by its name, as `m["add"]`.  Read next: `module.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilewright.base import plugins
from tilewright.base.doors import door
from tilewright.base.errors import DeviceError
from tilewright.runtime.module import Module


class Modules:
    """The functions by name, in the order in which they were given.  Calling it runs the first."""

    def __init__(self, parts: Sequence[Module]) -> None:
        self.functions = {part.entry_name: part for part in parts}

    def __getattr__(self, name: str) -> Any:
        raise plugins.absent("Modules", name)

    def __getitem__(self, name: str) -> Module:
        return self.get_function(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    @property
    def entry_name(self) -> str:
        return next(iter(self.functions))

    @door(DeviceError)
    def get_function(self, name: str, query_imports: bool = False) -> Module:
        found = self.functions.get(name)
        if found is None:
            raise DeviceError(
                f"get_function({name!r})", f"the functions are {', '.join(self.functions)}"
            )
        return found

    def __call__(self, *arrays: Any) -> None:
        self.functions[self.entry_name](*arrays)
