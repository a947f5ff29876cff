"""Reductions that are compositions: `relay.any`, `relay.variance`, `relay.logsumexp`, ...

In: a graph value, axes.  Out: reductions with elementwise operators in front and behind.  Users
reach them as `relay.NAME`.  Read next: `tensor.py`.
"""

from __future__ import annotations

import math

from tilewright.base.dtype import FLOAT32
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr
from tilewright.graph.functions import tensor
from tilewright.graph.functions.tensor import Axes
from tilewright.graph.op.reduction import reduced_axes


def _of_bools(name: str, data: Expr, axis: Axes, keepdims: bool, exclude: bool) -> Expr:
    if data.dtype != "bool":
        raise ModelError(
            f"{name}(data={data.shape} {data.dtype})", "it is of bool tensors", "Compare first."
        )
    reduce = tensor.max if name == "any" else tensor.min
    return reduce(data, axis, keepdims, exclude)


def any(data: Expr, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> Expr:
    """Whether one of the bools over `axis` holds."""
    return _of_bools("any", data, axis, keepdims, exclude)


def all(data: Expr, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> Expr:
    """Whether every one of the bools over `axis` holds."""
    return _of_bools("all", data, axis, keepdims, exclude)


def logsumexp(data: Expr, axis: Axes = None, keepdims: bool = False) -> Expr:
    """log of the sum of exp(data) over `axis`, which overflows for no data."""
    greatest = tensor.max(data, axis, keepdims=True)
    # where that is infinite, moving by it would give NaN
    by = tensor.where(tensor.isfinite(greatest), greatest, 0.0)
    total = tensor.log(tensor.sum(tensor.exp(data - by), axis, keepdims=True)) + by
    gone = _gone(data, axis, False)
    return total if keepdims or not gone else tensor.squeeze(total, gone)


def _gone(data: Expr, axis: Axes, exclude: bool) -> tuple[int, ...]:
    named = None if axis is None else tuple(axis) if not isinstance(axis, int) else (axis,)
    return reduced_axes(named, exclude, len(data.shape))


def variance(
    data: Expr,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> Expr:
    """Mean squared distance from the mean over `axis`; unbiased: divided by one less."""
    count = math.prod(data.shape[k] for k in _gone(data, axis, exclude))
    distance = data - tensor.mean(data, axis, keepdims=True, exclude=exclude)
    total = tensor.sum(distance * distance, axis, keepdims, exclude)
    divisor = count - 1 if unbiased else count
    share = 1.0 / divisor if divisor > 0 else math.nan  # nothing has no variance, as of numpy
    return total * share


def std(
    data: Expr,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> Expr:
    """Standard deviation over `axis`: the root of `variance`."""
    return tensor.sqrt(variance(data, axis, keepdims, exclude, unbiased))


def l1_norm(data: Expr, axis: Axes = None, keepdims: bool = False) -> Expr:
    """Sum of |data| over `axis`."""
    return tensor.sum(tensor.abs(data), axis, keepdims)


def l2_norm(data: Expr, axis: Axes = None, keepdims: bool = False) -> Expr:
    """Root of the sum of squares over `axis`; of integers in floats, without its fraction."""
    kind = data.tensor_type.dtype
    wide = tensor.cast(data, kind.compute if kind.is_float else FLOAT32)
    return tensor.cast(tensor.sqrt(sum_square(wide, axis, keepdims)), kind)


def sum_square(data: Expr, axis: Axes = None, keepdims: bool = False) -> Expr:
    """Sum of squares over `axis`."""
    return tensor.sum(data * data, axis, keepdims)


def log_sum(data: Expr, axis: Axes = None, keepdims: bool = False) -> Expr:
    """Logarithm of the sum over `axis`; of integers in floats, without its fraction."""
    kind = data.tensor_type.dtype
    wide = tensor.cast(data, kind.compute if kind.is_float else FLOAT32)
    return tensor.cast(tensor.log(tensor.sum(wide, axis, keepdims)), kind)


def whole_mean(data: Expr, axis: Axes = None, keepdims: bool = False) -> Expr:
    """The mean of integers over `axis`, towards zero."""
    count = math.prod(data.shape[k] for k in _gone(data, axis, False))
    total = tensor.sum(data, axis, keepdims)
    return tensor.cast(tensor.trunc_divide(total, count), data.dtype)


__all__ = ["all", "any", "logsumexp", "std", "variance"]
