"""What data say how much there is of: places of elements that are not zero, different elements;
values in the order of keys.

In: a tensor.  Out: tensors that are as long as they may become, in order from the front; behind
what there is stand -1 (places), and 0.  Read next: `sorting.py`, `scan.py`.
"""

from __future__ import annotations

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.gather import gather
from tilewright.topi.ranking import argsort
from tilewright.topi.scan import cumsum
from tilewright.topi.sorting import count_leading
from tilewright.topi.stage import Indices, call_text, check_tensor, check_tensors, require, stage


def sort_by_key(
    keys: Tensor, values: Tensor, axis: int = -1, is_ascend: bool = True
) -> tuple[Tensor, Tensor]:
    """`keys` in order along `axis`, and `values`, of the same shape, moved with them.

    Values of equal keys keep their order.
    """
    place = call_text("sort_by_key", keys=keys, values=values)
    check_tensors(place, keys=keys, values=values)
    require(
        keys.shape == values.shape, place, "keys and values have different shapes",
        "Give each key one value.",
    )  # fmt: skip
    order = argsort(keys, axis, is_ascend)
    return gather(keys, axis, order), gather(values, axis, order)


def argwhere(output_shape: Tensor, condition: Tensor) -> Tensor:
    """int32 [rows, rank]: the places of the elements of `condition` that are not 0, in order.

    output_shape: a tensor of the shape of the result; what it holds does not count
    """
    place = call_text("argwhere", output_shape=output_shape, condition=condition)
    check_tensors(place, output_shape=output_shape, condition=condition)
    rank = condition.ndim
    require(
        output_shape.ndim == 2 and output_shape.shape[1] == rank > 0, place,
        f"rows of places of {rank} axes have shape [rows, {rank}]",
        "Give a tensor of that shape.",
    )  # fmt: skip
    count = 1
    for n in condition.shape:
        count *= n

    def at(flat: Expr) -> Indices:
        found: list[Expr] = []
        for n in reversed(condition.shape):
            found.append(flat % n)
            flat = flat // n
        return tuple(reversed(found))

    def counts(i: Indices) -> Expr:
        value = condition[at(i[0])]
        return (~value.equal(te.const(0, value.dtype))).astype("int32")

    total = cumsum(stage((count,), counts, "T_set", "injective"))
    place_of = _first_behind(total, output_shape.shape[0])

    def body(i: Indices) -> Expr:
        flat = te.minimum(place_of[i[0]], te.const(count - 1))
        axis = te.const(-1)
        for k, x in enumerate(at(flat)):
            axis = te.select(i[1].equal(k), x, axis)
        return te.select(place_of[i[0]] < count, axis, te.const(-1))

    return stage(output_shape.shape, body, "T_argwhere", "injective")


def unique(data: Tensor, is_sorted: bool = True, return_counts: bool = False) -> list[Tensor]:
    """[the different elements of a vector, where each is first, for each element of `data` which it
    is, how many there are ([1])], and, if asked for, how often each is there; places are int32.

    is_sorted: in rising order; else as they come.  A NaN differs from every other.
    """
    check_tensor(data, "data", "N", call_text("unique", data=data))
    count = data.shape[0]
    order = argsort(data)
    rising = stage((count,), lambda i: data[order[i]], "T_rising", "injective")

    def begins(i: Indices) -> Expr:
        before = rising[te.maximum(i[0] - 1, te.const(0))]
        return te.any(i[0].equal(0), ~rising[i].equal(before)).astype("int32")

    ranks = cumsum(stage((count,), begins, "T_begins", "injective"))
    starts = _first_behind(ranks, count)
    where = argsort(order)  # of each element among those in order
    which = stage((count,), lambda i: ranks[where[i]] - 1, "T_which", "injective")
    number = stage((1,), lambda i: ranks[te.const(count - 1)], "T_number", "injective")

    def start(u: Expr) -> Expr:
        return te.minimum(starts[u], te.const(count - 1))

    first = stage(
        (count,),
        lambda i: te.select(starts[i] < count, order[start(i[0])], te.const(count)),
        "T_first", "injective",
    )  # fmt: skip
    turn = None if is_sorted else argsort(first)

    def own(i: Indices) -> Expr:
        return i[0] if turn is None else turn[i]

    if turn is not None:
        back, rising_which = argsort(turn), which
        which = stage((count,), lambda i: back[rising_which[i]], "T_inverse", "injective")

    def there(i: Indices, value: Expr, none: int) -> Expr:
        return te.select(starts[own(i)] < count, value, te.const(none, value.dtype))

    values = stage((count,), lambda i: there(i, rising[start(own(i))], 0), "T_unique", "injective")
    places = stage((count,), lambda i: there(i, first[own(i)], -1), "T_places", "injective")

    def often(i: Indices) -> Expr:
        u = own(i)
        behind = te.select(u + 1 < count, starts[te.minimum(u + 1, te.const(count - 1))], count)
        return there(i, behind - starts[u], 0)

    made = [values, places, which, number]
    return [*made, stage((count,), often, "T_counts", "injective")] if return_counts else made


def _first_behind(rising: Tensor, rows: int) -> Tensor:
    """For each r of `rows` the first place whose number is more than r; behind the last, if none.

    rising: int32 numbers [n] that never fall
    """
    count = rising.shape[0]

    def holds(i: Indices, m: Expr) -> Expr:
        return te.all(m < count, rising[te.minimum(m, te.const(count - 1))] <= i[0])

    return count_leading([rows], count, holds, "behind")
