"""numpy references of matrix products.

In: arrays.  Out: arrays of the first operand's dtype, summed in float64.
Read next: `conv2d.py`.
"""

from __future__ import annotations

import numpy as np

from tilewright.topi.testing.conv2d import Array


def dense(
    x: Array,
    y: Array,
    bias: Array | None = None,
    use_bias: bool = False,
    use_relu: bool = False,
    out_dtype: str | None = None,
) -> Array:
    """x [M, K] times the transpose of y [N, K]; then bias [N] and relu when asked for."""
    result = x.astype(np.float64) @ y.astype(np.float64).T
    if bias is not None and use_bias:
        result = result + bias
    if use_relu:
        result = np.maximum(result, 0)
    return result.astype(out_dtype or x.dtype)


def batch_matmul(
    x: Array, y: Array, out_dtype: str | None = None, trans_x: bool = False, trans_y: bool = True
) -> Array:
    """x [B, M, K] times the transpose of y [B, N, K]; a batch of 1 is repeated."""
    left = x.astype(np.float64).transpose(0, 2, 1) if trans_x else x.astype(np.float64)
    right = y.astype(np.float64).transpose(0, 2, 1) if trans_y else y.astype(np.float64)
    result: Array = np.matmul(left, right)
    return result.astype(out_dtype or x.dtype)


def matmul(x: Array, y: Array, transp_x: bool = False, transp_y: bool = False) -> Array:
    """x [M, K] times y [K, N]; a transposed operand is stored the other way."""
    left, right = x.astype(np.float64), y.astype(np.float64)
    result: Array = (left.T if transp_x else left) @ (right.T if transp_y else right)
    return result.astype(x.dtype)
