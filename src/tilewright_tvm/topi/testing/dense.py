"""numpy references of matrix products.

In: arrays.  Out: arrays of `out_dtype`, by default the first operand's (int32 for narrower
integers), summed in float64 or int64.
Read next: `conv2d.py`.
"""

from __future__ import annotations

import numpy as np

from tilewright.topi.references.windows import Array
from tilewright_tvm.topi.testing.conv2d import in_type, widest


def dense(
    x: Array,
    y: Array,
    bias: Array | None = None,
    use_bias: bool = False,
    use_relu: bool = False,
    out_dtype: str | None = None,
) -> Array:
    """x [M, K] times the transpose of y [N, K]; then bias [N] and relu when asked for."""
    result = widest(x) @ widest(y).T
    if bias is not None and use_bias:
        result = result + widest(bias)
    if use_relu:
        result = np.maximum(result, 0)
    return in_type(result, x, out_dtype)


def batch_matmul(
    x: Array, y: Array, out_dtype: str | None = None, trans_x: bool = False, trans_y: bool = True
) -> Array:
    """x [B, M, K] times the transpose of y [B, N, K]; a batch of 1 is repeated."""
    left = widest(x).transpose(0, 2, 1) if trans_x else widest(x)
    right = widest(y).transpose(0, 2, 1) if trans_y else widest(y)
    result: Array = np.matmul(left, right)
    return in_type(result, x, out_dtype)


def matmul(
    x: Array,
    y: Array,
    transp_x: bool = False,
    transp_y: bool = False,
    out_dtype: str | None = None,
) -> Array:
    """x [M, K] times y [K, N]; a transposed operand is stored the other way."""
    left, right = widest(x), widest(y)
    result: Array = (left.T if transp_x else left) @ (right.T if transp_y else right)
    return in_type(result, x, out_dtype)
