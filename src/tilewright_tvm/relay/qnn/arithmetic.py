"""Arithmetic on quantised tensors: real = scale * (integer - zero point) of each operand.

In: narrow integers, their scales and zero points.  Out: int32 sums of products, whose scale is that
of the operands multiplied, or narrow integers of a scale that is given.  Sums of products are
exact.  A sum's operands are brought to the scale of the result, each rounded, and then added.
Read next: `rescale.py`, `functions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.dtype import DType
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr
from tilewright.graph.functions import nn, tensor
from tilewright.graph.functions.quantized import NARROW, centred, dequantize, placed
from tilewright_tvm.relay.qnn.rescale import limited, requantize, rounded


def _sum(name: str, operator: Callable[[Expr, Expr], Expr]) -> Callable[..., Expr]:
    def quantised(
        lhs: Expr,
        rhs: Expr,
        lhs_scale: Expr,
        lhs_zero_point: Expr,
        rhs_scale: Expr,
        rhs_zero_point: Expr,
        output_scale: Expr,
        output_zero_point: Expr,
        lhs_axis: int = -1,
        rhs_axis: int = -1,
    ) -> Expr:
        kind = _narrow(lhs, f"qnn.{name}")
        wide = "int32"
        left = requantize(
            lhs, lhs_scale, lhs_zero_point, output_scale, output_zero_point, lhs_axis,
            out_dtype=wide,
        )  # fmt: skip
        right = requantize(
            rhs, rhs_scale, rhs_zero_point, output_scale, output_zero_point, rhs_axis,
            out_dtype=wide,
        )  # fmt: skip
        zero = tensor.cast(placed(output_zero_point, lhs, lhs_axis), wide)
        return limited(operator(left, right - zero), kind)

    quantised.__name__ = quantised.__qualname__ = name
    quantised.__doc__ = (
        f"`relay.{operator.__name__}` of two quantised tensors, in steps of `output_scale` and the "
        "element type of `lhs`.\n\nBoth are brought to steps of `output_scale` first, which rounds "
        "each of them unless it has that scale."
    )
    return quantised


add = _sum("add", tensor.add)
subtract = _sum("subtract", tensor.subtract)


def mul(
    lhs: Expr,
    rhs: Expr,
    lhs_scale: Expr,
    lhs_zero_point: Expr,
    rhs_scale: Expr,
    rhs_zero_point: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    lhs_axis: int = -1,
    rhs_axis: int = -1,
) -> Expr:
    """`relay.multiply` of two quantised tensors, in steps of `output_scale` and as `lhs`."""
    left = dequantize(lhs, lhs_scale, lhs_zero_point, lhs_axis)
    right = dequantize(rhs, rhs_scale, rhs_zero_point, rhs_axis)
    return in_steps(left * right, output_scale, output_zero_point, lhs, "qnn.mul")


def concatenate(
    data: Expr | Sequence[Expr],
    input_scales: Expr | Sequence[Expr],
    input_zero_points: Expr | Sequence[Expr],
    output_scale: Expr,
    output_zero_point: Expr,
    axis: int,
) -> Expr:
    """Quantised tensors one behind the other, in steps of one scale."""
    parts, scales, zeros = [*data], [*input_scales], [*input_zero_points]
    if not len(parts) == len(scales) == len(zeros) > 0:
        raise ModelError(
            "qnn.concatenate", f"{len(parts)} tensors, {len(scales)} scales, {len(zeros)} zeros",
            "Give one scale and one zero point for each tensor.",
        )  # fmt: skip
    kind = parts[0].dtype
    steps = [
        requantize(part, scale, zero, output_scale, output_zero_point, out_dtype=kind)
        for part, scale, zero in zip(parts, scales, zeros, strict=True)
    ]
    return tensor.concatenate(steps, axis)


def conv2d(
    data: Expr,
    kernel: Expr,
    input_zero_point: Expr,
    kernel_zero_point: Expr,
    input_scale: Expr,
    kernel_scale: Expr,
    kernel_size: Any,
    channels: int | None,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "int32",
) -> Expr:
    """`nn.conv2d` of quantised tensors, as int32 in steps of input_scale * kernel_scale.

    kernel_zero_point: one number, or one for each output channel.  The scales say what the result
    means, and are not read.  Padding is with the zero point.
    """
    weight = centred(kernel, placed(kernel_zero_point, kernel, kernel_layout.find("O")))
    return nn.conv2d(
        centred(data, placed(input_zero_point, data, 0)), weight, strides, padding, dilation,
        groups, channels, kernel_size, data_layout, kernel_layout, out_layout, out_dtype,
    )  # fmt: skip


def conv2d_transpose(
    data: Expr,
    weight: Expr,
    input_zero_point: Expr,
    kernel_zero_point: Expr,
    input_scale: Expr,
    kernel_scale: Expr,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    channels: int | None = None,
    kernel_size: Any = None,
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "IOHW",
    out_layout: str = "",
    output_padding: Any = (0, 0),
    out_dtype: str = "int32",
) -> Expr:
    """`nn.conv2d_transpose` of quantised tensors, as int32 in steps of input_scale * kernel_scale.

    kernel_zero_point: one number, or one for each output channel.  The scales are not read.
    """
    kernel = centred(weight, placed(kernel_zero_point, weight, kernel_layout.find("O")))
    return nn.conv2d_transpose(
        centred(data, placed(input_zero_point, data, 0)), kernel, strides, padding, dilation,
        groups, channels, kernel_size, data_layout, kernel_layout, out_layout, output_padding,
        out_dtype,
    )  # fmt: skip


def dense(
    data: Expr,
    weight: Expr,
    input_zero_point: Expr,
    kernel_zero_point: Expr,
    input_scale: Expr,
    kernel_scale: Expr,
    units: int | None = None,
    out_dtype: str = "int32",
) -> Expr:
    """`nn.dense` of quantised tensors, as int32 in steps of input_scale * kernel_scale."""
    rows = centred(data, placed(input_zero_point, data, 0))
    return nn.dense(rows, centred(weight, placed(kernel_zero_point, weight, 0)), units, out_dtype)


def batch_matmul(
    x: Expr,
    y: Expr,
    x_zero_point: Expr,
    y_zero_point: Expr,
    x_scale: Expr,
    y_scale: Expr,
    out_dtype: str = "int32",
) -> Expr:
    """`nn.batch_matmul` of quantised tensors, as int32 in steps of x_scale * y_scale."""
    left, right = centred(x, placed(x_zero_point, x, 0)), centred(y, placed(y_zero_point, y, 0))
    return nn.batch_matmul(left, right, out_dtype)


def in_steps(real: Expr, scale: Expr, zero_point: Expr, like: Expr, place: str) -> Expr:
    """Real numbers in steps of a scale, in the element type of `like`, halves up."""
    kind = _narrow(like, place)
    return rounded(real / placed(scale, real, -1), placed(zero_point, real, -1), kind)


def _narrow(like: Expr, place: str) -> DType:
    kind = like.tensor_type.dtype
    if kind not in NARROW:
        raise ModelError(place, f"{kind} is no narrow integer type", f"Use {', '.join(NARROW)}.")
    return kind


__all__ = [
    "add", "batch_matmul", "concatenate", "conv2d", "conv2d_transpose", "dense", "in_steps", "mul",
    "subtract",
]  # fmt: skip
