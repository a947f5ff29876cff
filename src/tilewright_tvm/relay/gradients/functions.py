"""Gradients of single operators as users call them: `relay.nn.conv2d_backward_weight`, ...

In: the gradient of an operator's result, what the operator read, its attributes as it takes them.
Out: graph values.  Read next: `product.py`, `window.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Attrs, Call, Expr
from tilewright.graph.functions.layout import in_layout
from tilewright.graph.functions.pooling import avg_pool2d
from tilewright.graph.functions.sizes import per_axis, sides
from tilewright.graph.functions.tensor import cast
from tilewright.graph.op import call
from tilewright.graph.op.window import layouts
from tilewright_tvm.relay.gradients.product import weight_gradient_2d
from tilewright_tvm.relay.gradients.window import avg_pool_gradient


def conv2d_backward_weight(
    grad: Expr,
    data: Expr,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Any = None,
    grad_layout: str = "NCHW",
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_dtype: str = "",
) -> Expr:
    """The gradient of the weight of `nn.conv2d` of `data`, `grad` being that of its result.

    kernel_size: of the weight, which is needed; channels: those of `grad`, checked if given
    grad_layout: the same as data_layout, NCHW or NHWC; kernel_layout: of the result
    """
    place = f"nn.conv2d_backward_weight(grad={grad.shape}, data={data.shape})"
    if kernel_size is None:
        raise ModelError(place, "kernel_size is not given", "Several fit: say which it is.")
    if grad_layout != data_layout or data_layout not in layouts(2):
        raise ModelError(
            place, f"layouts {grad_layout!r} and {data_layout!r}", "Give both as NCHW or as NHWC."
        )
    size = per_axis(kernel_size, 2, "kernel_size", place)
    attrs = Attrs({
        "strides": per_axis(strides, 2, "strides", place), "padding": sides(padding, 2, place),
        "dilation": per_axis(dilation, 2, "dilation", place), "groups": groups,
        "data_layout": data_layout,
    })  # fmt: skip
    made = weight_gradient_2d(grad, data, attrs, size, place)
    if channels is not None and channels != made.shape[0]:
        raise ModelError(place, f"grad has {made.shape[0]} channels, not {channels}", "Leave it.")
    found = in_layout(made, "OIHW", kernel_layout)
    wanted = str(out_dtype)
    return cast(found, wanted) if wanted not in ("", str(found.dtype)) else found


def max_pool2d_grad(
    out_grad: Expr,
    data: Expr,
    pool_size: Any = (1, 1),
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
    dilation: Any = (1, 1),
) -> Expr:
    """The gradient of `nn.max_pool2d` of `data`: all of it goes to the first greatest element of a
    window."""
    place = "nn.max_pool2d_grad"
    made = call(
        place, out_grad, data, pool_size=per_axis(pool_size, 2, "pool_size", place),
        strides=per_axis(strides, 2, "strides", place), padding=sides(padding, 2, place),
        dilation=per_axis(dilation, 2, "dilation", place), ceil_mode=bool(ceil_mode),
        layout=layout,
    )  # fmt: skip
    return in_layout(made, layout, out_layout)


def avg_pool2d_grad(
    out_grad: Expr,
    data: Expr,
    pool_size: Any = (1, 1),
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Expr:
    """The gradient of `nn.avg_pool2d` of `data`: each element of a window has the same share."""
    pooled = avg_pool2d(
        data, pool_size, strides, (1, 1), padding, layout, "", ceil_mode, count_include_pad
    )
    if out_grad.checked_type != pooled.checked_type:
        raise ModelError(
            f"nn.avg_pool2d_grad(out_grad={out_grad.shape}, data={data.shape})",
            f"pooling the data gives {pooled.checked_type}", "Give the gradient of its result.",
        )  # fmt: skip
    assert isinstance(pooled, Call)
    return in_layout(avg_pool_gradient(pooled, out_grad), layout, out_layout)


__all__ = ["avg_pool2d_grad", "conv2d_backward_weight", "max_pool2d_grad"]
