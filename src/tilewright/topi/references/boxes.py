"""numpy references of operators of boxes.

In: arrays.  Out: arrays.  Read next: `sampling.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.topi.references.windows import Array, per_axis


def roi_pool_nchw_python(
    a_np: Array, rois_np: Array, pooled_size: Any, spatial_scale: float
) -> Array:
    """The greatest element of each bin of each region; 0 of empty bins."""
    bins = per_axis(pooled_size, 2)
    extents = a_np.shape[2:]
    made = np.zeros((len(rois_np), a_np.shape[1], *bins), a_np.dtype)
    for r, (number, *corners) in enumerate(rois_np):
        left, top, right, bottom = (math.floor(v * spatial_scale + 0.5) for v in corners)
        first, size = (top, left), (max(bottom - top + 1, 1), max(right - left + 1, 1))
        for at in np.ndindex(*bins):
            cut = []
            for k in range(2):
                step = np.float32(size[k]) / np.float32(bins[k])
                ends = math.floor(at[k] * step), math.ceil((at[k] + 1) * step)
                cut.append(slice(*(min(max(e + first[k], 0), extents[k]) for e in ends)))
            bin_ = a_np[int(number), :, cut[0], cut[1]]
            if bin_.size:
                made[(r, slice(None), *at)] = bin_.max((1, 2))
    return made
