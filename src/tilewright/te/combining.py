"""What a reduction makes of its terms in the reference, and how far rounding may carry that.

In: a combiner, and its terms in blocks of `Approx`.  Out: the `Approx` of each value that is
reduced.  Read next: `evaluate.py`, which makes the terms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tilewright.base.dtype import DType
from tilewright.ir.expr import Expr
from tilewright.ir.tuples import parts
from tilewright.te.chains import depth
from tilewright.te.numeric import apply, constant_value
from tilewright.te.rounding import (
    Approx,
    Array,
    exactly,
    fits,
    is_narrow,
    no_nan,
    overflowing,
    rounding,
    wrapped,
)
from tilewright.te.tensor import Combiner


def sum_rounding(magnitude: Array, dtype: DType, terms: int) -> Array:
    """Return how far any allowed order of additions may be off; see `chains.depth`."""
    own = rounding(magnitude, dtype, 8 * depth(terms, dtype))
    return own + terms * float(rounding(np.zeros(()), dtype))


def overflow_of_sum(value: Array, magnitude: Array, error: Array, dtype: DType) -> Array:
    """A narrow sum's partial results, in whatever order, may overflow before the sum does."""
    reached = np.maximum(magnitude, np.abs(value)) if is_narrow(dtype) else value
    return overflowing(np.where(np.isfinite(value), reached, value), error, dtype.greatest)


# combiner -> for every array it keeps of the terms, how two values of it combine
_KEPT = {
    "add": (np.add, np.add, np.add),  # sum, sum of magnitudes, sum of errors
    "mul": (np.multiply, np.multiply, np.multiply),  # the same of terms, |terms|, |terms| + errors
    "max": (np.maximum, np.maximum),  # maximum, largest error
    "min": (np.minimum, np.maximum),
}


def combined(
    combiner: Combiner, blocks: Iterator[list[Approx]], spatial: int, terms: int, track: bool
) -> list[Approx]:
    """All `blocks` combined over their dimensions from `spatial` on."""
    result = combiner.result
    if result.op not in _KEPT or {combiner.lhs, combiner.rhs} != set(result.args):
        return _reduce_generally(combiner, blocks, spatial, terms, track)
    return [_reduce_known(combiner, (part for (part,) in blocks), spatial, terms, track)]


def _reduce_known(
    combiner: Combiner, blocks: Iterator[Approx], spatial: int, terms: int, track: bool
) -> Approx:
    """The same for a sum, a product or an extreme."""
    result = combiner.result
    ufuncs = _KEPT[result.op]
    total: list[Array | None] = []
    grid = math.inf
    for part in blocks:
        grid = min(grid, part.grid)
        kept = _keep(result.op, part, track and result.dtype.is_float)
        axes = tuple(range(spatial, part.value.ndim))
        new = [
            None if a is None else u.reduce(a, axis=axes) for u, a in zip(ufuncs, kept, strict=True)
        ]
        if not total:
            total = new
            continue
        total = [
            b if a is None else a if b is None else u(a, b)
            for u, a, b in zip(ufuncs, total, new, strict=True)
        ]
    value = total[0]
    assert value is not None
    value = wrapped(value, result.dtype)
    if result.op in ("max", "min"):
        return Approx(value, total[1], grid)
    magnitude, last = total[1], total[2]
    if not (track and result.dtype.is_float):  # an integer that a rounded float decides
        return Approx(value, None if last is None else np.where(last > 0, np.inf, 0.0))
    assert magnitude is not None
    if result.op == "add":
        carried = np.zeros_like(value) if last is None else last
        error = carried + sum_rounding(magnitude + carried, result.dtype, terms)
    else:
        largest = magnitude if last is None else last
        carried = largest - magnitude
        error = carried + rounding(largest, result.dtype, terms)
        magnitude = np.abs(value)
        grid = 1.0 if grid >= 1.0 else 0.0  # whole numbers: no partial product has more digits
    exact = fits(magnitude, grid, result.dtype)
    error = overflow_of_sum(value, magnitude, no_nan(error), result.dtype)
    return Approx(value, exactly(error, exact if exact is None else exact & (carried == 0)), grid)


def _keep(op: str, part: Approx, sizes: bool) -> tuple[Array | None, ...]:
    if op in ("max", "min"):
        return part.value, part.error
    magnitude = np.abs(part.value) if sizes else None
    if op == "add" or magnitude is None:
        return part.value, magnitude, part.error
    return part.value, magnitude, magnitude if part.error is None else magnitude + part.error


def _reduce_generally(
    combiner: Combiner, blocks: Iterator[list[Approx]], spatial: int, terms: int, track: bool
) -> list[Approx]:
    """By halves: the combiner's `result` on whole arrays, log2(terms) times per part."""
    scale = terms / max(1, math.ceil(math.log2(terms)))
    variables = (*parts(combiner.lhs), *parts(combiner.rhs))

    def combine(a: list[Approx], b: list[Approx]) -> list[Approx]:
        memo = dict(zip(variables, (*a, *b), strict=True))

        def visit(node: Expr) -> Approx:
            if node not in memo:
                if node.op == "const":
                    memo[node] = Approx(constant_value(node))
                else:
                    memo[node] = apply(node, [visit(x) for x in node.args], track, scale)
            return memo[node]

        return [visit(result) for result in parts(combiner.result)]

    def piece(values: list[Approx], at: slice | int) -> list[Approx]:
        return [a.map(lambda array: array[..., at]) for a in values]

    total = [Approx(constant_value(value)) for value in parts(combiner.identity)]
    for part in blocks:
        shape = (*part[0].value.shape[:spatial], -1)
        # in another order partial results may need rounding
        rest = [a.map(lambda array, to=shape: array.reshape(to))._replace(grid=0.0) for a in part]  # type: ignore[misc]
        while (count := rest[0].value.shape[-1]) > 1:
            half = count // 2
            joined = combine(piece(rest, slice(0, half)), piece(rest, slice(half, 2 * half)))
            odd = piece(rest, slice(2 * half, None))
            rest = list(map(_append, joined, odd)) if count % 2 else joined
        total = combine(total, piece(rest, 0))
    return total


def _append(a: Approx, b: Approx) -> Approx:
    value = np.concatenate([a.value, b.value], axis=-1)
    if a.error is None and b.error is None:
        return Approx(value)
    errors = [
        np.zeros(x.value.shape) if x.error is None else np.broadcast_to(x.error, x.value.shape)
        for x in (a, b)
    ]
    return Approx(value, np.concatenate(errors, axis=-1))
