"""The attributes of a call.

In: values by name.  Out: a frozen mapping.  Read next: `expr.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class Attrs(Mapping[str, Any]):
    """The attributes of a call: a frozen mapping whose items are also Python attributes.

    derived: what follows from the arguments, as `channels`: a Python attribute, and no item
    """

    __slots__ = ("_items", "derived")

    derived: Mapping[str, Any]

    def __init__(self, items: Mapping[str, Any], derived: Mapping[str, Any] | None = None) -> None:
        object.__setattr__(self, "_items", dict(items))
        object.__setattr__(self, "derived", derived or {})

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __getattr__(self, key: str) -> Any:
        if key in self.__slots__:
            raise AttributeError(key)
        for known in (self._items, self.derived):
            if key in known:
                return known[key]
        raise AttributeError(key)

    def __setattr__(self, key: str, value: Any) -> None:
        raise AttributeError(f"{key}: attributes are frozen; build a new call instead")

    def __reduce__(self) -> tuple[Any, ...]:
        return Attrs, (dict(self._items), dict(self.derived))

    def __repr__(self) -> str:
        return f"Attrs({self._items})"
