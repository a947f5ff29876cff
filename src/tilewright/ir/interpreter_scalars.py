"""What functions of numbers mean, in double precision, which holds all other float types.

In: numbers.  Out: a number, not yet rounded to a type.  Read next: `fast_scalars.py`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np


def tf32(x: float) -> float:
    """The nearest number with 10 bits behind the point of its binary form, halves away from 0."""
    bits = np.float32(x).view(np.uint32)
    return float((bits + np.uint32(0x1000) & np.uint32(0xFFFFE000)).view(np.float32))


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
    "tf32": (tf32, tf32),
    "nearest": (np.rint, np.rint),
    "two_to": (lambda x: math.pow(2.0, x), np.exp2),
}


def evaluated(name: str, *args: Any) -> Any:
    """A function of FUNCTIONS in double precision."""
    exact, fallback = FUNCTIONS[name]
    try:
        return exact(*map(float, args))
    except (ValueError, OverflowError, ZeroDivisionError):
        return fallback(*map(np.float64, args))
