"""Elementwise operators: arithmetic, comparisons, logic, bits, rounding, activations, casts."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tilewright.base.dtype import TYPES, DType
from tilewright.graph.expr import Array, Expr
from tilewright.graph.functions import nn, tensor
from tilewright.graph.functions.activations import SELU_ALPHA, SELU_SCALE, sloped
from tilewright.graph.leaves import const
from tilewright.graph.op import ROWS, call
from tilewright.models.onnx.checks import element_type
from tilewright.models.onnx.narrow import converted
from tilewright.models.onnx.node import Converter, Node, number
from tilewright.models.onnx.values import WIDER, Value


def _unary(row_name: str) -> Converter:
    return lambda n: call(row_name, n[0])


def _fold(function: Callable[..., Expr]) -> Converter:
    """An operator of any number of tensors, as a chain of the binary one."""

    def convert(n: Node) -> Expr:
        parts = n.all()
        n.require(bool(parts), "it has no inputs", "Give it at least one.")
        result = parts[0]
        for part in parts[1:]:
            result = function(result, part)
        return result

    return convert


def _mean(n: Node) -> Expr:
    total: Expr = _fold(tensor.add)(n)
    return total * (1.0 / len(n.names))


def _binary(function: Callable[..., Expr]) -> Converter:
    def convert(n: Node) -> Expr:
        left, right, axis = n[0], n[1], n.attr("axis")
        if not n.flag("broadcast") or axis is None:
            return function(left, right)
        # before opset 7: the right operand's axes are consecutive ones of the left's
        behind = len(left.shape) - axis - len(right.shape)
        n.require(
            axis >= 0 and behind >= 0, f"axis={axis} does not place {right.shape} in {left.shape}",
            "Convert the model to a newer opset.",
        )  # fmt: skip
        held = tensor.expand_dims(right, len(right.shape), behind) if behind else right
        return function(left, held)

    return convert


def _divide(a: Expr, b: Expr) -> Expr:
    whole = a.tensor_type.dtype.is_int
    return tensor.trunc_divide(a, b) if whole else tensor.divide(a, b)


def _mod(n: Node) -> Expr:
    return tensor.mod(n[0], n[1]) if n.flag("fmod") else tensor.floor_mod(n[0], n[1])


def _power(base: Expr, exponent: Expr) -> Expr:
    """Of the type of the base; an integer to the power of a float is computed in floats."""
    kind, other = base.tensor_type.dtype, exponent.tensor_type.dtype
    if kind.is_float:
        return tensor.power(base, _cast_to(exponent, kind))
    if other.is_int:
        return tensor.power(base, _cast_to(exponent, kind) if kind.bits >= other.bits else exponent)
    wide = DType("float32" if kind.bits <= 16 else "float64")
    made = tensor.power(_cast_to(base, wide), _cast_to(exponent, wide))
    return tensor.cast(made, kind)


def _cast_to(data: Expr, dtype: DType) -> Expr:
    return data if data.dtype == dtype else tensor.cast(data, dtype)


def _shift(n: Node) -> Expr:
    direction = n.attr("direction", "")
    n.require(
        direction in ("LEFT", "RIGHT"), f"direction={direction!r} is not known", "LEFT or RIGHT is."
    )
    function = tensor.left_shift if direction == "LEFT" else tensor.right_shift
    return function(n[0], n[1])


def _isinf(n: Node) -> Expr:
    data, both = n[0], (n.flag("detect_negative", True), n.flag("detect_positive", True))
    if both == (True, True):
        return tensor.isinf(data)
    if both == (False, False):
        return tensor.isinf(data * 0.0)
    return tensor.equal(data, -math.inf if both[0] else math.inf)


def _clip(n: Node) -> Expr:
    """The upper limit wins where they cross."""
    data = n[0]
    if data.tensor_type.dtype.is_float and all(n.is_static(k) for k in (1, 2)):
        low, high = number(n, "min", 1, -math.inf), number(n, "max", 2, math.inf)
        return tensor.clip(data, min(low, high), high)
    result = data
    for function, name, index in ((tensor.maximum, "min", 1), (tensor.minimum, "max", 2)):
        given = n.attr(name)
        if given is not None or n.has(index):
            result = function(result, given if given is not None else n[index])
    return result


def _cast(n: Node) -> Value:
    to = n.attr("to")
    n.require(n.opset >= 6, "its type is text, as before opset 6", "Convert to a newer opset.")
    return _cast_as(n, element_type(to))


def _cast_as(n: Node, wanted: str) -> Value:
    n.attr("round_mode")
    saturate = n.flag("saturate", True)
    if n.element(0) == wanted:
        return n.value(0)
    data = n.widened(0)
    return converted(n, data, wanted, saturate) if wanted in WIDER else tensor.cast(data, wanted)


def _dropout(n: Node) -> Expr | list[Expr]:
    """At inference nothing is dropped, and the mask, of what is kept, is all true."""
    n.attr("seed"), n.flag("is_test")
    training = n.static(2, "training_mode")
    if training is not None and training.any():
        n.require(
            number(n, "ratio", 1, 0.5) == 0, "it is in training mode and drops elements at random",
            "Export the model for inference, or with ratio=0.",
        )  # fmt: skip
    n.attr("ratio")  # of what training would drop
    kept = nn.dropout(n[0])
    if len(n.outputs) == 1:
        return kept
    one = const(1, "bool" if n.opset >= 10 else n[0].dtype)
    return [kept, tensor.broadcast_to(one, n[0].shape)]


def _bit_cast(n: Node) -> Expr | Array:
    """The same bits under another type: of integers what wraps around, of others if known."""
    wanted, data = element_type(n.attr("to")), n.value(0)
    known = n.known(data)
    bits = np.dtype(n[0].dtype.storage).itemsize
    n.require(
        wanted in TYPES and DType(wanted).bytes == bits,
        f"{n[0].dtype} has not as many bits as {wanted}", "Use a type of the same size.",
    )  # fmt: skip
    if known is not None:
        return np.ascontiguousarray(known).view(DType(wanted).storage).reshape(known.shape)
    n.require(
        not n[0].tensor_type.dtype.is_float and not DType(wanted).is_float and wanted != "bool",
        f"it reads the bits of {n[0].dtype} as {wanted}",
        "Only integers of one size are exchanged; give a constant, or do it outside the network.",
    )
    return tensor.cast(n[0], wanted)


def _prelu(n: Node) -> Expr:
    data, slope = n[0], n[1]
    if n.opset < 7 and len(slope.shape) == 1 and len(data.shape) > 1:
        return nn.prelu(data, slope, 1)
    return sloped(data, slope)


CONVERTERS: dict[str, Converter] = {
    **{r.onnx[0]: _unary(r.name) for r in ROWS if r.onnx and not r.attrs and len(r.inputs) == 1},
    "Add": _binary(tensor.add),
    "And": _binary(tensor.logical_and),
    "BitCast": _bit_cast,
    "BitShift": _shift,
    "BitwiseAnd": _binary(tensor.bitwise_and),
    "BitwiseOr": _binary(tensor.bitwise_or),
    "BitwiseXor": _binary(tensor.bitwise_xor),
    "Cast": _cast,
    "CastLike": lambda n: _cast_as(n, n.element(1)),
    "Celu": lambda n: nn.celu(n[0], n.attr("alpha", 1.0)),
    "Clip": _clip,
    "Div": _binary(_divide),
    "Dropout": _dropout,
    "Elu": lambda n: nn.elu(n[0], n.attr("alpha", 1.0)),
    "Equal": _binary(tensor.equal),
    "Gelu": lambda n: nn.gelu(n[0], n.attr("approximate", "none")),
    "Greater": _binary(tensor.greater),
    "GreaterOrEqual": _binary(tensor.greater_equal),
    "HardSigmoid": lambda n: nn.hard_sigmoid(n[0], n.attr("alpha", 0.2), n.attr("beta", 0.5)),
    "HardSwish": lambda n: nn.hard_swish(n[0]),
    "IsInf": _isinf,
    "LeakyRelu": lambda n: nn.leaky_relu(n[0], n.attr("alpha", 0.01)),
    "Less": _binary(tensor.less),
    "LessOrEqual": _binary(tensor.less_equal),
    "Max": _fold(tensor.maximum),
    "Mean": _mean,
    "Min": _fold(tensor.minimum),
    "Mish": lambda n: nn.mish(n[0]),
    "Mod": _mod,
    "Mul": _binary(tensor.multiply),
    "Or": _binary(tensor.logical_or),
    "PRelu": _prelu,
    "Pow": _binary(_power),
    "Reciprocal": lambda n: tensor.divide(const(1, n[0].dtype), n[0]),
    "Selu": lambda n: nn.selu(n[0], n.attr("alpha", SELU_ALPHA), n.attr("gamma", SELU_SCALE)),
    "Shrink": lambda n: nn.shrink(n[0], n.attr("lambd", 0.5), n.attr("bias", 0.0)),
    "Softplus": lambda n: nn.softplus(n[0]),
    "Softsign": lambda n: nn.softsign(n[0]),
    "Sub": _binary(tensor.subtract),
    "Sum": _fold(tensor.add),
    "SwiGLU": lambda n: nn.silu(n[0], n.attr("alpha", 1.0)) * n[1],
    "Swish": lambda n: nn.silu(n[0], n.attr("alpha", 1.0)),
    "ThresholdedRelu": lambda n: nn.thresholded_relu(n[0], n.attr("alpha", 1.0)),
    "Where": lambda n: tensor.where(n[0], n[1], n[2]),
    "Xor": _binary(tensor.logical_xor),
}
