"""Parts of images, boxes about their elements, and images compared: `relay.image.crop_and_resize`.

In: graph values and keywords of TVM.  Out: calls.  Read next: `rows.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call, Expr
from tilewright.graph.functions.sizes import per_axis, sides
from tilewright.graph.op import call


def crop_and_resize(
    data: Expr,
    boxes: Expr,
    box_indices: Expr,
    crop_size: Any,
    layout: str,
    method: str = "bilinear",
    extrapolation_value: float = 0.0,
    out_dtype: str | None = None,
) -> Call:
    """Each box of an image in `crop_size` (height, width): [boxes, C, h, w] for layout NCHW.

    boxes:       [boxes, 4]: y, x of two corners, in shares of the image less one element
    box_indices: [boxes]: the number of the image
    method:      "bilinear" or "nearest_neighbor"; extrapolation_value: of what is outside
    """
    return call(
        "image.crop_and_resize", data, boxes, box_indices, layout=layout, method=method,
        crop_size=per_axis(crop_size, 2, "crop_size", "image.crop_and_resize"),
        extrapolation_value=float(extrapolation_value), out_dtype=out_dtype or None,
    )  # fmt: skip


def dilation2d(
    data: Expr,
    weight: Expr,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilations: Any = (1, 1),
    data_layout: str = "NCHW",
    kernel_layout: str = "IHW",
    out_dtype: str = "",
) -> Call:
    """The greatest sum of an element of each window of images and the filter's, one for each
    channel; weight: IHW for NCHW, HWI for NHWC.  The padding never is the greatest."""
    place = "image.dilation2d"
    if (data_layout, kernel_layout) not in (("NCHW", "IHW"), ("NHWC", "HWI")):
        raise ModelError(
            f"{place}(data_layout={data_layout!r}, kernel_layout={kernel_layout!r})",
            "they are not known together", "Use NCHW and IHW, or NHWC and HWI.",
        )  # fmt: skip
    return call(
        place, data, weight, strides=per_axis(strides, 2, "strides", place),
        padding=sides(padding, 2, place), dilations=per_axis(dilations, 2, "dilations", place),
        layout=data_layout, out_dtype=out_dtype or None,
    )  # fmt: skip


def multibox_prior(
    data: Expr,
    sizes: Sequence[float] = (1.0,),
    ratios: Sequence[float] = (1.0,),
    steps: Sequence[float] = (-1.0, -1.0),
    offsets: Sequence[float] = (0.5, 0.5),
    clip: bool = False,
) -> Call:
    """Boxes about each element of data [N, C, H, W]: [1, H * W * boxes, 4], of shares of the image.

    boxes: one of each size with the first ratio, then one of each further ratio with the first
    size; a row is left, top, right, bottom
    steps: between elements, down and across; -1 is the image over their number
    offsets: of the first centre, in steps; clip: to the image
    """
    return call(
        "vision.multibox_prior", data, sizes=tuple(map(float, sizes)),
        ratios=tuple(map(float, ratios)), steps=tuple(map(float, steps)),
        offsets=tuple(map(float, offsets)), clip=bool(clip),
    )  # fmt: skip


def yolo_reorg(data: Expr, stride: int) -> Call:
    """data [N, C, H, W] with blocks of stride by stride pixels as channels, in Darknet's order."""
    return call("vision.yolo_reorg", data, stride=int(stride))


def correlation(
    data1: Expr,
    data2: Expr,
    kernel_size: int,
    max_displacement: int,
    stride1: int,
    stride2: int,
    padding: Any,
    is_multiply: bool,
    layout: str = "NCHW",
) -> Call:
    """The mean product (is_multiply) or distance of each patch of data1 and of patches of data2
    around the same place: [N, D*D, OH, OW], D being 2 * (max_displacement // stride2) + 1.

    kernel_size: the extent of a patch, odd; padding: one number for all sides
    stride1: between patches of data1; stride2: between displacements
    """
    around = set(sides(padding, 2, "nn.correlation"))
    if layout != "NCHW" or len(around) != 1:
        raise ModelError(
            f"nn.correlation(layout={layout!r}, padding={padding!r})",
            "images are NCHW, with one padding for all sides", "Use relay.transpose or nn.pad.",
        )  # fmt: skip
    return call(
        "nn.correlation", data1, data2, kernel_size=int(kernel_size),
        max_displacement=int(max_displacement), stride1=int(stride1), stride2=int(stride2),
        padding=around.pop(), is_multiply=bool(is_multiply),
    )  # fmt: skip
