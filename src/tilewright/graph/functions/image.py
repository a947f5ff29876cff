"""Images resized and moved: `relay.image.resize`, `relay.image.grid_sample`, ...

In: graph values.  Out: calls.  Read next: `op/resize.py`, `op/sampling.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call, Expr
from tilewright.graph.functions.tensor import as_shape, clip
from tilewright.graph.leaves import const
from tilewright.graph.op import call


def resize(
    data: Expr,
    axes: Sequence[int],
    sizes: Sequence[int],
    scales: Sequence[float] = (),
    mode: str = "linear",
    coordinates: str = "half_pixel",
    rounding: str = "round_prefer_floor",
    cubic_alpha: float = -0.75,
    exclude_outside: bool = False,
    antialias: bool = False,
    roi: Sequence[float] = (),
    extrapolation_value: float = 0.0,
) -> Call:
    """`data` with the extents `sizes` along `axes`; names and meaning of the rest are ONNX's.

    scales: of the axes where they are not size / extent; roi: all starts, then all ends
    """
    return call(
        "image.resize", data, axes=tuple(map(int, axes)), sizes=tuple(map(int, sizes)),
        scales=tuple(map(float, scales)), mode=mode, coordinates=coordinates, rounding=rounding,
        cubic_alpha=float(cubic_alpha), exclude_outside=bool(exclude_outside),
        antialias=bool(antialias), roi=tuple(map(float, roi)),
        extrapolation_value=float(extrapolation_value),
    )  # fmt: skip


def resize_numbers(
    data: Expr, axes: Sequence[int], sizes: Sequence[int], scales: Sequence[float] = (),
    mode: str = "linear", *rest: Any, **named: Any,
) -> Call:  # fmt: skip
    """Give `resize` of integers, too: what lies between them is computed in float32 and loses its
    fraction; what a cubic goes past the range of narrow ones ends there."""
    if data.dtype.is_float or mode == "nearest":
        return resize(data, axes, sizes, scales, mode, *rest, **named)
    made = resize(call("cast", data, dtype="float32"), axes, sizes, scales, mode, *rest, **named)
    if mode == "cubic" and data.dtype.bits <= 16:  # which may leave the range of its elements
        limits = np.iinfo(str(data.dtype))
        made = clip(made, limits.min, limits.max)
    return call("cast", made, dtype=str(data.dtype))


def affine_grid(
    data: Expr, target_shape: Sequence[int], align_corners: bool = True, channels_last: bool = False
) -> Expr:
    """Where each element of an image of `target_shape` lies in one that was moved by `data`.

    data [N, 2, 3], for three axes [N, 3, 4]; result [N, 2, H, W], coordinates x, y from -1 to 1.
    align_corners: they are those of the centres of corner elements, else of the corners themselves.
    channels_last: [N, H, W, 2], as ONNX and PyTorch have it
    """
    shape, place = tuple(target_shape), "image.affine_grid"
    rank = len(shape)
    if rank not in (2, 3) or data.shape[1:] != (rank, rank + 1) or min(shape) < 1:
        raise ModelError(
            f"{place}(data={data.shape}, target_shape={shape})",
            "matrices of two rows and three columns move images of two axes, three rows and four "
            "columns those of three", "Give data [N, 2, 3] and (height, width).",
        )  # fmt: skip
    if math.prod(shape) * (rank + 1) * 8 > _GRID_BYTES:
        raise ModelError(
            f"{place}(target_shape={shape})",
            f"its {math.prod(shape)} places are a constant of the network, which has "
            f"{_GRID_BYTES >> 30} GiB for them at most", "Ask for a smaller image.",
        )  # fmt: skip
    lines = [
        np.linspace(-1, 1, n) if align_corners and n > 1 else (2 * np.arange(n) + 1) / n - 1
        for n in shape
    ]
    places = np.stack([*reversed(np.meshgrid(*lines, indexing="ij")), np.ones(shape)], -1)
    base = const(places.reshape(1, -1, rank + 1), str(data.dtype))
    if channels_last:
        return as_shape(call("nn.batch_matmul", base, data), (data.shape[0], *shape, rank))
    return as_shape(call("nn.batch_matmul", data, base), (data.shape[0], rank, *shape))


def grid_sample(
    data: Expr,
    grid: Expr,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> Call:
    """`data` [N, C, H, W] at the places of `grid` [N, 2, h, w], coordinates x, y from -1 to 1, as
    `affine_grid` makes them; with layout="NCDHW" [N, C, D, H, W] at [N, 3, d, h, w].

    method: "nearest", "bilinear" (trilinear), "bicubic"; padding_mode: what is outside: "zeros",
    "border", "reflection"; align_corners: as in `affine_grid`.
    """
    return call(
        "image.grid_sample", data, grid, method=method, layout=layout, padding_mode=padding_mode,
        align_corners=bool(align_corners),
    )  # fmt: skip


_GRID_BYTES = 4 << 30  # of an affine grid, which is computed when the network is built

__all__ = ["affine_grid", "grid_sample", "resize"]
open_doors(globals(), __all__, ModelError, "relay.image")
