"""Numpy references of boxes about the elements of an image, and of blocks of pixels as channels.

In: arrays.  Out: arrays.  Read next: `crops.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.topi.references.windows import Array


def reorg_python(a_np: Array, stride: int) -> Array:
    """Darknet's blocks of pixels as channels, element by element in its order."""
    batch, channels, height, width = a_np.shape
    few = channels // stride**2
    wide = a_np.reshape(batch, few, height * stride, width * stride)
    made = np.zeros(a_np.shape, a_np.dtype)
    for k in range(channels):
        offset = k // few
        made[:, k] = wide[:, k % few, offset // stride :: stride, offset % stride :: stride]
    return made.reshape(batch, channels * stride**2, height // stride, width // stride)


def multibox_prior_python(
    shape: Any, sizes: Any, ratios: Any, steps: Any, offsets: Any, clip: bool
) -> Array:
    """The boxes of images of `shape`, one after the other."""
    height, width = shape[2:]
    step_y, step_x = (s if s > 0 else 1 / n for s, n in zip(steps, (height, width), strict=True))
    kinds = [(s, 1.0) for s in sizes] + [(sizes[0], math.sqrt(r)) for r in ratios[1:]]
    rows = []
    for y, x in np.ndindex(height, width):
        down, across = (y + offsets[0]) * step_y, (x + offsets[1]) * step_x
        for size, root in kinds:
            half_w, half_h = size * height / width * root / 2, size / root / 2
            rows.append((across - half_w, down - half_h, across + half_w, down + half_h))
    made = np.array([rows], "float32")
    return np.clip(made, 0, 1) if clip else made
