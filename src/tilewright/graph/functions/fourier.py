"""Discrete Fourier transforms as products with tables of cosines and sines.

In: signals whose last axis holds a number and its imaginary part, or the number alone.  Out: their
transforms.  Complex numbers are pairs: networks have no element type for them.
Read next: `models/onnx/ops/signal.py` and `models/torch/ops/complex.py`, which
read these of files.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Array, Expr
from tilewright.graph.functions import tensor
from tilewright.graph.functions.indexing import strided_slice
from tilewright.graph.functions.linear import product
from tilewright.graph.leaves import const


def transform(
    x: Expr, axis: int, size: int | None, place: str, room: Callable[[int], None], *,
    inverse: bool = False, onesided: bool = False, scale: float = 1.0,
) -> Expr:  # fmt: skip
    """The transform of `x` [.., parts] along `axis`; the result has two parts, or, where it is
    real, one.

    size:     points of the transform, cut or filled up with zeros; None: all
    place:    of errors
    room:     asks for the bytes of the table
    onesided: half of the results, or of the points of an inverse, are left out, which follow from
              the others as the signal is real
    scale:    of the results, which are sums, those of an inverse divided by `size`
    """
    rank, parts = len(x.shape), x.shape[-1] if x.shape else 0
    if not 0 <= axis < rank - 1 or parts not in (1, 2):
        raise ModelError(
            place, f"axis {axis} of {x.shape} is no signal",
            "The last axis holds a number and its imaginary part, or the number alone.",
        )  # fmt: skip
    points, half = x.shape[axis], inverse and onesided
    size = size or (2 * (points - 1) if half else points)
    if size < 1:
        raise ModelError(place, f"its length is {size}", "Use 1 or more.")
    taken = min(points, size // 2 + 1 if half else size)
    if taken < points:
        x = strided_slice(x, [0], [taken], axes=[axis])
    order = [*(k for k in range(rank - 1) if k != axis), axis, rank - 1]
    results = size // 2 + 1 if onesided and not inverse else size
    room(taken * parts * results * 2 * 8)
    table = _table(taken, results, size, inverse, half)[:, :parts]
    table = table * (scale / size if inverse else scale)
    moved = tensor.transpose(x, order)
    rows = tensor.as_shape(moved, (*moved.shape[:-2], taken * parts))
    weights = const(table.reshape(taken * parts, -1), x.dtype)
    made = tensor.as_shape(product(rows, weights), (*moved.shape[:-2], *table.shape[2:]))
    return tensor.transpose(made, [order.index(k) for k in range(rank)])


def _table(taken: int, results: int, size: int, inverse: bool, real: bool) -> Array:
    """What each of `taken` points, of two numbers (real, imaginary), adds to each result:
    [taken, 2, results, their parts].

    size: of the transform; real: the results are, as points that are left out mirror the others
    """
    angle = np.outer(np.arange(taken), np.arange(results)) % size * (2 * math.pi / size)
    cosine, sine = np.cos(angle), np.sin(angle) * (1 if inverse else -1)
    table = np.stack([np.stack([cosine, sine], -1), np.stack([-sine, cosine], -1)], 1)
    if real:  # each point but the first and, of an even size, the last stands for two
        double = [1 if k == 0 or 2 * k == size else 2 for k in range(taken)]
        table = table[..., :1] * np.reshape(double, (-1, 1, 1, 1))
    return np.asarray(table)
