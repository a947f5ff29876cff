"""Tensors of random numbers, drawn by numpy at each call: `contrib.random`.

In: a distribution and a shape.  Out: a tensor of te.extern, whose function runs in the process of
the caller.  Numbers that are a function of a key: `topi.random`.  Read next: `functions.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ExpressionError
from tilewright.te.tensor import Tensor
from tilewright_tvm import tir
from tilewright_tvm.te.extern import extern

__all__ = ["normal", "randint", "uniform"]


def randint(low: int, high: int, size: Sequence[int], dtype: str = "int32") -> Tensor:
    """Integers from `low` on and below `high`."""
    if low >= high:
        raise ExpressionError(
            f"contrib.random.randint(low={low}, high={high})", "there is no integer between them",
            "Give a high that is greater than low.",
        )  # fmt: skip
    return _drawn("randint", size, dtype, low, high)


def uniform(low: float, high: float, size: Sequence[int]) -> Tensor:
    """Numbers from `low` on and below `high`, float32."""
    return _drawn("uniform", size, "float32", float(low), float(high))


def normal(loc: float, scale: float, size: Sequence[int]) -> Tensor:
    """Normally distributed numbers about `loc`, float32; scale: their standard deviation."""
    return _drawn("normal", size, "float32", float(loc), float(scale))


def _drawn(name: str, size: Sequence[int], dtype: Any, first: Any, second: Any) -> Tensor:
    return extern(
        tuple(size), [],
        lambda ins, outs: tir.call_packed(
            f"tvm.contrib.random.{name}", first, second, outs[0]
        ),
        name=name, dtype=dtype,
    )  # fmt: skip


open_doors(globals(), __all__, ExpressionError)
