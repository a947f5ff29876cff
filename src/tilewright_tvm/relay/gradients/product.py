"""Gradients of sums of products: dense layers, products of matrices, convolutions.

In: calls and the gradient of their results.  Out: that of the data and of the weights, again sums
of products by the same operators, so that the same kernels and records serve them.
Read next: `window.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Attrs, Call, Expr, TensorType, Var
from tilewright.graph.functions import tensor as T
from tilewright.graph.functions.indexing import slice_of
from tilewright.graph.functions.layout import layout_transform
from tilewright.graph.op import call
from tilewright.graph.op.conv import CONVOLUTIONS, TRANSPOSED
from tilewright.graph.op.window import IMAGE, channels_first, is_blocked, reaches
from tilewright.graph.op.window import out_layout as result_layout
from tilewright_tvm.relay.gradients.shared import Rule, in_type, summed


def _dense(node: Call, g: Expr) -> list[Expr]:
    data, weight = (in_type(a, g) for a in node.args)
    by_data = call("nn.dense", g, T.transpose(weight))
    by_weight = call("nn.dense", T.transpose(g), T.transpose(data))
    return [in_type(by_data, node.args[0]), in_type(by_weight, node.args[1])]


def _batch_matmul(node: Call, g: Expr) -> list[Expr]:
    a, b = (in_type(x, g) for x in node.args)
    ta, tb = node.attrs.transpose_a, node.attrs.transpose_b

    def product(left: Expr, right: Expr, flip_left: bool, flip_right: bool) -> Expr:
        return call("nn.batch_matmul", left, right, transpose_a=flip_left, transpose_b=flip_right)

    by_a = product(b, g, tb, True) if ta else product(g, b, False, not tb)
    by_b = product(g, a, True, ta) if tb else product(a, g, not ta, False)
    found = zip((by_a, by_b), node.args, strict=True)
    return [in_type(summed(made, x), x) for made, x in found]


# -- convolutions ----------------------------------------------------------------------------------


def _conv(node: Call, g: Expr) -> list[Expr]:
    if is_blocked(node.attrs.data_layout):
        return _of_blocks(node, g)
    data, weight = (in_type(a, g) for a in node.args)
    by_data = _transposed(g, weight, node.attrs, data.shape)
    by_weight = _weight_gradient(data, g, node.attrs, weight.shape, node.attrs.kernel_layout)
    return [in_type(by_data, node.args[0]), in_type(by_weight, node.args[1])]


def _conv_transpose(node: Call, g: Expr) -> list[Expr]:
    """It is a convolution's gradient, so that convolution is its own."""
    data, weight, a = *(in_type(x, g) for x in node.args), node.attrs
    rank, kernel = len(a.strides), _swapped(a.kernel_layout)
    how = {"strides": a.strides, "padding": a.padding, "dilation": a.dilation}
    there = call(
        f"nn.conv{rank}d", g, weight, groups=a.groups, data_layout=a.data_layout,
        kernel_layout=kernel, **how,
    )  # fmt: skip
    by_data = slice_of(there, [*map(range, data.shape)]) if there.shape != data.shape else there
    by_weight = _weight_gradient(g, data, a, weight.shape, kernel)
    return [in_type(by_data, node.args[0]), in_type(by_weight, node.args[1])]


def _transposed(g: Expr, weight: Expr, a: Attrs, shape: Sequence[int]) -> Expr:
    """What each element of the data, of this shape, adds to the result."""
    rank = len(a.strides)
    image = IMAGE[rank]
    sizes = dict(zip(a.data_layout, shape, strict=True))
    kernel = dict(zip(a.kernel_layout, weight.shape, strict=True))
    reach = reaches([kernel[k] for k in image], a.dilation)
    left = tuple(  # behind the last window
        (sizes[letter] + a.padding[k] + a.padding[rank + k] - reach[k]) % a.strides[k]
        for k, letter in enumerate(image)
    )
    return call(
        f"nn.conv{rank}d_transpose", g, weight, strides=a.strides, padding=a.padding,
        dilation=a.dilation, groups=a.groups, data_layout=a.data_layout,
        kernel_layout=_swapped(a.kernel_layout), output_padding=left,
    )  # fmt: skip


def _swapped(kernel_layout: str) -> str:
    """The layout of the same weight for the convolution that goes the other way."""
    return kernel_layout.translate(str.maketrans("IO", "OI"))


def _weight_gradient(
    data: Expr, g: Expr, a: Attrs, shape: Sequence[int], kernel_layout: str
) -> Expr:
    """The gradient of a weight of this shape: a convolution of the data by that of the result, with
    the batch as channels, and strides and dilation in each other's place."""
    rank = len(a.strides)
    order, image = channels_first(rank), IMAGE[rank]
    x, dy = (_in_order(value, a.data_layout, order) for value in (data, g))
    batch, channels, *extents = x.shape
    each = channels // a.groups
    if a.groups > 1:
        x = call("reshape", x, newshape=(batch, a.groups, each, *extents))
        x = T.transpose(x, (2, 1, 0, *range(3, rank + 3)))
        x = call("reshape", x, newshape=(each, a.groups * batch, *extents))
    else:
        x = T.transpose(x, (1, 0, *range(2, rank + 2)))
    made: Expr = call(
        f"nn.conv{rank}d", x, T.transpose(dy, (1, 0, *range(2, rank + 2))), strides=a.dilation,
        padding=a.padding, dilation=a.strides, groups=a.groups,
    )  # fmt: skip
    held = dict(zip(kernel_layout, shape, strict=True))
    wanted = [each, made.shape[1], *(held[k] for k in image)]
    if list(made.shape) != wanted:  # what strides left over behind the last window
        made = slice_of(made, [*map(range, wanted)])
    return _in_order(made, f"IO{image}", kernel_layout)


def _in_order(value: Expr, layout: str, wanted: str) -> Expr:
    return value if layout == wanted else T.transpose(value, [layout.index(k) for k in wanted])


def _of_blocks(node: Call, g: Expr) -> list[Expr]:
    """By way of whole channels."""
    (data, weight), a = node.args, node.attrs
    x = layout_transform(data, a.data_layout, "NCHW")
    w = layout_transform(weight, a.kernel_layout, "OIHW")
    plain = Call(node.op, [x, w], Attrs({**a, "data_layout": "NCHW", "kernel_layout": "OIHW"}))
    by_data, by_weight = _conv(plain, layout_transform(g, result_layout(a), "NCHW"))
    return [
        layout_transform(by_data, "NCHW", a.data_layout),
        layout_transform(by_weight, "OIHW", a.kernel_layout),
    ]


def weight_gradient_2d(
    grad: Expr, data: Expr, attrs: Attrs, kernel: Sequence[int], place: str
) -> Expr:
    """The gradient [O, I, KH, KW] of the weight of `nn.conv2d`; kernel: its extents KH, KW.

    grad, data: in attrs.data_layout
    Raises ModelError where they do not belong to one convolution.
    """
    layout = attrs.data_layout
    if not len(grad.shape) == len(data.shape) == len(layout):
        raise ModelError(place, f"they are not both {layout}", "Reshape them.")
    inputs, outputs = (v.shape[layout.index("C")] for v in (data, grad))
    shape = (outputs, inputs // max(attrs.groups, 1), *kernel)
    weight = Var("weight", TensorType(shape, data.dtype))
    result = call("nn.conv2d", data, weight, **attrs)
    if result.checked_type != grad.checked_type:
        raise ModelError(
            place, f"the convolution gives {result.checked_type}, not {grad.checked_type}",
            "Give the gradient of its result, and its attributes.",
        )  # fmt: skip
    return _weight_gradient(data, grad, attrs, shape, "OIHW")


RULES: dict[str, Rule] = {
    "nn.dense": _dense,
    "nn.batch_matmul": _batch_matmul,
    **dict.fromkeys(CONVOLUTIONS, _conv),
    **dict.fromkeys(TRANSPOSED, _conv_transpose),
}
