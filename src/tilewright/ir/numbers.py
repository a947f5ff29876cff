"""Numbers that become constants of expressions.

In: what users give.  Out: numbers of Python, and errors for those that a type does not hold.
Read next: `expr.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.dtype import DType
from tilewright.base.errors import ExpressionError


def plain(value: Any) -> Any:
    """A number of numpy as one of Python; anything else as it is."""
    return value.item() if hasattr(value, "item") and getattr(value, "size", 0) == 1 else value


def overflow(value: float, kind: DType) -> ExpressionError:
    return ExpressionError(
        f"const({value!r}, {str(kind)!r})", f"{kind} holds {kind.least:g} to {kind.greatest:g}",
        "Use a wider type, for example by .astype on the operands.",
    )  # fmt: skip


def are_bits(value: Any, other: Any) -> bool:
    """Whether `value & other` is of their bits; with a condition it is of conditions."""
    is_condition = isinstance(other, bool) or getattr(other, "dtype", "") == "bool"
    return bool(value.dtype.is_int) and not is_condition


def checked_shift(value: Any, by: Any) -> Any:
    """`by`, if it is a number of places that `value` can be shifted, or not known yet."""
    number = getattr(by, "attr", by) if getattr(by, "op", "const") == "const" else 0
    if isinstance(number, int) and not 0 <= number < value.dtype.bits:
        raise ExpressionError(
            f"{value} shifted by {by}", f"a {value.dtype} has places 0 to {value.dtype.bits - 1}"
        )
    return by
