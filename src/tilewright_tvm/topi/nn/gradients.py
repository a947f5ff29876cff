"""Gradients of pooling and of depthwise convolutions, under names of TVM.

In: the gradient of an operator's result, and what the operator read.  Out: that of an operand.
Each element sums over the windows that read it, so no two of them write the same place.
Read next: `topi/nn/pooling.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import IterVar, Tensor
from tilewright.topi.nn.pooling import max_pool_indices, window_counts
from tilewright.topi.nn.window import Window, pad
from tilewright.topi.sampling import kept
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensor,
    check_tensors,
    product_dtype,
    require,
    require_float,
    stage,
    sum_of_products,
    wide,
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


def max_pool_grad(
    grads: Tensor, data: Tensor, kernel: Any, stride: Any, dilation: Any, padding: Any,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """The gradient of a maximum over data [N, C, ...] of any rank, whose windows may be dilated.

    No window lies in the padding alone, whatever ceil_mode says: so relay pools.
    """
    place = call_text(
        "max_pool_grad", grads=grads, data=data, kernel=kernel, stride=stride, padding=padding
    )
    check_tensors(place, grads=grads, data=data)
    require_float(data, "the gradient", place)
    window = Window.of(kernel, stride, padding, dilation, place, data.ndim - 2)
    return gradient_of_pooling(grads, data, window, "max", ceil_mode, True, place, beyond=False)


def gradient_of_pooling(
    grads: Tensor, data: Tensor, window: Window, pool_type: str, ceil_mode: bool,
    count_include_pad: bool, place: str, *, beyond: bool,
) -> Tensor:  # fmt: skip
    """Give the gradient of what was pooled, `grads` being that of the result."""
    shape, count = window_counts(data, window, ceil_mode, count_include_pad, place, beyond)
    require(
        list(grads.shape) == list(shape), place, f"the result of pooling has shape {list(shape)}",
        "Give its gradient.",
    )  # fmt: skip
    taps = tap_axes(window.kernel)
    first = None
    if pool_type == "max":
        first = max_pool_indices(
            data, window.kernel, window.stride, window.dilation, window.padding, ceil_mode,
            beyond=beyond,
        )  # fmt: skip

    def body(i: Indices) -> Expr:
        read, tests = windows_read(i[2:], taps, window, shape[2:])
        at = (*i[:2], *read)
        share = wide(grads[at])
        if first is None:
            return te.sum(where_all(tests, share / count(at)), axis=taps)
        own = te.cast("int64", i[0])
        for index, extent in zip(i[1:], data.shape[1:], strict=True):
            own = own * extent + te.cast("int64", index)
        return te.sum(where_all([*tests, first[at].equal(own)], share), axis=taps)

    total = stage(data.shape, body, "pool_grad_sum", "pool_grad")
    if total.dtype is data.dtype:
        return total
    return stage(data.shape, lambda i: total[i].astype(data.dtype), "pool_grad", "elemwise")


def tap_axes(kernel: Sequence[int]) -> list[IterVar]:
    """Give a reduction axis for each extent of a window."""
    names = "zyx"[-len(kernel) :]
    return [te.reduce_axis((0, n), f"d{name}") for n, name in zip(kernel, names, strict=True)]


def windows_read(
    at: Sequence[Expr], taps: Sequence[IterVar], window: Window, extents: Sequence[int]
) -> tuple[list[Expr], list[Expr]]:
    """Which window reads element `at` of the image with its tap, and when there is one."""
    found, tests = [], []
    for k, (index, tap, extent) in enumerate(zip(at, taps, extents, strict=True)):
        far = tap * window.dilation[k] if window.dilation[k] > 1 else tap
        origin = index + window.before[k] - far
        step = window.stride[k]
        tests += [origin >= 0, origin < extent * step]
        tests += [(origin % step).equal(0)] if step > 1 else []
        found.append(kept(origin // step, extent))
    return found, tests


def where_all(tests: Sequence[Expr], value: Expr) -> Expr:
    """Give `value` where every test holds, else 0."""
    return te.if_then_else(te.all(*tests), value, te.const(0, value.dtype))
