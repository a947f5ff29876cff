"""Running sums and products.

In: a tensor and an axis.  Out: a tensor of its shape by a few stages: elements are combined in
blocks of BLOCK, then the results of whole blocks in the same way, so n elements cost about
BLOCK * n, whatever n is.  Read next: `reduction.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.elementwise import cast
from tilewright.topi.stage import Indices, call_text, check_tensors, normal_axis, require, stage
from tilewright.topi.transform import reshape

BLOCK = 16  # elements that are combined with each other at once

Combine = Callable[[Expr, Expr], Expr]
Key = Callable[[Indices], Expr]


def cumsum(
    data: Tensor,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool = False,
    reverse: bool = False,
) -> Tensor:
    """Sums of the elements up to each one along `axis` (None: of `data` as a vector).

    dtype: of the result, default that of `data`; float16 and bfloat16 add in float32
    exclusive: without the element itself
    reverse: from the end
    """
    return _scan("cumsum", te.sum, lambda a, b: a + b, 0, data, axis, dtype, exclusive, reverse)


def cumprod(
    data: Tensor,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool = False,
    reverse: bool = False,
) -> Tensor:
    """Products of the elements up to each one along `axis`; otherwise as `cumsum`."""
    return _scan("cumprod", te.prod, lambda a, b: a * b, 1, data, axis, dtype, exclusive, reverse)


def _scan(
    name: str, reduce: Callable[..., Expr], combine: Combine, start: int, data: Tensor,
    axis: int | None, dtype: str | None, exclusive: bool, reverse: bool,
) -> Tensor:  # fmt: skip
    place = call_text(name, data=data, axis=axis)
    check_tensors(place, data=data)
    if axis is None:
        data, axis = reshape(data, (-1,)) if data.ndim != 1 else data, 0
    k = normal_axis(axis, data.ndim, place)
    wanted = data if dtype is None else cast(data, dtype)
    kind = wanted.dtype
    require(kind != "bool", place, "there is no arithmetic on bool", 'Use dtype="int32".')
    adding = kind.compute if kind.is_float else kind.accumulator
    count = data.shape[k]

    def seen(at: Expr) -> Expr:
        return count - 1 - at if reverse else at

    sums = running(
        stage(
            data.shape,
            lambda i: wanted[(*i[:k], seen(i[k]), *i[k + 1 :])].astype(adding),
            f"T_{name}_in", "injective",
        ),
        k, reduce, combine,
    )  # fmt: skip

    def body(i: Indices) -> Expr:
        at = seen(i[k])
        if not exclusive:
            return sums[(*i[:k], at, *i[k + 1 :])].astype(kind)
        before = sums[(*i[:k], at - 1, *i[k + 1 :])]
        return te.if_then_else(at > 0, before, te.const(start, adding)).astype(kind)

    return stage(data.shape, body, f"T_{name}", "injective")


def running(
    x: Tensor, k: int, reduce: Callable[..., Expr], combine: Combine, key: Key | None = None
) -> Tensor:
    """The combination of elements 0 to i of axis k, for each i.

    key: of an element: only those with the key of element i count.  Equal keys are neighbours
    """
    count = x.shape[k]
    block = count if count <= 2 * BLOCK else BLOCK
    number = -(-count // block)
    j = te.reduce_axis((0, block), "j")

    def at(i: Indices, place: Expr) -> Indices:
        return (*i[:k], place, *i[k + 1 :])

    def same(i: Indices, a: Expr, b: Expr) -> list[Expr]:
        """That elements a and b of axis k have one key."""
        if key is None:
            return []
        ends = [te.minimum(e, te.const(count - 1)) for e in (a, b)]
        return [key(at(i, ends[0])).equal(key(at(i, ends[1])))]

    def partial(i: Indices) -> Expr:
        first, rest = i[k] * block, (*i[:k], i[k], *i[k + 2 :])
        inside = [j.var <= i[k + 1], *same(rest, first + j.var, first + i[k + 1])]
        if number * block > count:
            inside.append(first + j.var < count)
        return reduce(x[at(rest, first + j.var)], axis=j, where=te.all(*inside))

    shape = [*x.shape[:k], number, block, *x.shape[k + 1 :]]
    blocks = stage(shape, partial, "T_partial", "comm_reduce")
    if number == 1:
        return stage(
            x.shape, lambda i: blocks[(*i[:k], te.const(0), *i[k:])], "T_running", "injective"
        )
    whole = stage(
        [*x.shape[:k], number, *x.shape[k + 1 :]],
        lambda i: blocks[(*i[: k + 1], te.const(block - 1), *i[k + 1 :])], "T_whole", "injective",
    )  # fmt: skip

    def last(i: Indices) -> Indices:
        return at(i, te.minimum(i[k] * block + (block - 1), te.const(count - 1)))

    behind = running(whole, k, reduce, combine, None if key is None else lambda i: key(last(i)))

    def body(i: Indices) -> Expr:
        own = blocks[(*i[:k], i[k] // block, i[k] % block, *i[k + 1 :])]
        first = i[k] // block * block
        joins = te.all(first > 0, *same(i, te.maximum(first - 1, te.const(0)), i[k]))
        return te.if_then_else(joins, combine(own, behind[at(i, i[k] // block - 1)]), own)

    return stage(x.shape, body, "T_running", "injective")
