"""numpy references of convolutions: strided windows and one einsum in float64 (integers in int64).

In: arrays.  Out: arrays of `out_dtype`, by default the input's (int32 for narrower integers);
float64 inputs keep every digit.  No code is shared with `te`.  Read next: `pooling.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tilewright.base.dtype import DType

Array = np.ndarray[Any, np.dtype[Any]]


def widest(a_np: Array) -> Array:
    """`a_np` as float64, or as int64 where it is whole: products and sums lose nothing."""
    return a_np.astype(np.float64 if DType(a_np.dtype).is_float else np.int64)


def in_type(result: Array, a_np: Array, out_dtype: str | None = None) -> Array:
    """A sum of products of elements of `a_np` in the type that it has by default, or in
    `out_dtype`."""
    kind = DType(a_np.dtype)
    own = kind if kind.is_float else kind.accumulator
    return result.astype(DType(out_dtype or own).storage)


def dilate_python(input_np: Array, strides: Any, dilation_value: float = 0.0) -> Array:
    """`input_np` with strides[k] - 1 times `dilation_value` between neighbours along axis k."""
    shape = [(n - 1) * s + 1 for n, s in zip(input_np.shape, strides, strict=True)]
    result = np.full(shape, dilation_value, input_np.dtype)
    result[tuple(slice(None, None, s) for s in strides)] = input_np
    return result


def both(value: Any) -> tuple[int, int]:
    """(height, width) from an int or a pair."""
    height, width = np.broadcast_to(value, 2).tolist()
    return height, width


def sides(padding: Any, reach: tuple[int, int]) -> list[tuple[int, int]]:
    """((top, bottom), (left, right)) from any spelling of padding."""
    if padding == "VALID":
        return [(0, 0), (0, 0)]
    if padding == "SAME":
        return [(r // 2, (r - 1) // 2) for r in reach]
    if np.size(padding) == 4:
        return [(padding[0], padding[2]), (padding[1], padding[3])]
    return [(p, p) for p in both(padding)]


def windows(a_np: Array, kernel: Any, stride: Any, dilation: Any) -> Array:
    """[..., OH, OW, KH, KW] views of the last two axes of `a_np`."""
    (kh, kw), (sh, sw), (dh, dw) = kernel, both(stride), both(dilation)
    reach = ((kh - 1) * dh + 1, (kw - 1) * dw + 1)
    view: Array = sliding_window_view(a_np, reach, axis=(-2, -1))
    return view[..., ::sh, ::sw, ::dh, ::dw]


def conv2d_nchw_python(
    a_np: Array,
    w_np: Array,
    stride: Any,
    padding: Any,
    groups: int = 1,
    dilation: Any = 1,
    out_dtype: str | None = None,
) -> Array:
    """a_np [N, CI, H, W], w_np [CO, CI / groups, KH, KW]; result [N, CO, OH, OW]."""
    dh, dw = both(dilation)
    kernel = w_np.shape[2:]
    reach = ((kernel[0] - 1) * dh + 1, (kernel[1] - 1) * dw + 1)
    padded = np.pad(widest(a_np), [(0, 0), (0, 0), *sides(padding, reach)])
    taps = windows(padded, kernel, stride, dilation)
    batch, channels, height, width = taps.shape[:4]
    taps = taps.reshape(batch, groups, channels // groups, height, width, *kernel)
    weights = widest(w_np).reshape(groups, -1, *w_np.shape[1:])
    result: Array = np.einsum("ngcyxhw,gfchw->ngfyx", taps, weights, optimize=True)
    return in_type(result.reshape(batch, -1, height, width), a_np, out_dtype)


def conv2d_nhwc_python(
    a_np: Array,
    w_np: Array,
    stride: Any,
    padding: Any,
    groups: int = 1,
    dilation: Any = 1,
    out_dtype: str | None = None,
) -> Array:
    """a_np [N, H, W, CI], w_np [KH, KW, CI / groups, CO]; result [N, OH, OW, CO]."""
    data, kernel = a_np.transpose(0, 3, 1, 2), w_np.transpose(3, 2, 0, 1)
    result = conv2d_nchw_python(data, kernel, stride, padding, groups, dilation, out_dtype)
    return np.ascontiguousarray(result.transpose(0, 2, 3, 1))


def depthwise_conv2d_python_nchw(
    input_np: Array,
    filter_np: Array,
    stride: Any,
    padding: Any,
    dilation: Any = 1,
    out_dtype: str | None = None,
) -> Array:
    """input_np [N, C, H, W], filter_np [C, M, KH, KW]; result [N, C*M, OH, OW]."""
    channels, multiplier = filter_np.shape[:2]
    weights = filter_np.reshape(channels * multiplier, 1, *filter_np.shape[2:])
    return conv2d_nchw_python(input_np, weights, stride, padding, channels, dilation, out_dtype)


def depthwise_conv2d_python_nhwc(
    input_np: Array,
    filter_np: Array,
    stride: Any,
    padding: Any,
    dilation: Any = 1,
    out_dtype: str | None = None,
) -> Array:
    """input_np [N, H, W, C], filter_np [KH, KW, C, M]; result [N, OH, OW, C*M]."""
    data, kernel = input_np.transpose(0, 3, 1, 2), filter_np.transpose(2, 3, 0, 1)
    result = depthwise_conv2d_python_nchw(data, kernel, stride, padding, dilation, out_dtype)
    return np.ascontiguousarray(result.transpose(0, 2, 3, 1))
