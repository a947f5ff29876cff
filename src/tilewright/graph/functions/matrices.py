"""Determinants, inverses and factors of small matrices, by elimination.

In: graph values [..., n, n], n from 1 to 32: each row is some kernels, for all matrices at once.
Out: graph values.  Importers call them.  Read next: `linear.py`.
"""

from __future__ import annotations

import math
from functools import reduce

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr
from tilewright.graph.functions import tensor
from tilewright.graph.functions.indexing import strided_slice
from tilewright.graph.leaves import const
from tilewright.graph.op import call

MOST_ROWS = 32


def determinant(data: Expr) -> Expr:
    """[...] of matrices [..., n, n], by elimination with pivots.  Raises ModelError for others."""
    return reduce(tensor.multiply, _pivots(data, "determinant"))


def log_determinant(data: Expr) -> tuple[Expr, Expr]:
    """The sign of the determinant, and the logarithm of its size, which does not overflow."""
    found = _pivots(data, "log_determinant")
    sign = reduce(tensor.multiply, map(tensor.sign, found))
    return sign, reduce(tensor.add, (tensor.log(tensor.abs(p)) for p in found))


def solve(data: Expr, right: Expr) -> Expr:
    """X [..., n, m] with data @ X = right, by elimination with pivots.

    data: [..., n, n]; right: [..., n, m], of the same leading axes.  A singular matrix gives
    infinities or NaN.
    """
    size = _checked(data, "solve")
    rest = tensor.concatenate([_flat(data), _flat(right)], 2)
    rows = const(np.arange(size, dtype="int32").reshape(1, -1, 1))
    zero, below = const(0, data.dtype), const(-1, data.dtype)
    for k in range(size):
        column = tensor.abs(_columns(rest, k, k + 1))
        left = tensor.where(tensor.less(rows, const(k, "int32")), below, column)
        best = call("argmax", left, axis=1, keepdims=True)
        chosen = tensor.equal(rows, best)
        pivot_row = tensor.sum(tensor.where(chosen, rest, zero), axis=1, keepdims=True)
        swapped = tensor.where(chosen, _rows(rest, k, k + 1), rest)
        scaled = tensor.divide(pivot_row, _columns(pivot_row, k, k + 1))
        cleared = tensor.subtract(swapped, tensor.multiply(_columns(swapped, k, k + 1), scaled))
        rest = tensor.where(tensor.equal(rows, const(k, "int32")), scaled, cleared)
    return _as(_columns(rest, size, rest.shape[2]), right.shape)


def inverse(data: Expr) -> Expr:
    """[..., n, n]: see `solve`."""
    size = _checked(data, "inverse")
    ones = const(np.eye(size), str(data.dtype))
    return solve(data, tensor.broadcast_to(ones, data.shape))


def solve_triangular(data: Expr, right: Expr, upper: bool, unit: bool = False) -> Expr:
    """X [..., n, m] with data @ X = right; of `data` one triangle counts, with `unit` ones as its
    diagonal."""
    size = _checked(data, "solve_triangular")
    matrix, rest = _flat(data), _flat(right)
    found: dict[int, Expr] = {}
    order = range(size)[::-1] if upper else range(size)
    for k in order:
        column = _columns(matrix, k, k + 1)
        at = k if upper else 0  # of row k in what is left
        row = _rows(rest, at, at + 1)
        found[k] = row if unit else tensor.divide(row, _rows(column, k, k + 1))
        first, last = (0, k) if upper else (k + 1, size)
        if first < last:
            others = _rows(rest, *((0, k) if upper else (1, size - k)))
            share = _rows(column, first, last)
            rest = tensor.subtract(others, tensor.multiply(share, found[k]))
    made = found[0] if size == 1 else tensor.concatenate([found[k] for k in range(size)], 1)
    return _as(made, right.shape)


def cholesky(data: Expr) -> Expr:
    """L [..., n, n], lower triangular, with L @ transposed L = data, of which the lower triangle
    counts.  A matrix that is not positive definite gives NaN."""
    size = _checked(data, "cholesky")
    rest, columns = _flat(data), []
    for k in range(size):
        column = _columns(rest, 0, 1)
        column = tensor.divide(column, tensor.sqrt(_rows(column, 0, 1)))
        columns.append(column if not k else _pad(column, k))
        if k + 1 < size:
            below = _rows(column, 1, size - k)
            inner = _columns(_rows(rest, 1, size - k), 1, size - k)
            rest = tensor.subtract(
                inner, tensor.multiply(below, tensor.transpose(below, (0, 2, 1)))
            )
    made = columns[0] if size == 1 else tensor.concatenate(columns, 2)
    return _as(made, data.shape)


def _pad(column: Expr, count: int) -> Expr:
    """`column` below `count` zeros."""
    zeros = const(np.zeros((1, count, 1)), str(column.dtype))
    wide = tensor.broadcast_to(zeros, (column.shape[0], count, 1))
    return tensor.concatenate([wide, column], 1)


def _pivots(data: Expr, name: str) -> list[Expr]:
    """[...] each: their product is the determinant."""
    _checked(data, name)
    rest: Expr = _flat(data)
    zero, one = const(0, data.dtype), const(1, data.dtype)
    found: list[Expr] = []
    while True:
        left = rest.shape[1]
        column = _columns(rest, 0, 1)
        if left == 1:
            return [_as(p, data.shape[:-2]) for p in (*found, column)]
        best = call("argmax", tensor.abs(column), axis=1, keepdims=True)
        chosen = tensor.equal(const(np.arange(left, dtype="int32").reshape(1, -1, 1)), best)
        pivot_row = tensor.sum(tensor.where(chosen, rest, zero), axis=1, keepdims=True)
        first = _rows(rest, 0, 1)
        others = _rows(tensor.where(chosen, first, rest), 1, left)
        pivot = _columns(pivot_row, 0, 1)
        swapped = tensor.greater(best, const(0, "int32"))
        found.append(tensor.where(swapped, tensor.negative(pivot), pivot))
        divisor = tensor.where(tensor.equal(pivot, zero), one, pivot)
        share = tensor.divide(_columns(others, 0, 1), divisor)
        kept = [_columns(x, 1, left) for x in (others, pivot_row)]
        rest = tensor.subtract(kept[0], tensor.multiply(share, kept[1]))


def _checked(data: Expr, name: str) -> int:
    """n.  Raises ModelError unless `data` is matrices of at most 32 rows."""
    place, size = f"{name}(data={data.shape})", data.shape[-1] if data.shape else 0
    if len(data.shape) < 2 or data.shape[-2] != size or not data.tensor_type.dtype.is_float:
        raise ModelError(place, f"{data.dtype} is no square matrix", "Give floats [..., n, n].")
    if not 1 <= size <= MOST_ROWS:
        raise ModelError(
            place, f"matrices of {size} rows", f"Use 1 to {MOST_ROWS}; others need a factorisation."
        )
    return size


def _flat(x: Expr) -> Expr:
    return _as(x, (math.prod(x.shape[:-2]), *x.shape[-2:]))


def _rows(x: Expr, first: int, last: int) -> Expr:
    return strided_slice(x, [first], [last], axes=[1])


def _columns(x: Expr, first: int, last: int) -> Expr:
    return strided_slice(x, [first], [last], axes=[2])


def _as(x: Expr, shape: tuple[int, ...]) -> Expr:
    return x if x.shape == tuple(shape) else tensor.as_shape(x, tuple(shape))


__all__ = [
    "cholesky",
    "determinant",
    "inverse",
    "log_determinant",
    "solve",
    "solve_triangular",
]
