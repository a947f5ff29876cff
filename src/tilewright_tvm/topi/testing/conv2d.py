"""Numpy references of convolutions, windows read one tap after the other.

In: arrays.  Out: arrays of `out_dtype`, by default the type of the input (int32 for narrower
integers); sums in float64 or int64.  Read next: `dense.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tilewright.base.dtype import DType
from tilewright.topi.references.windows import Array, around, per_axis


def widest(a_np: Array) -> Array:
    """`a_np` as float64, or as int64 where it is whole: products and sums lose nothing (of uint64,
    which has no wider type, they wrap around)."""
    kind = DType(a_np.dtype)
    return a_np.astype(np.float64 if kind.is_float else a_np.dtype if kind.bits == 64 else np.int64)


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


def conv_python(
    a_np: Array,
    w_np: Array,
    stride: Any,
    padding: Any,
    groups: int = 1,
    dilation: Any = 1,
    out_dtype: str | None = None,
) -> Array:
    """a_np [N, CI, image], w_np [CO, CI / groups, window] of any rank; result [N, CO, positions].

    padding: an int, one per axis, or all in front and then all behind
    """
    kernel = w_np.shape[2:]
    rank = len(kernel)
    strides, steps = per_axis(stride, rank), per_axis(dilation, rank)
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, steps, strict=True))
    padded = np.pad(widest(a_np), [(0, 0), (0, 0), *around(padding, reach)])
    view = sliding_window_view(padded, reach, axis=tuple(range(2, 2 + rank)))
    every = [slice(None, None, s) for s in (*strides, *steps)]
    taps = view[:, :, *every]
    batch, _, *positions = taps.shape[: 2 + rank]
    met = np.moveaxis(taps, range(2, 2 + rank), range(1, 1 + rank))
    columns = met.reshape(batch, int(np.prod(positions)), groups, -1)
    weights = widest(w_np).reshape(groups, w_np.shape[0] // groups, -1)
    result: Array = np.einsum("npgk,gfk->ngfp", columns, weights, optimize=True)
    return in_type(result.reshape(batch, -1, *positions), a_np, out_dtype)


def conv_transpose_python(
    a_np: Array,
    w_np: Array,
    stride: Any,
    padding: Any,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    out_dtype: str | None = None,
) -> Array:
    """a_np [N, CI, image], w_np [CI, CO / groups, window] of any rank: zeros between the elements
    of a_np, and a convolution with the mirrored kernel."""
    kernel = w_np.shape[2:]
    rank = len(kernel)
    strides, steps = per_axis(stride, rank), per_axis(dilation, rank)
    extra = per_axis(output_padding, rank)
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, steps, strict=True))
    spread = dilate_python(a_np, (1, 1, *strides))
    wide = [(r - 1, r - 1 + e) for r, e in zip(reach, extra, strict=True)]
    mirrored = np.flip(w_np, tuple(range(2, 2 + rank)))
    mirrored = mirrored.reshape(groups, -1, *w_np.shape[1:]).swapaxes(1, 2)
    weights = mirrored.reshape(-1, w_np.shape[0] // groups, *kernel)
    whole = conv_python(
        np.pad(spread, [(0, 0), (0, 0), *wide]), weights, 1, 0, groups, dilation, out_dtype
    )
    cut = [
        slice(front, n - behind)
        for n, (front, behind) in zip(whole.shape[2:], around(padding, reach), strict=True)
    ]
    return whole[:, :, *cut]


def conv2d_transpose_nhwc_python(
    a_nhwc: Array, weight: Array, weight_format: str, stride: Any, padding: Any,
    output_padding: Any = 0,
) -> Array:  # fmt: skip
    """`conv_transpose_python` of images NHWC; weight_format: an order of HWIO, I being the channels
    of the data."""
    kernel = weight.transpose([weight_format.index(letter) for letter in "IOHW"])
    image = a_nhwc.transpose(0, 3, 1, 2)
    made = conv_transpose_python(image, kernel, stride, padding, output_padding)
    return made.transpose(0, 2, 3, 1)


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
    return conv_python(a_np, w_np, stride, padding, groups, dilation, out_dtype)


def conv2d_backward_weight_python(
    dy_np: Array, x_np: Array, kernel_size: Any, stride: Any, padding: Any, layout: str = "NCHW",
    groups: int = 1, channels: int | None = None,
) -> Array:  # fmt: skip
    """The gradient of a weight: what each of its elements was multiplied by, times `dy_np`, summed.

    dy_np: of the result of the convolution of x_np; both are NCHW or NHWC, the weight is then
    [CO, CI / groups, KH, KW] or [KH, KW, CI / groups, CO].  channels: those of dy_np, not read
    """
    if layout == "NHWC":
        dy, x = (np.moveaxis(a, 3, 1) for a in (dy_np, x_np))
        made = conv2d_backward_weight_python(dy, x, kernel_size, stride, padding, "NCHW", groups)
        return made.transpose(2, 3, 1, 0)
    size, strides = per_axis(kernel_size, 2), per_axis(stride, 2)
    padded = np.pad(widest(x_np), [(0, 0), (0, 0), *around(padding, size)])
    rows, columns = dy_np.shape[2:]
    view = sliding_window_view(padded, size, axis=(2, 3))[:, :, :: strides[0], :: strides[1]]
    met = view[:, :, :rows, :columns].reshape(len(x_np), groups, -1, rows, columns, *size)
    dy = widest(dy_np).reshape(len(dy_np), groups, -1, rows, columns)
    found: Array = np.einsum("ngoyx,ngiyxkl->goikl", dy, met, optimize=True)
    return in_type(found.reshape(-1, *found.shape[2:]), dy_np)


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


def conv1d_ncw_python(
    a_np: Array, w_np: Array, stride: Any, padding: Any, dilation: Any = 1
) -> Array:
    """`conv_python` of one axis."""
    return conv_python(a_np, w_np, stride, padding, 1, dilation)


def group_conv1d_ncw_python(
    a_np: Array, w_np: Array, stride: Any, padding: Any, dilation: Any, groups: int
) -> Array:
    """`conv_python` of one axis; w_np [CO, CI / groups, KW]."""
    return conv_python(a_np, w_np, stride, padding, groups, dilation)


def depthwise_conv2d_python_nchwc(
    input_np: Array, filter_np: Array, stride: Any, padding: Any
) -> Array:
    """input_np [N, C/c, H, W, c], filter_np [C/c, 1, KH, KW, 1, c]; result [N, C/c, OH, OW, c]."""
    batch, chunks, height, width, block = input_np.shape
    data = input_np.transpose(0, 1, 4, 2, 3).reshape(batch, chunks * block, height, width)
    kernel = filter_np.transpose(0, 5, 1, 4, 2, 3).reshape(-1, 1, *filter_np.shape[2:4])
    made = depthwise_conv2d_python_nchw(data, kernel, stride, padding)
    return made.reshape(batch, chunks, block, *made.shape[2:]).transpose(0, 1, 3, 4, 2)


def conv3d_ncdhw_python(
    a_np: Array, w_np: Array, stride: Any, padding: Any, groups: int = 1
) -> Array:
    """`conv_python` of three axes."""
    return conv_python(a_np, w_np, stride, padding, groups)


def conv3d_ndhwc_python(
    a_np: Array, w_np: Array, stride: Any, padding: Any, groups: int = 1
) -> Array:
    """`conv_python` of three axes, channels last; w_np [KD, KH, KW, CI, CO]."""
    moved = a_np.transpose(0, 4, 1, 2, 3), w_np.transpose(4, 3, 0, 1, 2)
    return conv_python(*moved, stride, padding, groups).transpose(0, 2, 3, 4, 1)


def conv2d_hwcn_python(a_np: Array, w_np: Array, stride: Any, padding: Any) -> Array:
    """a_np [H, W, C, N], w_np [KH, KW, CI, CO]; result [OH, OW, CO, N]."""
    moved = a_np.transpose(3, 2, 0, 1), w_np.transpose(3, 2, 0, 1)
    return conv_python(*moved, stride, padding).transpose(2, 3, 1, 0)
