"""numpy references of operators that move elements.

In: arrays.  Out: arrays.  Read next: `conv2d.py`.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tilewright.topi.testing.conv2d import Array


def strided_slice_python(
    data: Array, begin: Any, end: Any, strides: Any, axes: Any = None
) -> Array:
    """data[begin:end:strides] on the first axes, or on `axes`."""
    where = range(len(begin)) if axes is None else axes
    cut = [slice(None)] * data.ndim
    for k, b, e, s in zip(where, begin, end, strides or [1] * len(begin), strict=True):
        cut[k] = slice(b, e, s)
    return data[tuple(cut)]


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
