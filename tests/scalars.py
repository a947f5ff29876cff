"""What one operation on scalars means, for the definition of the lowered IR.

In: scalars as `interpreter.py` has them, floats in double precision.  Out: the same, rounded to
their type.  Read next: `interpreter.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base.dtype import DType
from tilewright.ir.expr import ARITHMETIC, COMPARE, LOGIC, Expr
from tilewright.ir.interpreter_scalars import evaluated


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
