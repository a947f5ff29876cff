"""Morphological dilation: `topi.image.dilation2d_nchw`, `topi.image.dilation2d_nhwc`.

In: images and a filter for each channel.  Out: a stage that takes maxima of sums.
Read next: `nn/pooling.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.base.dtype import DType
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.nn.window import Window, pad
from tilewright.topi.stage import Indices, call_text, check_tensor, require, stage


def dilation2d_nchw(
    input: Tensor, filter: Tensor, stride: Any, padding: Any, dilations: Any,
    out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """The greatest sum of an element of each window and the filter's: input [N, C, H, W], filter
    [C, KH, KW].  The padding never is the greatest."""
    return _dilation("NCHW", input, filter, stride, padding, dilations, out_dtype)


def dilation2d_nhwc(
    input: Tensor, filter: Tensor, stride: Any, padding: Any, dilations: Any,
    out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """`dilation2d_nchw` of input [N, H, W, C], filter [KH, KW, C]."""
    return _dilation("NHWC", input, filter, stride, padding, dilations, out_dtype)


def _dilation(
    layout: str, data: Tensor, kernel: Tensor, stride: Any, padding: Any, dilations: Any,
    out_dtype: str | None,
) -> Tensor:  # fmt: skip
    name = f"dilation2d_{layout.lower()}"
    place = call_text(name, input=data, filter=kernel, stride=stride, padding=padding)
    own = layout[1:]
    check_tensor(data, "input", layout, place)
    check_tensor(kernel, "filter", own, place)
    require(
        kernel.shape[own.index("C")] == data.shape[layout.index("C")]
        and kernel.dtype is data.dtype, place,
        "the filter has other channels or another type", "Give one filter for each channel.",
    )  # fmt: skip
    image = [layout.index(a) for a in "HW"]
    window = Window.of(
        [kernel.shape[own.index(a)] for a in "HW"], stride, padding, dilations, place
    )  # fmt: skip
    size = window.output_size([data.shape[a] for a in image], place)
    result = data.dtype if out_dtype is None else DType(out_dtype, place)
    padded = data
    if any(window.padding):
        padded = pad(data, *window.pads(image, 4), data.dtype.identity_of_max, name="pad_temp")
    taps = [te.reduce_axis((0, n), f"r{a}") for n, a in zip(window.kernel, "yx", strict=True)]

    def body(i: Indices) -> Expr:
        source, tap = list(i), list(i[1:])
        read = window.taps([i[a] for a in image], taps)
        for letter, at, r in zip("HW", read, taps, strict=True):
            source[layout.index(letter)], tap[own.index(letter)] = at, r.as_expr()
        value = padded[tuple(source)].astype(result) + kernel[tuple(tap)].astype(result)
        return te.max(value, axis=taps)

    shape = list(data.shape)
    for axis, n in zip(image, size, strict=True):
        shape[axis] = n
    return stage(shape, body, "dilation2d", name)
