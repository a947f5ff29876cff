"""Arithmetic on quantised tensors: real = scale * (integer - zero point) of each operand.

In: narrow integers, their scales and zero points.  Out: int32 sums of products, whose scale is that
of the operands multiplied, or narrow integers of a scale that is given.  Sums of products are
exact; what changes its scale is computed in float32 and rounded once.
Read next: `steps.py`, which goes from real numbers to integers and back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.relay import nn, tensor
from tilewright.relay.graph.expr import Expr, check_dtype
from tilewright.relay.qnn.steps import NARROW, centred, dequantize, narrowed, placed

_ROUNDINGS: dict[str, Callable[[Expr], Expr]] = {
    "None": lambda x: tensor.floor(x + 0.5),
    "UPWARD": lambda x: tensor.floor(x + 0.5),
    "TONEAREST": lambda x: tensor.sign(x) * tensor.floor(tensor.abs(x) + 0.5),
}


def requantize(
    data: Expr,
    input_scale: Expr,
    input_zero_point: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    axis: int = -1,
    rounding: str = "None",
    out_dtype: str = "int8",
) -> Expr:
    """`data` in steps of another scale, limited to what `out_dtype` holds.

    axis: of scales and zero points that are vectors
    rounding: of halves: "UPWARD" (the same as "None"), or "TONEAREST", which is away from zero
    """
    place = f"qnn.requantize(data={data.shape}, out_dtype={out_dtype!r})"
    if rounding not in _ROUNDINGS:
        raise ModelError(place, f"rounding {rounding!r} is not known", "Use UPWARD or TONEAREST.")
    kind = check_dtype(out_dtype, place)
    if not kind.is_int or kind.bits > 32:
        raise ModelError(place, "it is no integer type of at most 32 bits", 'Use "int8".')
    real = dequantize(data, input_scale, input_zero_point, axis)
    steps = _ROUNDINGS[rounding](real / placed(output_scale, data, axis))
    return narrowed(steps, placed(output_zero_point, data, axis), kind)


def _binary(name: str, operator: Callable[[Expr, Expr], Expr]) -> Callable[..., Expr]:
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
        left = dequantize(lhs, lhs_scale, lhs_zero_point, lhs_axis)
        right = dequantize(rhs, rhs_scale, rhs_zero_point, rhs_axis)
        return _steps(operator(left, right), output_scale, output_zero_point, lhs, f"qnn.{name}")

    quantised.__name__ = quantised.__qualname__ = name
    quantised.__doc__ = (
        f"`relay.{operator.__name__}` of two quantised tensors, in steps of `output_scale` and the "
        "element type of `lhs`."
    )
    return quantised


add = _binary("add", tensor.add)
subtract = _binary("subtract", tensor.subtract)
mul = _binary("mul", tensor.multiply)


def _unary(name: str, operator: Callable[[Expr], Expr]) -> Callable[..., Expr]:
    def quantised(
        x: Expr,
        scale: Expr,
        zero_point: Expr,
        output_scale: Expr,
        output_zero_point: Expr,
        axis: int = -1,
    ) -> Expr:
        real = operator(dequantize(x, scale, zero_point, axis))
        return _steps(real, output_scale, output_zero_point, x, f"qnn.{name}")

    quantised.__name__ = quantised.__qualname__ = name
    quantised.__doc__ = (
        f"`relay.{operator.__name__}` of a quantised tensor, in steps of `output_scale` and the "
        "element type of `x`."
    )
    return quantised


abs = _unary("abs", tensor.abs)
erf = _unary("erf", tensor.erf)
exp = _unary("exp", tensor.exp)
log = _unary("log", tensor.log)
rsqrt = _unary("rsqrt", tensor.rsqrt)
sigmoid = _unary("sigmoid", tensor.sigmoid)
sqrt = _unary("sqrt", tensor.sqrt)
tanh = _unary("tanh", tensor.tanh)


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
    real = [dequantize(*part) for part in zip(parts, scales, zeros, strict=True)]
    whole = tensor.concatenate(real, axis)
    return _steps(whole, output_scale, output_zero_point, parts[0], "qnn.concatenate")


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


def _steps(real: Expr, scale: Expr, zero_point: Expr, like: Expr, place: str) -> Expr:
    """Real numbers in steps of a scale, in the element type of `like`."""
    kind = like.tensor_type.dtype
    if kind not in NARROW:
        raise ModelError(place, f"{kind} is no narrow integer type", f"Use {', '.join(NARROW)}.")
    steps = _ROUNDINGS["UPWARD"](real / placed(scale, real, -1))
    return narrowed(steps, placed(zero_point, real, -1), kind)


__all__ = [
    "abs", "add", "batch_matmul", "concatenate", "conv2d", "dense", "erf", "exp", "log", "mul",
    "requantize", "rsqrt", "sigmoid", "sqrt", "subtract", "tanh",
]  # fmt: skip
