"""numpy references of pooling, written as loops over output positions.

In: arrays.  Out: arrays of the input's dtype, computed in float64 or int64.  Means are of floats.
Read next: `normalization.py`.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from tilewright.topi.references.windows import Array, around, per_axis
from tilewright_tvm.topi.testing.conv2d import widest


def pool2d_python(
    np_data: Array,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCHW",
    count_include_pad: bool = True,
    beyond: bool = True,
) -> Array:
    """Maximum, mean or sum over windows of the axes D, H and W that `layout` has; `beyond` as for
    `topi.nn.pool2d`."""
    letters = [a for a in layout if a.isalpha()]
    axes = tuple(letters.index(a) for a in "DHW" if a in letters)
    rank = range(len(axes))
    kernel, stride, dilation = (per_axis(v, len(axes)) for v in (kernel, stride, dilation))
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    pads = around(padding, reach)
    image = np.moveaxis(widest(np_data), axes, rank)
    positions = [
        _positions(image.shape[n], reach[n], stride[n], *pads[n], ceil_mode, beyond) for n in rank
    ]
    whole = image.dtype.kind in "iu"
    result = np.empty((*positions, *image.shape[len(axes) :]), image.dtype)
    for at in itertools.product(*map(range, positions)):
        first = [at[n] * stride[n] - pads[n][0] for n in rank]
        taps = [[first[n] + t * dilation[n] for t in range(kernel[n])] for n in rank]
        inside = [[p for p in taps[n] if 0 <= p < image.shape[n]] for n in rank]
        covered = image[np.ix_(*inside)]
        if pool_type == "max":
            least = np.iinfo(image.dtype).min if whole else -np.inf
            result[at] = covered.max(axis=tuple(rank), initial=least)
            continue
        result[at] = covered.sum(axis=tuple(rank))
        if pool_type == "avg":
            padded = [[p for p in taps[n] if p < image.shape[n] + pads[n][1]] for n in rank]
            counted = padded if count_include_pad else inside
            result[at] = result[at] / max(math.prod(map(len, counted)), 1)
    return np.moveaxis(result, rank, axes).astype(np_data.dtype)


def poolnd_python(
    np_data: Array,
    kernel: Any,
    strides: Any,
    dilation: Any,
    padding_before: Any,
    padding_after: Any,
    pool_type: str,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
    layout: str = "",
) -> Array:
    """`pool2d_python` of any rank, with TVM's arguments; layout: default: channels first.

    The maximum of a window in the padding alone is 0 where count_include_pad holds, as TVM's is.
    """
    layout = layout or {1: "NCW", 2: "NCHW", 3: "NCDHW"}[len(kernel)]
    padding = (*padding_before, *padding_after)
    made = pool2d_python(
        np_data, kernel, strides, dilation, padding, pool_type, ceil_mode, layout,
        count_include_pad,
    )  # fmt: skip
    if pool_type != "max" or not count_include_pad:
        return made
    least = np.iinfo(made.dtype).min if made.dtype.kind in "iu" else -np.inf
    return np.where(made == least, np.zeros_like(made), made)


def max_pool_indices_python(np_data: Array, kernel: Any, stride: Any) -> Array:
    """Of unpadded windows of [N, C, ...]: where in the flattened array the first maximum lies."""
    rank = np_data.ndim - 2
    kernel, stride = per_axis(kernel, rank), per_axis(stride, rank)
    places = np.arange(np_data.size).reshape(np_data.shape)
    counts = [(n - k) // s + 1 for n, k, s in zip(np_data.shape[2:], kernel, stride, strict=True)]
    result = np.empty((*np_data.shape[:2], *counts), np.int64)
    for at in np.ndindex(*result.shape):
        cut = tuple(slice(p * s, p * s + k) for p, s, k in zip(at[2:], stride, kernel, strict=True))
        window = np_data[at[0], at[1], *cut]
        result[at] = places[at[0], at[1], *cut].reshape(-1)[int(np.argmax(window))]
    return result


def _positions(
    extent: int, reach: int, stride: int, before: int, after: int, ceil_mode: bool, beyond: bool
) -> int:
    free = extent + before + after - reach
    if not ceil_mode:
        return free // stride + 1
    count = -(-free // stride) + 1
    return count - 1 if not beyond and (count - 1) * stride >= extent + before else count


def adaptive_pool(np_data: Array, out_size: Any, pool_type: str, layout: str = "NCHW") -> Array:
    """Output o of O covers the input from floor(o * I / O) to ceil((o + 1) * I / O)."""
    letters = [a for a in layout if a.isalpha()]
    axes = tuple(letters.index(a) for a in "DHW" if a in letters)
    rank = range(len(axes))
    image = np.moveaxis(widest(np_data), axes, rank)
    sizes = per_axis(out_size, len(axes))
    result = np.empty((*sizes, *image.shape[len(axes) :]), image.dtype)
    fold = np.max if pool_type == "max" else np.mean
    for at in itertools.product(*map(range, sizes)):
        cut = tuple(
            slice(at[n] * image.shape[n] // sizes[n], -(-(at[n] + 1) * image.shape[n] // sizes[n]))
            for n in rank
        )
        result[at] = fold(image[cut], axis=tuple(rank))
    return np.moveaxis(result, rank, axes).astype(np_data.dtype)


def upsampling_python(data: Array, scale: Any, layout: str = "NCHW") -> Array:
    """Every element repeated scale[0] times along H and scale[1] times along W."""
    for letter, times in zip("HW", per_axis(scale, 2), strict=True):
        data = data.repeat(times, axis=layout.index(letter))
    return data


def pool_grad_nchw(
    a_np: Array,
    out_grad_np: Array,
    pool_size: Any,
    strides: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool,
    count_include_pad: bool = True,
) -> Array:
    """What each window gives back to the elements that it read."""
    (kh, kw), (sh, sw) = per_axis(pool_size, 2), per_axis(strides, 2)
    (top, bottom), (left, right) = around(padding, (kh, kw))
    height, width = a_np.shape[2:]
    rest = (0, 0), (0, 0), (top, bottom + kh + sh), (left, right + kw + sw)
    image = np.pad(a_np.astype(np.float64), rest, constant_values=-np.inf)
    counted = np.zeros(image.shape[2:])
    inside = counted[top : top + height, left : left + width]
    if count_include_pad:
        inside = counted[: top + height + bottom, : left + width + right]
    inside[:] = 1
    made = np.zeros(image.shape)
    for y, x in np.ndindex(out_grad_np.shape[2:]):
        at = slice(y * sh, y * sh + kh), slice(x * sw, x * sw + kw)
        share = out_grad_np[:, :, y, x].astype(np.float64)
        if pool_type == "avg":
            made[:, :, *at] += (share / max(counted[at].sum(), 1))[:, :, None, None]
            continue
        flat = image[:, :, *at].reshape(*share.shape, -1)
        first = np.arange(kh * kw) == flat.argmax(-1)[..., None]
        made[:, :, *at] += (first * share[..., None]).reshape(*share.shape, kh, kw)
    return made[:, :, top : top + height, left : left + width].astype(a_np.dtype)
