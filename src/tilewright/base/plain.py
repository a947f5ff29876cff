"""Frozen dataclasses from parsed JSON, each value of the type that its field is declared with.

In: a type, and what `json.loads` gave.  Out: a value of that type.  `json.dumps(asdict(x))` is the
other way.  It needs nothing but Python, so that what is shipped can be read on any board.
Read next: `runtime/artifact_file.py`, `runtime/network/library_file.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from itertools import repeat
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints


def read(kind: Any, value: Any) -> Any:
    """`value` as `kind`: a dataclass, a tuple, a dict, str, int, float, bool, or one of these or
    None.  Raises TypeError or ValueError for anything else."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin is UnionType:
        (other,) = (k for k in inner if k is not NoneType)
        return None if value is None else read(other, value)
    if isinstance(kind, type) and is_dataclass(kind):
        kinds = _fields(kind)
        given = _require(dict, value)
        return kind(**{name: read(kinds.get(name, NoneType), v) for name, v in given.items()})
    if origin is tuple:
        items = _require(list, value)
        if inner[-1] is Ellipsis:
            return tuple(map(read, repeat(inner[0]), items))
        return tuple(read(k, v) for k, v in zip(inner, items, strict=True))
    if origin is dict:
        return {read(inner[0], k): read(inner[1], v) for k, v in _require(dict, value).items()}
    if kind is float and type(value) is int:
        return float(value)
    if issubclass(kind, str):
        return kind(_require(str, value))
    return _require(kind, value)


def _require(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"a {type(value).__name__} where a {kind.__name__} must be")
    return value


@cache
def _fields(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)
