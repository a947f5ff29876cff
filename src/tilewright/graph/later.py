"""Constants whose types are known before their values.

In: a type, and what makes the values.  Out: a node like any other constant; passes, groups and
tasks, which look at types, do not wait for its values.  Read next: `passes/narrow.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.graph.expr import Array, Constant, Held, TensorType


class Later(Constant):
    """A constant that is made when its values are first asked for.

    make: gives them, contiguous, in the type `kind`, the same array each time
    """

    __slots__ = ("_make",)

    def __init__(self, kind: TensorType, make: Callable[[], Array]) -> None:
        self._type, self._make = kind, make

    @property
    def data(self) -> Held:  # type: ignore[override]
        """The values."""
        return self._make().view(Held)
