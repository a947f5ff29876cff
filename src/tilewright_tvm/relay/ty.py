"""`relay.ty`: types of graph values, where TVM has them.

Read next: `graph/types.py`.
"""

from typing import Any as _Anything

from tilewright.base.errors import absent
from tilewright.graph.extents import Any
from tilewright.graph.types import (
    FuncType,
    IncompleteType,
    TensorType,
    TupleType,
    Type,
    scalar_type,
)
from tilewright_tvm.relay.functional.data_types import (
    GlobalTypeVar,
    RefType,
    TypeCall,
    TypeData,
    TypeKind,
    TypeVar,
)

__all__ = [
    "Any", "FuncType", "GlobalTypeVar", "IncompleteType", "RefType", "TensorType", "TupleType",
    "Type", "TypeCall", "TypeData", "TypeKind", "TypeVar", "scalar_type",
]  # fmt: skip

_ELSEWHERE = {"TypeRelation": "Operators have type rules of their own: see relay.op."}


def __getattr__(name: str) -> _Anything:
    raise absent("relay.ty", name, _ELSEWHERE)
