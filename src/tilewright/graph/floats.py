"""Large arrays of floats, some rows at a time: pieces stay in a cache, and threads share them.

In: arrays of any type of floats.  Out: the same numbers as float32, the largest of them, products
with them.  Types that numpy does not know itself go by their bits: its loops over those hold
Python's lock, and take ten times as long.  Products of few rows do without BLAS, which has threads
of its own that threads of ours would wait for.
Read next: `narrow.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.base.concurrency import in_threads
from tilewright.base.dtype import DType
from tilewright.graph.types import Array

AT_A_TIME = 1 << 18  # elements of a piece: enough that threads seldom ask for Python's lock
FEW = 16  # rows, of a product without BLAS
_BFLOAT16 = DType("bfloat16").storage


def widened(array: Array) -> Array:
    """Give the numbers of a contiguous array as float32; those of float32 are not copied."""
    if array.dtype != _BFLOAT16:
        return array.astype(np.float32, copy=False)
    bits = array.view(np.uint16).astype(np.uint32)
    bits <<= 16
    return bits.view(np.float32)


def largest(array: Array) -> float:
    """Give the largest magnitude among the floats; NaN where one is no number."""
    flat = np.ascontiguousarray(array).reshape(-1)
    bits = flat.view(f"u{flat.itemsize}")  # magnitudes are in the order of their bits
    mask = bits.dtype.type((1 << (8 * bits.itemsize - 1)) - 1)

    def of(first: int) -> int:
        return int(np.bitwise_and(bits[first : first + AT_A_TIME], mask).max())

    most = max(in_threads(of, range(0, bits.size, AT_A_TIME)), default=0)
    return float(bits.dtype.type(most).reshape(1).view(flat.dtype)[0])


def same(one: Array, other: Array) -> bool:
    """Whether two arrays of one shape and type have the same bits."""
    flat, others = (np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in (one, other))

    def at(first: int) -> bool:
        part = slice(first, first + AT_A_TIME)
        return np.array_equal(flat[part], others[part])

    return at(0) and all(in_threads(at, range(AT_A_TIME, flat.size, AT_A_TIME)))


def product(data: Array, units: int, weights: Callable[[slice], Array]) -> Array:
    """Give `data` [rows, depth] times the transpose of a matrix [units, depth].

    weights: makes some rows of that, in the type of `data`
    """
    made = np.empty((len(data), units), data.dtype)
    step = max(1, AT_A_TIME // max(data.shape[1], 1))

    def of(first: int) -> None:
        part = slice(first, first + step)
        np.einsum("mk,uk->mu", data, weights(part), out=made[:, part])

    pieces = range(0, units, step)
    if len(data) <= FEW:
        in_threads(of, pieces)
        return made
    step = max(1, (AT_A_TIME << 6) // max(data.shape[1], 1))
    for first in range(0, units, step):
        part = slice(first, first + step)
        made[:, part] = data @ weights(part).T
    return made
