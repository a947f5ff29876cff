"""Parts of images at places that are data, and the places of moved images.

In: images and boxes, or matrices.  Out: one stage each: `T_crop_and_resize`, `affine_grid`.
Read next: `sampling.py`, `dilation.py`.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.sampling import kept, limited
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensor,
    check_tensors,
    per_axis,
    require,
    require_float,
    stage,
    wide,
)

METHODS = ("bilinear", "nearest_neighbor")


def crop_and_resize(
    data: Tensor,
    boxes: Tensor,
    box_indices: Tensor,
    crop_size: Any,
    layout: str = "NCHW",
    method: str = "bilinear",
    extrapolation_value: float = 0.0,
    out_dtype: str | None = None,
) -> Tensor:
    """Each box of an image, in `crop_size` (height, width): [boxes, C, h, w] for layout NCHW.

    boxes:       [boxes, 4]: y, x of two corners, in shares of the image less one element
    box_indices: [boxes]: the number of the image, which is limited to those there are
    extrapolation_value: of what lies outside the image
    """
    place = call_text(
        "crop_and_resize", data=data, boxes=boxes, box_indices=box_indices, crop_size=crop_size,
        layout=layout, method=method,
    )  # fmt: skip
    require(layout in ("NCHW", "NHWC"), place, f"layout {layout!r} is unknown", "Use NCHW or NHWC.")
    require(method in METHODS, place, f"method {method!r} is unknown", f"Use one of {METHODS}.")
    check_tensor(data, "data", layout, place)
    check_tensors(place, boxes=boxes, box_indices=box_indices)
    require_float(data, "a value between elements", place)
    require(
        boxes.ndim == 2 and boxes.shape[1] == 4 and boxes.dtype.is_float
        and list(box_indices.shape) == [boxes.shape[0]] and box_indices.dtype.is_int, place,
        "boxes or their images have another shape or type",
        "Give boxes [boxes, 4] of floats and box_indices [boxes] of ints.",
    )  # fmt: skip
    size = per_axis(crop_size, 2, "crop_size", place)
    axes = [layout.index(a) for a in "HW"]
    image = [data.shape[a] for a in axes]
    result = data.dtype if out_dtype is None else te.const(0, out_dtype).dtype

    def along(i: Indices, k: int) -> Expr:
        """The place along an axis, in elements."""
        first, last = (wide(boxes[i[0], te.const(c)]) for c in (k, k + 2))
        reach = float(image[k] - 1)
        if size[k] == 1:
            return limited((first + last) * 0.5 * reach)
        step = (last - first) * reach / float(size[k] - 1)
        return limited(first * reach + te.cast(step.dtype, i[axes[k]]) * step)

    def body(i: Indices) -> Expr:
        at = [along(i, k) for k in range(2)]
        tests = [t for p, n in zip(at, image, strict=True) for t in (p >= 0.0, p <= float(n - 1))]
        number = kept(te.cast("int32", box_indices[i[0]]), data.shape[0])

        def element(places: Sequence[Expr]) -> Expr:
            source = list(i)
            source[0] = number
            for axis, p, n in zip(axes, places, image, strict=True):
                source[axis] = kept(p, n)
            return wide(data[tuple(source)])

        if method == "nearest_neighbor":
            value = element([te.round(p).astype("int32") for p in at])
        else:
            low = [te.floor(p) for p in at]
            taps = [
                ((b.astype("int32"), 1.0 - (p - b)), (b.astype("int32") + 1, p - b))
                for p, b in zip(at, low, strict=True)
            ]
            value = reduce(operator.add, (
                element((y, x)) * (wy * wx) for (y, wy), (x, wx) in itertools.product(*taps)
            ))  # fmt: skip
        outside = te.const(float(extrapolation_value), value.dtype)
        return te.if_then_else(te.all(*tests), value, outside).astype(result)

    shape = [boxes.shape[0], *data.shape[1:]]
    for axis, n in zip(axes, size, strict=True):
        shape[axis] = n
    return stage(shape, body, "T_crop_and_resize", "injective")


def affine_grid(data: Tensor, target_shape: Any) -> Tensor:
    """Find where each element of an image of `target_shape` (height, width) lies in one that the
    matrices data [N, 2, 3] move: [N, 2, H, W], coordinates x, y from -1 to 1, at the centres of
    corner elements.
    """
    place = call_text("affine_grid", data=data, target_shape=target_shape)
    check_tensors(place, data=data)
    require_float(data, "a place", place)
    require(
        data.ndim == 3 and list(data.shape[1:]) == [2, 3], place,
        "a matrix has two rows and three columns", "Give data [N, 2, 3].",
    )  # fmt: skip
    size = per_axis(target_shape, 2, "target_shape", place)

    def body(i: Indices) -> Expr:
        n, row, *at = i
        y, x = (
            te.cast(data.dtype.compute, p) * (2.0 / max(extent - 1, 1)) - 1.0
            for p, extent in zip(at, size, strict=True)
        )
        a, b, c = (wide(data[n, row, te.const(k)]) for k in range(3))
        return (a * x + b * y + c).astype(data.dtype)

    return stage((data.shape[0], 2, *size), body, "affine_grid", "injective")
