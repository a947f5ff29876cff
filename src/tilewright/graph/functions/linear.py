"""Matrix products of every rank, and sums of products in Einstein's notation.

In: graph values.  Out: graph values made of `nn.dense`, `nn.batch_matmul`, transpositions, products
and sums; axes that only stretch are never copied.  Users find `einsum` in `relay` and `nn_matmul`
as `relay.nn.matmul`; importers call `product`.
Read next: `tensor.py`, `models/onnx/ops/linear.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr
from tilewright.graph.functions import tensor
from tilewright.graph.functions.sizes import settle
from tilewright.graph.leaves import const
from tilewright.graph.op import call

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def nn_matmul(
    tensor_a: Expr,
    tensor_b: Expr,
    units: int | None = None,
    out_dtype: str = "",
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Expr:
    """tensor_a [..., M, K] times tensor_b [K, N]; a transposed operand is stored the other way.

    units: N, where it should be checked, or where the shape of tensor_b follows
    """
    if units is not None and len(tensor_a.shape) > 1:
        depth = tensor_a.shape[-2 if transpose_a else -1]
        settle(tensor_b, (units, depth) if transpose_b else (depth, units), tensor_a)
    place = f"nn.matmul(tensor_a={tensor_a.shape}, tensor_b={tensor_b.shape})"
    if len(tensor_a.shape) < 2 or len(tensor_b.shape) != 2:
        raise ModelError(
            place, "tensor_b must be a matrix, tensor_a one or several",
            "Use nn.batch_matmul for batches.",
        )  # fmt: skip
    if units is not None and units != tensor_b.shape[0 if transpose_b else 1]:
        raise ModelError(place, f"tensor_b has no {units} units", "Leave units out.")
    axes = list(range(len(tensor_a.shape)))
    left = tensor.transpose(tensor_a, (*axes[:-2], *axes[:-3:-1])) if transpose_a else tensor_a
    right = tensor_b if transpose_b else tensor.transpose(tensor_b)
    made = call(
        "nn.dense", _reshaped(left, (math.prod(left.shape[:-1]), left.shape[-1])), right,
        out_dtype=out_dtype,
    )  # fmt: skip
    return _reshaped(made, (*left.shape[:-1], made.shape[1]))


def product(a: Expr, b: Expr) -> Expr:
    """`a @ b` as numpy has it: vectors, matrices and batches of them, which broadcast."""
    if not a.shape or not b.shape:
        raise ModelError(f"matmul({a.shape}, {b.shape})", "a number is no matrix", "Use multiply.")
    left = tensor.expand_dims(a, 0) if len(a.shape) == 1 else a
    right = tensor.expand_dims(b, 1) if len(b.shape) == 1 else b
    made = _matrices(left, right)
    rows = made.shape[-2:-1] if len(a.shape) > 1 else ()
    columns = made.shape[-1:] if len(b.shape) > 1 else ()
    return _reshaped(made, (*made.shape[:-2], *rows, *columns))


def _matrices(a: Expr, b: Expr) -> Expr:
    batch_a, batch_b = a.shape[:-2], b.shape[:-2]
    if math.prod(batch_b) == 1:
        rank = max(len(a.shape), len(b.shape))
        rows = _reshaped(a, (math.prod(a.shape[:-1]), a.shape[-1]))
        made = call("nn.dense", rows, tensor.transpose(_reshaped(b, b.shape[-2:])))
        return _reshaped(made, (*(1,) * (rank - len(a.shape)), *a.shape[:-1], b.shape[-1]))
    if batch_a == batch_b or math.prod(batch_a) == 1:
        left, right = (_reshaped(x, (math.prod(x.shape[:-2]), *x.shape[-2:])) for x in (a, b))
        made = call("nn.batch_matmul", left, right, transpose_b=False)
        rank = max(len(batch_a), len(batch_b))
        return _reshaped(made, (*(1,) * (rank - len(batch_b)), *batch_b, *made.shape[1:]))
    return einsum((a, b), "...ij,...jk->...ik")


def _reshaped(x: Expr, shape: Sequence[int]) -> Expr:
    """`x` under `shape`, in which 0 means that there are none."""
    return x if x.shape == tuple(shape) else call("reshape", x, newshape=tuple(shape))


@dataclass(frozen=True)
class Term:
    """A value whose axes are called by the letters of `axes`, each once."""

    value: Expr
    axes: str

    @property
    def extents(self) -> dict[str, int]:
        return dict(zip(self.axes, self.value.shape, strict=True))

    def ordered(self, axes: str) -> Expr:
        """The value with its axes in this order, which names all of them."""
        if axes == self.axes:
            return self.value
        return tensor.transpose(self.value, [self.axes.index(c) for c in axes])

    def summed(self, kept: str) -> Term:
        """Without the axes that `kept` does not name."""
        gone = [k for k, c in enumerate(self.axes) if c not in kept]
        if not gone:
            return self
        total = tensor.cast(tensor.sum(self.value, axis=gone), self.value.dtype)
        return Term(total, "".join(c for c in self.axes if c in kept))

    def without_stretched(self, other: Term) -> Term:
        """Without the axes of extent 1 that meet a longer one."""
        sizes, others = self.extents, other.extents
        gone = [c for c in self.axes if sizes[c] == 1 and others.get(c, 1) > 1]
        if not gone:
            return self
        kept = "".join(c for c in self.axes if c not in gone)
        return Term(_reshaped(self.value, [sizes[c] for c in kept]), kept)


def einsum(data: Sequence[Expr], equation: str) -> Expr:
    """Sums of products: ``einsum([a, b], "bij,bjk->bik")``.

    equation: a letter for each axis of each operand; letters that the result does not have are
    summed over; `...` stands for axes that broadcast; without `->` the result has the letters that
    occur once, in the order of the alphabet, as in numpy.
    Operands are multiplied from the left, two at a time.
    Raises ModelError for an equation that does not fit the operands.
    """
    operands = tuple(data.fields) if hasattr(data, "fields") else tuple(data)
    terms, result = _parsed(operands, equation)
    parts = [_diagonal(Term(x, ""), axes) for x, axes in zip(operands, terms, strict=True)]
    total = parts[0]
    for k, part in enumerate(parts[1:], 2):
        total = _multiplied(total, part, result + "".join(p.axes for p in parts[k:]))
    return total.summed(result).ordered(result)


def _parsed(operands: Sequence[Expr], equation: str) -> tuple[list[str], str]:
    """A letter for each axis of each operand and of the result; `...` has letters, too."""
    place = f"einsum({equation!r}, {', '.join(str(x.shape) for x in operands)})"

    def refuse(reason: str, way_out: str = 'Write it as in "bij,bjk->bik".') -> ModelError:
        return ModelError(place, reason, way_out)

    text = "".join(equation.split())
    inputs, arrow, asked = text.partition("->")
    given = inputs.split(",")
    if not operands or len(given) != len(operands):
        raise refuse(f"it names {len(given)} operands, {len(operands)} are given")
    named = [t.replace("...", "", 1) for t in (*given, asked)]
    if bad := sorted({c for t in named for c in t if c not in LETTERS}):
        raise refuse(f"{bad[0]!r} is no letter")
    free = [c for c in LETTERS if not any(c in t for t in named)]
    spread = [
        len(x.shape) - len(t) if "..." in g else 0
        for x, t, g in zip(operands, named, given, strict=False)
    ]
    if min(spread) < 0 or max(spread) > len(free):
        raise refuse("an operand has another number of axes")
    dots = "".join(free[: max(spread)])
    terms = [g.replace("...", dots[len(dots) - n :]) for g, n in zip(given, spread, strict=True)]
    extents: dict[str, int] = {}
    for x, term in zip(operands, terms, strict=True):
        if len(term) != len(x.shape):
            raise refuse(f"{term!r} names {len(term)} axes of an operand of shape {x.shape}")
        for c, n in zip(term, x.shape, strict=True):
            if 1 not in (n, extents.setdefault(c, n)) and extents[c] != n:
                raise refuse(f"{c!r} has the extents {extents[c]} and {n}")
            extents[c] = max(extents[c], n)
    once = sorted(c for c in extents if c not in dots and "".join(named[:-1]).count(c) == 1)
    result = asked.replace("...", dots) if arrow else dots + "".join(once)
    if len(set(result)) != len(result) or not set(result) <= set(extents):
        raise refuse(f"the result {result!r} repeats a letter, or has one that no operand has")
    if len({x.dtype for x in operands}) > 1:
        raise refuse("the element types differ", "Cast one of them.")
    return terms, result


def _diagonal(term: Term, axes: str) -> Term:
    """`term` under the letters `axes`; where one occurs twice, only equal indices are kept."""
    value = term.value
    while double := next((c for c in axes if axes.count(c) > 1), ""):
        first, second = axes.index(double), axes.rindex(double)
        n, m = value.shape[first], value.shape[second]
        if n == m:
            shape = [n if k in (first, second) else 1 for k in range(len(axes))]
            same = const(np.eye(n, dtype=bool).reshape(shape))
            value = tensor.where(same, value, const(0, value.dtype))
        gone = first if n == 1 else second  # the longer one stays
        value = tensor.cast(tensor.sum(value, axis=gone), value.dtype)
        axes = axes[:gone] + axes[gone + 1 :]
    return Term(value, axes)


def _multiplied(a: Term, b: Term, needed: str) -> Term:
    """The product of two terms, summed over the axes that nobody needs."""
    a, b = a.without_stretched(b), b.without_stretched(a)
    a, b = a.summed(needed + b.axes), b.summed(needed + a.axes)
    batch = "".join(c for c in a.axes if c in b.axes and c in needed)
    inner = "".join(c for c in a.axes if c in b.axes and c not in needed)
    left = "".join(c for c in a.axes if c not in b.axes)
    right = "".join(c for c in b.axes if c not in a.axes)
    extents = {**a.extents, **b.extents}

    def sizes(axes: str) -> list[int]:
        return [extents[c] for c in axes]

    def size(axes: str) -> int:
        return math.prod(sizes(axes))

    axes = batch + left + right
    if not inner:
        x = _reshaped(a.ordered(batch + left), sizes(batch + left) + [1] * len(right))
        y = b.ordered(batch + right)
        y = _reshaped(y, sizes(batch) + [1] * len(left) + sizes(right))
        return Term(tensor.multiply(x, y), axes)
    flipped_a, flipped_b = a.axes == batch + inner + left, b.axes != batch + inner + right
    x = a.ordered(batch + inner + left if flipped_a else batch + left + inner)
    y = b.ordered(batch + right + inner if flipped_b else batch + inner + right)
    made = call(
        "nn.batch_matmul",
        _reshaped(x, (size(batch), *((size(inner), size(left))[:: 1 if flipped_a else -1]))),
        _reshaped(y, (size(batch), *((size(right), size(inner))[:: 1 if flipped_b else -1]))),
        transpose_a=flipped_a, transpose_b=flipped_b,
    )  # fmt: skip
    return Term(tensor.cast(_reshaped(made, sizes(axes)), a.value.dtype), axes)
