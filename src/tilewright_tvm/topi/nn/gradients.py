"""Gradients of pooling and of depthwise convolutions, under names of TVM.

In: the gradient of an operator's result, and what the operator read.  Out: that of an operand.
Read next: `topi/nn/gradients.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.nn.gradients import gradient_of_pooling, tap_axes, where_all, windows_read
from tilewright.topi.nn.window import Window, pad
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensor,
    product_dtype,
    require,
    require_float,
    stage,
    sum_of_products,
)
from tilewright.topi.transform import layout_transform


def pool_grad(
    grads: Tensor,
    data: Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NCHW",
) -> Tensor:
    """The gradient of `pool2d` of `data`, `grads` being that of its result.

    Of a maximum it goes to the first greatest element of a window.
    """
    place = call_text(
        "pool_grad", grads=grads, data=data, kernel=kernel, stride=stride, padding=padding,
        pool_type=pool_type, layout=layout,
    )  # fmt: skip
    require(pool_type in ("max", "avg"), place, "the pool_type is unknown", 'Use "max" or "avg".')
    check_tensor(data, "data", layout, place)
    check_tensor(grads, "grads", layout, place)
    if layout != "NCHW":
        require(sorted(layout) == sorted("NCHW"), place, "the layout is unknown", "Use NCHW.")
        moved, image = (layout_transform(t, layout, "NCHW") for t in (grads, data))
        made = pool_grad(
            moved, image, kernel, stride, padding, pool_type, ceil_mode, count_include_pad
        )
        return layout_transform(made, "NCHW", layout)
    require_float(data, "the gradient", place)
    window = Window.of(kernel, stride, padding, 1, place)
    return gradient_of_pooling(
        grads, data, window, pool_type, ceil_mode, count_include_pad, place, beyond=True
    )


def depthwise_conv2d_backward_input_nhwc(
    Filter: Tensor, Out_grad: Tensor, oshape: Sequence[int], ishape: Sequence[int], stride: Any,
    padding: Any,
) -> Tensor:  # fmt: skip
    """The gradient [N, H, W, C], of shape `ishape`, of what `depthwise_conv2d_nhwc` read.

    Filter [KH, KW, C, M]; Out_grad [N, OH, OW, C*M], of shape `oshape`: that of its result
    """
    name = "depthwise_conv2d_backward_input_nhwc"
    place = call_text(name, Filter=Filter, Out_grad=Out_grad, stride=stride, padding=padding)
    check_tensor(Filter, "Filter", "HWCM", place)
    height, width, _, copies = Filter.shape
    window = _check_gradient(place, Filter.shape, Out_grad, oshape, ishape, stride, padding)
    dtype = product_dtype(place, None, Filter=Filter, Out_grad=Out_grad)
    taps, copy = tap_axes((height, width)), te.reduce_axis((0, copies), "dm")

    def body(i: Indices) -> Expr:
        n, y, x, c = i
        read, tests = windows_read((y, x), taps, window, Out_grad.shape[1:3])
        seen = Out_grad[(n, *read, c * copies + copy)]
        return sum_of_products(
            where_all(tests, seen), Filter[(*taps, c, copy)], dtype, [*taps, copy]
        )  # fmt: skip

    return stage(ishape, body, "In_grad", name)


def depthwise_conv2d_backward_weight_nhwc(
    Input: Tensor, Out_grad: Tensor, oshape: Sequence[int], fshape: Sequence[int], stride: Any,
    padding: Any,
) -> Tensor:  # fmt: skip
    """The gradient [KH, KW, C, M], of shape `fshape`, of the weights of `depthwise_conv2d_nhwc`.

    Input [N, H, W, C]: what it read; Out_grad [N, OH, OW, C*M], of shape `oshape`: of its result
    """
    name = "depthwise_conv2d_backward_weight_nhwc"
    place = call_text(name, Input=Input, Out_grad=Out_grad, stride=stride, padding=padding)
    check_tensor(Input, "Input", "NHWC", place)
    window = _check_gradient(place, fshape, Out_grad, oshape, Input.shape, stride, padding)
    dtype = product_dtype(place, None, Input=Input, Out_grad=Out_grad)
    padded = pad(Input, *window.pads([1, 2], 4), name="padded_input") if any(window.padding) \
        else Input  # fmt: skip
    batch, *image, _ = Out_grad.shape
    n, (y, x) = te.reduce_axis((0, batch), "db"), tap_axes(image)

    def body(i: Indices) -> Expr:
        dy, dx, c, copy = i
        seen = Out_grad[n, y, x, c * fshape[3] + copy]
        read = padded[(n, *window.taps((y.as_expr(), x.as_expr()), (dy, dx)), c)]
        return sum_of_products(seen, read, dtype, [n, y, x])

    return stage(fshape, body, "Weight_grad", name)


def _check_gradient(
    place: str, fshape: Sequence[int], grad: Tensor, oshape: Sequence[int], ishape: Sequence[int],
    stride: Any, padding: Any,
) -> Window:  # fmt: skip
    """The window of the convolution.  Raises ExpressionError where the shapes do not fit."""
    check_tensor(grad, "Out_grad", "NHWC", place)
    require(
        len(fshape) == len(ishape) == 4, place, f"{list(ishape)} or {list(fshape)} are not four",
        "Give [N, H, W, C] and [KH, KW, C, M].",
    )  # fmt: skip
    window = Window.of(list(fshape[:2]), stride, padding, 1, place)
    image = window.output_size(list(ishape[1:3]), place)
    wanted = [ishape[0], *image, fshape[2] * fshape[3]]
    require(
        list(grad.shape) == list(oshape) == wanted and fshape[2] == ishape[3], place,
        f"the convolution of {list(ishape)} with {list(fshape)} has shape {wanted}, not "
        f"{list(grad.shape)}", "Give the gradient of its result, and the shape of that.",
    )  # fmt: skip
    return window
