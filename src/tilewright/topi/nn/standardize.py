"""Normalisation with the statistics of the data itself: layer, instance, group and RMS norm.

In: data, and the axes that share their statistics.  Out: the stages T_norm_sum (where the mean is
taken off), T_norm_squares, T_norm_scale and T_norm; those between are float32 for float16 and
bfloat16, and have extent 1 along the axes.  Read next: `softmax.py`.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensors,
    normal_axes,
    require,
    require_float,
    stage,
    wide,
    workload,
)


def standardize(
    data: Tensor, axis: Any = (-1,), epsilon: float = 1e-5, center: bool = True
) -> Tensor:
    """(data - mean) / sqrt(variance + epsilon), mean and variance over `axis`.

    center: False leaves the mean in, and the root is that of the mean square (RMS norm)
    """
    place = call_text("standardize", data=data, axis=axis)
    check_tensors(place, data=data)
    require_float(data, "standardize", place)
    require(epsilon >= 0, place, f"epsilon={epsilon} is negative", "Use epsilon=1e-5.")
    axes = normal_axes(axis, data.ndim, place)
    shape = tuple(1 if k in axes else n for k, n in enumerate(data.shape))
    share = 1.0 / prod(data.shape[k] for k in axes)

    def total(value: Any, name: str) -> Tensor:
        inner = {k: te.reduce_axis((0, data.shape[k]), f"k{k}") for k in axes}

        def body(i: Indices) -> Any:
            source = tuple(inner[k].as_expr() if k in inner else i[k] for k in range(data.ndim))
            return te.sum(value(source, i), axis=list(inner.values()))

        return stage(shape, body, name, "comm_reduce")

    def at(i: Indices) -> Indices:
        return tuple(te.const(0) if k in axes else i[k] for k in range(data.ndim))

    sums = total(lambda source, i: wide(data[source]), "T_norm_sum") if center else None

    def centered(source: Indices, i: Indices) -> Expr:
        return wide(data[source]) if sums is None else wide(data[source]) - sums[i] * share

    squares = total(lambda source, i: centered(source, i) * centered(source, i), "T_norm_squares")
    scale = stage(
        shape, lambda i: te.rsqrt(squares[i] * share + epsilon), "T_norm_scale", "elemwise"
    )
    return stage(
        data.shape,
        lambda i: (centered(i, at(i)) * scale[at(i)]).astype(data.dtype),
        "T_norm",
        "broadcast",
        workload=workload("standardize", data, axes, bool(center)),
    )
