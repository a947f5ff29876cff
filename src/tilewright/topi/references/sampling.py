"""numpy references of images read at places that are data, one result at a time.

In: arrays.  Out: arrays.  Read next: `tilewright_tvm/topi/testing/pooling.py`.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from tilewright.topi.references.windows import Array

CUBIC = -0.75


def grid_sample_python(
    data: Array, grid: Array, method: str = "bilinear", layout: str = "NCHW",
    padding_mode: str = "zeros", align_corners: bool = True, normalized: bool = True,
) -> Array:  # fmt: skip
    """data [N, C, image..] at the places of grid [N, rank, out..], the last axis first.

    layout: "NCHW" or "NCDHW"; the rank of `data` tells which
    Raises ValueError for a layout or a padding mode that is none.
    """
    if layout not in ("NCHW", "NCDHW"):
        raise ValueError(f"grid_sample_python: layout={layout!r}: use 'NCHW' or 'NCDHW'")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            f"grid_sample_python: padding_mode={padding_mode!r}: use 'zeros', 'border' or "
            "'reflection'"
        )
    rank, image = grid.shape[1], data.shape[2:]
    out = np.zeros((*data.shape[:2], *grid.shape[2:]), np.float64)
    for n, *o in np.ndindex(grid.shape[0], *grid.shape[2:]):
        axes = []
        for axis, extent in enumerate(image):
            at = float(grid[(n, rank - 1 - axis, *o)])
            if normalized:
                ends = (0, extent - 1) if align_corners else (-0.5, extent - 0.5)
                at = ends[0] + (at + 1) / 2 * (ends[1] - ends[0])
            if method != "bicubic":
                at = _settled(at, extent, padding_mode, align_corners)
            axes.append([
                (int(_settled(near, extent, padding_mode, align_corners)), weight)
                for near, weight in _taps(at, method)
            ])  # fmt: skip
        for taps in itertools.product(*axes):
            places = tuple(at for at, _ in taps)
            if all(0 <= at < extent for at, extent in zip(places, image, strict=True)):
                weight = math.prod(w for _, w in taps)
                out[(n, slice(None), *o)] += weight * data[(n, slice(None), *places)]
    return out.astype(data.dtype)


def _settled(at: float, extent: int, padding_mode: str, align_corners: bool) -> float:
    """A place moved to the border, or mirrored until it is inside."""
    if padding_mode == "zeros":
        return at
    if padding_mode == "reflection":
        low, high = (0.0, extent - 1.0) if align_corners else (-0.5, extent - 0.5)
        while low < high and not low <= at <= high:
            at = 2 * low - at if at < low else 2 * high - at
    return min(max(at, 0.0), extent - 1.0)


def _taps(at: float, method: str) -> list[tuple[float, float]]:
    if method == "nearest":
        return [(float(np.rint(at)), 1.0)]
    low = math.floor(at)
    if method == "bilinear":
        return [(low, low + 1 - at), (low + 1, at - low)]
    return [(low + k, _kernel(abs(at - low - k))) for k in (-1, 0, 1, 2)]


def _kernel(x: float) -> float:
    a = CUBIC
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
