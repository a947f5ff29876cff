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
from tilewright.relay.graph.expr import Array, Attrs, TensorType, Type, check_dtype
from tilewright.relay.op.row import Op, Pattern, Site, broadcast, first_array


def _same(site: Site) -> Type:
    return site.tensor(0)


def _same_float(site: Site) -> Type:
    site.float_dtype()
    return site.tensor(0)


def _same_number(site: Site) -> Type:
    site.number_dtype(site.tensor(0))
    return site.tensor(0)


def _typed_like_input(function: Callable[[Array], Any]) -> Callable[[Sequence[Any], Attrs], Array]:
    return lambda arrays, attrs: np.asarray(function(arrays[0]), first_array(arrays).dtype)


def _by_name(name: str, count: int = 1) -> Callable[[Sequence[Any], Attrs, Type], Any]:
    """`topi.<name>` of the first `count` arguments; name: dotted."""

    function = attrgetter(name)(topi)

    def compute(tensors: Sequence[Any], attrs: Attrs, result: Type) -> Any:
        return function(*tensors[:count])

    return compute


OPERANDS = ("lhs", "rhs")  # of what may take a number for either
_erf = np.frompyfunc(math.erf, 1, 1)


def _sigmoid(x: Array) -> Array:
    half = x.dtype.type(0.5)
    return np.asarray(half * (np.tanh(half * x) + 1))  # cannot overflow


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
    _unary("abs", np.abs, "Absolute value.", "Abs", _same_number),
    _unary("negative", np.negative, "-data.", "Neg", _same_number),
    _unary("floor", np.floor, "Largest whole number not above data.", "Floor"),
    _unary("ceil", np.ceil, "Smallest whole number not below data.", "Ceil"),
    _unary("copy", lambda x: x, "data itself.", "Identity", _same, "identity"),
)


def _clip_numpy(arrays: Sequence[Any], attrs: Attrs) -> Array:
    x = first_array(arrays)
    return np.clip(x, attrs.a_min, attrs.a_max).astype(x.dtype)


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
)  # fmt: skip


def _arithmetic_type(site: Site) -> Type:
    dtype = site.number_dtype()
    return TensorType(broadcast(site, site.tensor(0).shape, site.tensor(1).shape), dtype)


def _float_binary_type(site: Site) -> Type:
    site.float_dtype()
    return _arithmetic_type(site)


def _comparison_type(site: Site) -> Type:
    site.same_dtype()
    return TensorType(broadcast(site, site.tensor(0).shape, site.tensor(1).shape), BOOL)


def _apply(function: Callable[..., Any], arrays: Sequence[Any], attrs: Attrs) -> Array:
    return np.asarray(function(*arrays))


def _binary(
    name: str,
    function: Callable[..., Any],
    doc: str,
    onnx: tuple[str, ...],
    type_rule: Callable[[Site], Type] = _arithmetic_type,
) -> Op:
    return Op(
        name, OPERANDS, Pattern.BROADCAST, type_rule, partial(_apply, function),
        _by_name(name, 2), doc, onnx=onnx,
    )  # fmt: skip


BINARY = (
    _binary("add", np.add, "lhs + rhs.", ("Add", "Sum")),
    _binary("subtract", np.subtract, "lhs - rhs.", ("Sub",)),
    _binary("multiply", np.multiply, "lhs * rhs.", ("Mul",)),
    _binary(
        "divide", np.divide, "lhs / rhs of floating-point tensors.", ("Div",), _float_binary_type
    ),
    _binary("maximum", np.maximum, "The greater of both.", ("Max",)),
    _binary("minimum", np.minimum, "The smaller of both.", ("Min",)),
    _binary("power", np.power, "lhs to the power rhs.", ("Pow",), _float_binary_type),
    _binary("equal", np.equal, "lhs == rhs, as bool.", ("Equal",), _comparison_type),
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
