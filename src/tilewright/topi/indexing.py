"""Operators whose indices are data: take, gather, scatter.

In: tensors, of which one holds integers.  Out: stages that read inside their operands whatever
those integers are: "wrap" counts past the ends round about, so that -1 is the last element, "clip"
stops at the ends; what would be scattered to a place that is not there is dropped.
A scatter is the sum (maximum, ...) over all updates that meet a place, so it costs the elements of
the result times the updates of one place's line; it is deterministic, and the last update wins.
Read next: `ranking.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.base.dtype import INT32, INT64
from tilewright.ir.expr import Expr
from tilewright.te.tensor import IterVar, Tensor
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensors,
    normal_axis,
    require,
    stage,
    wide,
)
from tilewright.topi.transform import reshape

MODES = ("clip", "wrap", "fast")
_SOME = "Use one of {}."


def _position(index: Expr, extent: int, mode: str = "wrap") -> Expr:
    """`index` as int32 within [0, extent)."""
    wide = index if index.dtype.bits >= 32 else index.astype(INT32)
    if mode == "wrap":
        return (wide % te.const(extent, wide.dtype)).astype(INT32)
    first, last = te.const(0, wide.dtype), te.const(extent - 1, wide.dtype)
    return te.maximum(te.minimum(wide, last), first).astype(INT32)


def _target(index: Expr, extent: int) -> Expr:
    """`index`, counted from the front where it is negative; outside [0, extent) it stays there."""
    wide = (
        index if index.dtype.is_index else index.astype(INT32 if index.dtype.bits < 32 else INT64)
    )
    return wide + te.select(wide < 0, te.const(extent, wide.dtype), te.const(0, wide.dtype))


def _check_indices(indices: Tensor, place: str) -> None:
    require(
        indices.dtype.is_int, place, f"indices of type {indices.dtype} are no integers",
        'Cast them first: topi.cast(indices, "int32").',
    )  # fmt: skip


def take(
    a: Tensor,
    indices: Tensor,
    axis: int | None = None,
    batch_dims: int = 0,
    mode: str = "clip",
) -> Tensor:
    """The slices of `a` at `indices` along `axis`: the axis becomes the axes of `indices`.

    axis: None takes from `a` as a vector; batch_dims: so many first axes are common to both
    mode: "clip" (or "fast") limits indices to the ends, "wrap" counts on round about
    """
    place = call_text("take", a=a, indices=indices, axis=axis, batch_dims=batch_dims, mode=mode)
    check_tensors(place, a=a, indices=indices)
    _check_indices(indices, place)
    require(mode in MODES, place, f"the mode {mode!r}", _SOME.format(", ".join(MODES)))
    if axis is None:
        a, axis = reshape(a, [-1]), 0
    k = normal_axis(axis, a.ndim, place)
    batch = batch_dims + (indices.ndim if batch_dims < 0 else 0)
    require(
        0 <= batch <= min(k, indices.ndim) and a.shape[:batch] == indices.shape[:batch], place,
        f"the first {batch} axes are not common to both, before the axis",
        "Use batch_dims=0, or equal leading extents.",
    )  # fmt: skip
    inner = indices.ndim - batch
    shape = [*a.shape[:k], *indices.shape[batch:], *a.shape[k + 1 :]]

    def body(i: Indices) -> Expr:
        at = indices[(*i[:batch], *i[k : k + inner])]
        return a[(*i[:k], _position(at, a.shape[k], mode), *i[k + inner :])]

    return stage(shape, body, "T_take", "injective")


def gather(data: Tensor, axis: int, indices: Tensor) -> Tensor:
    """out[.., i, ..] = data[.., indices[.., i, ..], ..] along `axis`; negative indices count from
    the end.

    The result has the shape of `indices`, which is nowhere larger than `data` but along `axis`.
    """
    place = call_text("gather", data=data, axis=axis, indices=indices)
    check_tensors(place, data=data, indices=indices)
    _check_indices(indices, place)
    k = normal_axis(axis, data.ndim, place)
    _check_inside(data, indices, k, place)

    def body(i: Indices) -> Expr:
        return data[(*i[:k], _position(indices[i], data.shape[k]), *i[k + 1 :])]

    return stage(indices.shape, body, "T_gather", "injective")


def _check_inside(data: Tensor, indices: Tensor, axis: int, place: str) -> None:
    fits = data.ndim == indices.ndim and all(
        n <= m for d, (n, m) in enumerate(zip(indices.shape, data.shape, strict=True)) if d != axis
    )
    require(
        fits, place, f"indices of shape {list(indices.shape)} do not fit {list(data.shape)}",
        f"They have as many axes, and no larger ones but axis {axis}.",
    )  # fmt: skip


def gather_nd(data: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    """out[y.., x..] = data[indices[0, y..], indices[1, y..], .., x..], TVM's order of axes.

    indices: [M, Y..], of which M is how many axes of `data` they choose along
    batch_dims: so many first axes are common to `data` and Y..
    """
    place = call_text("gather_nd", data=data, indices=indices, batch_dims=batch_dims)
    check_tensors(place, data=data, indices=indices)
    _check_indices(indices, place)
    require(indices.ndim >= 1, place, "the indices have no axes", "Give [M, ..].")
    chosen, points = indices.shape[0], indices.shape[1:]
    require(
        0 <= batch_dims <= len(points) and batch_dims + chosen <= data.ndim, place,
        f"{chosen} indices behind {batch_dims} common axes do not fit {list(data.shape)}",
        "The first axis of indices is as long as the axes of data that they choose along.",
    )  # fmt: skip
    require(
        points[:batch_dims] == data.shape[:batch_dims], place,
        "the common axes differ", "Give equal leading extents.",
    )  # fmt: skip
    rest = data.shape[batch_dims + chosen :]

    def body(i: Indices) -> Expr:
        y, x = i[: len(points)], i[len(points) :]
        extents = data.shape[batch_dims : batch_dims + chosen]
        at = [_position(indices[(te.const(m), *y)], n) for m, n in enumerate(extents)]
        return data[(*y[:batch_dims], *at, *x)]

    return stage([*points, *rest], body, "T_gather_nd", "injective")


# -- scatter ---------------------------------------------------------------------------------------

# how updates of one place combine, and then with what is there
_COMBINE: dict[str, tuple[Callable[..., Expr], Callable[[Expr, Expr], Expr]]] = {
    "add": (te.sum, lambda a, b: a + b),
    "mul": (te.prod, lambda a, b: a * b),
    "min": (te.min, te.minimum),
    "max": (te.max, te.maximum),
}
REDUCTIONS = ("update", *_COMBINE)


def scatter_elements(
    data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "update"
) -> Tensor:
    """`data` with updates[.., u, ..] put at, or combined with, place indices[.., u, ..] of `axis`.

    reduction: "update" (the last one wins), "add", "mul", "min", "max"
    The cost is that of the elements of `data` times the extent of `indices` along `axis`.
    """
    place = call_text(
        "scatter_elements", data=data, indices=indices, updates=updates, axis=axis,
        reduction=reduction,
    )  # fmt: skip
    check_tensors(place, data=data, indices=indices, updates=updates)
    k = normal_axis(axis, data.ndim, place)
    _check_inside(data, indices, k, place)
    require(
        indices.shape == updates.shape, place,
        "indices and updates differ in shape", "Give one index for each update.",
    )  # fmt: skip
    u = te.reduce_axis((0, indices.shape[k]), "u")

    def covered(i: Indices) -> list[Expr]:
        pairs = zip(i, indices.shape, data.shape, strict=True)
        return [x < n for d, (x, n, m) in enumerate(pairs) if d != k and n < m]

    def at(i: Indices, place: Any) -> Indices:
        return (*i[:k], place, *i[k + 1 :])

    def met(i: Indices) -> Expr:
        meets = _target(indices[at(i, u)], data.shape[k]).equal(i[k])
        guards = covered(i)
        return te.if_then_else(te.all(*guards), meets, te.const(False)) if guards else meets

    return _scatter(data, updates, [u], met, u, at, covered, reduction, place)


def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, reduction: str = "update") -> Tensor:
    """`data` with updates[y.., x..] put at, or combined with, data[indices[0, y..], .., x..].

    indices: [M, Y..] in TVM's order; updates: [Y.., the axes of data behind the first M]
    reduction: "update" (the last one wins), "add", "mul", "min", "max"
    The cost is that of the elements of `data` times the points Y...
    """
    place = call_text(
        "scatter_nd", data=data, indices=indices, updates=updates, reduction=reduction
    )
    check_tensors(place, data=data, indices=indices, updates=updates)
    _check_indices(indices, place)
    require(indices.ndim >= 1, place, "the indices have no axes", "Give [M, ..].")
    chosen, points = indices.shape[0], indices.shape[1:]
    require(
        chosen <= data.ndim and updates.shape == (*points, *data.shape[chosen:]), place,
        f"updates of shape {list(updates.shape)} do not fit",
        f"Their shape is {[*points, *data.shape[chosen:]]}: the points, then the rest of data.",
    )  # fmt: skip
    count = math.prod(points)
    where = reshape(indices, [chosen, count])
    values = reshape(updates, [count, *data.shape[chosen:]])
    u = te.reduce_axis((0, count), "u")

    def met(i: Indices) -> Expr:
        tests = [_target(where[m, u], n).equal(i[m]) for m, n in enumerate(data.shape[:chosen])]
        return te.all(*tests)

    def at(i: Indices, place: Any) -> Indices:
        return (place, *i[chosen:])

    return _scatter(data, values, [u], met, u, at, lambda i: [], reduction, place)


def _scatter(
    data: Tensor,
    updates: Tensor,
    axes: Sequence[IterVar],
    met: Callable[[Indices], Expr],
    number: IterVar,
    at: Callable[[Indices, Any], Indices],
    covered: Callable[[Indices], list[Expr]],
    reduction: str,
    place: str,
) -> Tensor:
    """met: whether update `number` goes to a place; at: the index of that update
    covered: what holds for places that updates can reach
    """
    require(
        data.dtype is updates.dtype, place,
        f"updates of {updates.dtype} do not fit data of {data.dtype}", "Cast one of them.",
    )  # fmt: skip
    require(
        reduction in REDUCTIONS, place, f"reduction={reduction!r}",
        _SOME.format(", ".join(REDUCTIONS)),
    )  # fmt: skip
    require(
        reduction == "update" or data.dtype != "bool", place,
        "there is no arithmetic on bool", "Cast it first.",
    )  # fmt: skip
    if reduction == "update":
        last = stage(
            data.shape,
            lambda i: te.max(te.select(met(i), number.var, te.const(-1)), axis=axes),
            "T_last", "comm_reduce",
        )  # fmt: skip
        return stage(
            data.shape,
            lambda i: te.if_then_else(
                te.all(*covered(i), last[i] >= 0), updates[at(i, last[i])], data[i]
            ),
            "T_scatter", "injective",
        )  # fmt: skip
    reduce, combine = _COMBINE[reduction]

    def value(i: Indices) -> Expr:
        return wide(updates[at(i, number.var)])

    total = stage(
        data.shape, lambda i: reduce(value(i), axis=axes, where=met(i)), "T_met", "comm_reduce"
    )
    return stage(
        data.shape,
        lambda i: combine(wide(data[i]), total[i]).astype(data.dtype),
        "T_scatter", "injective",
    )  # fmt: skip
