"""Vectors in statements: several elements of a buffer in a row, as one value.

In: types such as float32x4, expressions of several lanes.  Out: the same, and stores of them: a
vectorized loop over lanes, which lowering keeps inside its buffers as any other.
Read next: `ir_builder.py`.
"""

from __future__ import annotations

import re
from typing import Any

from tilewright.base.dtype import DType
from tilewright.base.errors import ExpressionError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Buffer, For, Stmt, Store, lane

_VECTOR = re.compile(r"([a-z]+\d*)x(\d+)")


def split_type(dtype: Any, place: str) -> tuple[DType, int]:
    """Element type and lanes of float32x4; of any other type one lane."""
    found = _VECTOR.fullmatch(str(dtype))
    return (DType(found[1], place), int(found[2])) if found else (DType(dtype, place), 1)


def cast(dtype: Any, value: Any) -> Expr:
    """`value` as another type; of a vector type, in all its lanes."""
    kind, lanes = split_type(dtype, f"astype({str(dtype)!r})")
    node = E.cast(kind, value)
    return E.broadcast(node, lanes) if lanes > 1 else node


def const(value: Any, dtype: Any = None) -> Expr:
    """A constant; of a vector type such as float32x4 in all its lanes."""
    if dtype is None or "x" not in str(dtype):
        return E.const(value, dtype)
    kind, lanes = split_type(dtype, f"const({value!r}, {str(dtype)!r})")
    return E.broadcast(E.const(value, kind), lanes)


def stored(buffer: Buffer, index: Expr, value: Expr) -> Stmt:
    """The store of a value; of a vector from `index` on, or at the lanes of `index`."""
    lanes = max(index.lanes, value.lanes)
    if lanes == 1:
        return Store(buffer, index, value)
    if {index.lanes, value.lanes} - {1, lanes}:
        raise ExpressionError(
            f"{buffer.name}[...] = ...", f"{value.lanes} lanes are stored to {index.lanes} places",
            "Give as many.",
        )  # fmt: skip
    k = E.var("lane")
    at = lane(index, k) if index.lanes > 1 else index + k
    return For(k, lanes, Store(buffer, at, lane(value, k)), "vectorized")
