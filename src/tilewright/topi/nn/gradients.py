"""Gradients of pooling.

In: the gradient of an operator's result, and what the operator read.  Out: that of an operand: each
element sums over the windows that read it, so no two of them write the same place.
Read next: `pooling.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import IterVar, Tensor
from tilewright.topi.nn.pooling import max_pool_indices, window_counts
from tilewright.topi.nn.window import Window
from tilewright.topi.sampling import kept
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensors,
    require,
    require_float,
    stage,
    wide,
)


def max_pool_grad(
    grads: Tensor, data: Tensor, kernel: Any, stride: Any, dilation: Any, padding: Any,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """The gradient of a maximum over data [N, C, ...] of any rank, whose windows may be dilated.

    No window lies in the padding alone, whatever ceil_mode says: so relay pools.
    """
    place = call_text(
        "max_pool_grad", grads=grads, data=data, kernel=kernel, stride=stride, padding=padding
    )
    check_tensors(place, grads=grads, data=data)
    require_float(data, "the gradient", place)
    window = Window.of(kernel, stride, padding, dilation, place, data.ndim - 2)
    return gradient_of_pooling(grads, data, window, "max", ceil_mode, True, place, beyond=False)


def gradient_of_pooling(
    grads: Tensor, data: Tensor, window: Window, pool_type: str, ceil_mode: bool,
    count_include_pad: bool, place: str, *, beyond: bool,
) -> Tensor:  # fmt: skip
    """Give the gradient of what was pooled, `grads` being that of the result."""
    shape, count = window_counts(data, window, ceil_mode, count_include_pad, place, beyond)
    require(
        list(grads.shape) == list(shape), place, f"the result of pooling has shape {list(shape)}",
        "Give its gradient.",
    )  # fmt: skip
    taps = tap_axes(window.kernel)
    first = None
    if pool_type == "max":
        first = max_pool_indices(
            data, window.kernel, window.stride, window.dilation, window.padding, ceil_mode,
            beyond=beyond,
        )  # fmt: skip

    def body(i: Indices) -> Expr:
        read, tests = windows_read(i[2:], taps, window, shape[2:])
        at = (*i[:2], *read)
        share = wide(grads[at])
        if first is None:
            return te.sum(where_all(tests, share / count(at)), axis=taps)
        own = te.cast("int64", i[0])
        for index, extent in zip(i[1:], data.shape[1:], strict=True):
            own = own * extent + te.cast("int64", index)
        return te.sum(where_all([*tests, first[at].equal(own)], share), axis=taps)

    total = stage(data.shape, body, "pool_grad_sum", "pool_grad")
    if total.dtype is data.dtype:
        return total
    return stage(data.shape, lambda i: total[i].astype(data.dtype), "pool_grad", "elemwise")


def tap_axes(kernel: Sequence[int]) -> list[IterVar]:
    """Give a reduction axis for each extent of a window."""
    names = "zyx"[-len(kernel) :]
    return [te.reduce_axis((0, n), f"d{name}") for n, name in zip(kernel, names, strict=True)]


def windows_read(
    at: Sequence[Expr], taps: Sequence[IterVar], window: Window, extents: Sequence[int]
) -> tuple[list[Expr], list[Expr]]:
    """Which window reads element `at` of the image with its tap, and when there is one."""
    found, tests = [], []
    for k, (index, tap, extent) in enumerate(zip(at, taps, extents, strict=True)):
        far = tap * window.dilation[k] if window.dilation[k] > 1 else tap
        origin = index + window.before[k] - far
        step = window.stride[k]
        tests += [origin >= 0, origin < extent * step]
        tests += [(origin % step).equal(0)] if step > 1 else []
        found.append(kept(origin // step, extent))
    return found, tests


def where_all(tests: Sequence[Expr], value: Expr) -> Expr:
    """Give `value` where every test holds, else 0."""
    return te.if_then_else(te.all(*tests), value, te.const(0, value.dtype))
