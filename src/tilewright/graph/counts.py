"""Tables of whole numbers that follow from where they stand, such as 0..n-1.

In: a constant, or its array.  Out: the number at its beginning, and what a step along each axis
adds.  A kernel works out such a number for less than it costs to read.  Read next:
`passes/fuse.py`, which has them in kernels; `../network/computation.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.graph.expr import Array, Constant
from tilewright.graph.later import Later

_MOST = 1 << 31  # of numbers that are part of a text


@dataclass(frozen=True)
class Count:
    """begin + steps[0] * i0 + steps[1] * i1 + ..., at index i"""

    begin: int
    steps: tuple[int, ...]


def count_of(data: Array) -> Count | None:
    """Give what the elements of whole numbers follow from; None where that is not their index."""
    if data.dtype.kind != "i" or not data.size:
        return None
    begin, steps = int(data.flat[0]), list[int]()
    if abs(begin) >= _MOST:
        return None
    for k, n in enumerate(data.shape):  # most tables are none by one line along an axis
        before, behind = (0,) * k, (0,) * (data.ndim - k - 1)
        line = data[before][(slice(None), *behind)].astype("int64")
        steps.append(int(line[1]) - begin if n > 1 else 0)
        if abs(steps[-1]) >= _MOST or not np.array_equal(line, begin + np.arange(n) * steps[-1]):
            return None
    counted: Array = np.full((1,) * data.ndim, begin)
    for k, (n, step) in enumerate(zip(data.shape, steps, strict=True)):
        counted = counted + np.arange(n).reshape((-1,) + (1,) * (data.ndim - 1 - k)) * step
    return Count(begin, tuple(steps)) if np.array_equal(data, counted) else None


def counted(table: Constant) -> Count | None:
    """Give what its elements follow from, likewise; None of what is made later, as weights are."""
    return None if isinstance(table, Later) else count_of(table.data)
