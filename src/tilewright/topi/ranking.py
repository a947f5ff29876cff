"""Operators that order elements: the place of the greatest, the k greatest.

In: a tensor of numbers.  Out: int32 places, by stages of reductions and gathers.  Of equal elements
the one with the lower index comes first, and NaN is greater than everything, as in numpy.
Read next: `scan.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.elementwise import cast
from tilewright.topi.indexing import gather
from tilewright.topi.stage import Indices, call_text, check_tensors, normal_axis, require, stage
from tilewright.topi.transform import reshape

BLOCK = 256  # elements whose ranks are found by comparing all pairs

Below = Callable[[Expr, Expr], Expr]  # whether the first of two values comes after the second


def _first_of(name: str, best: Callable[..., Expr], story: str) -> Callable[..., Tensor]:
    def operator(
        data: Tensor,
        axis: int = -1,
        keepdims: bool = False,
        select_last_index: bool = False,
    ) -> Tensor:
        place = call_text(name, data=data, axis=axis)
        check_tensors(place, data=data)
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
    operator.__doc__ = f"""The place of the {story} element along `axis`, int32.

    Of several the first, or with select_last_index the last; keepdims leaves an extent of 1."""
    return operator


argmax = _first_of("argmax", te.max, "greatest")
argmin = _first_of("argmin", te.min, "smallest")


def topk(data: Tensor, k: int = 1, axis: int = -1, is_ascend: bool = False) -> Tensor:
    """The places of the `k` greatest (is_ascend: smallest) elements along `axis`, in their order.

    Returns int32 with `k` places along `axis`; `gather` gives the values.
    Blocks of BLOCK or 2 k elements are ranked by counting, for each element, those before it; the
    first k of each block are the elements of the next round.  So n elements cost about
    n * max(BLOCK, 2 k) comparisons, and a whole sort (k = n) n * n.
    """
    place = call_text("topk", data=data, k=k, axis=axis)
    check_tensors(place, data=data)
    at = normal_axis(axis, data.ndim, place)
    count = data.shape[at]
    require(1 <= k <= count, place, f"k={k} of {count} elements", f"Use 1 to {count}.")
    values = cast(data, "int32") if data.dtype == "bool" else data
    rows = _moved(values, at)
    below: Below = _greater if is_ascend else lambda a, b: _greater(b, a)
    block = max(BLOCK, 2 * k)
    chosen: Tensor | None = (
        None  # places of the elements that are left, `count` where there is none
    )
    left = count
    while left > 2 * block:
        number = -(-left // block)
        shape = [*rows.shape[:-1], number, block]
        chosen = _first(rows, _blocked(chosen, shape, left, count), k, below)
        left = number * k
        chosen = reshape(chosen, [*rows.shape[:-1], left])
    best = _first(rows, chosen, k, below)
    return best if at == data.ndim - 1 else _moved(best, at, back=True)


def argsort(data: Tensor, axis: int = -1, is_ascend: bool = True) -> Tensor:
    """The places of all elements along `axis` in order, int32; it costs n * n comparisons."""
    at = normal_axis(axis, data.ndim, call_text("argsort", data=data, axis=axis))
    return topk(data, data.shape[at], at, is_ascend)


def sort(data: Tensor, axis: int = -1, is_ascend: bool = True) -> Tensor:
    """The elements in order along `axis`; it costs n * n comparisons."""
    return gather(data, axis, argsort(data, axis, is_ascend))


def _is_nan(value: Expr) -> Expr:
    return value != value


def _greater(a: Expr, b: Expr) -> Expr:
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


def _blocked(chosen: Tensor | None, shape: list[int], left: int, none: int) -> Tensor:
    """Places in blocks [.., number, block]; `none` behind the `left` ones that there are."""
    block = shape[-1]

    def body(i: Indices) -> Expr:
        at = i[-2] * block + i[-1]
        here = at if chosen is None else chosen[(*i[:-2], at)]
        return te.if_then_else(at < left, here, te.const(none))

    return stage(shape, body, "T_blocked", "injective")


def _first(rows: Tensor, chosen: Tensor | None, k: int, below: Below) -> Tensor:
    """The places in `rows` [.., n] of the first k among `chosen` [.., (number,) m]; None: all."""
    count = rows.shape[-1]
    shape = rows.shape if chosen is None else chosen.shape
    outer, size = shape[:-1], shape[-1]

    def place(i: Indices) -> Expr:
        return i[-1] if chosen is None else chosen[i]

    def value(i: Indices) -> Expr:
        last = te.minimum(place(i), te.const(count - 1)) if chosen is not None else i[-1]
        return rows[(*i[: rows.ndim - 1], last)]

    if chosen is not None:
        held = stage(shape, value, "T_values", "injective")
        value = held.__getitem__  # type: ignore[assignment]
    j, p = te.reduce_axis((0, size), "j"), te.reduce_axis((0, size), "p")

    def before(i: Indices) -> Expr:
        """Whether element j comes before element i[-1]."""
        other = (*i[:-1], j.var)
        mine, its = value(i), value(other)
        ahead = te.select(j.var < i[-1], ~below(its, mine), below(mine, its))
        if chosen is not None:  # what is not there comes last
            ahead = te.all(place(other) < count, te.any(place(i) >= count, ahead))
        return ahead.astype("int32")

    rank = stage(shape, lambda i: te.sum(before(i), axis=j), "T_rank", "comm_reduce")

    def ranked(i: Indices) -> Expr:
        at = (*i[:-1], p.var)
        none = te.const(count if chosen is not None else count - 1)
        return te.min(te.select(rank[at].equal(i[-1]), place(at), none), axis=p)

    return stage((*outer, k), ranked, "T_topk", "comm_reduce")
