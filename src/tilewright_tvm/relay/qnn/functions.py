"""Functions of quantised tensors: computed on the real numbers that they stand for.

In: narrow integers, their scale and zero point, and those of the result.  Out: narrow integers of
the same type.  Each is one chain of float32, which becomes one kernel, and rounds once, halves up.
Read next: `arithmetic.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.graph.expr import Expr
from tilewright.graph.functions import activations, nn, tensor
from tilewright.graph.functions.quantized import dequantize
from tilewright_tvm.relay.qnn.arithmetic import in_steps


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
        return in_steps(real, output_scale, output_zero_point, x, f"qnn.{name}")

    quantised.__name__ = quantised.__qualname__ = name
    quantised.__doc__ = (
        f"`{operator.__name__}` of a quantised tensor, in steps of `output_scale` and the element "
        "type of `x`."
    )
    return quantised


abs = _unary("abs", tensor.abs)
erf = _unary("erf", tensor.erf)
exp = _unary("exp", tensor.exp)
hardswish = _unary("hardswish", activations.hard_swish)
log = _unary("log", tensor.log)
rsqrt = _unary("rsqrt", tensor.rsqrt)
sigmoid = _unary("sigmoid", tensor.sigmoid)
sqrt = _unary("sqrt", tensor.sqrt)
tanh = _unary("tanh", tensor.tanh)


def leaky_relu(
    x: Expr,
    alpha: float,
    input_scale: Expr,
    input_zero_point: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
) -> Expr:
    """`nn.leaky_relu` of a quantised tensor, in steps of `output_scale`, as `x`."""
    real = nn.leaky_relu(dequantize(x, input_scale, input_zero_point), alpha)
    return in_steps(real, output_scale, output_zero_point, x, "qnn.leaky_relu")


def softmax(
    x: Expr,
    scale: Expr,
    zero_point: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    axis: int = -1,
) -> Expr:
    """`nn.softmax` along `axis` of a quantised tensor, in steps of `output_scale`, as `x`."""
    real = nn.softmax(dequantize(x, scale, zero_point), axis)
    return in_steps(real, output_scale, output_zero_point, x, "qnn.softmax")


def avg_pool2d(
    data: Expr,
    input_scale: Expr,
    input_zero_point: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    pool_size: Any,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NCHW",
    out_layout: str = "",
) -> Expr:
    """`nn.avg_pool2d` of a quantised tensor, padded with its zero point, as `data`."""
    real = nn.avg_pool2d(
        dequantize(data, input_scale, input_zero_point), pool_size, strides, dilation, padding,
        layout, out_layout, ceil_mode, count_include_pad,
    )  # fmt: skip
    return in_steps(real, output_scale, output_zero_point, data, "qnn.avg_pool2d")


__all__ = [
    "abs", "avg_pool2d", "erf", "exp", "hardswish", "leaky_relu", "log", "rsqrt", "sigmoid",
    "softmax", "sqrt", "tanh",
]  # fmt: skip
