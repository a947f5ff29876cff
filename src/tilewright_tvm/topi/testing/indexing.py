"""numpy references of operators whose indices are data, and of those that order elements.

In: arrays.  Out: arrays, one element at a time where that is plainest.  Read next: `transform.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.topi.references.windows import Array

_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda old, new: new,
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def gather_python(data: Array, axis: int, indices: Array) -> Array:
    """out[.., i, ..] = data[.., indices[.., i, ..], ..]; indices count round about."""
    out = np.empty(indices.shape, data.dtype)
    for place in np.ndindex(indices.shape):
        source = list(place)
        source[axis] = int(indices[place]) % data.shape[axis]
        out[place] = data[tuple(source)]
    return out


def gather_nd_python(data: Array, indices: Array, batch_dims: int = 0) -> Array:
    """out[y..] = data[indices[:, y..]]; indices count round about; `batch_dims` first axes of both
    are common."""
    if batch_dims:
        parts = [gather_nd_python(d, indices[:, k], batch_dims - 1) for k, d in enumerate(data)]
        return np.stack(parts)
    points = indices.shape[1:]
    out = np.empty((*points, *data.shape[len(indices) :]), data.dtype)
    for y in np.ndindex(points):
        pairs = zip(indices[(slice(None), *y)], data.shape, strict=False)
        out[y] = data[tuple(int(i) % n for i, n in pairs)]
    return out


def scatter_elements_python(
    data: Array, indices: Array, updates: Array, axis: int, reduction: str = "update"
) -> Array:
    """`data` with the updates in their order; what is outside is dropped."""
    out = data.copy()
    for place in np.ndindex(indices.shape):
        target = list(place)
        target[axis] = int(indices[place])
        _combine(out, tuple(target), updates[place], reduction)
    return out


def scatter_nd_python(
    data: Array, indices: Array, updates: Array, reduction: str = "update"
) -> Array:
    """`data` with updates[y..] at indices[:, y..] in their order; what is outside is dropped."""
    out = data.copy()
    for y in np.ndindex(indices.shape[1:]):
        target = tuple(int(i) for i in indices[(slice(None), *y)])
        _combine(out, target, updates[y], reduction)
    return out


def _combine(out: Array, target: tuple[int, ...], value: Any, reduction: str) -> None:
    at = tuple(i + (n if i < 0 else 0) for i, n in zip(target, out.shape, strict=False))
    if all(0 <= i < n for i, n in zip(at, out.shape, strict=False)):
        out[at] = _COMBINE[reduction](out[at], value)


def topk_python(data: Array, k: int, axis: int = -1, is_ascend: bool = False) -> Array:
    """The places of the first k; of equal ones the first, NaN as the greatest."""

    def order(row: Array) -> list[int]:
        def key(i: int) -> tuple[bool, Any]:
            unknown = bool(row[i] != row[i])
            return unknown, 0 if unknown else row[i]

        ranked = sorted(range(len(row)), key=key)
        if is_ascend:
            return ranked[:k]
        return sorted(range(len(row)), key=key, reverse=True)[:k]  # keeps the order of equal ones

    return np.apply_along_axis(order, axis, data).astype(np.int32)


def cumulative_python(
    data: Array, axis: int, product: bool = False, exclusive: bool = False, reverse: bool = False
) -> Array:
    """Running sums or products."""
    x = np.moveaxis(data, axis, 0)
    x = x[::-1] if reverse else x
    out, total = np.empty_like(x), np.full_like(x[0], int(product))
    for k, row in enumerate(x):
        new = total * row if product else total + row
        out[k], total = (total if exclusive else new), new
    return np.moveaxis(out[::-1] if reverse else out, 0, axis)
