"""What interpreted kernels call: the mathematical functions, and the failure of a check.

In: scalars of the generated code (numpy floats, Python ints).  Out: scalars of the node's type.
Read next: `interpreter_source.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.base.dtype import BOOL, DType
from tilewright.base.dtype import TYPES as ALL_TYPES
from tilewright.base.errors import TilewrightError


class InterpreterError(TilewrightError):
    """A program that does what no correct program does: where, and what."""


class Failure(Exception):
    """Raised by generated code: the site, the index, the values of the variables."""

    def __init__(self, site: int, index: int, variables: dict[str, Any]) -> None:
        super().__init__(site, index)
        self.site, self.index, self.variables = site, index, variables


def _fail(site: int, index: int, variables: dict[str, Any]) -> None:
    raise Failure(site, index, dict(variables))


def _function(
    exact: Callable[..., float], fallback: Callable[..., Any], kind: Any
) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        try:
            return kind(exact(*args))
        except (ValueError, OverflowError, ZeroDivisionError):
            return kind(fallback(*map(np.float64, args)))

    return call


FUNCTIONS: dict[str, tuple[Callable[..., float], Callable[..., Any]]] = {
    "exp": (math.exp, np.exp),
    "log": (math.log, np.log),
    "sqrt": (math.sqrt, np.sqrt),
    "rsqrt": (lambda x: 1.0 / math.sqrt(x), lambda x: 1.0 / np.sqrt(x)),
    "tanh": (math.tanh, np.tanh),
    "erf": (math.erf, np.abs),  # math.erf takes everything
    "abs": (abs, np.abs),
    "floor": (math.floor, np.floor),
    "ceil": (math.ceil, np.ceil),
    "round": (round, np.rint),  # halves to even
    "pow": (math.pow, np.power),
    "sin": (math.sin, np.sin),
    "cos": (math.cos, np.cos),
}
TYPES: dict[DType, Any] = {
    t: t.storage.type if t.is_float else bool if t is BOOL else int for t in map(DType, ALL_TYPES)
}
NAMESPACE: dict[str, Any] = {
    "fail": _fail,
    **{f"to_{t}": kind if t.is_float else t.wrapped for t, kind in TYPES.items()},
    **{
        f"{name}_{t}": _function(*pair, kind)
        for name, pair in FUNCTIONS.items()
        for t, kind in TYPES.items()
        if t.is_float
    },
}
