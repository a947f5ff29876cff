"""Scaled dot-product attention, in the parts that importers and `relay.nn.attention` share.

In: queries [B, H, S, D], keys [B, G, T, D], values [B, G, T, E]; G divides H: neighbouring heads of
the queries share a head of keys and values, which is never copied.  Out: graph values of matrix
products, `nn.softmax` and elementwise operators, which `graph/passes/attention.py` joins again.
Read next: `linear.py`, `models/onnx/ops/attention.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tilewright.base.dtype import DType
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr
from tilewright.graph.functions import tensor
from tilewright.graph.leaves import const
from tilewright.graph.op import call


@dataclass(frozen=True)
class Mask:
    """What keys a query may meet; both broadcast to [B, H, S, T].

    allowed: bool, or None for all
    bias:    added to the scores, or None
    certain: every query meets a key; where not, its result is zero
    """

    allowed: Expr | None = None
    bias: Expr | None = None
    certain: bool = True


def attention(
    query: Expr,
    key: Expr,
    value: Expr,
    mask: Expr | None = None,
    scale: float | None = None,
    is_causal: bool = False,
    softcap: float = 0.0,
) -> Expr:
    """softmax(query key^T * scale + mask) value, for each head; the result is [B, H, S, E].

    mask:      bool (True: the key counts) or numbers that are added; broadcasts to [B, H, S, T]
    scale:     default: 1 / sqrt(D)
    is_causal: query i meets the keys up to i
    softcap:   c > 0 limits the scores, before the mask, to c * tanh(score / c)
    A query without a key has the result zero.  Raises ModelError for shapes that do not fit.
    """
    (_, _, queries, _), (_, _, keys, _) = _checked(query, key, "key")
    causal = between(queries, keys, None, 0) if is_causal else None
    chosen = masked(mask, causal, keys, certain=True)
    limited = scores(query, key, scale, softcap)
    return weighted(probabilities(limited, chosen), value)


def scores(query: Expr, key: Expr, scale: float | None = None, softcap: float = 0.0) -> Expr:
    """[B, H, S, T]: query key^T * scale, limited by `softcap`."""
    (batch, heads, rows, inner), (_, shared, columns, _) = _checked(query, key, "key")
    factor = 1 / math.sqrt(max(inner, 1)) if scale is None else float(scale)
    left = tensor.as_shape(query * factor, (batch * shared, heads // shared * rows, inner))
    right = tensor.as_shape(key, (batch * shared, columns, inner))
    made = tensor.as_shape(call("nn.batch_matmul", left, right), (batch, heads, rows, columns))
    if softcap <= 0:
        return made
    return tensor.tanh(made * (1 / softcap)) * float(softcap)


def _checked(query: Expr, other: Expr, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    q, k = query.shape, other.shape
    place = f"nn.attention(query={q}, {name}={k})"
    if len(q) != 4 or len(k) != 4:
        raise ModelError(place, "they have no axes [batch, heads, length, size]", "Reshape them.")
    if q[0] != k[0] or not k[1] or q[1] % k[1]:
        raise ModelError(
            place, f"{k[1]} heads of {k[0]} elements do not serve {q[1]} of {q[0]}",
            f"The batch must be equal, and the heads of the {name} divide those of the query.",
        )  # fmt: skip
    if name == "key" and q[3] != k[3]:
        raise ModelError(place, f"heads of {q[3]} meet heads of {k[3]}", "They must be equal.")
    return q, k


def between(
    queries: int, keys: int, left: int | None, right: int | None, offset: int | Expr = 0
) -> Expr:
    """bool [1 or B, 1, S, T]: query i, which stands at i + offset, meets the keys from `left`
    before it to `right` behind it; None: no limit.  offset: a number, or one for each batch [B]."""
    i = np.arange(queries).reshape((1, 1, -1, 1))
    apart = np.arange(keys).reshape(1, 1, 1, -1) - i  # of the key from the query's own place
    if not isinstance(offset, Expr):
        ahead = apart - offset
        above = np.full(apart.shape, True) if right is None else ahead <= right
        return const(above if left is None else above & (ahead >= -left))
    place = tensor.as_shape(tensor.cast(offset, "int32"), (-1, 1, 1, 1))
    key = const(np.arange(keys, dtype="int32").reshape(1, 1, 1, -1))
    found: Expr | None = None
    if right is not None:  # each side of one axis, so that a row's is worked out once
        found = tensor.less(key, tensor.add(place, const((i + right + 1).astype("int32"))))
    if left is not None:
        least = tensor.add(place, const((i - left - 1).astype("int32")))
        found = both(found, tensor.less(least, key))
    return const(np.full(apart.shape, True)) if found is None else found


def both(a: Expr | None, b: Expr | None) -> Expr | None:
    """Where both hold; None holds everywhere."""
    if a is None or b is None:
        return b if a is None else a
    return tensor.where(a, b, const(False))


def masked(mask: Expr | None, allowed: Expr | None, keys: int, certain: bool) -> Mask:
    """`mask` (bool, or numbers that are added) and `allowed` together.

    A mask of fewer keys than there are lets nothing meet the others.
    certain: as far as `allowed` alone decides it
    """
    if mask is None:
        return Mask(allowed, None, certain)
    bool_ = mask.dtype == "bool"
    last = mask.shape[-1] if mask.shape else 1
    if 1 < last < keys:
        fill = np.full((*mask.shape[:-1], keys - last), False if bool_ else -math.inf)
        mask = tensor.concatenate([mask, const(fill, mask.dtype)], axis=-1)
    if bool_:
        return Mask(both(allowed, mask), None, certain=False)
    finite = tensor.greater(mask, const(-math.inf, mask.dtype))
    return Mask(both(allowed, finite), mask, certain=False)


def biased(score: Expr, mask: Mask, outside: float) -> Expr:
    """The scores with the mask's bias, `outside` where the mask does not allow it."""
    made = score if mask.bias is None else tensor.add(score, tensor.cast(mask.bias, score.dtype))
    if mask.allowed is None:
        return made
    return tensor.where(mask.allowed, made, const(outside, score.dtype))


def probabilities(score: Expr, mask: Mask) -> Expr:
    """softmax over the keys; zero for those that the mask does not allow."""
    lowest = DType(score.dtype).least  # finite, so that a row without keys has no NaN
    made = call("nn.softmax", biased(score, mask, float(lowest)), axis=-1)
    if mask.certain or mask.allowed is None:
        return made
    return tensor.where(mask.allowed, made, const(0, score.dtype))


def weighted(probability: Expr, value: Expr) -> Expr:
    """[B, H, S, E]: the mean of the values, by probability."""
    (batch, heads, rows, columns), (_, shared, length, size) = _checked(probability, value, "value")
    if length != columns:
        raise ModelError(
            f"nn.attention(value={value.shape})", f"there are {columns} keys", "Give as many."
        )
    left = tensor.as_shape(probability, (batch * shared, heads // shared * rows, columns))
    right = tensor.as_shape(value, (batch * shared, columns, size))
    made = call("nn.batch_matmul", left, right, transpose_b=False)
    return tensor.as_shape(made, (batch, heads, rows, size))


__all__ = ["attention"]
