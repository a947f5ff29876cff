"""Quantised operators: to integers and back, and contractions of integers.

Integers of 8 bits are multiplied as int32, where their zero points are taken off exactly.
"""

from __future__ import annotations

import numpy as np

from tilewright.base.dtype import DType
from tilewright.graph.expr import Expr
from tilewright.graph.functions import quantized as qnn
from tilewright.graph.functions import tensor
from tilewright.graph.functions.linear import product
from tilewright.graph.leaves import const
from tilewright.models.onnx.checks import element_type
from tilewright.models.onnx.narrow import converted, is_float, limited
from tilewright.models.onnx.node import Converter, Node
from tilewright.models.onnx.ops.window import convolution
from tilewright.models.onnx.values import WIDER, Narrow


def zero_point(n: Node, index: int, dtype: str) -> Expr:
    return n[index] if n.has(index) else const(np.zeros((), DType(dtype).storage))


def _type_asked(n: Node, name: str) -> str | None:
    asked = n.attr(name, 0)
    return element_type(asked) if asked else None


def _axis_of(n: Node) -> int:
    """block_size says no more than the shape of the scale."""
    n.attr("block_size")
    return int(n.attr("axis", 1))


def _quantize(n: Node) -> Expr | Narrow:
    saturate = n.flag("saturate", True)
    asked = _type_asked(n, "output_dtype")
    kind = n.element(2) if n.has(2) else asked or "uint8"
    n.require(
        asked in (None, kind), f"output_dtype is {asked}, the zero point {kind}", "Use one type."
    )
    zero = n.widened(2) if n.has(2) else zero_point(n, 2, WIDER.get(kind, kind))
    data, precision = n[0], _type_asked(n, "precision")
    if precision is not None and precision != data.dtype:
        data = tensor.cast(data, precision)
    if is_float(kind):
        _no_zero_point(n)
        scale = qnn.placed(tensor.cast(n[1], "float32"), data, _axis_of(n))
        return converted(n, tensor.cast(data, "float32") / scale, kind, saturate)
    made = qnn.quantize(data, n[1], zero, _axis_of(n), zero.dtype)
    return limited(made, kind) if kind in WIDER else made


def _dequantize(n: Node) -> Expr:
    wanted = _type_asked(n, "output_dtype") or n[1].dtype
    data = n.widened(0)
    if not data.tensor_type.dtype.is_float:
        zero = n.widened(2) if n.has(2) else zero_point(n, 2, data.dtype)
        return qnn.dequantize(data, n[1], zero, _axis_of(n), wanted)
    _no_zero_point(n)
    scale = qnn.placed(n[1], data, _axis_of(n))
    return tensor.cast(tensor.multiply(tensor.cast(data, scale.dtype), scale), wanted)


def _no_zero_point(n: Node) -> None:
    """ONNX wants 0 for floats; one that is computed is not looked at."""
    zeros = n.known(n.widened(2)) if n.has(2) else None
    n.require(zeros is None or not zeros.any(), "its zero point is not 0", "Floats have none.")


def dynamic(data: Expr) -> list[Expr]:
    """The range of the data, zero in it, on 0 to 255: steps, what one is, where zero lies.  Of
    zeros alone a step is 1, as onnxruntime has it: what divides by it stays finite."""
    low = tensor.minimum(tensor.min(data), 0.0)
    high = tensor.maximum(tensor.max(data), 0.0)
    step = (high - low) / const(255.0, "float32")
    step = tensor.where(tensor.greater(step, 0.0), step, 1.0)
    zero = qnn.narrowed(tensor.negative(low) / step, const(np.uint8(0)), DType("uint8"))
    return [qnn.quantize(data, step, zero, out_dtype="uint8"), step, zero]


def of_rows(value: Expr, data: Expr) -> Expr:
    """A scale or zero point of each row; one of higher rank is placed already."""
    rows = len(value.shape) == 1 and value.shape[0] > 1 and len(data.shape) > 1
    return tensor.expand_dims(value, 1) if rows else scalar(value)


def scalar(value: Expr) -> Expr:
    single = value.tensor_type.size == 1 and value.shape
    return tensor.as_shape(value, ()) if single else value


def _matmul_integer(n: Node) -> Expr:
    a, b = n[0], n[1]
    left = of_rows(zero_point(n, 2, a.dtype), a)
    right = scalar(zero_point(n, 3, b.dtype))
    return product(qnn.centred(a, left), qnn.centred(b, right))


def _qlinear_matmul(n: Node) -> Expr:
    a, b = n[0], n[3]
    made = product(qnn.centred(a, of_rows(n[2], a)), qnn.centred(b, scalar(n[5])))
    scale = _scale_of(of_rows(n[1], a), scalar(n[4]), scalar(n[6]))
    return requantized(made, scale, scalar(n[7]))


def _scale_of(left: Expr, right: Expr, result: Expr) -> Expr:
    """Steps of the result for one step of a product."""
    left, right, result = (tensor.cast(x, "float32") for x in (left, right, result))
    return left * right / result


def requantized(made: Expr, scale: Expr, zero: Expr) -> Expr:
    steps = tensor.cast(made, "float32") * scale
    return qnn.narrowed(steps, zero, zero.tensor_type.dtype)


def _of_channels(value: Expr, behind: int) -> Expr:
    """A scale or zero point of each output channel; behind: how many axes follow it."""
    if value.tensor_type.size == 1:
        return scalar(value)
    return tensor.expand_dims(value, 1, behind)


def _conv_integer(n: Node) -> Expr:
    data, weight = n[0], n[1]
    zero = _of_channels(zero_point(n, 3, weight.dtype), len(weight.shape) - 1)
    left = qnn.centred(data, scalar(zero_point(n, 2, data.dtype)))
    return convolution(n, left, qnn.centred(weight, zero))


def _qlinear_conv(n: Node) -> Expr:
    data, weight = n[0], n[3]
    image = len(weight.shape) - 2
    left = qnn.centred(data, scalar(n[2]))
    made = convolution(n, left, qnn.centred(weight, _of_channels(n[5], image + 1)))
    if n.has(8):
        made = made + tensor.expand_dims(n[8], 1, image)
    scale = _scale_of(scalar(n[1]), _of_channels(n[4], image), scalar(n[6]))
    return requantized(made, scale, scalar(n[7]))


CONVERTERS: dict[str, Converter] = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": lambda n: dynamic(n[0]),
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
}
