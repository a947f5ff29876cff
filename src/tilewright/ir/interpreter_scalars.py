"""The mathematical functions of the interpreters, and what the fast one's code calls.

In: scalars (numpy floats, Python ints).  Out: the same.  Read next: `interpreter.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.base.dtype import TYPES, DType

# name -> in double precision for what Python takes, and for the rest (infinities, edges)
FUNCTIONS: dict[str, tuple[Callable[..., float], Callable[..., Any]]] = {
    "exp": (math.exp, np.exp),
    "log": (math.log, np.log),
    "sqrt": (math.sqrt, np.sqrt),
    "rsqrt": (lambda x: 1.0 / math.sqrt(x), lambda x: 1.0 / np.sqrt(x)),
    "tanh": (math.tanh, np.tanh),
    "erf": (math.erf, np.abs),  # math.erf takes everything
    "abs": (abs, np.abs),
    "floor": (np.floor, np.floor),  # numpy's keep the sign of zero
    "ceil": (np.ceil, np.ceil),
    "round": (np.rint, np.rint),  # halves to even
    "pow": (math.pow, np.power),
    "sin": (math.sin, np.sin),
    "cos": (math.cos, np.cos),
}


def evaluated(name: str, *args: Any) -> Any:
    """A function of FUNCTIONS in double precision."""
    exact, fallback = FUNCTIONS[name]
    try:
        return exact(*map(float, args))
    except (ValueError, OverflowError, ZeroDivisionError):
        return fallback(*map(np.float64, args))


class Failure(Exception):
    """Raised by generated code: the site, the index, the values of the variables."""

    def __init__(self, site: int, index: int, variables: dict[str, Any]) -> None:
        super().__init__(site, index)
        self.site, self.index, self.variables = site, index, variables


def _fail(site: int, index: int, variables: dict[str, Any]) -> None:
    raise Failure(site, index, dict(variables))


def _function(name: str, dtype: DType) -> Callable[..., Any]:
    exact, fallback = FUNCTIONS[name]
    kind = dtype.storage.type

    def call(*args: Any) -> Any:
        try:
            return kind(exact(*args))
        except (ValueError, OverflowError, ZeroDivisionError):
            return kind(fallback(*map(np.float64, args)))

    return call


FLOATS = [dtype for dtype in map(DType, TYPES) if dtype.is_float]
NAMESPACE: dict[str, Any] = {
    "fail": _fail,
    **{f"to_{dtype}": dtype.storage.type for dtype in FLOATS},
    **{f"{name}_{dtype}": _function(name, dtype) for name in FUNCTIONS for dtype in FLOATS},
}
