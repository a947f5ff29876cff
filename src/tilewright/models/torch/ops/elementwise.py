"""Operators that work element by element, with PyTorch's rules of element types."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.base.dtype import DType
from tilewright.graph.expr import Expr
from tilewright.graph.functions import indexing as relay_indexing
from tilewright.graph.functions import nn, tensor
from tilewright.graph.functions.activations import sloped
from tilewright.graph.leaves import const
from tilewright.models.torch.node import Converter, Node, as_type, common_type, number

_PAIR = ("self", "other")


def operand(n: Node, name: str, dtype: str) -> Expr:
    """Argument `name` as a tensor of `dtype`; a number is rounded to it."""
    value = n.args.get(name)
    if isinstance(value, (bool, int, float)):
        return number(value, dtype)
    return as_type(n[name], dtype)


def _operands(n: Node, names: tuple[str, ...], dtype: str) -> list[Expr]:
    return [operand(n, name, dtype) for name in names]


def scaled(value: Expr, factor: float) -> Expr:
    """`value` times a number of Python's."""
    return value if factor == 1 else tensor.multiply(value, number(factor, str(value.dtype)))


def unary(made: Callable[[Expr], Expr]) -> Converter:
    """Of a tensor in the element type of the result: integers become floats where they must."""
    return lambda n: made(as_type(n["self"], n.dtype))


def _whole(rounded: Callable[[Expr], Expr]) -> Converter:
    """Rounding: integers are whole already."""
    return lambda n: rounded(n["self"]) if n["self"].dtype.is_float else n["self"]


def _binary(joined: Callable[[Any, Any], Expr]) -> Converter:
    """Of two operands in the element type of the result."""
    return lambda n: joined(*_operands(n, _PAIR, n.dtype))


def _by_bool(of_bools: Callable[[Any, Any], Expr], plain: Callable[[Any, Any], Expr]) -> Converter:
    """`_binary`, where bools have an operator of their own."""
    return lambda n: (of_bools if n.dtype == "bool" else plain)(*_operands(n, _PAIR, n.dtype))


def _sum(joined: Callable[[Any, Any], Expr], names: tuple[str, ...] = _PAIR) -> Converter:
    def convert(n: Node) -> Expr:
        left, right = _operands(n, names, n.dtype)
        if n.dtype == "bool":
            counts = n.get("alpha", 1)
            right = right if counts else tensor.logical_and(right, number(False, "bool"))
            return tensor.logical_or(left, right)
        return joined(left, scaled(right, n.get("alpha", 1)))

    return convert


def _quotient(n: Node) -> Expr:
    mode = n.get("rounding_mode")
    if mode is None:
        return tensor.divide(*_operands(n, _PAIR, n.dtype))
    if mode == "floor":
        return _floor_quotient(n)
    wide = DType(n.dtype).compute if DType(n.dtype).is_float else n.dtype
    left, right = _operands(n, _PAIR, wide)
    if DType(n.dtype).is_float:  # rounded to the type before it is cut
        return tensor.trunc(as_type(tensor.divide(left, right), n.dtype))
    rest = tensor.mod(left, right)  # as C's: what is left of the sign of the dividend
    return tensor.floor_divide(tensor.subtract(left, rest), right)


def _floor_quotient(n: Node) -> Expr:
    """Of halves in float32, with all digits of a number: a quotient near a whole one needs them."""
    wide = DType(n.dtype).compute if DType(n.dtype).is_float else n.dtype
    return as_type(tensor.floor_divide(*_operands(n, _PAIR, wide)), n.dtype)


def _compared(joined: Callable[[Any, Any], Expr]) -> Converter:
    """In the common element type of both operands; the result is bool."""

    def convert(n: Node) -> Expr:
        kind = common_type([n.args[name] for name in _PAIR])
        return joined(*_operands(n, _PAIR, kind))

    return convert


def truth(value: Expr) -> Expr:
    """Whether elements differ from zero."""
    return value if value.dtype == "bool" else tensor.cast(value, "bool")


def _logical(joined: Callable[[Any, Any], Expr]) -> Converter:
    return lambda n: joined(truth(n["self"]), truth(n["other"]))


def _where(n: Node) -> Expr:
    return tensor.where(truth(n["condition"]), *_operands(n, _PAIR, n.dtype))


def _masked_fill(n: Node) -> Expr:
    value, data = operand(n, "value", n.dtype), as_type(n["self"], n.dtype)
    return tensor.where(truth(n["mask"]), value, data)


def _power(n: Node) -> Expr:
    base, exponent = n.args["self"], n.args["exponent"]
    if isinstance(exponent, (int, float)) and isinstance(base, Expr):
        data = as_type(base, n.dtype)
        if exponent in (1, 2, 3):
            found = data
            for _ in range(int(exponent) - 1):
                found = tensor.multiply(found, data)
            return found
        if exponent == 0.5:
            return tensor.sqrt(data)
        if exponent == -0.5:
            return tensor.rsqrt(data)
        if exponent == -1:
            return tensor.divide(number(1, n.dtype), data)
    return tensor.power(*_operands(n, ("self", "exponent"), n.dtype))


def _limits(n: Node) -> Expr:
    data = as_type(n["self"], n.dtype)
    low, high = n.args.get("min"), n.args.get("max")
    if isinstance(low, Expr) or isinstance(high, Expr) or not data.dtype.is_float:
        if low is not None:
            data = tensor.maximum(data, operand(n, "min", n.dtype))
        return data if high is None else tensor.minimum(data, operand(n, "max", n.dtype))
    return tensor.clip(
        data, -math.inf if low is None else float(low), math.inf if high is None else float(high)
    )


def _elu(n: Node) -> Expr:
    """scale * (x where positive, else alpha * (exp(input_scale * x) - 1))."""
    x, kind = n["self"], n.dtype
    alpha, scale, inner = (float(n.get(k, 1)) for k in ("alpha", "scale", "input_scale"))
    low = tensor.minimum(x, number(0, kind))  # the exponential of the rest is not needed
    bent = _expm1(scaled(low, inner))
    return tensor.where(
        tensor.greater(x, number(0, kind)), scaled(x, scale), scaled(bent, alpha * scale)
    )


def _softplus(n: Node) -> Expr:
    """log(1 + exp(beta x)) / beta, and x itself above the threshold."""
    x, kind = n["self"], n.dtype
    beta, threshold = float(n.get("beta", 1)), float(n.get("threshold", 20))
    steep = scaled(x, beta)
    inside = tensor.minimum(steep, number(threshold, kind))
    soft = scaled(tensor.log(tensor.add(tensor.exp(inside), number(1, kind))), 1 / beta)
    return tensor.where(tensor.greater(steep, number(threshold, kind)), x, soft)


def _prelu(n: Node) -> Expr:
    x, slope = n["self"], n["weight"]
    if slope.tensor_type.size > 1 and len(slope.shape) == 1:
        slope = tensor.as_shape(slope, (-1, *(1,) * (len(x.shape) - 2)))
    return sloped(x, slope)


def _expm1(x: Expr) -> Expr:
    """exp(x) - 1, exact also where x is small: the logarithm tells what rounding took."""
    one = number(1, str(x.dtype))
    whole = tensor.exp(x)
    rest, seen = tensor.subtract(whole, one), tensor.log(whole)
    lost = tensor.equal(whole, one)
    exact = tensor.multiply(rest, tensor.divide(x, tensor.where(lost, one, seen)))
    is_small = tensor.less(tensor.abs(x), number(0.5, str(x.dtype)))
    return tensor.where(is_small, tensor.where(lost, x, exact), rest)


def _log1p(x: Expr) -> Expr:
    """log(1 + x), exact also where x is small, as `te.log1p`."""
    one = number(1, str(x.dtype))
    whole = tensor.add(x, one)
    lost = tensor.equal(whole, one)
    part = tensor.where(lost, one, tensor.subtract(whole, one))
    share = tensor.where(tensor.equal(whole, x), one, tensor.divide(x, part))
    return tensor.where(lost, x, tensor.multiply(tensor.log(whole), share))


def reciprocal(x: Expr) -> Expr:
    return tensor.divide(number(1, str(x.dtype)), x)


def _lerp(n: Node) -> Expr:
    start, end = _operands(n, ("self", "end"), n.dtype)
    weight = operand(n, "weight", n.dtype)
    return tensor.add(start, tensor.multiply(weight, tensor.subtract(end, start)))


def _fused(joined: Callable[[Any, Any], Expr]) -> Converter:
    """self + value * (tensor1 op tensor2)."""

    def convert(n: Node) -> Expr:
        made = joined(*_operands(n, ("tensor1", "tensor2"), n.dtype))
        return tensor.add(as_type(n["self"], n.dtype), scaled(made, n.get("value", 1)))

    return convert


def _glu(n: Node) -> Expr:
    axis = n.axis()
    value, gate = relay_indexing.split(n["self"], 2, axis)
    return tensor.multiply(value, tensor.sigmoid(gate))


def _not(n: Node) -> Expr:
    return tensor.equal(truth(n["self"]), const(False))


def _bitwise_not(n: Node) -> Expr:
    return _not(n) if n.dtype == "bool" else tensor.bitwise_not(n["self"])


def _threshold(n: Node) -> Expr:
    limit = number(n.args["threshold"], n.dtype)
    return tensor.where(
        tensor.greater(n["self"], limit), n["self"], number(n.args["value"], n.dtype)
    )


def is_negative(x: Expr) -> Expr:
    """Whether the sign is set, also that of a zero."""
    zero = number(0, str(x.dtype))
    below = tensor.less(x, zero)
    if not x.dtype.is_float:
        return below
    behind = tensor.logical_and(tensor.equal(x, zero), tensor.less(reciprocal(x), zero))
    return tensor.logical_or(below, behind)


def _copysign(size: Expr, sign: Expr) -> Expr:
    size = tensor.abs(size)
    return tensor.where(is_negative(sign), tensor.negative(size), size)


def _greater_and_ratio(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """The greater of two sizes, and by it the smaller, which is no overflow."""
    most, least = tensor.maximum(a, b), tensor.minimum(a, b)
    one = number(1, str(a.dtype))
    ratio = tensor.divide(least, tensor.where(truth(most), most, one))
    both = tensor.logical_and(tensor.isinf(a), tensor.isinf(b))
    return most, tensor.where(both, one, ratio)


def _hypot(a: Expr, b: Expr) -> Expr:
    most, ratio = _greater_and_ratio(tensor.abs(a), tensor.abs(b))
    square = tensor.add(tensor.multiply(ratio, ratio), number(1, str(a.dtype)))
    return tensor.multiply(most, tensor.sqrt(square))


def _atan2(y: Expr, x: Expr) -> Expr:
    high, wide = tensor.abs(y), tensor.abs(x)
    angle = tensor.atan(_greater_and_ratio(high, wide)[1])
    quarter, half = (number(angle, str(x.dtype)) for angle in (math.pi / 2, math.pi))
    angle = tensor.where(tensor.greater(high, wide), tensor.subtract(quarter, angle), angle)
    angle = tensor.where(is_negative(x), tensor.subtract(half, angle), angle)
    return tensor.where(is_negative(y), tensor.negative(angle), angle)


def _angle(n: Node) -> Expr:
    x, kind = as_type(n["self"], n.dtype), n.dtype
    half = tensor.where(tensor.less(x, number(0, kind)), number(math.pi, kind), number(0, kind))
    return tensor.where(tensor.isnan(x), x, half)


def _but_nan(joined: Callable[[Any, Any], Expr]) -> Converter:
    """The operand that is a number where the other one is none."""

    def number_of(a: Expr, b: Expr) -> Expr:
        made = joined(a, b)
        if not a.dtype.is_float:
            return made
        return tensor.where(tensor.isnan(a), b, tensor.where(tensor.isnan(b), a, made))

    return _binary(number_of)


def _exp2(x: Expr) -> Expr:
    return tensor.power(number(2, str(x.dtype)), x)


def _rounded(n: Node) -> Expr:
    """To a number of decimal places; less than none: to tens, hundreds, ..."""
    x, places = n["self"], n.integer("decimals", 0)
    factor = number(10.0 ** abs(places), n.dtype)
    there, back = tensor.multiply, tensor.divide
    there, back = (there, back) if places >= 0 else (back, there)
    return back(tensor.round(there(x, factor)), factor)


def _sign(n: Node) -> Expr:
    """PyTorch counts two comparisons, so NaN has the sign 0."""
    x = n["self"]
    if not x.tensor_type.dtype.is_float:
        return tensor.sign(x)
    return tensor.where(tensor.isnan(x), number(0, n.dtype), tensor.sign(x))


def _rrelu(n: Node) -> list[Expr | None]:
    """In inference its slope is the mean of both limits."""
    n.require(not n.get("training", False), "it is in training mode", "Export it after .eval().")
    slope = (float(n.get("lower", 1 / 8)) + float(n.get("upper", 1 / 3))) / 2
    return [nn.leaky_relu(n["self"], slope), n.optional("noise")]


def _variants(name: str, kinds: str, converter: Converter) -> dict[str, Converter]:
    return {f"{name}.{kind}": converter for kind in kinds.split()}


_BOTH = "Tensor Scalar"

CONVERTERS: dict[str, Converter] = {
    **{f"{k}.default": unary(getattr(tensor, k))
       for k in ("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin", "cos", "abs",
                 "tan", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh",
                 "log2", "log10")},
    "sign.default": _sign,
    "neg.default": unary(tensor.negative),
    "relu.default": unary(nn.relu),
    "reciprocal.default": unary(reciprocal),
    "expm1.default": unary(_expm1),
    "log1p.default": unary(_log1p),
    "silu.default": unary(nn.silu),
    "hardsigmoid.default": unary(nn.hard_sigmoid),
    "hardswish.default": unary(nn.hard_swish),
    "relu6.default": unary(lambda x: tensor.clip(x, 0.0, 6.0)),
    "floor.default": _whole(tensor.floor),
    "ceil.default": _whole(tensor.ceil),
    "round.default": _whole(tensor.round),
    "trunc.default": _whole(tensor.trunc),
    "isnan.default": lambda n: tensor.isnan(n["self"]),
    "isinf.default": lambda n: tensor.isinf(n["self"]),
    "isfinite.default": lambda n: tensor.isfinite(n["self"]),
    **_variants("add", _BOTH, _sum(tensor.add)),
    **_variants("sub", _BOTH, _sum(tensor.subtract)),
    **_variants("rsub", _BOTH, _sum(tensor.subtract, _PAIR[::-1])),
    **_variants("mul", _BOTH, _by_bool(tensor.logical_and, tensor.multiply)),
    **_variants("div", _BOTH + " Tensor_mode Scalar_mode", _quotient),
    **_variants("fmod", _BOTH, _binary(tensor.mod)),  # with the sign of the dividend, as C's
    **_variants("remainder", _BOTH, _binary(tensor.floor_mod)),  # of the divisor, as Python's
    "floor_divide.default": _floor_quotient,
    "maximum.default": _binary(tensor.maximum),
    "minimum.default": _binary(tensor.minimum),
    **_variants("pow", "Tensor_Tensor Tensor_Scalar Scalar", _power),
    **_variants("eq", _BOTH, _compared(tensor.equal)),
    **_variants("ne", _BOTH, _compared(tensor.not_equal)),
    **_variants("lt", _BOTH, _compared(tensor.less)),
    **_variants("gt", _BOTH, _compared(tensor.greater)),
    **_variants("le", _BOTH, _compared(tensor.less_equal)),
    **_variants("ge", _BOTH, _compared(tensor.greater_equal)),
    "logical_and.default": _logical(tensor.logical_and),
    "logical_or.default": _logical(tensor.logical_or),
    "logical_xor.default": _logical(tensor.logical_xor),
    "logical_not.default": _not,
    "bitwise_not.default": _bitwise_not,
    **_variants("bitwise_and", _BOTH, _by_bool(tensor.logical_and, tensor.bitwise_and)),
    **_variants("bitwise_or", _BOTH, _by_bool(tensor.logical_or, tensor.bitwise_or)),
    **_variants("bitwise_xor", _BOTH, _by_bool(tensor.logical_xor, tensor.bitwise_xor)),
    **_variants("__lshift__", _BOTH, _binary(tensor.left_shift)),
    **_variants("__rshift__", _BOTH, _binary(tensor.right_shift)),
    **_variants("bitwise_left_shift", "Tensor Tensor_Scalar", _binary(tensor.left_shift)),
    **_variants("bitwise_right_shift", "Tensor Tensor_Scalar", _binary(tensor.right_shift)),
    **_variants("where", "self ScalarOther ScalarSelf Scalar", _where),
    **_variants("masked_fill", _BOTH, _masked_fill),
    **dict.fromkeys(("clamp.default", "clamp.Tensor", "clamp_min.default", "clamp_max.default"),
                    _limits),
    "hardtanh.default": lambda n: tensor.clip(
        n["self"], float(n.get("min_val", -1)), float(n.get("max_val", 1))
    ),
    "leaky_relu.default": lambda n: nn.leaky_relu(n["self"], float(n.get("negative_slope", 0.01))),
    "threshold.default": _threshold,
    "gelu.default": lambda n: nn.gelu(n["self"], n.get("approximate", "none")),
    "elu.default": _elu,
    "softplus.default": _softplus,
    "prelu.default": _prelu,
    "_prelu_kernel.default": _prelu,
    "glu.default": _glu,
    "lerp.Scalar": _lerp,
    "lerp.Tensor": _lerp,
    "addcmul.default": _fused(tensor.multiply),
    "addcdiv.default": _fused(tensor.divide),
    "exp2.default": unary(_exp2),
    "signbit.default": lambda n: is_negative(n["self"]),
    **_variants("copysign", _BOTH, _binary(_copysign)),
    "hypot.default": _binary(_hypot),
    "atan2.default": _binary(_atan2),
    "angle.default": _angle,
    "fmax.default": _but_nan(tensor.maximum),
    "fmin.default": _but_nan(tensor.minimum),
    "ldexp.Tensor": _binary(lambda value, power: tensor.multiply(value, _exp2(power))),
    "round.decimals": _rounded,
    "rrelu_with_noise_functional.default": _rrelu,
    "_to_copy.default": unary(lambda x: x),
    **dict.fromkeys(
        ("clone.default", "alias.default", "detach.default", "dropout.default",
         "lift_fresh_copy.default", "contiguous.default", "alias_copy.default",
         "detach_.default", "lift_fresh.default"),
        lambda n: n[next(iter(n.args))],
    ),
}  # fmt: skip
