"""A matrix unit as it adds: products aligned to the largest of them and of the sum, the rest cut.

In: operands, as float64 arrays of numbers that the unit takes.  Out: sums in float32.  It models
what was measured on an H200: two bits below the last place of the sum are kept, all cutting is
towards zero, and so the sum loses with every instruction.
"""

from __future__ import annotations

import numpy as np

_BITS = 23 + 2  # below the largest exponent


def sums(a: np.ndarray, b: np.ndarray, chain: int, k: int = 16) -> np.ndarray:
    """a @ b, [m, n]: accumulators of `chain` terms, `k` an instruction; these added in float32."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for first in range(0, a.shape[1], chain):
        own = np.zeros(total.shape)
        for at in range(first, min(first + chain, a.shape[1]), k):
            part = slice(at, min(at + k, first + chain, a.shape[1]))
            own = _added(own, a[:, None, part] * b.T[None, :, part])
        total = total + own.astype(np.float32)
    return total


def split_sums(a: np.ndarray, b: np.ndarray, chain: int, k: int = 8) -> np.ndarray:
    """The same of float32 in two parts: three instructions for `k` terms, the small ones first."""
    (large, small), (wide, narrow) = apart(a), apart(b)
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for first in range(0, a.shape[1], chain):
        own = np.zeros(total.shape)
        for at in range(first, min(first + chain, a.shape[1]), k):
            part = slice(at, min(at + k, first + chain, a.shape[1]))
            for x, y in ((small, wide), (large, narrow), (large, wide)):
                own = _added(own, x[:, None, part] * y.T[None, :, part])
        total = total + own.astype(np.float32)
    return total


def apart(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of float32 rounded to 11 digits, and what that takes off, cut to as many."""
    _, exponents = np.frexp(x)
    unit = np.ldexp(1.0, exponents - 11)
    large = np.copysign(np.floor(np.abs(x) / unit + 0.5) * unit, x)
    _, exponents = np.frexp(x - large)
    unit = np.ldexp(1.0, exponents - 11)
    return large, np.trunc((x - large) / unit) * unit


def _added(sum_: np.ndarray, products: np.ndarray) -> np.ndarray:
    terms = np.concatenate([sum_[..., None], products], axis=-1)
    _, exponents = np.frexp(np.abs(terms).max(axis=-1))
    unit = np.ldexp(1.0, exponents - 1 - _BITS)
    found = (np.trunc(terms / unit[..., None]) * unit[..., None]).sum(axis=-1)
    _, exponent = np.frexp(found)
    last = np.ldexp(1.0, exponent - 24)
    return np.trunc(found / last) * last
