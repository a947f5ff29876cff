"""Names: of functions in a module, of parameters of a function.

In: strings.  Out: strings.  Read next: `expr.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import ModelError

if TYPE_CHECKING:
    from tilewright.graph.expr import Function, Var


class GlobalVar(str):
    """The name of a function in a module: a string, which TVM wraps.

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

    def __call__(self, *args: Any) -> Any:
        """A call of the function."""
        return import_module("tilewright.graph.expr").Call(self, args)

    def unknown(self, args: Sequence[Any]) -> Any:
        """A call of it before `mod[name] = function`, inside the function itself: one that is made
        when the network runs, for the values that the arguments have by then."""
        return import_module("tilewright.graph.scope").call_by_name(self, args)


def name_apart(params: Sequence[Var], place: str) -> None:
    """Give parameters with names of others names of their own: values are given by name."""
    if len(set(params)) < len(params):
        raise ModelError(place, "a parameter is listed twice", "List each relay.var once.")
    taken: set[str] = set()
    for p in params:
        name, k = p.name_hint, 0
        while name in taken:
            k += 1
            name = f"{p.name_hint}_{k}"
        p.name_hint = name
        taken.add(name)
