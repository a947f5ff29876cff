"""Convolution whose taps lie where data says: `relay.nn.deformable_conv2d`.

In: graph values and TVM's keywords.  Out: the taps of every result, read by `image.grid_sample`,
then a product with the weights, which is tuned as any other.  Read next: `convolution.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Array, Expr, Var
from tilewright.graph.functions.indexing import reverse
from tilewright.graph.functions.linear import product
from tilewright.graph.functions.sizes import per_axis, same_layout, settle, sides
from tilewright.graph.functions.tensor import add, as_shape, broadcast_to, multiply, transpose
from tilewright.graph.leaves import const
from tilewright.graph.op import call

PLACE = "nn.deformable_conv2d"


def deformable_conv2d(
    data: Expr,
    offset: Expr,
    weight: Expr,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    deformable_groups: int = 1,
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Any = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "",
    *,
    mask: Expr | None = None,
) -> Expr:
    """`conv2d` of data [N, C, H, W] each of whose taps is moved by its own offset.

    offset: [N, deformable_groups * taps * 2, h, w], h and w being those of the result: for each
            tap how far it moves along H, then along W; outside the image are zeros
    mask:   [N, deformable_groups * taps, h, w]: what each tap is multiplied with
    A group of offsets serves C / deformable_groups channels.
    Raises ModelError where shapes do not fit, and for other layouts and types.
    """
    _check_layouts(data_layout, kernel_layout, out_layout, out_dtype)
    step, pads = per_axis(strides, 2, "strides", PLACE), sides(padding, 2, PLACE)
    spread = per_axis(dilation, 2, "dilation", PLACE)
    _require(len(data.shape) == 4, f"data has shape {data.shape}", "Give [N, C, H, W].")
    if isinstance(weight, Var) and not weight.is_typed and channels and kernel_size is not None:
        window = per_axis(kernel_size, 2, "kernel_size", PLACE)
        settle(weight, (channels, data.shape[1] // max(groups, 1), *window), data)
    _require(len(weight.shape) == 4, f"weight has shape {weight.shape}", "Give [O, I, H, W].")
    batch, inner, *image = data.shape
    outer, each, *kernel = weight.shape
    _require(
        groups >= 1 and each * groups == inner and outer % groups == 0,
        f"a weight of shape {weight.shape} in {groups} groups does not fit {inner} channels",
        "Give [channels, C / groups, height, width].",
    )
    _require(
        deformable_groups >= 1 and inner % deformable_groups == 0,
        f"{deformable_groups} groups of offsets do not divide {inner} channels", "Use a divisor.",
    )  # fmt: skip
    _require(min(step) >= 1 and min(spread) >= 1, f"strides {step}, dilation {spread}", "Use 1.")
    size = [
        (n + pads[k] + pads[2 + k] - (kernel[k] - 1) * spread[k] - 1) // step[k] + 1
        for k, n in enumerate(image)
    ]
    _require(min(size) >= 1, f"the window {kernel} does not fit {image}", "Use padding.")
    taps, moved = math.prod(kernel), batch * deformable_groups
    for what, value, count in (("offset", offset, 2 * taps), ("mask", mask, taps)):
        wanted = (batch, deformable_groups * count, *size)
        if isinstance(value, Var) and not value.is_typed:
            settle(value, wanted, data)
        _require(
            value is None or value.shape == wanted,
            f"the {what} has shape {getattr(value, 'shape', None)}", f"Give {wanted}.",
        )  # fmt: skip
    still = _places(kernel, size, step, spread, pads)
    places = add(as_shape(offset, (moved, taps, 2, *size)), const(still, str(offset.dtype)))
    grid = reverse(transpose(places, (0, 2, 1, 3, 4)), 1)  # x comes first
    read: Expr = call(
        "image.grid_sample", as_shape(data, (moved, inner // deformable_groups, *image)),
        as_shape(grid, (moved, 2, taps * size[0], size[1])), normalized=False,
    )  # fmt: skip
    if mask is not None:
        read = multiply(read, as_shape(mask, (moved, 1, taps * size[0], size[1])))
    several = (batch, groups) if min(batch, groups) > 1 else (batch * groups,)
    columns = as_shape(read, (*several, each * taps, math.prod(size)))
    rows: Expr = as_shape(weight, (groups, outer // groups, each * taps))
    if len(several) > 1:
        rows = broadcast_to(rows, (*several, *rows.shape[1:]))
    return as_shape(product(rows, columns), (batch, outer, *size))


def _places(
    kernel: list[int], size: list[int], step: tuple[int, ...], spread: tuple[int, ...],
    pads: tuple[int, ...],
) -> Array:  # fmt: skip
    """Where taps that do not move lie: [1, taps, 2, h, w]."""
    lines = [
        np.arange(kernel[k])[:, None] * spread[k] + np.arange(size[k]) * step[k] - pads[k]
        for k in range(2)
    ]
    shape = (*kernel, *size)
    rows = np.broadcast_to(lines[0][:, None, :, None], shape)
    columns = np.broadcast_to(lines[1][None, :, None, :], shape)
    return np.stack([rows, columns], 2).reshape(1, -1, 2, *size)


def _check_layouts(data: str, kernel: str, out: str, dtype: str) -> None:
    same_layout(out, data, PLACE)
    _require(
        (data, kernel) == ("NCHW", "OIHW"), f"data_layout={data}, kernel_layout={kernel}",
        "Use NCHW and OIHW, and transpose others.",
    )  # fmt: skip
    _require(str(dtype) == "", f"out_dtype={dtype}", "Cast the result.")


def _require(holds: bool, reason: str, way_out: str) -> None:
    if not holds:
        raise ModelError(PLACE, reason, way_out)


__all__ = ["deformable_conv2d"]
