"""A mean and what is far from it in one tuple: `relay.mean_variance`, `relay.mean_std`.

In: a graph value, axes.  Out: tuples.  Read next: `graph/functions/reductions.py`.
"""

from __future__ import annotations

from tilewright.graph.expr import Expr, Tuple
from tilewright.graph.functions import tensor
from tilewright.graph.functions.reductions import std, variance
from tilewright.graph.functions.tensor import Axes


def mean_variance(
    data: Expr,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> Tuple:
    """Give both over `axis`."""
    mean = tensor.mean(data, axis, keepdims, exclude)
    return Tuple([mean, variance(data, axis, keepdims, exclude, unbiased)])


def mean_std(data: Expr, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> Tuple:
    """Give both over `axis`."""
    mean = tensor.mean(data, axis, keepdims, exclude)
    return Tuple([mean, std(data, axis, keepdims, exclude)])


__all__ = ["mean_std", "mean_variance"]
