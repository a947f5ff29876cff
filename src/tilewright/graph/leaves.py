"""Variables and constants as users make them: `relay.var`, `relay.const`.

In: names and types, Python values.  Out: nodes.  Read next: `expr.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Constant, Var
from tilewright.graph.types import (
    Array,
    IncompleteType,
    OtherType,
    TensorType,
    Type,
    as_array,
    check_dtype,
    tensor_type,
)


def var(
    name_hint: str,
    type_annotation: Type | OtherType | IncompleteType | str | None = None,
    shape: Any = None,
    dtype: str = "float32",
) -> Var:
    """An input or a weight called `name_hint`.

    type_annotation: a `relay.TensorType`, or the element type of a single number
    shape: ints, or `relay.Any()` for what relay.build is told; left out for weights whose operator
        can tell (kernel_size=, channels=, units=).
    """
    place = f"relay.var({name_hint!r})"
    if type_annotation is not None:
        if shape is not None:
            raise ModelError(place, "both type_annotation and shape are given", "Give one of them.")
        if isinstance(type_annotation, str):
            return Var(name_hint, TensorType((), check_dtype(type_annotation, place)))
        return Var(name_hint, type_annotation)
    kind = check_dtype(dtype, place)
    if shape is None:
        return Var(name_hint)
    return Var(name_hint, tensor_type(shape, kind, place))


def const(value: Any, dtype: str | TensorType | None = None) -> Constant:
    """A constant from a number or an array; Python floats become float32, ints int32."""
    dtype = str(dtype.dtype) if isinstance(dtype, TensorType) else dtype
    if isinstance(value, Constant):
        return value
    data = as_array(value)
    if dtype is None and not hasattr(value, "dtype"):
        dtype = {"f": "float32", "i": "int32", "b": "bool"}.get(data.dtype.kind)
    if dtype is not None and data.dtype != (kind := check_dtype(dtype, "relay.const")):
        with np.errstate(over="ignore"):
            data = _converted(data, kind)
    return Constant(np.ascontiguousarray(data).reshape(data.shape))


def _converted(data: Array, dtype: str) -> Array:
    made = data.astype(dtype)
    if data.dtype.kind == made.dtype.kind == "i" and np.any(made != data):
        raise ModelError(
            f"relay.const(dtype={dtype!r})", f"{data.max()} is beyond its largest value",
            'Use dtype="int64".',
        )  # fmt: skip
    return made
