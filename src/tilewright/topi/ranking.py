"""Operators that order elements: the place of the greatest, the k greatest.

In: a tensor of numbers.  Out: int32 places, by stages of reductions and gathers.  Of equal elements
the one with the lower index comes first, and NaN is greater than everything, as in numpy.
Read next: `sorting.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.elementwise import cast
from tilewright.topi.gather import gather
from tilewright.topi.sorting import BLOCK, Later, blocked, first_places, ranked
from tilewright.topi.stage import Indices, call_text, check_tensors, normal_axis, require, stage
from tilewright.topi.transform import reshape, squeeze


def _first_of(name: str, best: Callable[..., Expr], story: str) -> Callable[..., Tensor]:
    def operator(
        data: Tensor,
        axis: int | None = -1,
        keepdims: bool = False,
        select_last_index: bool = False,
    ) -> Tensor:
        place = call_text(name, data=data, axis=axis)
        check_tensors(place, data=data)
        if axis is None:
            whole = operator(reshape(data, [-1]), 0, True, select_last_index)
            return reshape(whole, [1] * data.ndim) if keepdims else squeeze(whole, 0)
        k = normal_axis(axis, data.ndim, place)
        count = data.shape[k]
        outer = (*data.shape[:k], *data.shape[k + 1 :])
        m, n = (te.reduce_axis((0, count), name) for name in ("m", "n"))
        top = stage(
            outer, lambda i: best(data[(*i[:k], m.var, *i[k:])], axis=m), "T_best", "comm_reduce"
        )
        best_place, worst = (te.max, 0) if select_last_index else (te.min, count - 1)

        def body(i: Indices) -> Expr:
            rest = (*i[:k], *i[k + 1 :]) if keepdims else i
            value = data[(*rest[:k], n.var, *rest[k:])]
            found = value.equal(top[rest].astype(data.dtype))
            if value.dtype.is_float:
                found = te.any(found, _is_nan(value))
            return best_place(te.select(found, n.var, te.const(worst)), axis=n)

        shape = (*data.shape[:k], 1, *data.shape[k + 1 :]) if keepdims else outer
        return stage(shape, body, f"T_{name}", "comm_reduce")

    operator.__name__ = operator.__qualname__ = name
    operator.__doc__ = f"""The place of the {story} element along `axis`, or of all (None), int32.

    Of several the first, or with select_last_index the last; keepdims leaves an extent of 1."""
    return operator


argmax = _first_of("argmax", te.max, "greatest")
argmin = _first_of("argmin", te.min, "smallest")


def topk(data: Tensor, k: int = 1, axis: int = -1, is_ascend: bool = False) -> Tensor:
    """The places of the `k` greatest (is_ascend: smallest) elements along `axis`, in their order.

    Returns int32 with `k` places along `axis`; `gather` gives the values.
    Where `k` is small, blocks of BLOCK elements are ranked by counting, for each element, those
    before it; the first k of each block are the elements of the next round.  Otherwise they are
    sorted (`sorting.py`).
    """
    place = call_text("topk", data=data, k=k, axis=axis)
    check_tensors(place, data=data)
    at = normal_axis(axis, data.ndim, place)
    count = data.shape[at]
    require(1 <= k <= count, place, f"k={k} of {count} elements", f"Use 1 to {count}.")
    values = cast(data, "int32") if data.dtype == "bool" else data
    rows = _moved(values, at)
    later: Later = greater if is_ascend else lambda a, b: greater(b, a)
    best = _tournament(rows, k, later) if 2 * k <= BLOCK else first_places(rows, k, later)
    return best if at == data.ndim - 1 else _moved(best, at, back=True)


def _tournament(rows: Tensor, k: int, later: Later) -> Tensor:
    """The places of the first `k` of each row: of those that were the first `k` of their blocks."""
    chosen: Tensor | None = None  # places that are left, `count` where there is none
    left = count = rows.shape[-1]
    while left > 2 * BLOCK:
        number = -(-left // BLOCK)
        shape = [*rows.shape[:-1], number, BLOCK]
        chosen = ranked(rows, blocked(chosen, shape, left, count), k, later)
        left = number * k
        chosen = reshape(chosen, [*rows.shape[:-1], left])
    return ranked(rows, chosen, k, later)


def argsort(data: Tensor, axis: int = -1, is_ascend: bool = True) -> Tensor:
    """The places of all elements along `axis` in order, int32."""
    at = normal_axis(axis, data.ndim, call_text("argsort", data=data, axis=axis))
    return topk(data, data.shape[at], at, is_ascend)


def sort(data: Tensor, axis: int = -1, is_ascend: bool = True) -> Tensor:
    """The elements in order along `axis`."""
    return gather(data, axis, argsort(data, axis, is_ascend))


def _is_nan(value: Expr) -> Expr:
    return value != value


def greater(a: Expr, b: Expr) -> Expr:
    """a > b, where NaN is the greatest."""
    if not a.dtype.is_float:
        return a > b
    return te.any(a > b, te.all(_is_nan(a), b.equal(b)))


def _moved(x: Tensor, axis: int, back: bool = False) -> Tensor:
    """`axis` as the last one, or the last one at `axis`."""
    order = [k for k in range(x.ndim) if k != axis]
    shape = [*(x.shape[k] for k in order), x.shape[axis]]
    if back:
        shape = [*x.shape[:axis], x.shape[-1], *x.shape[axis:-1]]
        return stage(
            shape, lambda i: x[(*i[:axis], *i[axis + 1 :], i[axis])], "T_moved", "injective"
        )
    return stage(shape, lambda i: x[(*i[:axis], i[-1], *i[axis:-1])], "T_moved", "injective")
