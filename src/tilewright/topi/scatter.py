"""Operators that write where data says: scatter.

In: a tensor, updates, and integers that say where each goes.  Out: stages.  Every element of the
result is computed once, so results are the same at every run: the last update of a place wins, what
would go to a place that is not there is dropped.
With few updates each place looks at all of them.  With many they are sorted by where they go, and
combined with those before them that go there too; a place then looks for the last one.  So u
updates of n places cost about 1000 u + 100 n, and not u n.  Read next: `sorting.py`, `scan.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.base.dtype import INT32, INT64
from tilewright.ir.expr import Expr
from tilewright.te.tensor import IterVar, Tensor
from tilewright.topi.gather import check_indices, check_inside
from tilewright.topi.scan import running
from tilewright.topi.sorting import BLOCK, RADIX, count_leading, first_places
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

_SORTED_AT = 4  # times as many steps are saved: sorting takes more stages, which have a cost, too
_SOME = "Use one of {}."


def _target(index: Expr, extent: int) -> Expr:
    """`index`, counted from the front where it is negative; outside [0, extent) it stays there."""
    wide = (
        index if index.dtype.is_index else index.astype(INT32 if index.dtype.bits < 32 else INT64)
    )
    return wide + te.select(wide < 0, te.const(extent, wide.dtype), te.const(0, wide.dtype))


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
    """
    place = call_text(
        "scatter_elements", data=data, indices=indices, updates=updates, axis=axis,
        reduction=reduction,
    )  # fmt: skip
    check_tensors(place, data=data, indices=indices, updates=updates)
    k = normal_axis(axis, data.ndim, place)
    check_inside(data, indices, k, place)
    require(
        indices.shape == updates.shape, place,
        "indices and updates differ in shape", "Give one index for each update.",
    )  # fmt: skip
    count, size = indices.shape[k], data.shape[k]
    pairs = [(d, n) for d, (n, m) in enumerate(zip(indices.shape, data.shape, strict=True))
             if d != k and n < m]  # fmt: skip

    def covered(i: Indices) -> list[Expr]:
        return [i[d] < n for d, n in pairs]

    def at(i: Indices, place: Any) -> Indices:
        return (*i[:k], place, *i[k + 1 :])

    def row(i: Indices) -> Indices:
        return (*i[:k], *i[k + 1 :])

    def met(i: Indices, u: IterVar) -> Expr:
        meets = _target(indices[at(i, u)], size).equal(i[k])
        return _guarded(covered(i), meets)

    def targets() -> Tensor:
        def body(i: Indices) -> Expr:
            found = _target(indices[(*i[:k], i[-1], *i[k:-1])], size)
            inside = te.all(found >= 0, found < size)
            return te.select(inside, found.astype(INT32), te.const(size))

        rows = [n for d, n in enumerate(indices.shape) if d != k]
        return stage([*rows, count], body, "T_targets", "injective")

    spots = _Spots(count, size, k, met, at, covered, row, lambda i: i[k], targets)
    return _scatter(data, updates, spots, reduction, place)


def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, reduction: str = "update") -> Tensor:
    """`data` with updates[y.., x..] put at, or combined with, data[indices[0, y..], .., x..].

    indices: [M, Y..] in TVM's order; updates: [Y.., the axes of data behind the first M]
    reduction: "update" (the last one wins), "add", "mul", "min", "max"
    """
    place = call_text(
        "scatter_nd", data=data, indices=indices, updates=updates, reduction=reduction
    )
    check_tensors(place, data=data, indices=indices, updates=updates)
    check_indices(indices, place)
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
    extents = data.shape[:chosen]
    strides = [math.prod(extents[m + 1 :]) for m in range(chosen)]

    def met(i: Indices, u: IterVar) -> Expr:
        return te.all(*(_target(where[m, u], n).equal(i[m]) for m, n in enumerate(extents)))

    def at(i: Indices, place: Any) -> Indices:
        return (place, *i[chosen:])

    def number(i: Indices) -> Expr:
        return sum((i[m] * s for m, s in enumerate(strides)), te.const(0))

    def targets() -> Tensor:
        def body(i: Indices) -> Expr:
            found = [_target(where[m, i[0]], n) for m, n in enumerate(extents)]
            inside = [t for f, n in zip(found, extents, strict=True) for t in (f >= 0, f < n)]
            ends = [te.maximum(te.minimum(f, te.const(n - 1, f.dtype)), te.const(0, f.dtype))
                    for f, n in zip(found, extents, strict=True)]  # fmt: skip
            place = number(tuple(e.astype(INT32) for e in ends))
            return te.select(te.all(*inside), place, te.const(math.prod(extents)))

        return stage([count], body, "T_targets", "injective")

    spots = _Spots(
        count, math.prod(extents), 0, met, at, lambda i: [], lambda i: (), number, targets
    )
    return _scatter(data, values, spots, reduction, place)


def _guarded(guards: list[Expr], test: Expr) -> Expr:
    """Whether all hold; the test, which may read only where they do, comes last."""
    return te.if_then_else(te.all(*guards), test, te.const(False)) if guards else test


@dataclass(frozen=True)
class _Spots:
    """Where updates go.

    count:   of the updates of one row; places: that they may go to; axis: of updates
    met:     whether an update goes to an element of the data
    at:      the index of an update for that element
    covered: what holds for elements that updates can reach
    row:     of an element, or of an update; number: of the place of an element
    targets: [row.., count], the number of the place of each update, `places` where it has none
    """

    count: int
    places: int
    axis: int
    met: Callable[[Indices, IterVar], Expr]
    at: Callable[[Indices, Any], Indices]
    covered: Callable[[Indices], list[Expr]]
    row: Callable[[Indices], Indices]
    number: Callable[[Indices], Expr]
    targets: Callable[[], Tensor]


def _scatter(data: Tensor, updates: Tensor, spots: _Spots, reduction: str, place: str) -> Tensor:
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
    elements, rows = math.prod(data.shape), math.prod(updates.shape) // spots.count
    direct = elements * spots.count
    by_order = 2 * BLOCK * rows * spots.count + 3 * RADIX * elements
    if direct > _SORTED_AT * by_order and spots.places < 1 << 31:
        return _by_order(data, updates, spots, reduction)
    return _by_all(data, updates, spots, reduction)


def _by_all(data: Tensor, updates: Tensor, spots: _Spots, reduction: str) -> Tensor:
    """Each element looks at all updates of its row."""
    u = te.reduce_axis((0, spots.count), "u")
    if reduction == "update":
        last = stage(
            data.shape,
            lambda i: te.max(te.select(spots.met(i, u), u.var, te.const(-1)), axis=u),
            "T_last", "comm_reduce",
        )  # fmt: skip
        return stage(
            data.shape,
            lambda i: te.if_then_else(
                te.all(*spots.covered(i), last[i] >= 0), updates[spots.at(i, last[i])], data[i]
            ),
            "T_scatter", "injective",
        )  # fmt: skip
    reduce, combine = _COMBINE[reduction]
    total = stage(
        data.shape,
        lambda i: reduce(wide(updates[spots.at(i, u.var)]), axis=u, where=spots.met(i, u)),
        "T_met", "comm_reduce",
    )  # fmt: skip
    return stage(
        data.shape,
        lambda i: combine(wide(data[i]), total[i]).astype(data.dtype),
        "T_scatter", "injective",
    )  # fmt: skip


def _by_order(data: Tensor, updates: Tensor, spots: _Spots, reduction: str) -> Tensor:
    """Updates are sorted by their places, each element looks for the last one of its place."""
    targets, count, k = spots.targets(), spots.count, spots.axis
    order = first_places(targets, count, lambda a, b: a > b)
    keys = stage(order.shape, lambda i: targets[(*i[:-1], order[i])], "T_keys", "injective")

    def is_before(i: Indices, m: Expr) -> Expr:
        return te.all(m < count, keys[(*i[:-1], te.minimum(m, te.const(count - 1)))] <= i[-1])

    shape = [*targets.shape[:-1], spots.places]
    behind = count_leading(shape, count, is_before, "behind")

    def last(i: Indices) -> Expr:
        return te.maximum(behind[(*spots.row(i), spots.number(i))] - 1, te.const(0))

    def found(i: Indices) -> Expr:
        meets = keys[(*spots.row(i), last(i))].equal(spots.number(i))
        return _guarded(spots.covered(i), meets)

    if reduction == "update":
        return stage(
            data.shape,
            lambda i: te.if_then_else(
                found(i), updates[spots.at(i, order[(*spots.row(i), last(i))])], data[i]
            ),
            "T_scatter", "injective",
        )  # fmt: skip
    reduce, combine = _COMBINE[reduction]
    values = stage(
        updates.shape,
        lambda i: wide(updates[(*i[:k], order[(*spots.row(i), i[k])], *i[k + 1 :])]),
        "T_ordered", "injective",
    )  # fmt: skip
    sums = running(values, k, reduce, combine, lambda i: keys[(*spots.row(i), i[k])])
    return stage(
        data.shape,
        lambda i: te.if_then_else(
            found(i), combine(wide(data[i]), sums[spots.at(i, last(i))]), wide(data[i])
        ).astype(data.dtype),
        "T_scatter", "injective",
    )  # fmt: skip
