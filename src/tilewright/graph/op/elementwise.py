"""Rows of operators that work element by element: one operand, or two with broadcasting.

In: tensors.  Out: rows for `op/__init__.py`.  Read next: `reduction.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.base.dtype import BOOL, DType
from tilewright.graph.expr import Array, Attrs, TensorType, Type, check_dtype
from tilewright.graph.op.row import Op, Pattern, Site, broadcast, first_array
from tilewright.topi.elementwise import limits


def _same(site: Site) -> Type:
    return site.tensor(0)


def _same_float(site: Site) -> Type:
    site.float_dtype()
    return site.tensor(0)


def _same_number(site: Site) -> Type:
    site.number_dtype(site.tensor(0))
    return site.tensor(0)


def _same_integer(site: Site) -> Type:
    _bits_dtype(site)
    return site.tensor(0)


def _same_bool(site: Site) -> Type:
    _bool_dtype(site)
    return site.tensor(0)


def _float_test(site: Site) -> Type:
    site.float_dtype()
    return TensorType(site.tensor(0).shape, BOOL)


def _bits_dtype(site: Site) -> DType:
    """An integer, or bool, whose operations on bits are those of logic."""
    dtype = site.same_dtype()
    site.require(
        not dtype.is_float, f"{dtype} has no operations on bits", "Cast to an integer type."
    )
    return dtype


def _bool_dtype(site: Site) -> DType:
    dtype = site.same_dtype()
    site.require(
        dtype == "bool", f"{dtype} is not bool", "Compare first, or use the bitwise operators."
    )
    return dtype


def _integer_dtype(site: Site) -> DType:
    dtype = site.same_dtype()
    site.require(
        dtype.is_int, f"{dtype} is not an integer type", "Cast to an integer type, or use divide."
    )
    return dtype


def _typed_like_input(function: Callable[[Array], Any]) -> Callable[[Sequence[Any], Attrs], Array]:
    return lambda arrays, attrs: np.asarray(function(arrays[0]), first_array(arrays).dtype)


def _apply(function: Callable[..., Any], arrays: Sequence[Any], attrs: Attrs) -> Array:
    return np.asarray(function(*arrays))


def _by_name(name: str, count: int = 1) -> Callable[[Sequence[Any], Attrs, Type], Any]:
    """`topi.<name>` of the first `count` arguments; name: dotted."""

    function = attrgetter(name)(topi)

    def compute(tensors: Sequence[Any], attrs: Attrs, result: Type) -> Any:
        return function(*tensors[:count])

    return compute


OPERANDS = ("lhs", "rhs")  # of what may take a number for either
_erf = np.frompyfunc(math.erf, 1, 1)


def _sigmoid(x: Array) -> Array:
    """Of the exponential that cannot overflow, and keeps the digits of small results."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, small, x.dtype.type(1)) / (1 + small))


def _unary(
    name: str,
    function: Callable[[Array], Any],
    doc: str,
    onnx: str = "",
    type_rule: Callable[[Site], Type] = _same_float,
    te_name: str = "",
) -> Op:
    return Op(
        name, ("data",), Pattern.ELEMENTWISE, type_rule, _typed_like_input(function),
        _by_name(te_name or name), doc, onnx=(onnx,) if onnx else (),
    )  # fmt: skip


def _test(name: str, function: Callable[[Array], Any], doc: str, onnx: str = "") -> Op:
    return Op(
        name, ("data",), Pattern.ELEMENTWISE, _float_test, partial(_apply, function),
        _by_name(name), doc, onnx=(onnx,) if onnx else (),
    )  # fmt: skip


UNARY = (
    _unary("exp", np.exp, "e to the power data.", "Exp"),
    _unary("log", np.log, "Natural logarithm.", "Log"),
    _unary("sqrt", np.sqrt, "Square root.", "Sqrt"),
    _unary("rsqrt", lambda x: 1 / np.sqrt(x), "1 / sqrt(data)."),
    _unary("tanh", np.tanh, "Hyperbolic tangent.", "Tanh"),
    _unary("sigmoid", _sigmoid, "1 / (1 + exp(-data)).", "Sigmoid"),
    _unary("erf", lambda x: _erf(x), "Gauss error function.", "Erf"),
    _unary("sin", np.sin, "Sine.", "Sin"),
    _unary("cos", np.cos, "Cosine.", "Cos"),
    _unary("tan", np.tan, "Tangent.", "Tan"),
    _unary("asin", np.arcsin, "Inverse sine; NaN outside of -1 to 1.", "Asin"),
    _unary("acos", np.arccos, "Inverse cosine; NaN outside of -1 to 1.", "Acos"),
    _unary("atan", np.arctan, "Inverse tangent.", "Atan"),
    _unary("sinh", np.sinh, "Hyperbolic sine.", "Sinh"),
    _unary("cosh", np.cosh, "Hyperbolic cosine.", "Cosh"),
    _unary("asinh", np.arcsinh, "Inverse hyperbolic sine.", "Asinh"),
    _unary("acosh", np.arccosh, "Inverse hyperbolic cosine; NaN below 1.", "Acosh"),
    _unary("atanh", np.arctanh, "Inverse hyperbolic tangent; NaN outside of -1 to 1.", "Atanh"),
    _unary("abs", np.abs, "Absolute value.", "Abs", _same_number),
    _unary("negative", np.negative, "-data.", "Neg", _same_number),
    _unary("floor", np.floor, "Largest whole number not above data.", "Floor"),
    _unary("ceil", np.ceil, "Smallest whole number not below data.", "Ceil"),
    _unary("round", np.rint, "Nearest whole number, halves to even.", "Round"),
    _unary("sign", np.sign, "-1, 0.0 or 1; NaN of NaN.", "Sign", _same_number),
    _unary(
        "bitwise_not", np.bitwise_not, "All bits inverted; not of a bool.", "BitwiseNot",
        _same_integer,
    ),
    _unary("logical_not", np.logical_not, "Negation of a bool.", "Not", _same_bool),
    _unary("copy", lambda x: x, "data itself.", "Identity", _same, "identity"),
    _test("isnan", np.isnan, "Whether data is NaN, as bool.", "IsNaN"),
    _test("isinf", np.isinf, "Whether data is infinite, as bool.", "IsInf"),
    _test("isfinite", np.isfinite, "Whether data is neither infinite nor NaN, as bool."),
)  # fmt: skip


def _clip_numpy(arrays: Sequence[Any], attrs: Attrs) -> Array:
    x = first_array(arrays)
    return np.clip(x, *limits(x.dtype.name, attrs.a_min, attrs.a_max)).astype(x.dtype)


def _clip_type(site: Site) -> Type:
    site.require(
        site.attrs.a_min <= site.attrs.a_max, "the lower limit is above the upper one", "Swap them."
    )
    return _same_number(site)


def _cast_type(site: Site) -> Type:
    return TensorType(site.tensor(0).shape, check_dtype(site.attrs.dtype, site.place))


def _leaky_numpy(arrays: Sequence[Any], attrs: Attrs) -> Array:
    x = first_array(arrays)
    return np.where(x > 0, x, x * x.dtype.type(attrs.alpha))


def _relu_te(tensors: Sequence[Any], attrs: Attrs, result: Type) -> Any:
    return topi.nn.relu(tensors[0], "T_relu", "ax")


def _leaky_te(tensors: Sequence[Any], attrs: Attrs, result: Type) -> Any:
    return topi.nn.leaky_relu(tensors[0], attrs.alpha)


PARAMETRIC = (
    Op(
        "nn.relu", ("data",), Pattern.ELEMENTWISE, _same_number,
        lambda arrays, attrs: np.maximum(first_array(arrays), 0), _relu_te, "max(data, 0).",
        onnx=("Relu",),
    ),
    Op(
        "clip", ("a",), Pattern.ELEMENTWISE, _clip_type, _clip_numpy,
        lambda t, attrs, result: topi.clip(t[0], attrs.a_min, attrs.a_max),
        "data limited to [a_min, a_max].",
        {"a_min": -math.inf, "a_max": math.inf}, ("Clip",),
    ),
    Op(
        "cast", ("data",), Pattern.ELEMENTWISE, _cast_type,
        lambda arrays, attrs: first_array(arrays).astype(DType(attrs.dtype).storage),
        lambda t, attrs, result: topi.cast(t[0], attrs.dtype),
        "data converted to another element type.", {"dtype": "float32"}, ("Cast",),
    ),
    Op(
        "nn.leaky_relu", ("data",), Pattern.ELEMENTWISE, _same_float, _leaky_numpy, _leaky_te,
        "data where positive, alpha * data elsewhere.", {"alpha": 0.01}, ("LeakyRelu",),
        reads=3,
    ),
    Op(
        "nn.dropout", ("data",), Pattern.ELEMENTWISE, _same_float,
        lambda arrays, attrs: first_array(arrays), _by_name("identity"),
        "data itself: at inference nothing is dropped.", {"rate": 0.5}, ("Dropout",),
    ),
    Op(
        "annotation.checkpoint", ("data",), Pattern.ELEMENTWISE, _same,
        lambda arrays, attrs: first_array(arrays), _by_name("identity"),
        "data itself, which its gradient computes once more instead of keeping what led to it.",
    ),
)  # fmt: skip


def _arithmetic_type(site: Site) -> Type:
    dtype = site.number_dtype()
    return TensorType(broadcast(site, site.tensor(0).shape, site.tensor(1).shape), dtype)


def _comparison_type(site: Site) -> Type:
    site.same_dtype()
    return TensorType(broadcast(site, site.tensor(0).shape, site.tensor(1).shape), BOOL)


def _typed(dtype_of: Callable[[Site], DType]) -> Callable[[Site], Type]:
    def type_rule(site: Site) -> Type:
        dtype = dtype_of(site)
        return TensorType(broadcast(site, site.tensor(0).shape, site.tensor(1).shape), dtype)

    return type_rule


def _towards_zero(a: Array, b: Array) -> Array:
    return np.asarray(np.floor_divide(a - np.fmod(a, b), b))


def _divided(a: Array, b: Array) -> Array:
    return _towards_zero(a, b) if a.dtype.kind in "iu" else np.asarray(np.divide(a, b))


def _power(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(np.power(a, b))
    below = np.where(np.abs(a) == 1, np.power(a, np.abs(b) & 1), 0)  # of a negative exponent
    return np.asarray(np.where(b < 0, below, np.power(a, np.maximum(b, 0))), a.dtype)


def _binary(
    name: str,
    function: Callable[..., Any],
    doc: str,
    onnx: tuple[str, ...],
    type_rule: Callable[[Site], Type] = _arithmetic_type,
) -> Op:
    return Op(
        name, OPERANDS, Pattern.BROADCAST, type_rule, partial(_apply, function),
        _by_name(_TOPI_NAMES.get(name, name), 2), doc, onnx=onnx,
    )  # fmt: skip


_TOPI_NAMES = {"floor_mod": "mod", "mod": "trunc_mod"}  # topi's mod is Python's, relay's is C's


BINARY = (
    _binary("add", np.add, "lhs + rhs.", ("Add", "Sum")),
    _binary("subtract", np.subtract, "lhs - rhs.", ("Sub",)),
    _binary("multiply", np.multiply, "lhs * rhs.", ("Mul",)),
    _binary(
        "divide",
        _divided,
        "lhs / rhs, which is rounded towards zero where both are integers.",
        ("Div",),
    ),
    _binary("maximum", np.maximum, "The greater of both.", ("Max",)),
    _binary("minimum", np.minimum, "The smaller of both.", ("Min",)),
    _binary(
        "trunc_divide",
        _towards_zero,
        "lhs / rhs of integers, rounded towards zero.",
        ("Div",),
        _typed(_integer_dtype),
    ),
    _binary("floor_divide", np.floor_divide, "lhs / rhs, rounded down.", ()),
    _binary("floor_mod", np.mod, "The rest of floor_divide: it has the sign of rhs.", ("Mod",)),
    _binary("mod", np.fmod, "The rest of division towards zero: the sign of lhs.", ("Mod",)),
    _binary("power", _power, "lhs to the power rhs.", ("Pow",)),
    _binary("bitwise_and", np.bitwise_and, "lhs & rhs.", ("BitwiseAnd",), _typed(_bits_dtype)),
    _binary("bitwise_or", np.bitwise_or, "lhs | rhs.", ("BitwiseOr",), _typed(_bits_dtype)),
    _binary("bitwise_xor", np.bitwise_xor, "lhs ^ rhs.", ("BitwiseXor",), _typed(_bits_dtype)),
    _binary(
        "left_shift",
        np.left_shift,
        "lhs times 2 to the power rhs.",
        ("BitShift",),
        _typed(_integer_dtype),
    ),
    _binary(
        "right_shift",
        np.right_shift,
        "lhs // 2 to the power rhs.",
        ("BitShift",),
        _typed(_integer_dtype),
    ),
    _binary("logical_and", np.logical_and, "Both hold.", ("And",), _typed(_bool_dtype)),
    _binary("logical_or", np.logical_or, "At least one holds.", ("Or",), _typed(_bool_dtype)),
    _binary("logical_xor", np.logical_xor, "Exactly one holds.", ("Xor",), _typed(_bool_dtype)),
    _binary("equal", np.equal, "lhs == rhs, as bool.", ("Equal",), _comparison_type),
    _binary("not_equal", np.not_equal, "lhs != rhs, as bool.", (), _comparison_type),
    _binary(
        "less_equal", np.less_equal, "lhs <= rhs, as bool.", ("LessOrEqual",), _comparison_type
    ),
    _binary(
        "greater_equal",
        np.greater_equal,
        "lhs >= rhs, as bool.",
        ("GreaterOrEqual",),
        _comparison_type,
    ),
    _binary("less", np.less, "lhs < rhs, as bool.", ("Less",), _comparison_type),
    _binary("greater", np.greater, "lhs > rhs, as bool.", ("Greater",), _comparison_type),
)


def _where_type(site: Site) -> Type:
    condition, x, y = (site.tensor(i) for i in range(3))
    site.require(
        condition.dtype == "bool", f"the condition is {condition.dtype}, not bool", "Compare first."
    )
    return TensorType(broadcast(site, condition.shape, x.shape, y.shape), site.same_dtype(x, y))


WHERE = Op(
    "where", ("condition", "x", "y"), Pattern.BROADCAST, _where_type, partial(_apply, np.where),
    _by_name("where", 3), "x where the condition holds, else y.", onnx=("Where",),
)  # fmt: skip

ROWS = (*UNARY, *PARAMETRIC, *BINARY, WHERE)
