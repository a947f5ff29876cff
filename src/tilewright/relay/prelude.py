"""`relay.prelude`: lists, optionals, trees and functions on them, under TVM's names.

In: a module.  Out: the module, with them in it, and their names as attributes.
Read next: `functional/standard.py`.
"""

from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ModelError, absent
from tilewright.relay.functional.standard import add_prelude
from tilewright.relay.graph.expr import GlobalVar, IRModule

__all__ = ["Prelude"]

_FUNCTIONS = (
    "id", "compose", "flip", "hd", "tl", "nth", "update", "map", "foldl", "foldr", "foldr1",
    "concat", "filter", "zip", "rev", "map_accuml", "map_accumr", "unfoldl", "unfoldr", "sum",
    "length", "tmap", "size", "iterate",
)  # fmt: skip


class Prelude:
    """mod: what it is added to; default: a module of its own.

    Its functions are attributes: `prelude.map(f, xs)`; data types and their constructors are
    `prelude.mod.get_type("List")`, "Option" and "Tree".
    """

    @door(ModelError)
    def __init__(self, mod: IRModule | None = None) -> None:
        self.mod = IRModule() if mod is None else mod
        add_prelude(self.mod)

    def __getattr__(self, name: str) -> GlobalVar:
        if name not in _FUNCTIONS:
            raise AttributeError(
                f"Prelude has no {name}. Its functions are {', '.join(_FUNCTIONS)}; "
                'constructors are in prelude.mod.get_type("List").'
            )
        return self.mod.get_global_var(name)


def __getattr__(name: str) -> Any:
    raise absent("relay.prelude", name, {})
