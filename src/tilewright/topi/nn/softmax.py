"""softmax and log_softmax along one axis.

In: a tensor.  Out: the stages T_softmax_maxelem, T_softmax_exp, T_softmax_expsum, T_softmax_norm
(for log_softmax: maxelem, expsum, T_log_softmax_norm).  Those between are float32 for float16 and
bfloat16.  Read next: `norm.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensors,
    normal_axis,
    require_float,
    stage,
    wide,
    workload,
)


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """exp(x - max) over its sum along `axis`."""
    k = _checked_axis("softmax", x, axis)
    largest = _reduced(te.max, x, k, "T_softmax_maxelem")
    e = stage(
        x.shape,
        lambda i: te.exp(wide(x[i]) - wide(largest[_without(i, k)])),
        "T_softmax_exp",
        "elemwise",
        axes="i",
    )
    total = _reduced(te.sum, e, k, "T_softmax_expsum")
    return stage(
        x.shape,
        lambda i: (e[i] / total[_without(i, k)]).astype(x.dtype),
        "T_softmax_norm",
        "softmax_output",
        axes="i",
        workload=workload("softmax", x, k),
    )


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """The logarithm of softmax, computed as x - max - log(sum(exp(x - max)))."""
    k = _checked_axis("log_softmax", x, axis)
    largest = _reduced(te.max, x, k, "T_softmax_maxelem")

    def shifted_exp(source: Indices) -> Expr:
        return te.exp(wide(x[source]) - wide(largest[_without(source, k)]))

    total = _reduced(te.sum, x, k, "T_softmax_expsum", shifted_exp)

    def body(i: Indices) -> Expr:
        outer = _without(i, k)
        return (wide(x[i]) - wide(largest[outer]) - te.log(total[outer])).astype(x.dtype)

    return stage(
        x.shape,
        body,
        "T_log_softmax_norm",
        "log_softmax_output",
        axes="i",
        workload=workload("log_softmax", x, k),
    )


def _checked_axis(name: str, x: Tensor, axis: int) -> int:
    place = call_text(name, x=x, axis=axis)
    check_tensors(place, x=x)
    require_float(x, name, place)
    return normal_axis(axis, x.ndim, place)


def _without(i: Indices, k: int) -> Indices:
    return i[:k] + i[k + 1 :]


def _reduced(
    reducer: Callable[..., Expr],
    x: Tensor,
    axis: int,
    name: str,
    value: Callable[[Indices], Expr] | None = None,
) -> Tensor:
    """`value` (by default the element of x) reduced over `axis`."""
    k = te.reduce_axis((0, x.shape[axis]), "k")
    read: Callable[[Indices], Any] = value or (lambda source: x[source])

    def body(i: Indices) -> Expr:
        return reducer(read((*i[:axis], k.as_expr(), *i[axis:])), axis=k)

    return stage(_shape_without(x, axis), body, name, "comm_reduce", axes="i")


def _shape_without(x: Tensor, axis: int) -> tuple[int, ...]:
    return x.shape[:axis] + x.shape[axis + 1 :]
