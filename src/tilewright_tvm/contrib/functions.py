"""Functions that TVM has by names from the start: what stages of `contrib` call.

In: arrays and numbers.  Out: the result, in the array that is given for it.
Read next: `tilewright/runtime/function_table.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def matrix_product(a: Any, b: Any, out: Any, transa: bool = False, transb: bool = False) -> None:
    """Multiply matrices, or those of a batch, into `out`: what `contrib.cblas` calls."""
    left, right = a.numpy(), b.numpy()
    out.copyfrom(
        np.matmul(
            left.swapaxes(-1, -2) if transa else left, right.swapaxes(-1, -2) if transb else right
        )
    )


def sorted_places(data: Any, out: Any, axis: int = -1, is_ascend: bool = True) -> None:
    """`tvm.contrib.sort.argsort`: `out` becomes the places of numbers along an axis, in order."""
    shape = list(data.shape)
    del shape[axis]
    valid_places(data, np.full(shape, data.shape[axis]), out, axis, is_ascend)


def valid_places(data: Any, valid: Any, out: Any, axis: int, is_ascend: bool) -> None:
    """`tvm.contrib.sort.argsort_nms`: of the first `valid` numbers only; the others stay behind.

    data: [..., n, ...] with n along the axis; valid: the same without that axis.  Equal numbers
    keep their order.
    """
    numbers = np.moveaxis(data.numpy(), axis, -1)
    count = valid if isinstance(valid, np.ndarray) else valid.numpy()
    behind = np.arange(numbers.shape[-1]) >= count[..., None]
    ranks = np.unique(numbers, return_inverse=True)[1].reshape(numbers.shape)
    keys = np.where(behind, 0, ranks if is_ascend else -ranks)
    places = np.lexsort((keys, behind), axis=-1)
    out.copyfrom(np.ascontiguousarray(np.moveaxis(places, -1, axis)).astype(out.dtype.storage))


def same_bits(data: Any, out: Any) -> None:
    """`out` becomes the bits of `data`, of a type as wide: what `topi.reinterpret` calls."""
    out.copyfrom(data.numpy().view(out.numpy().dtype))


def even_numbers(low: float, high: float, out: Any) -> None:
    """`tvm.contrib.random.uniform`: numbers from `low` on and below `high`, of a new seed."""
    out.copyfrom(np.random.default_rng().uniform(low, high, out.shape).astype(out.dtype.storage))


def normal_numbers(loc: float, scale: float, out: Any) -> None:
    """`tvm.contrib.random.normal`: normally distributed numbers, of a new seed."""
    out.copyfrom(np.random.default_rng().normal(loc, scale, out.shape).astype(out.dtype.storage))


def whole_numbers(low: int, high: int, out: Any) -> None:
    """`tvm.contrib.random.randint`: integers from `low` on and below `high`, of a new seed."""
    drawn = np.random.default_rng().integers(low, high, out.shape, dtype=out.dtype.storage)
    out.copyfrom(drawn)
