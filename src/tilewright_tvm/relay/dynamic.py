"""Operators whose results have as many elements as the data say, of sparse tensors, too.

In: graph values.  Out: nodes that wait until the network runs, or constants.
Read next: `graph/functions/dynamic.py`.
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.deferred import computed
from tilewright.graph.expr import Array, Expr, Tuple, TupleGetItem
from tilewright.graph.functions.dynamic import unique_of


def sparse_fill_empty_rows(
    sparse_indices: Expr, sparse_values: Expr, dense_shape: Expr, default_value: Expr
) -> Tuple:
    """A sparse tensor with `default_value` at the beginning of each row that has nothing: indices
    [count, rank] by rows, values [count], and which rows were filled (bool).

    sparse_indices: [n, rank]; sparse_values: [n]; dense_shape: [rank]; default_value: one element
    """

    def filled(indices: Array, values: Array, shape: Array, default: Array) -> tuple[Array, ...]:
        rows = np.arange(shape.reshape(-1)[0], dtype=indices.dtype)
        empty = ~np.isin(rows, indices[:, 0])
        more = np.zeros((empty.sum(), indices.shape[1]), indices.dtype)
        more[:, 0] = rows[empty]
        every = np.concatenate([indices, more])
        order = np.argsort(every[:, 0], kind="stable")
        fill = np.full(len(more), default.reshape(-1)[0], values.dtype)
        return every[order], np.concatenate([values, fill])[order], empty

    parts = (sparse_indices, sparse_values, dense_shape, default_value)
    made = computed("relay.sparse_fill_empty_rows", filled, *parts, several=True)
    return Tuple([_pick(made, k) for k in range(3)])


def sparse_reshape(sparse_indices: Expr, prev_shape: Expr, new_shape: Expr) -> Tuple:
    """The indices [n, new rank] of the same elements under another shape, and that shape.

    sparse_indices: [n, rank]; prev_shape: [rank]; new_shape: of which one extent may be -1
    """

    def reshaped(indices: Array, before: Array, after: Array) -> tuple[Array, ...]:
        size, known = math.prod(before.tolist()), math.prod(n for n in after.tolist() if n != -1)
        fits = size % known == 0 if -1 in after and known else size == known
        if not fits or np.count_nonzero(after == -1) > 1:
            raise ModelError(
                f"relay.sparse_reshape(prev_shape={before.tolist()}, new_shape={after.tolist()})",
                f"they have not both {size} elements", "One extent may be -1.",
            )  # fmt: skip
        shape = np.where(after == -1, size // max(known, 1), after)
        steps = [math.prod(before.tolist()[k + 1 :]) for k in range(len(before))]
        place = indices.astype("int64") @ np.array(steps, "int64")
        if np.any((place < 0) | (place >= size)):
            raise ModelError(
                f"relay.sparse_reshape(prev_shape={before.tolist()})", "an index is out of range",
                "Give indices below the extents.",
            )  # fmt: skip
        if np.array_equal(before, shape):
            return indices, shape.astype(after.dtype)
        if not len(indices):
            return np.zeros((0, len(after)), indices.dtype), shape.astype(after.dtype)
        found = np.stack(np.unravel_index(place, tuple(shape)), 1)
        return found.astype(indices.dtype), shape.astype(after.dtype)

    parts = (sparse_indices, prev_shape, new_shape)
    made = computed("relay.sparse_reshape", reshaped, *parts, several=True)
    return Tuple([_pick(made, k) for k in range(2)])


def argwhere(condition: Expr) -> Expr:
    """The places [count, rank] (int32) of the elements of `condition` that are not 0, in order."""

    def places(array: Array) -> Array:
        return np.argwhere(array).astype("int32")

    return computed("relay.argwhere", places, condition)


def unique(data: Expr, is_sorted: bool = True, return_counts: bool = False) -> Tuple:
    """The different elements of a vector; where each is first (int32); for each element of `data`
    which it is; how many there are ([1]); and, if asked for, how often each is there.

    is_sorted: in rising order; else as they come
    """

    def found(array: Array) -> tuple[Array, ...]:
        values, first, which, often = unique_of(array.reshape(-1), is_sorted)
        count = np.array([len(values)], "int32")
        parts = (first, which, count, often)[: 4 if return_counts else 3]
        return values, *(p.astype("int32") for p in parts)

    said = {"is_sorted": is_sorted, "return_counts": return_counts}
    made = computed("relay.unique", found, data, several=True, **said)
    return Tuple([_pick(made, k) for k in range(5 if return_counts else 4)])


def _pick(value: Expr, k: int) -> Expr:
    return value[k] if isinstance(value, Tuple) else TupleGetItem(value, k)


__all__ = ["argwhere", "sparse_fill_empty_rows", "sparse_reshape", "unique"]
