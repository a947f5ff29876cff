"""What the words of hybrid scripts mean in Python, on arrays of numpy.

In: numbers and arrays.  Out: the same.  Read next: `parser.py`, where they mean statements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.base import context
from tilewright.base.dtype import TYPES, DType
from tilewright.targets.target import Target

__all__ = ["HYBRID_GLOBALS", "ceil_div", "max_num_threads"]

Shape = int | tuple[int, ...]


def output_tensor(shape: Shape, dtype: str) -> np.ndarray:
    return np.zeros(shape, DType(dtype, "output_tensor").storage)


def allocate(shape: Shape, dtype: str = "float32", scope: str = "global") -> np.ndarray:
    return np.zeros(shape, DType(dtype, "allocate").storage)


def bind(tag: str, extent: int) -> range:
    return range(extent)


def max_num_threads(allow_none: bool = True) -> int:
    """Of a block, on the target in force; 1 where there is none."""
    target = context.current("target")
    return 1 if target is None else Target(target).max_num_threads


def ceil_div(a: Any, b: Any) -> Any:
    return (a + b - 1) // b


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def rsqrt(x: Any) -> Any:
    return 1 / np.sqrt(x)


def popcount(x: Any) -> int:
    bits = getattr(x, "itemsize", 8) * 8
    return int(int(x) & (2**bits - 1)).bit_count()


def likely(x: Any) -> Any:
    return x


HYBRID_GLOBALS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("unroll", "vectorize", "parallel", "const_range"), range),
    **{f.__name__: f for f in (output_tensor, allocate, bind, max_num_threads, ceil_div)},
    **{f.__name__: f for f in (sigmoid, rsqrt, popcount, likely)},
    **{n: getattr(np, n) for n in ("sqrt", "log", "exp", "tanh", "power", "round", "floor")},
    **{n: getattr(np, n) for n in ("ceil", "sin", "cos")},
    **{str(t): np.dtype(t.storage).type for t in map(DType, TYPES) if str(t) != "bool"},
}
