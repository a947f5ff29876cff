"""A network with open extents: what an importer gives where `relay.Any()` is in a shape.

In: the names of the extents, and how to make the network for numbers.  Out: modules.
Read next: `graph/passes/extents.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ModelError
from tilewright.graph.expr import IRModule


class OpenModule(IRModule):
    """names: of the open extents; make: the network for an extent of each."""

    def __init__(
        self, names: tuple[str, ...], make: Callable[[Mapping[str, int]], IRModule]
    ) -> None:
        super().__init__()
        self.names, self.make = names, make

    @door(ModelError)
    def __getitem__(self, name: Any) -> Any:
        raise still_open(f"mod[{name!r}]", self.names)

    def __str__(self) -> str:
        return f"a network with open extents {', '.join(self.names)}"


def still_open(place: str, names: tuple[str, ...]) -> ModelError:
    """The error of who needs a network whose extents are numbers."""
    sizes = dict.fromkeys(names, 8)
    build = "batch_sizes=[1, 8]" if len(names) == 1 else f"sizes=[{sizes}]"
    return ModelError(
        place, f"its extents are open: {', '.join(names)}",
        f"Say which they may be: load(model, shape={sizes}), relay.build(mod, {build}), or for one "
        f"network relay.with_sizes(mod, {sizes}).",
    )  # fmt: skip
