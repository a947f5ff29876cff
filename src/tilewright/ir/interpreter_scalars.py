"""What one operation on scalars means, in every element type.

In: numbers (floats in double precision, which holds all other float types; Python ints and bools).
Out: the same, rounded or wrapped to the type.  Read next: `interpreter.py`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.base.dtype import DType
from tilewright.ir.expr import ARITHMETIC, COMPARE, LOGIC, Expr

# name -> in double precision for what Python takes, and for the rest (infinities, edges)
FUNCTIONS: dict[str, tuple[Callable[..., float], Callable[..., Any]]] = {
    "exp": (math.exp, np.exp),
    "log": (math.log, np.log),
    "sqrt": (math.sqrt, np.sqrt),
    "rsqrt": (lambda x: 1.0 / math.sqrt(x), lambda x: 1.0 / np.sqrt(x)),
    "tanh": (math.tanh, np.tanh),
    "erf": (math.erf, math.erf),
    "abs": (abs, np.abs),
    "floor": (np.floor, np.floor),  # numpy's keep the sign of zero
    "ceil": (np.ceil, np.ceil),
    "round": (np.rint, np.rint),  # halves to even
    "pow": (math.pow, np.power),
    "sin": (math.sin, np.sin),
    "cos": (math.cos, np.cos),
    "tan": (math.tan, np.tan),
    "asin": (math.asin, np.arcsin),
    "acos": (math.acos, np.arccos),
    "atan": (math.atan, np.arctan),
    "sinh": (math.sinh, np.sinh),
    "cosh": (math.cosh, np.cosh),
    "asinh": (math.asinh, np.arcsinh),
    "acosh": (math.acosh, np.arccosh),
    "atanh": (math.atanh, np.arctanh),
    "fmod": (math.fmod, np.fmod),
    "product": (operator.mul, operator.mul),
}


def evaluated(name: str, *args: Any) -> Any:
    """A function of FUNCTIONS in double precision."""
    exact, fallback = FUNCTIONS[name]
    try:
        return exact(*map(float, args))
    except (ValueError, OverflowError, ZeroDivisionError):
        return fallback(*map(np.float64, args))


def rounded(dtype: DType, exact: Any) -> Any:
    """What an operation of type `dtype` gives whose exact (or double precision) result is known."""
    if dtype.is_float:
        return np.float64(dtype.nearest(exact))
    return exact if dtype.is_index else dtype.wrapped(exact)


def converted(dtype: DType, source: DType, value: Any) -> Any:
    """A cast.  Raises ValueError or OverflowError for an integer of NaN or infinity."""
    if dtype.is_float:
        return rounded(dtype, value)
    if dtype == "bool":
        return bool(value != 0)
    whole = int(value)  # towards zero
    exact = dtype.is_index and (source.is_index or source.is_float)
    return whole if exact else dtype.wrapped(whole)


def operation(node: Expr, args: Sequence[Any]) -> Any:
    """The value of `node`, which evaluates all its arguments, from theirs.

    Raises ZeroDivisionError for integers, and as `converted` does.
    """
    op = node.op
    if op == "select":
        return args[1] if args[0] else args[2]
    if op == "not":
        return not args[0]
    if op in COMPARE or op in LOGIC:
        return bool((COMPARE.get(op) or LOGIC[op])[1](*args))
    if op == "cast":
        return converted(node.dtype, node.args[0].dtype, args[0])
    if op == "call":
        return rounded(node.dtype, evaluated(node.attr, *args))
    if op in ("min", "max"):
        a, b = args
        return a if (a < b if op == "min" else a > b) or a != a else b
    return rounded(node.dtype, ARITHMETIC[op][1](*args))
