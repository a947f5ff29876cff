"""numpy references of pooling, written as loops over output positions.

In: arrays.  Out: arrays of the input's dtype, computed in float64 or int64.  Means are of floats.
Read next: `normalization.py`.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tilewright.topi.testing.conv2d import Array, both, sides, widest


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
) -> Array:
    """Maximum or mean over windows of the axes H and W of `layout`."""
    letters = [a for a in layout if a.isalpha()]
    axes = (letters.index("H"), letters.index("W"))
    kernel, stride, dilation = both(kernel), both(stride), both(dilation)
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    pads = sides(padding, (reach[0], reach[1]))
    image = np.moveaxis(widest(np_data), axes, (0, 1))
    positions = [
        _positions(image.shape[n], reach[n], stride[n], *pads[n], ceil_mode) for n in (0, 1)
    ]
    whole = image.dtype.kind == "i"
    result = np.empty((*positions, *image.shape[2:]), image.dtype)
    for at in itertools.product(*map(range, positions)):
        first = [at[n] * stride[n] - pads[n][0] for n in (0, 1)]
        taps = [[first[n] + t * dilation[n] for t in range(kernel[n])] for n in (0, 1)]
        inside = [[p for p in taps[n] if 0 <= p < image.shape[n]] for n in (0, 1)]
        covered = image[np.ix_(*inside)]
        if pool_type == "max":
            result[at] = covered.max(
                axis=(0, 1), initial=np.iinfo(np.int64).min if whole else -np.inf
            )
            continue
        padded = [[p for p in taps[n] if p < image.shape[n] + pads[n][1]] for n in (0, 1)]
        counted = padded if count_include_pad else inside
        result[at] = covered.sum(axis=(0, 1)) / max(len(counted[0]) * len(counted[1]), 1)
    return np.moveaxis(result, (0, 1), axes).astype(np_data.dtype)


def _positions(
    extent: int, reach: int, stride: int, before: int, after: int, ceil_mode: bool
) -> int:
    free = extent + before + after - reach
    if not ceil_mode:
        return free // stride + 1
    count = -(-free // stride) + 1
    return count - 1 if (count - 1) * stride >= extent + before else count


def adaptive_pool(np_data: Array, out_size: Any, pool_type: str, layout: str = "NCHW") -> Array:
    """Output o of O covers the input from floor(o * I / O) to ceil((o + 1) * I / O)."""
    letters = [a for a in layout if a.isalpha()]
    axes = (letters.index("H"), letters.index("W"))
    image = np.moveaxis(widest(np_data), axes, (0, 1))
    sizes = both(out_size)
    result = np.empty((*sizes, *image.shape[2:]), image.dtype)
    fold = np.max if pool_type == "max" else np.mean
    for at in itertools.product(*map(range, sizes)):
        cut = tuple(
            slice(at[n] * image.shape[n] // sizes[n], -(-(at[n] + 1) * image.shape[n] // sizes[n]))
            for n in (0, 1)
        )
        result[at] = fold(image[cut], axis=(0, 1))
    return np.moveaxis(result, (0, 1), axes).astype(np_data.dtype)


def upsampling_python(data: Array, scale: Any, layout: str = "NCHW") -> Array:
    """Every element repeated scale[0] times along H and scale[1] times along W."""
    for letter, times in zip("HW", both(scale), strict=True):
        data = data.repeat(times, axis=layout.index(letter))
    return data
