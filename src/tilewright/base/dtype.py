"""The element types of Tilewright, by their numpy names.

`float32 float64` are arithmetic types; `int32 int64 bool` serve indices and predicates.
"""

from __future__ import annotations

import ctypes

import numpy as np

from tilewright.base.errors import ExpressionError

BYTES = {"float32": 4, "float64": 8, "int32": 4, "int64": 8, "bool": 1}
RANK = {"bool": 0, "int32": 1, "int64": 2, "float32": 3, "float64": 4}


def check_dtype(dtype: str, place: str) -> str:
    """Return `dtype` when it is supported; raise ExpressionError otherwise."""
    if dtype in BYTES:
        return dtype
    raise ExpressionError(
        place, f"dtype {dtype!r} is not supported", f"Use one of {', '.join(BYTES)}."
    )


def is_float(dtype: str) -> bool:
    return dtype in ("float32", "float64")


def is_int(dtype: str) -> bool:
    return dtype in ("int32", "int64")


def promote(a: str, b: str) -> str:
    """The common type of a binary operation."""
    return a if RANK[a] >= RANK[b] else b


def nearest(value: float, dtype: str) -> float:
    """The number of the floating-point `dtype` nearest to `value`; infinity beyond the greatest."""
    return ctypes.c_float(value).value if dtype == "float32" else float(value)


def machine_epsilon(dtype: str) -> float:
    return float(np.finfo(dtype).eps) if is_float(dtype) else 0.0


def min_value(dtype: str) -> float | int | bool:
    """The identity of max: -inf for floats, the least integer otherwise."""
    if is_float(dtype):
        return float("-inf")
    return False if dtype == "bool" else int(np.iinfo(dtype).min)


def max_value(dtype: str) -> float | int | bool:
    if is_float(dtype):
        return float("inf")
    return True if dtype == "bool" else int(np.iinfo(dtype).max)
