"""Numbers in relay's text: `1`, `-5i64`, `2f`, `1e-05f64`, `inff`, `True`.

In: what stands there, or an array of one element.  Out: a constant, a Python number; text.
Read next: `reader.py`.
"""

from __future__ import annotations

import math
import re

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Constant, check_dtype

_NUMBER = re.compile(r"(?P<value>inf|nan|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)(?P<kind>(?:bf|f|i|u)?)"
                     r"(?P<bits>\d*)")  # fmt: skip
_KINDS = {"i": "int", "u": "uint", "f": "float", "bf": "bfloat"}
_USUAL = {"int": 32, "uint": 32, "float": 32, "bfloat": 16}
_NAMED = re.compile(r"(?:inf|nan)(?:b?f\d*)?")


def is_number_word(text: str) -> bool:
    """Whether a word is infinity or not a number."""
    return _NAMED.fullmatch(text) is not None


def scalar(text: str, minus: bool) -> Constant:
    """The constant.  Raises ModelError for one that its type does not hold."""
    if text in ("True", "False"):
        return Constant(np.array(text == "True"))
    value, name = _parts(text, minus)
    dtype = check_dtype(name, text)
    if isinstance(value, int) and not dtype.is_float:
        limits = np.iinfo(dtype.storage)
        if not limits.min <= value <= limits.max:
            raise ModelError(text, f"{dtype} does not hold it", "Use 1i64.")
        return Constant(np.array(value, dtype.storage))
    with np.errstate(over="ignore"):
        made = np.array(float(value)).astype(dtype.storage)
    if np.isinf(made) and not math.isinf(value):
        raise ModelError(text, f"{dtype} does not hold it", "Use 1f64, or inff.")
    return Constant(made)


def python_number(text: str, minus: bool) -> int | float:
    """The number, without its type."""
    value, name = _parts(text, minus)
    return value if name.startswith(("int", "uint")) else float(value)


def _parts(text: str, minus: bool) -> tuple[int | float, str]:
    """The number and its element type; an integer without one is int32 where that holds it."""
    found = _NUMBER.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        digits, kind = found["value"], found["kind"]
        whole = digits.isdigit()
        value: int | float = int(digits) if whole else float(digits)
        if kind in ("f", "bf"):
            value = float(digits)
    except (ValueError, OverflowError):
        raise ModelError(text[:40], "it is no number that is read", "Use 1, 1i64, 2f.") from None
    value = -value if minus else value
    if kind:
        return _checked(text, value, kind), f"{_KINDS[kind]}{found['bits'] or _USUAL[_KINDS[kind]]}"
    if isinstance(value, float):
        return value, "float32"
    return value, "int32" if -(2**31) <= value < 2**31 else "int64"


def _checked(text: str, value: int | float, kind: str) -> int | float:
    if kind in ("i", "u") and isinstance(value, float):
        raise ModelError(text, "an integer has no fraction", "Write 2f, or 2.")
    return value
