"""numpy references of operators that move elements.

In: arrays.  Out: arrays.  Read next: `conv2d.py`.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np

from tilewright.topi.references.windows import Array


def strided_slice_python(
    data: Array, begin: Any, end: Any, strides: Any, slice_mode: str = "end", axes: Any = None
) -> Array:
    """data[begin:end:strides] on the first axes, or on `axes`; slice_mode "size": `end` holds
    extents, negative for the rest."""
    where = range(max(len(begin), len(end))) if axes is None else axes
    if slice_mode == "size":
        strides = None
        end = [b + n if n >= 0 else None for b, n in zip(begin, end, strict=True)]
    cut = [slice(None)] * data.ndim
    steps = () if strides is None else strides
    for k, b, e, s in itertools.zip_longest(where, begin, end, steps):
        if k is not None:
            cut[k] = slice(b, e, s)
    return data[tuple(cut)]


def strided_set_python(data: Array, v: Array, begin: Any, end: Any, strides: Any = None) -> Array:
    """`data` with `v` in place of data[begin:end:strides] on the first axes."""
    given = [] if strides is None else list(strides)
    steps = [*given, *[1] * (len(begin) - len(given))]
    made = data.copy()
    made[tuple(map(slice, begin, end, steps))] = v
    return made


def one_hot(
    indices: Array, on_value: float, off_value: float, depth: int, axis: int, dtype: str
) -> Array:
    """`on_value` where the position along the new `axis` is the index there."""
    hot = indices[..., None] == np.arange(depth)
    return np.moveaxis(np.where(hot, on_value, off_value), -1, axis).astype(dtype)


def sequence_mask(data: Array, valid_length: Array, mask_value: float, axis: int) -> Array:
    """`data` with `mask_value` behind the first valid_length[b] elements along `axis`, 0 or 1."""
    places = np.arange(data.shape[axis])
    lines = places[:, None] < valid_length if axis == 0 else places < valid_length[:, None]
    kept = lines.reshape(lines.shape + (1,) * (data.ndim - 2))
    return np.where(kept, data, np.asarray(mask_value, data.dtype))


def matrix_set_diag(
    input_np: Array, diagonal: Array, k: Any = 0, align: str = "RIGHT_LEFT"
) -> Array:
    """Matrices with a diagonal replaced, k above the main one, or with those from k[0] to k[1],
    which are rows of `diagonal`, the highest first; see `relay.matrix_set_diag` for `align`."""
    ends = list(k) if isinstance(k, (tuple, list)) else [k]
    made, (rows, columns) = input_np.copy(), input_np.shape[-2:]
    for row, at in enumerate(range(ends[-1], ends[0] - 1, -1)):
        line = diagonal if ends[0] == ends[-1] else diagonal[..., row, :]
        count = min(rows + min(at, 0), columns - max(at, 0))
        right = align.split("_")[0 if at >= 0 else 1] == "RIGHT"
        first = line.shape[-1] - count if right else 0
        n = np.arange(count)
        made[..., n + max(-at, 0), n + max(at, 0)] = line[..., first : first + count]
    return made


def depth_to_space_python(data: Array, block_size: int, mode: str = "DCR") -> Array:
    """Channels of NCHW as blocks of pixels; "CRD" counts the channels of the result first."""
    n, c, h, w = data.shape
    b, rest = block_size, c // block_size**2
    if mode == "DCR":
        cut = data.reshape(n, b, b, rest, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        cut = data.reshape(n, rest, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return cut.reshape(n, rest, h * b, w * b)


def space_to_depth_python(data: Array, block_size: int) -> Array:
    """Blocks of pixels of NCHW as channels."""
    n, c, h, w = data.shape
    b = block_size
    cut = data.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4)
    return cut.reshape(n, c * b * b, h // b, w // b)


def space_to_batch_nd_python(
    data: Array, block_shape: Any, pad_before: Any, pad_after: Any, pad_value: float = 0
) -> Array:
    """Blocks of the axes behind the batch become part of the batch."""
    count = len(block_shape)
    pads = [(0, 0), *zip(pad_before, pad_after, strict=True), *[(0, 0)] * (data.ndim - 1 - count)]
    padded = np.pad(data, pads, constant_values=pad_value)
    starts = np.ndindex(*block_shape)
    return np.concatenate([
        padded[(slice(None), *(slice(s, None, b) for s, b in zip(at, block_shape, strict=True)))]
        for at in starts
    ])  # fmt: skip


def batch_to_space_nd_python(
    data: Array, block_shape: Any, crop_begin_list: Any, crop_end_list: Any
) -> Array:
    """`space_to_batch_nd_python` undone."""
    blocks = int(np.prod(block_shape))
    n, inner = data.shape[0] // blocks, data.shape[1 : 1 + len(block_shape)]
    whole = [m * b for m, b in zip(inner, block_shape, strict=True)]
    made = np.zeros((n, *whole, *data.shape[1 + len(block_shape) :]), data.dtype)
    for k, at in enumerate(np.ndindex(*block_shape)):
        cut = (slice(s, None, b) for s, b in zip(at, block_shape, strict=True))
        made[(slice(None), *cut)] = data[k * n : (k + 1) * n]
    ends = zip(crop_begin_list, crop_end_list, whole, strict=True)
    return made[(slice(None), *(slice(a, m - e) for a, e, m in ends))]


def layout_transform_python(data: Array, src_layout: str, dst_layout: str) -> Array:
    """`data` from one layout to another by way of the unblocked one."""
    src, dst = (re.findall(r"(\d*)([A-Za-z])", text) for text in (src_layout, dst_layout))
    letters = [a for _, a in src]
    order = sorted(range(len(src)), key=lambda k: (letters[k].upper(), letters[k].islower()))
    data = data.transpose(order)
    whole: list[int] = []
    for k, n in zip(order, data.shape, strict=True):
        if letters[k].islower():
            whole[-1] *= n
        else:
            whole.append(n)
    outer = sorted(a for a in letters if a.isupper())
    blocks = {a: int(n) for n, a in dst if a.islower()}
    split: list[int] = []
    names: list[str] = []
    for a, n in zip(outer, whole, strict=True):
        block = blocks.get(a.lower(), 1)
        split += [n // block, block] if a.lower() in blocks else [n]
        names += [a, a.lower()] if a.lower() in blocks else [a]
    return np.ascontiguousarray(data.reshape(split).transpose([names.index(a) for _, a in dst]))
