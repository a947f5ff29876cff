"""Sorting by merges, as stages of reductions and gathers; and searches in what is sorted.

In: rows of values, which of two comes later.  Out: int32 places in order; equal ones keep theirs.
Blocks are ranked by counting, then neighbouring runs are merged: each place of the result finds out
how many of the elements before it come from the first run, by a search of RADIX children at each
level.  So n elements cost about n * (2 * BLOCK + RADIX * log(n)^2 / 10) comparisons, by some
log(n)^2 / 6 stages.  Read next: `ranking.py`, `gather.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.stage import Indices, stage
from tilewright.topi.transform import reshape

BLOCK = 256  # elements whose ranks are found by comparing all pairs
RADIX = 32  # of searches

Later = Callable[[Expr, Expr], Expr]  # whether the first of two values comes after the second


def count_leading(
    shape: list[int], length: int, holds: Callable[[Indices, Expr], Expr], name: str
) -> Tensor:
    """For each index of `shape` how many m of `length` there are for which it holds, int32.

    holds: true for the first m, then false; it is asked for m of at least 0, also beyond `length`,
        where it must be false
    """
    step = 1
    while step * RADIX < length:
        step *= RADIX
    children, found = -(-length // step), None
    while step:
        found = _narrowed(shape, found, children, step, holds, name)
        children, step = RADIX, step // RADIX
    assert found is not None
    return found


def _narrowed(
    shape: list[int], found: Tensor | None, children: int, step: int,
    holds: Callable[[Indices, Expr], Expr], name: str,
) -> Tensor:  # fmt: skip
    """Counts that are exact to `step`: those of `found` and, of the next elements, whole steps."""
    j = te.reduce_axis((0, children), "j")

    def body(i: Indices) -> Expr:
        last = (j.var + 1) * step - 1
        at = last if found is None else found[i] + last
        return te.sum(holds(i, at).astype("int32"), axis=j)

    more = stage(shape, body, f"T_{name}_steps", "comm_reduce")
    if found is None and step == 1:
        return more
    return stage(
        shape,
        lambda i: more[i] * step if found is None else found[i] + more[i] * step,
        f"T_{name}", "injective",
    )  # fmt: skip


def first_places(rows: Tensor, k: int, later: Later) -> Tensor:
    """The places in `rows` [.., n] of the first `k`, in order: int32 [.., k]."""
    count = rows.shape[-1]
    span, kept = BLOCK, min(BLOCK, k)
    if count <= 2 * BLOCK:
        return ranked(rows, None, k, later)
    order = ranked(rows, blocked(None, [*rows.shape[:-1], -(-count // span), span], count, count),
                   kept, later)  # fmt: skip
    while order.shape[-2] > 1:
        order, span = _merged(rows, order, span, min(2 * order.shape[-1], k), later), 2 * span
    return reshape(order, [*rows.shape[:-1], order.shape[-1]])


def _merged(rows: Tensor, order: Tensor, span: int, kept: int, later: Later) -> Tensor:
    """Pairs of runs in `order` [.., runs, size] as one: the first `kept` of both.

    A run holds the first places of `span` elements of its row, of which the last has fewer.
    """
    count, (runs, size) = rows.shape[-1], order.shape[-2:]
    shape = [*order.shape[:-2], -(-runs // 2), kept]

    def place(i: Indices, run: Expr, at: Expr) -> Expr:
        inside = te.maximum(te.minimum(at, te.const(size - 1)), te.const(0))
        return te.minimum(
            order[(*i, te.minimum(run, te.const(runs - 1)), inside)], te.const(count - 1)
        )

    keys = stage(
        order.shape, lambda i: rows[(*i[:-2], place(i[:-2], i[-2], i[-1]))], "T_keys", "injective"
    )

    def key(i: Indices, run: Expr, at: Expr) -> Expr:
        inside = te.maximum(te.minimum(at, te.const(size - 1)), te.const(0))
        return keys[(*i, te.minimum(run, te.const(runs - 1)), inside)]

    def number(run: Expr) -> Expr:
        """Of the elements in a run."""
        left = count - run * span
        return te.maximum(te.minimum(left, te.const(size)), te.const(0))

    def from_first(i: Indices, a: Expr, b: Expr) -> Expr:
        """Whether element a of the first run comes before element b of the second one, if any."""
        first = i[-2] * 2
        before = ~later(key(i[:-2], first, a), key(i[:-2], first + 1, b))
        return te.all(a < number(first), te.any(b >= number(first + 1), before))

    taken = count_leading(
        shape, size, lambda i, m: te.all(m < i[-1], from_first(i, m, i[-1] - 1 - m)), "taken"
    )

    def body(i: Indices) -> Expr:
        a, b, first = taken[i], i[-1] - taken[i], i[-2] * 2
        return te.if_then_else(
            from_first(i, a, b), place(i[:-2], first, a), place(i[:-2], first + 1, b)
        )

    return stage(shape, body, "T_merged", "injective")


def blocked(chosen: Tensor | None, shape: list[int], left: int, none: int) -> Tensor:
    """Places in blocks [.., number, block]; `none` behind the `left` ones that there are."""
    block = shape[-1]

    def body(i: Indices) -> Expr:
        at = i[-2] * block + i[-1]
        here = at if chosen is None else chosen[(*i[:-2], at)]
        return te.if_then_else(at < left, here, te.const(none))

    return stage(shape, body, "T_blocked", "injective")


def ranked(rows: Tensor, chosen: Tensor | None, k: int, later: Later) -> Tensor:
    """The places in `rows` [.., n] of the first k among `chosen` [.., (number,) m]; None: all.

    It compares all pairs.  A place n is that of nothing, which comes last.
    """
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
        ahead = te.select(j.var < i[-1], ~later(its, mine), later(mine, its))
        if chosen is not None:  # what is not there comes last
            ahead = te.all(place(other) < count, te.any(place(i) >= count, ahead))
        return ahead.astype("int32")

    rank = stage(shape, lambda i: te.sum(before(i), axis=j), "T_rank", "comm_reduce")

    def found(i: Indices) -> Expr:
        at = (*i[:-1], p.var)
        none = te.const(count if chosen is not None else count - 1)
        return te.min(te.select(rank[at].equal(i[-1]), place(at), none), axis=p)

    return stage((*outer, k), found, "T_topk", "comm_reduce")
