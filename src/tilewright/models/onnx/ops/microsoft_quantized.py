"""What onnxruntime writes into quantised files: operators on integers of 8 bits.

Elementwise ones are computed on the numbers that the integers stand for, and rounded again, as
onnxruntime does it; products are sums of integers.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.graph.expr import Expr
from tilewright.graph.functions import nn, tensor
from tilewright.graph.functions import quantized as qnn
from tilewright.graph.functions.linear import product
from tilewright.models.onnx.node import Converter, Node
from tilewright.models.onnx.ops.microsoft import packed_attention
from tilewright.models.onnx.ops.normalize import softmax_of
from tilewright.models.onnx.ops.quantize import CONVERTERS as QUANTIZED
from tilewright.models.onnx.ops.quantize import (
    dynamic,
    of_rows,
    requantized,
    scalar,
    zero_point,
)
from tilewright.models.onnx.ops.window import channels_last_pool, window_of


def _real(n: Node, index: int) -> Expr:
    """The numbers that the integers at `index` stand for; their step and zero point follow."""
    data = n[index]
    zero = zero_point(n, index + 2, data.dtype)
    return qnn.dequantize(data, scalar(n[index + 1]), scalar(zero))


def _rounded(n: Node, made: Expr, index: int, dtype: str) -> Expr:
    """`made` as integers; its step is at `index`, its zero point behind that."""
    zero = zero_point(n, index + 1, dtype)
    return qnn.quantize(made, scalar(n[index]), scalar(zero), out_dtype=str(zero.dtype))


def _binary(function: Callable[[Expr, Expr], Expr]) -> Converter:
    return lambda n: _rounded(n, function(_real(n, 0), _real(n, 3)), 6, n[0].dtype)


def _unary(function: Callable[[Node, Expr], Expr]) -> Converter:
    return lambda n: _rounded(n, function(n, _real(n, 0)), 3, n[0].dtype)


def _concat(n: Node) -> Expr:
    count, rest = divmod(len(n.names) - 2, 3)
    n.require(count >= 1 and rest == 0, f"it has {len(n.names)} inputs", "Three for each tensor.")
    parts = []
    for k in range(count):
        data, step, zero = (n[2 + 3 * k + j] for j in range(3))
        parts.append(qnn.dequantize(data, scalar(step), scalar(zero)))
    return _rounded(n, tensor.concatenate(parts, n.attr("axis")), 0, n[1].dtype)


def _where(n: Node) -> Expr:
    return _rounded(n, tensor.where(n[0], _real(n, 1), _real(n, 4)), 7, n[1].dtype)


def _global_pool(n: Node, data: Expr) -> Expr:
    last = n.flag("channels_last")
    rank = len(data.shape)
    n.require(rank >= 3, f"its data has shape {data.shape}", "[N, C, ...] is needed.")
    axes = range(1, rank - 1) if last else range(2, rank)
    return tensor.mean(data, axis=tuple(axes), keepdims=True)


def _average_pool(n: Node, data: Expr) -> Expr:
    include = n.flag("count_include_pad")
    if n.flag("channels_last"):
        return channels_last_pool(n, data, "avg", count_include_pad=include)
    kernel = n.ints("kernel_shape") or []
    options = {"ceil_mode": n.flag("ceil_mode"), **window_of(n, kernel, data)}
    made: Expr = getattr(nn, f"avg_pool{len(kernel)}d")(
        data, tuple(kernel), count_include_pad=include, **options
    )
    return made


def _mean(n: Node, data: Expr) -> Expr:
    return tensor.mean(data, axis=tuple(n.ints("axes") or ()), keepdims=n.flag("keepdims", True))


def _softmax(n: Node, data: Expr) -> Expr:
    return softmax_of(n, data, nn.softmax, int(n.attr("opset")))


def _qlinear_conv(n: Node) -> Expr:
    if not n.flag("channels_last"):
        return QUANTIZED["QLinearConv"](n)  # type: ignore[no-any-return]
    raise n.refuse("its channels come last", "Save the file for a CPU without that layout.")


def _to_float(n: Node, made: Expr, scale: Expr, bias: int) -> Expr:
    real: Expr = tensor.multiply(tensor.cast(made, scale.dtype), scale)
    return tensor.add(real, n[bias]) if n.has(bias) else real


def _matmul_to_float(n: Node) -> Expr:
    left, right = n[0], n[1]
    zeros = of_rows(zero_point(n, 4, left.dtype), left), scalar(zero_point(n, 5, right.dtype))
    made = product(qnn.centred(left, zeros[0]), qnn.centred(right, zeros[1]))
    scale = tensor.multiply(of_rows(n[2], left), scalar(n[3]))
    return _to_float(n, made, scale, 6)


def _dynamic_matmul(n: Node) -> Expr:
    right = n[1]
    steps, scale, zero = dynamic(n[0])
    zeros = scalar(zero_point(n, 3, right.dtype))
    made = product(qnn.centred(steps, zero), qnn.centred(right, zeros))
    return _to_float(n, made, tensor.multiply(scale, scalar(n[2])), 4)


def _qgemm(n: Node) -> Expr:
    """C counts steps of the product; without a step of its own the result is real."""
    columns = scalar(n[5])  # one number, or one for each column of the product
    if columns.shape and n.flag("transB"):
        columns = tensor.expand_dims(columns, 1)
    left, right = qnn.centred(n[0], scalar(n[2])), qnn.centred(n[3], columns)
    alpha = float(n.attr("alpha", 1.0))
    first, second = (
        tensor.transpose(x) if n.flag(f"trans{name}") else x
        for x, name in ((left, "A"), (right, "B"))
    )
    made = product(first, second)
    made = tensor.add(made, n[6]) if n.has(6) else made
    scale = tensor.multiply(scalar(n[1]), scalar(n[4])) * alpha
    if not n.has(7):
        return tensor.multiply(tensor.cast(made, "float32"), scale)
    return requantized(made, tensor.divide(scale, scalar(n[7])), scalar(zero_point(n, 8, "uint8")))


def _attention(n: Node) -> list[Expr]:
    left, right = n.of_rank(0, 3), n.of_rank(1, 2)
    zeros = scalar(zero_point(n, 6, left.dtype)), scalar(zero_point(n, 7, right.dtype))
    made = product(qnn.centred(left, zeros[0]), qnn.centred(right, zeros[1]))
    scale = tensor.multiply(scalar(n[3]), scalar(n[4]))
    projected = tensor.add(tensor.multiply(tensor.cast(made, scale.dtype), scale), n[2])
    mask, past = (n[k] if n.has(k) else None for k in (5, 8))
    return packed_attention(n, projected, mask, past, None)


CONVERTERS: dict[str, Converter] = {
    "DequantizeLinear": QUANTIZED["DequantizeLinear"],
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "MatMulIntegerToFloat": _matmul_to_float,
    "NhwcMaxPool": lambda n: channels_last_pool(n, n[0], "max"),
    "QAttention": _attention,
    "QGemm": _qgemm,
    "QLinearAdd": _binary(tensor.add),
    "QLinearAveragePool": _unary(_average_pool),
    "QLinearConcat": _concat,
    "QLinearConv": _qlinear_conv,
    "QLinearGlobalAveragePool": _unary(_global_pool),
    "QLinearLeakyRelu": _unary(lambda n, x: nn.leaky_relu(x, n.attr("alpha", 0.01))),
    "QLinearMul": _binary(tensor.multiply),
    "QLinearReduceMean": _unary(_mean),
    "QLinearSigmoid": _unary(lambda n, x: tensor.sigmoid(x)),
    "QLinearSoftmax": _unary(_softmax),
    "QLinearWhere": _where,
    "QuantizeLinear": QUANTIZED["QuantizeLinear"],
}
