"""`relay.ty`: types of graph values, where TVM has them.

Read next: `graph/types.py`.
"""

from typing import Any as _Anything

from tilewright.base.errors import absent
from tilewright.relay.graph.extents import Any
from tilewright.relay.graph.types import (
    FuncType,
    IncompleteType,
    TensorType,
    TupleType,
    Type,
    scalar_type,
)

__all__ = ["Any", "FuncType", "IncompleteType", "TensorType", "TupleType", "Type", "scalar_type"]

_ELSEWHERE = dict.fromkeys(
    ("TypeVar", "GlobalTypeVar", "TypeCall", "TypeData", "TypeRelation", "RefType", "TypeKind"),
    "Types are those of tensors, tuples and functions: no open ones, no data types, no references.",
)


def __getattr__(name: str) -> _Anything:
    raise absent("relay.ty", name, _ELSEWHERE)
